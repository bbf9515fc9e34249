"""Tables as an inspection finds them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from frazil.iceberg.commit.expiry import BranchRules, SnapshotAge
from frazil.iceberg.ledger.inspection import Inspection, PartitionFiles, TimeField
from frazil.maintain.need import Circumstances, Need, Order, Step, needs
from frazil.pipeline.models.maintenance import TableMaintenance

NOW = datetime(2026, 5, 15, 10, 30, tzinfo=UTC)
DAY = TimeField(("at",), "timestamptz", "day")
TODAY = (NOW - datetime(1970, 1, 1, tzinfo=UTC)).days


def small(files: int, period: int | None = None, size: int = 1_000) -> PartitionFiles:
    """A partition of small files."""
    return PartitionFiles(period, files, files * size, files, files * size)


def line(*hours: float, first: int = 1) -> tuple[SnapshotAge, ...]:
    """Snapshots one after another, made so many hours ago."""
    ages = enumerate(hours, first)
    return tuple(SnapshotAge(n, ms(NOW - timedelta(hours=h)), n - 1 if n > first else None) for n, h in ages)


def ms(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)


def table(*partitions: PartitionFiles, **options: Any) -> Inspection:
    """A table."""
    return Inspection("shop.orders", partitions, **options)


def with_snapshots(*hours: float, **options: Any) -> Inspection:
    """A table whose main has snapshots of these ages in hours, oldest first."""
    return table(snapshots=line(*hours), branches={"main": BranchRules(len(hours))}, **options)


def judged(
    inspection: Inspection, step: Step, *, order: Order | None = None, on_branch: bool = False, **rules: Any
) -> Need:
    """What is decided about one step."""
    circumstances = Circumstances(NOW, on_branch, order or Order())
    return next(
        need for need in needs(inspection, TableMaintenance.model_validate(rules), circumstances) if need.step == step
    )
