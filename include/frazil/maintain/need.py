"""Decides which maintenance steps are due for a table, from its figures and thresholds, and gives the numbers as reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Self, get_args

import msgspec

from frazil.iceberg.commit.expiry import Retention, plan_expiry
from frazil.iceberg.ledger.inspection import Inspection, PartitionFiles
from frazil.pipeline.models.maintenance import (
    Compaction,
    Expiry,
    Manifests,
    Orphans,
    PositionDeletes,
    Stats,
    TableMaintenance,
    parse_age,
)

Step = Literal["position_deletes", "compaction", "manifests", "expiry", "orphans", "stats"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
"""All steps in their order."""

ORPHANS_KEY: Final = "frazil.orphans-removed-at"
"""Table property: when orphan files were last searched for."""

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))

_DELETION_VECTORS_VERSION: Final = 3
"""Format version from which on tables have deletion vectors in place of position-delete files."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order for a maintenance run.

    Attributes:
        table: The only table to maintain; None for all.
        steps: Steps to run; empty for all.
        force: Whether steps run even if they are not due.
    """

    table: str | None = None
    steps: tuple[Step, ...] = ()
    force: bool = False

    def to_json(self) -> str:
        """As JSON, for the job."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return msgspec.json.decode(text, type=cls)


@dataclass(frozen=True, slots=True)
class Need:
    """Whether a step is due, and why, in numbers. `forced`: it is due only by `Order.force`."""

    step: Step
    due: bool
    reason: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Facts besides a table's figures and rules that decide which steps are due.

    Attributes:
        on_branch: Whether the pipeline lands on a branch. Then steps that work on main only are not due.
    """

    now: datetime
    on_branch: bool
    order: Order


def needs(inspection: Inspection, rules: TableMaintenance, circumstances: Circumstances) -> tuple[Need, ...]:
    """Decide which of the ordered steps are due for a table, in their order."""
    steps = (step for step in STEPS if _is_ordered(step, circumstances.order.steps))
    return tuple(_need_of(step, inspection, rules, circumstances) for step in steps)


def expirable(inspection: Inspection, rules: Expiry, now: datetime) -> frozenset[int]:
    """Ids of the snapshots that an expiry would remove."""
    return frozenset(plan_expiry(inspection, Retention.from_rules(rules), int(now.timestamp() * 1000)).ids)


def shown_age(age: timedelta) -> str:
    """An age as in pipeline files, in the largest unit without a fraction: 5d, 36h, 90m."""
    seconds = round(age.total_seconds())
    unit, size = next((unit, size) for unit, size in _UNITS if seconds % size == 0)
    return f"{seconds // size}{unit}"


def _is_ordered(step: Step, steps: Collection[Step]) -> bool:
    return not steps or step in steps


def _obstacle(step: Step, inspection: Inspection, rules: TableMaintenance, circumstances: Circumstances) -> str | None:
    """Why a step can't be due, whatever the figures; None if it can."""
    if getattr(rules, step) is False:
        return "the pipeline file leaves it out"
    if inspection.unreadable is not None and not _works_without_engine(step, inspection):
        return f"column {inspection.unreadable} is of type time: Spark can't load the table"
    if circumstances.on_branch and step in ("position_deletes", "manifests", "stats"):
        return "Spark does it on main only, and the pipeline lands on a branch"
    if step == "position_deletes" and inspection.format_version >= _DELETION_VECTORS_VERSION:
        return "tables of format version 3 have deletion vectors, one per data file"
    return None


def _works_without_engine(step: Step, inspection: Inspection) -> bool:
    """Whether a step works without Spark loading the table. PyIceberg 0.12 does not write metadata of format version 3."""
    return step == "orphans" or (step == "expiry" and inspection.format_version < _DELETION_VECTORS_VERSION)


def _need_of(step: Step, inspection: Inspection, rules: TableMaintenance, circumstances: Circumstances) -> Need:
    if (obstacle := _obstacle(step, inspection, rules, circumstances)) is not None:
        return Need(step, due=False, reason=obstacle)
    need = _by_figures(step, inspection, rules, circumstances)
    if need.due or not circumstances.order.force:
        return need
    return Need(step, due=True, reason=f"forced, {need.reason}", forced=True)


def _by_figures(step: Step, inspection: Inspection, rules: TableMaintenance, circumstances: Circumstances) -> Need:
    match getattr(rules, step):
        case PositionDeletes() as step_rules:
            return _position_deletes(inspection, step_rules, rules, circumstances)
        case Compaction() as step_rules:
            return _compaction(inspection, step_rules, circumstances.now)
        case Manifests() as step_rules:
            count = avoidable_manifests(inspection)
            figures = f"{count:,} of {inspection.manifests:,} manifests could be merged away"
            return _by_count("manifests", count, step_rules.min_files, figures)
        case Expiry() as step_rules:
            count = len(expirable(inspection, step_rules, circumstances.now))
            age = Retention.from_rules(step_rules).age_in(inspection.properties)
            figures = f"{count:,} snapshots older than {shown_age(age)} could go"
            return _by_count("expiry", count, step_rules.min_snapshots, figures)
        case Orphans() as step_rules:
            return _orphans(inspection, step_rules, circumstances.now)
        case Stats() as step_rules:
            return _stats(inspection, step_rules)
    raise TypeError(f"{step} has no rules")


def _by_count(step: Step, count: int, least: int, figures: str) -> Need:
    return Need(step, due=count >= least, reason=f"{figures}, due from {least}")


def _position_deletes(
    inspection: Inspection, step_rules: PositionDeletes, rules: TableMaintenance, circumstances: Circumstances
) -> Need:
    figures = f"{inspection.position_deletes:,} position delete files"
    is_compaction_due = rules.compaction is not False and inspection.deletes >= rules.compaction.min_deletes
    if is_compaction_due and _is_ordered("compaction", circumstances.order.steps):
        return Need("position_deletes", due=False, reason=f"{figures}, which compaction takes")
    return _by_count("position_deletes", inspection.position_deletes, step_rules.min_files, figures)


def _compaction(inspection: Inspection, rules: Compaction, now: datetime) -> Need:
    ready = portions(inspection, rules, now)
    most = max((partition.small_files for partition in inspection.partitions), default=0)
    deletes = f"{inspection.deletes:,} delete files"
    if inspection.deletes >= rules.min_deletes:
        return Need("compaction", due=True, reason=f"{deletes}, due from {rules.min_deletes}")
    if not ready:
        figures = f"{most:,} small files in the partition that has most, due from {rules.min_files}"
        return Need("compaction", due=False, reason=f"{figures}; {deletes}, due from {rules.min_deletes}")
    files, partitions = sum(portion.small_files for portion in ready), sum(portion.partitions for portion in ready)
    figures = f"{files:,} small files in {partitions:,} partition{'' if partitions == 1 else 's'} with {rules.min_files} or more"
    return Need("compaction", due=True, reason=figures)


def _orphans(inspection: Inspection, rules: Orphans, now: datetime) -> Need:
    last, every = inspection.properties.get(ORPHANS_KEY), f"due every {rules.every}"
    if last is not None:
        due = now - datetime.fromisoformat(last) >= parse_age(rules.every)
        return Need("orphans", due=due, reason=f"looked for last at {last}, {every}")
    if not inspection.snapshots:
        return Need("orphans", due=False, reason=f"the table has no snapshot yet, {every}")
    first = min(inspection.snapshots, key=lambda snapshot: snapshot.made_ms)
    since = datetime.fromtimestamp(first.made_ms / 1000, UTC)
    # The oldest snapshot has no parent: it is the table's first one, and no file is older.
    if first.parent is None and now - since < parse_age(rules.older_than):
        return Need("orphans", due=False, reason=f"the table is younger than {rules.older_than}, {every}")
    return Need("orphans", due=True, reason=f"never looked for, {every}")


def _stats(inspection: Inspection, rules: Stats) -> Need:
    if not inspection.rows:
        return Need("stats", due=False, reason="no rows")
    due = f"due from a change of {rules.min_change:.0%}"
    if inspection.rows_counted is None:
        return Need(
            "stats", due=True, reason=f"values of {inspection.rows:,} rows never counted, or too long ago, {due}"
        )
    change = abs(inspection.rows - inspection.rows_counted) / max(1, inspection.rows_counted)
    figures = f"{inspection.rows:,} rows, {inspection.rows_counted:,} when their values were counted, {due}"
    return Need("stats", due=change >= rules.min_change, reason=figures)


WEIGHTS: Final[Mapping[str, int]] = {"small files": 40, "delete files": 20, "snapshots": 20, "manifests": 20}
"""Points that each defect may cost at most, 100 in total."""

_FEW: Final = 20
"""Least number that a share is taken of: a table of three files is healthy, even if all are small."""


@dataclass(frozen=True)
class Health:
    """Health of a table.

    Attributes:
        score: 0 to 100.
        lost: Defect -> points that it costs, without those at zero.
    """

    score: int
    lost: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        costs = ", ".join(f"{name} -{points}" for name, points in self.lost.items())
        return f"{self.score} ({costs})" if costs else str(self.score)


def health(inspection: Inspection, expirable: int) -> Health:
    """Rate a table: 100, minus the points of each defect times its share.

    - small files: share of data files that a compaction could save. In each partition, these are the small files less the files that
      their bytes would fill.
    - delete files: delete files per data file, at most one.
    - snapshots: share of snapshots that an expiry would remove.
    - manifests: share of manifests that a rewrite could save.
    """
    shares = {
        "small files": avoidable_files(inspection) / max(inspection.files, _FEW),
        "delete files": min(1.0, inspection.deletes / max(inspection.files, _FEW)),
        "snapshots": expirable / max(len(inspection.snapshots), _FEW),
        "manifests": avoidable_manifests(inspection) / max(inspection.manifests, _FEW),
    }
    lost = {name: round(WEIGHTS[name] * share) for name, share in shares.items()}
    return Health(100 - sum(lost.values()), {name: points for name, points in lost.items() if points})


def avoidable_files(inspection: Inspection) -> int:
    """Small files less the files that their bytes would fill, summed over partitions."""
    return sum(
        partition.small_files - -(-partition.small_bytes // inspection.target_bytes)
        for partition in inspection.partitions
        if partition.small_files
    )


def avoidable_manifests(inspection: Inspection) -> int:
    """Manifests less those that the table needs."""
    return max(0, inspection.manifests - inspection.manifests_needed)


_MONTHS: Final = 12
_EPOCH_YEAR: Final = 1970


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of a compaction.

    Attributes:
        before: Only partitions of a time before this one are in it; None: all remaining partitions.
        small_files: Number of its small files, all in partitions with enough of them.
        small_bytes: Bytes of these files.
        partitions: Number of these partitions.
    """

    before: datetime | None
    small_files: int
    small_bytes: int
    partitions: int


def portions(inspection: Inspection, rules: Compaction, now: datetime) -> tuple[Portion, ...]:
    """The portions to compact: closed partitions first, then the others. Partitions with too few small files are left out."""
    ready = [partition for partition in inspection.partitions if partition.small_files >= rules.min_files]
    start = None if inspection.time_field is None else period_start(inspection.time_field.unit, now)
    if inspection.time_field is None or start is None:
        return tuple(_portion(None, ready))
    present = period(inspection.time_field.unit, now)
    closed = [partition for partition in ready if partition.period is not None and partition.period < present]
    unclosed = [partition for partition in ready if partition not in closed] if rules.partitions == "all" else []
    return (*_portion(start, closed), *_portion(None, unclosed))


def _portion(before: datetime | None, partitions: list[PartitionFiles]) -> Iterator[Portion]:
    if partitions:
        files = sum(partition.small_files for partition in partitions)
        yield Portion(before, files, sum(partition.small_bytes for partition in partitions), len(partitions))


def most_files(portion: Portion, left_bytes: int, least: int) -> int | None:
    """Number of files of a portion that fit into the run's remaining bytes, but not fewer than `least`; None if all fit."""
    if portion.small_bytes <= left_bytes:
        return None
    mean = max(1, portion.small_bytes // max(1, portion.small_files))
    return max(least, left_bytes // mean)


def period(unit: str, instant: datetime) -> int:
    """Years, months, days or hours from 1970 to an instant, as Iceberg's transforms count them."""
    if unit == "year":
        return instant.year - _EPOCH_YEAR
    if unit == "month":
        return (instant.year - _EPOCH_YEAR) * _MONTHS + instant.month - 1
    seconds = int(instant.timestamp())
    return seconds // (86_400 if unit == "day" else 3_600)


def period_start(unit: str, instant: datetime) -> datetime:
    """The beginning of the year, month, day or hour of an instant, in UTC."""
    hour = instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if unit == "hour":
        return hour
    day = hour.replace(hour=0)
    return day if unit == "day" else day.replace(day=1) if unit == "month" else day.replace(month=1, day=1)
