"""Maintenance of a pipeline's tables, one by one: inspect, decide and, with an engine, run the due steps in order; and
its result, figures before and after, kept in a table property.
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
"""`due`: only looked. `gave_way`: others changed the same files meanwhile; the next run looks again."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A table in numbers; `score` is its health, 0 to 100."""

    score: int
    files: int
    bytes: int
    small_files: int
    delete_files: int
    manifests: int
    snapshots: int

    @classmethod
    def from_inspection(cls, inspection: Inspection, health: Health) -> Self:
        """The numbers of a table."""
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
    """The result of a step: why it ran, its duration, and the engine's counts."""

    step: str
    status: Status
    reason: str
    seconds: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """One line for people."""
        counted = ", ".join(
            f"{name.removesuffix('_count').replace('_', ' ')} {n:,}" for name, n in self.counts.items() if n
        )
        took = f" in {self.seconds:.1f} s" if self.status != "skipped" and self.seconds else ""
        return f"{self.step} {self.status.replace('_', ' ')}{took}: {self.reason}" + (f"; {counted}" if counted else "")


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """The result for one table. `health` lists what lowered its score before maintenance."""

    table: str
    health: str
    before: Figures
    after: Figures
    steps: tuple[StepOutcome, ...]

    @property
    def did_something(self) -> bool:
        """Whether a step was carried out, or tried."""
        return any(step.status in ("done", "gave_way", "failed") for step in self.steps)

    @property
    def lines(self) -> Iterator[str]:
        """Lines for people."""
        files = f"{self.before.files:,} files, {self.before.bytes:,} bytes, {self.before.snapshots:,} snapshots"
        yield f"{self.table}: health {self.health}; {files}"
        if any(step.status == "done" for step in self.steps):
            after = f"{self.after.files:,} files, {self.after.bytes:,} bytes, {self.after.snapshots:,} snapshots"
            yield f"{self.table}: now health {self.after.score}; {after}"
        yield from (f"{self.table}: {step.line}" for step in self.steps)


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """The result of a maintenance run, table by table."""

    pipeline: str
    tables: tuple[TableOutcome, ...]
    seconds: float = 0.0

    def to_json(self) -> str:
        """As JSON: what `frazil maintain --json` prints and the task in Airflow returns."""
        return json.dumps({"v": 1, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return msgspec.json.decode(text, type=cls)

    def with_status(self, status: Status) -> tuple[tuple[str, StepOutcome], ...]:
        """Steps with that status, each with its table."""
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
"""Table property: the last run that did, or tried, something to the table. Others that did nothing commit nothing."""

_LONGEST: Final = 300
"""Of a reason: each metadata file of the table holds the property."""


@dataclass(frozen=True, slots=True)
class Maintained:
    """The last maintenance of a table.

    Attributes:
        when: When it was over, UTC.
        pipeline: Whose: several may land into one table.
        outcome: Figures before and after, with the scores, and the steps, also those that rested, with the reason.
    """

    when: datetime
    pipeline: str
    outcome: TableOutcome

    def to_json(self) -> str:
        """The property's value as JSON."""
        steps = tuple(replace(step, reason=step.reason[:_LONGEST]) for step in self.outcome.steps)
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
    """The last maintenance result of each table of a pipeline, without tables that never had maintenance.

    Costs one load of each table.
    """
    pipeline = project.with_auto_created(pipeline)
    lake = project.lake_of(pipeline)

    def noted(name: str) -> str | None:
        iceberg_table = lake.catalog_of(name).find_table(name)
        return None if iceberg_table is None else iceberg_table.metadata.properties.get(MAINTAINED_KEY)

    names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
    with ThreadPoolExecutor(PARALLEL_CALLS) as pool:
        notes = dict(zip(names, pool.map(noted, names), strict=True))
    return {name: Maintained.from_json(text) for name, text in notes.items() if text is not None}


_NO_EXPIRY: Final = Expiry(min_snapshots=1)
"""By which snapshots are judged where the pipeline file leaves expiry out."""


def tables_to_maintain(pipeline: Pipeline, table: str | None = None) -> dict[str, TableMaintenance]:
    """The tables of a pipeline that maintenance is for, with their rules: destinations, dead letters, ledger.

    Raises:
        Terminal: The table is none of the pipeline's, or is left alone.
    """
    names = (*pipeline.tables, pipeline.dead_letters_table, pipeline.ledger_table)
    rules_by_table = {name: rules for name in names if (rules := pipeline.maintenance.for_table(name)) is not None}
    if table is None:
        return rules_by_table
    if table not in rules_by_table:
        why = "its file leaves it alone" if table in names else "it has no such table"
        raise NAME_UNKNOWN.terminal(
            f"pipeline {pipeline.name}: {table}: {why}", next_step=f"its tables: {', '.join(rules_by_table)}"
        )
    return {table: rules_by_table[table]}


def preview(context: RunContext, order: Order) -> MaintenanceResult:
    """Report which steps are due, without running any: no engine is needed.

    Raises:
        Terminal: There is no such table.
    """
    return maintain(context, order, None)


def maintain(context: RunContext, order: Order, engine: Procedures | None) -> MaintenanceResult:
    """Run the due steps on one table after another. A failure on one does not stop the others.

    Without an engine it only looks.

    Raises:
        Terminal: There is no such table.
        StateLost: A step lost what a table held, which must never be.
    """
    began = time.monotonic()
    rules_by_table = tables_to_maintain(context.pipeline, order.table)
    done = tuple(
        outcome
        for name, rules in rules_by_table.items()
        if (outcome := _table(context, name, rules, order, engine)) is not None
    )
    return MaintenanceResult(context.pipeline.name, done, round(time.monotonic() - began, 3))


def _table(
    context: RunContext, name: str, rules: TableMaintenance, order: Order, engine: Procedures | None
) -> TableOutcome | None:
    """One table; None if it does not exist yet."""
    if context.lake.find_table(name) is None:
        return None
    before = _inspected(context, name)
    outcomes = tuple(_steps(context, before, rules, order, engine))
    after = _inspected(context, name) if any(step.status in ("done", "failed") for step in outcomes) else before
    now = context.clock()
    judged, since = (
        health(inspection, len(expirable(inspection, rules.expiry or _NO_EXPIRY, now)))
        for inspection in (before, after)
    )
    outcome = TableOutcome(
        name, str(judged), Figures.from_inspection(before, judged), Figures.from_inspection(after, since), outcomes
    )
    if engine is not None and outcome.did_something:
        _note(steps.Work(context, name, after, engine), outcome)
    return outcome


def _note(work: steps.Work, outcome: TableOutcome) -> None:
    """Store the result in the table's properties. It is informational: a failure to store it is only reported."""
    noted = Maintained(work.context.clock(), work.context.pipeline.name, outcome).to_json()
    try:
        work.note(MAINTAINED_KEY, noted)
    except (Retryable, OutcomeUnknown) as failure:
        work.context.report(
            f"{outcome.table}: the result could not be stored in the table's properties: {failure.message}"
        )


def _inspected(context: RunContext, name: str) -> Inspection:
    return inspect(name, context.lake.load_table(name), context.lake.catalog_of(name).load_table(name).metadata)


def _steps(
    context: RunContext, inspection: Inspection, rules: TableMaintenance, order: Order, engine: Procedures | None
) -> Iterator[StepOutcome]:
    """Run the steps in order; each is judged by the table's state after the steps before it."""
    name = inspection.table
    circumstances = Circumstances(context.clock(), context.lake.branch_of(name) is not None, order)
    for step in (need.step for need in needs(inspection, rules, circumstances)):
        need = next(need for need in needs(inspection, rules, circumstances) if need.step == step)
        if not need.due or engine is None:
            yield StepOutcome(step, "due" if need.due else "skipped", need.reason)
            continue
        merged = name in context.pipeline.tables and context.pipeline.destination(name).is_merged
        work = steps.Work(context, name, inspection, engine, is_due=not need.forced, is_merged=merged)
        yield _carried_out(work, need, rules)
        inspection = _inspected(context, name)


def _carried_out(work: steps.Work, need: Need, rules: TableMaintenance) -> StepOutcome:
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
        counts = _done(work, need.step, rules)
    except UnsafeToRemove as unsound:
        status, reason = "skipped", f"nothing is removed now: {unsound.message}"
    except Conflict as rival:
        status, reason = "gave_way", rival.message
    except steps.StateLost:
        raise
    except (Retryable, OutcomeUnknown, Terminal) as failure:
        status, reason = "failed", failure.message_with_code
    return StepOutcome(need.step, status, reason, round(time.monotonic() - began, 3), counts)


def _done(work: steps.Work, step: Step, rules: TableMaintenance) -> dict[str, int]:
    guard = table_guard(work.context)
    match step, getattr(rules, step):
        case "position_deletes", _:
            return steps.rewrite_position_deletes(work)
        case "manifests", _:
            return steps.rewrite_manifests(work)
        case "expiry", Expiry() as own:
            return steps.expire(work, own, guard)
        case "orphans", Orphans() as own:
            return steps.remove_orphans(work, own, guard)
        case "stats", Stats() as own:
            return steps.count_values(work, own)
        case _, own:
            return steps.compact(work, own)
