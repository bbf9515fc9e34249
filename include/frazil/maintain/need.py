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
"""All steps in the order in which they are done."""

ORPHANS_KEY: Final = "frazil.orphans-removed-at"
"""Table property: when orphan files were looked for last."""

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))

_VERSION_WITHOUT_FILES: Final = 3
"""Format version from which there are no position-delete files that could be merged."""


@dataclass(frozen=True, slots=True)
class Order:
    """The request for a maintenance run.

    Attributes:
        table: One table; None for all.
        steps: Steps; empty for all.
        force: Whether they are done without need.
    """

    table: str | None = None
    steps: tuple[Step, ...] = ()
    force: bool = False

    def to_json(self) -> str:
        """JSON text for the job."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return msgspec.json.decode(text, type=cls)


@dataclass(frozen=True, slots=True)
class Need:
    """Whether a step is due, and why, in numbers. `forced`: due only because a person requested it."""

    step: Step
    due: bool
    reason: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Facts besides the table's figures and rules that decide which steps are due.

    Attributes:
        on_branch: Whether the pipeline lands on a branch: steps that know main alone rest.
    """

    now: datetime
    on_branch: bool
    order: Order


def needs(inspection: Inspection, rules: TableMaintenance, circumstances: Circumstances) -> tuple[Need, ...]:
    """Decide on every step of a table, in order."""
    steps = (step for step in STEPS if _is_asked(step, circumstances.order.steps))
    return tuple(_need_of(step, inspection, rules, circumstances) for step in steps)


def expirable(inspection: Inspection, rules: Expiry, now: datetime) -> frozenset[int]:
    """Snapshots that an expiry would take."""
    return frozenset(plan_expiry(inspection, Retention.from_rules(rules), int(now.timestamp() * 1000)).ids)


def shown_age(age: timedelta) -> str:
    """An age as pipeline files have it, in the largest unit that counts it whole: 5d, 36h, 90m."""
    seconds = round(age.total_seconds())
    unit, size = next((unit, size) for unit, size in _UNITS if seconds % size == 0)
    return f"{seconds // size}{unit}"


def _is_asked(step: Step, steps: Collection[Step]) -> bool:
    return not steps or step in steps


def _obstacle(step: Step, inspection: Inspection, rules: TableMaintenance, circumstances: Circumstances) -> str | None:
    """Why a step can't be done, whatever the numbers."""
    if getattr(rules, step) is False:
        return "the pipeline file leaves it out"
    if inspection.unreadable is not None and not _is_done_without_engine(step, inspection):
        return f"column {inspection.unreadable} is of type time: Spark can't load the table"
    if circumstances.on_branch and step in ("position_deletes", "manifests", "stats"):
        return "Spark does it on main only, and the pipeline lands on a branch"
    if step == "position_deletes" and inspection.format_version >= _VERSION_WITHOUT_FILES:
        return "tables of format version 3 have deletion vectors, one per data file"
    return None


def _is_done_without_engine(step: Step, inspection: Inspection) -> bool:
    """Whether a step needs no engine that knows all types. PyIceberg 0.12 writes no metadata of version 3."""
    return step == "orphans" or (step == "expiry" and inspection.format_version < _VERSION_WITHOUT_FILES)


def _need_of(step: Step, inspection: Inspection, rules: TableMaintenance, circumstances: Circumstances) -> Need:
    if (obstacle := _obstacle(step, inspection, rules, circumstances)) is not None:
        return Need(step, due=False, reason=obstacle)
    need = _by_figures(step, inspection, rules, circumstances)
    if need.due or not circumstances.order.force:
        return need
    return Need(step, due=True, reason=f"forced, {need.reason}", forced=True)


def _by_figures(step: Step, inspection: Inspection, rules: TableMaintenance, circumstances: Circumstances) -> Need:
    match getattr(rules, step):
        case PositionDeletes() as own:
            return _position_deletes(inspection, own, rules, circumstances)
        case Compaction() as own:
            return _compaction(inspection, own, circumstances.now)
        case Manifests() as own:
            count = avoidable_manifests(inspection)
            figures = f"{count:,} of {inspection.manifests:,} manifests could be merged away"
            return _by_count("manifests", count, own.min_files, figures)
        case Expiry() as own:
            count = len(expirable(inspection, own, circumstances.now))
            age = Retention.from_rules(own).age_in(inspection.properties)
            return _by_count(
                "expiry",
                count,
                own.min_snapshots,
                f"{count:,} snapshots older than {shown_age(age)} could go",
            )
        case Orphans() as own:
            return _orphans(inspection, own, circumstances.now)
        case Stats() as own:
            return _stats(inspection, own)
    raise TypeError(f"{step} has no rules")


def _by_count(step: Step, count: int, least: int, figures: str) -> Need:
    return Need(step, due=count >= least, reason=f"{figures}, due from {least}")


def _position_deletes(
    inspection: Inspection, own: PositionDeletes, rules: TableMaintenance, circumstances: Circumstances
) -> Need:
    figures = f"{inspection.position_deletes:,} position delete files"
    takes = rules.compaction is not False and inspection.deletes >= rules.compaction.min_deletes
    if takes and _is_asked("compaction", circumstances.order.steps):
        return Need("position_deletes", due=False, reason=f"{figures}, which compaction takes")
    return _by_count("position_deletes", inspection.position_deletes, own.min_files, figures)


def _compaction(inspection: Inspection, own: Compaction, now: datetime) -> Need:
    ready = portions(inspection, own, now)
    most = max((partition.small_files for partition in inspection.partitions), default=0)
    deletes = f"{inspection.deletes:,} delete files"
    if inspection.deletes >= own.min_deletes:
        return Need("compaction", due=True, reason=f"{deletes}, due from {own.min_deletes}")
    if not ready:
        figures = f"{most:,} small files in the partition that has most, due from {own.min_files}"
        return Need("compaction", due=False, reason=f"{figures}; {deletes}, due from {own.min_deletes}")
    files, partitions = sum(portion.small_files for portion in ready), sum(portion.partitions for portion in ready)
    figures = f"{files:,} small files in {partitions:,} partition{'' if partitions == 1 else 's'} with {own.min_files} or more"
    return Need("compaction", due=True, reason=figures)


def _orphans(inspection: Inspection, own: Orphans, now: datetime) -> Need:
    last, every = inspection.properties.get(ORPHANS_KEY), f"due every {own.every}"
    if last is not None:
        due = now - datetime.fromisoformat(last) >= parse_age(own.every)
        return Need("orphans", due=due, reason=f"looked for last at {last}, {every}")
    if not inspection.snapshots:
        return Need("orphans", due=False, reason=f"the table has no snapshot yet, {every}")
    first = min(inspection.snapshots, key=lambda snapshot: snapshot.made_ms)
    since = datetime.fromtimestamp(first.made_ms / 1000, UTC)
    # A first snapshot that is there tells the age of the table, and no file is older.
    if first.parent is None and now - since < parse_age(own.older_than):
        return Need("orphans", due=False, reason=f"the table is younger than {own.older_than}, {every}")
    return Need("orphans", due=True, reason=f"never looked for, {every}")


def _stats(inspection: Inspection, own: Stats) -> Need:
    if not inspection.rows:
        return Need("stats", due=False, reason="no rows")
    due = f"due from a change of {own.min_change:.0%}"
    if inspection.rows_counted is None:
        return Need(
            "stats", due=True, reason=f"values of {inspection.rows:,} rows never counted, or too long ago, {due}"
        )
    change = abs(inspection.rows - inspection.rows_counted) / max(1, inspection.rows_counted)
    figures = f"{inspection.rows:,} rows, {inspection.rows_counted:,} when their values were counted, {due}"
    return Need("stats", due=change >= own.min_change, reason=figures)


WEIGHTS: Final[Mapping[str, int]] = {"small files": 40, "delete files": 20, "snapshots": 20, "manifests": 20}
"""Points that each ailment takes at most; together they are 100."""

_FEW: Final = 20
"""Shares are of this many at least: a table of three files is not ill."""


@dataclass(frozen=True)
class Health:
    """Health of a table.

    Attributes:
        score: 0 to 100.
        lost: Ailment -> points that it took, those above zero.
    """

    score: int
    lost: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        took = ", ".join(f"{name} -{points}" for name, points in self.lost.items())
        return f"{self.score} ({took})" if took else str(self.score)


def health(inspection: Inspection, expirable: int) -> Health:
    """Judge a table: 100, less each ailment's points times its share.

    - small files: those that could be merged away, of all data files. Of a partition that is all small files but those
      that they would fill.
    - delete files: per data file, at most one.
    - snapshots: those that an expiry would take, of all.
    - manifests: those that could be merged away, of all.
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
    """Number of small files minus the number of files that they would fill, summed over partitions."""
    return sum(
        partition.small_files - -(-partition.small_bytes // inspection.target_bytes)
        for partition in inspection.partitions
        if partition.small_files
    )


def avoidable_manifests(inspection: Inspection) -> int:
    """Manifests less those that would do."""
    return max(0, inspection.manifests - inspection.manifests_needed)


_MONTHS: Final = 12
_EPOCH_YEAR: Final = 1970


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of a compaction.

    Attributes:
        before: Only partitions of time before this; None: all that are left.
        small_files: Small files in it, of partitions that have enough of them.
    """

    before: datetime | None
    small_files: int
    small_bytes: int
    partitions: int


def portions(inspection: Inspection, rules: Compaction, now: datetime) -> tuple[Portion, ...]:
    """The portions to compact, closed partitions first, without partitions that need no compaction."""
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
    """How many files of a portion fit into the run's remaining bytes; None if all do."""
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
