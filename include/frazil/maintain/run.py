"""Maintains a pipeline's tables, one after another: inspects them, decides which steps are due and, with an engine, runs
these in order. Stores the result in a table property.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Final, Literal, Self

import msgspec

from frazil.error_codes import NAME_UNKNOWN
from frazil.errors import OutcomeUnknown, Retryable, Terminal
from frazil.iceberg.ledger.inspection import Inspection, inspect
from frazil.maintain import steps
from frazil.maintain.need import Circumstances, Health, Need, Order, Step, expirable, health, needs
from frazil.maintain.procedures import Conflict, Procedures
from frazil.maintain.steps import UnsafeToRemove, table_guard
from frazil.pipeline.models.maintenance import Expiry, Orphans, Stats, TableMaintenance
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.state.context import RunContext
from frazil.run.state.tables import PARALLEL_CALLS

Status = Literal["due", "done", "skipped", "gave_way", "failed"]
"""`due`: this was only a preview. `gave_way`: another process changed the same files meanwhile; the next run decides anew."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a table; `score` is its health, 0 to 100."""

    score: int
    files: int
    bytes: int
    small_files: int
    delete_files: int
    manifests: int
    snapshots: int

    @classmethod
    def from_inspection(cls, inspection: Inspection, health: Health) -> Self:
        """Take the figures from an inspection."""
        counts = (
            inspection.files,
            inspection.bytes,
            inspection.small_files,
            inspection.deletes,
            inspection.manifests,
            len(inspection.snapshots),
        )
        return cls(health.score, *counts)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of a step: why it ran or did not, its duration, and the engine's counts."""

    step: str
    status: Status
    reason: str
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """One line for people."""
        counts = ", ".join(
            f"{name.removesuffix('_count').replace('_', ' ')} {n:,}" for name, n in self.counts.items() if n
        )
        duration = f" in {self.seconds:.1f} s" if self.status != "skipped" and self.seconds else ""
        return f"{self.step} {self.status.replace('_', ' ')}{duration}: {self.reason}" + (
            f"; {counts}" if counts else ""
        )


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """The outcome for one table. `health`: its score before maintenance, with the defects that lowered it."""

    table: str
    health: str
    before: Figures
    after: Figures
    steps: tuple[StepOutcome, ...]

    @property
    def did_something(self) -> bool:
        """Whether a step ran, with or without success."""
        return any(step.status in ("done", "gave_way", "failed") for step in self.steps)

    @property
    def lines(self) -> Iterator[str]:
        """The outcome as lines for people."""
        files = f"{self.before.files:,} files, {self.before.bytes:,} bytes, {self.before.snapshots:,} snapshots"
        yield f"{self.table}: health {self.health}; {files}"
        if any(step.status == "done" for step in self.steps):
            after = f"{self.after.files:,} files, {self.after.bytes:,} bytes, {self.after.snapshots:,} snapshots"
            yield f"{self.table}: now health {self.after.score}; {after}"
        yield from (f"{self.table}: {step.line}" for step in self.steps)


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """The result of a maintenance run, by table."""

    pipeline: str
    tables: tuple[TableOutcome, ...]
    seconds: float = 0.0

    def to_json(self) -> str:
        """As JSON, as `frazil maintain --json` prints it and the task in Airflow returns it."""
        return json.dumps({"v": 1, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return msgspec.json.decode(text, type=cls)

    def with_status(self, status: Status) -> tuple[tuple[str, StepOutcome], ...]:
        """Steps with a status, each with the name of its table."""
        return tuple(
            (outcome.table, step) for outcome in self.tables for step in outcome.steps if step.status == status
        )

    @property
    def is_due(self) -> bool:
        """Whether a step is due."""
        return bool(self.with_status("due"))

    @property
    def summary(self) -> str:
        """One line for people."""
        done, failed = self.with_status("done"), self.with_status("failed")
        files = sum(outcome.before.files - outcome.after.files for outcome in self.tables)
        snapshots = sum(outcome.before.snapshots - outcome.after.snapshots for outcome in self.tables)
        lowest = min((outcome.after.score for outcome in self.tables), default=100)
        totals = f"{len(done)} steps done, {files:,} files and {snapshots:,} snapshots less, lowest health {lowest}"
        gave_way = (
            f", {len(conflicts)} gave way to other writers" if (conflicts := self.with_status("gave_way")) else ""
        )
        return f"{totals}{gave_way}" + (f", {len(failed)} failed" if failed else "")


MAINTAINED_KEY: Final = "frazil.maintained"
"""Table property with the result of the last maintenance in which a step ran. Maintenance without any commits nothing."""

_MAX_REASON: Final = 300
"""Characters of a reason in the property, which each metadata file of the table repeats."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """The last maintenance of a table in which a step ran.

    Attributes:
        when: When it ended, UTC.
        pipeline: The pipeline whose maintenance it was: several may land in one table.
        outcome: Its outcome, with all steps, also those that did not run.
    """

    when: datetime
    pipeline: str
    outcome: TableOutcome

    def to_json(self) -> str:
        """As JSON, the value of the property."""
        steps = tuple(replace(step, reason=step.reason[:_MAX_REASON]) for step in self.outcome.steps)
        body = asdict(replace(self.outcome, steps=steps))
        document = {"v": 1, "when": self.when.isoformat(timespec="seconds"), "pipeline": self.pipeline, "outcome": body}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        body = json.loads(text)
        return cls(
            datetime.fromisoformat(body["when"]), body["pipeline"], msgspec.convert(body["outcome"], TableOutcome)
        )


def last_maintenance(project: Project, pipeline: Pipeline) -> Mapping[str, Maintained]:
    """Table -> its last maintenance, for the tables of a pipeline that had any. Loads each table once."""
    pipeline = project.with_auto_created(pipeline)
    lake = project.lake_of(pipeline)

    def property_of(name: str) -> str | None:
        table = lake.catalog_of(name).find_table(name)
        return None if table is None else table.metadata.properties.get(MAINTAINED_KEY)

    names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
    with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
        texts = pool.map(property_of, names)
        return {name: Maintained.from_json(text) for name, text in zip(names, texts, strict=True) if text is not None}


_NO_EXPIRY: Final = Expiry(min_snapshots=1)
"""Rules for the snapshots' share of the health score if the pipeline file leaves expiry out."""


def tables_to_maintain(pipeline: Pipeline, table: str | None = None) -> dict[str, TableMaintenance]:
    """Name -> rules of the pipeline's tables that have maintenance, or only of `table`: destinations, dead letters, ledger.

    Raises:
        Terminal: The pipeline has no such table, or its file excludes it from maintenance.
    """
    names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
    rules_by_table = {name: rules for name in names if (rules := pipeline.maintenance.for_table(name)) is not None}
    if table is None:
        return rules_by_table
    if table not in rules_by_table:
        why = "its file excludes it from maintenance" if table in names else "it has no such table"
        raise NAME_UNKNOWN.terminal(
            f"pipeline {pipeline.name}: {table}: {why}", next_step=f"its tables: {', '.join(rules_by_table)}"
        )
    return {table: rules_by_table[table]}


def preview(context: RunContext, order: Order) -> MaintenanceResult:
    """Decide which steps are due, without running any and without an engine.

    Raises:
        Terminal: There is no such table.
    """
    return maintain(context, order, None)


def maintain(context: RunContext, order: Order, engine: Procedures | None) -> MaintenanceResult:
    """Run the due steps on one table after another. A failure on one does not stop the others. Without an engine no step runs.

    Raises:
        Terminal: There is no such table.
        StateLost: A table lost its position or mark: a bug.
    """
    began = time.monotonic()
    rules_by_table = tables_to_maintain(context.pipeline, order.table)
    outcomes = tuple(
        outcome
        for name, rules in rules_by_table.items()
        if (outcome := _table(context, name, rules, order, engine)) is not None
    )
    return MaintenanceResult(context.pipeline.name, outcomes, round(time.monotonic() - began, 3))


def _table(
    context: RunContext, name: str, rules: TableMaintenance, order: Order, engine: Procedures | None
) -> TableOutcome | None:
    """Maintain one table; None if it does not exist yet."""
    if context.lake.find_table(name) is None:
        return None
    before = _inspect(context, name)
    outcomes = tuple(_steps(context, before, rules, order, engine))
    after = _inspect(context, name) if any(step.status in ("done", "failed") for step in outcomes) else before
    now = context.clock()
    health_before, health_after = (
        health(inspection, len(expirable(inspection, rules.expiry or _NO_EXPIRY, now)))
        for inspection in (before, after)
    )
    outcome = TableOutcome(
        name,
        str(health_before),
        Figures.from_inspection(before, health_before),
        Figures.from_inspection(after, health_after),
        outcomes,
    )
    if engine is not None and outcome.did_something:
        _note(steps.Work(context, name, after, engine), outcome)
    return outcome


def _note(work: steps.Work, outcome: TableOutcome) -> None:
    """Store the outcome in the table's properties. If that fails, only a line says so, since the property is for people."""
    maintained = Maintained(work.context.clock(), work.context.pipeline.name, outcome)
    try:
        work.set_property(MAINTAINED_KEY, maintained.to_json())
    except (Retryable, OutcomeUnknown) as failure:
        work.context.report(
            f"{outcome.table}: the result could not be stored in the table's properties: {failure.message}"
        )


def _inspect(context: RunContext, name: str) -> Inspection:
    return inspect(name, context.lake.load_table(name), context.lake.catalog_of(name).load_table(name).metadata)


def _steps(
    context: RunContext, inspection: Inspection, rules: TableMaintenance, order: Order, engine: Procedures | None
) -> Iterator[StepOutcome]:
    """Run the due steps in order. Each step is decided on anew, after the steps before it."""
    name = inspection.table
    circumstances = Circumstances(context.clock(), context.lake.branch_of(name) is not None, order)
    for step in (need.step for need in needs(inspection, rules, circumstances)):
        need = next(need for need in needs(inspection, rules, circumstances) if need.step == step)
        if not need.due or engine is None:
            yield StepOutcome(step, "due" if need.due else "skipped", need.reason)
            continue
        is_merged = name in context.pipeline.tables and context.pipeline.destination(name).is_merged
        work = steps.Work(context, name, inspection, engine, is_due=not need.forced, is_merged=is_merged)
        yield _run_step(work, need, rules)
        inspection = _inspect(context, name)


def _run_step(work: steps.Work, need: Need, rules: TableMaintenance) -> StepOutcome:
    began = time.monotonic()
    status: Status = "done"
    counts: dict[str, int] = {}
    reason = need.reason
    work.context.report(f"{work.table}: {need.step}: {need.reason}")
    lake = work.context.lake.catalog_of(work.table)
    try:
        lake.refuse_code(lake.load_table(work.table))
    except Terminal as refusal:  # of this table only: the others are maintained
        return StepOutcome(need.step, "failed", refusal.message_with_code)
    try:
        counts = _call_step(work, need.step, rules)
    except UnsafeToRemove as unsafe:
        status, reason = "skipped", f"nothing is removed now: {unsafe.message}"
    except Conflict as conflict:
        status, reason = "gave_way", conflict.message
    except steps.StateLost:
        raise
    except (Retryable, OutcomeUnknown, Terminal) as failure:
        status, reason = "failed", failure.message_with_code
    return StepOutcome(need.step, status, reason, round(time.monotonic() - began, 3), counts)


def _call_step(work: steps.Work, step: Step, rules: TableMaintenance) -> dict[str, int]:
    guard = table_guard(work.context)
    match step, getattr(rules, step):
        case "position_deletes", _:
            return steps.rewrite_position_deletes(work)
        case "manifests", _:
            return steps.rewrite_manifests(work)
        case "expiry", Expiry() as step_rules:
            return steps.expire(work, step_rules, guard)
        case "orphans", Orphans() as step_rules:
            return steps.remove_orphans(work, step_rules, guard)
        case "stats", Stats() as step_rules:
            return steps.count_values(work, step_rules)
        case _, step_rules:
            return steps.compact(work, step_rules)
