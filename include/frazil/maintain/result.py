"""The result of a maintenance run: figures before and after, per table and step, as JSON and as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, Self

import msgspec

from frazil.iceberg.ledger.inspection import Inspection
from frazil.maintain.need import Health

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
