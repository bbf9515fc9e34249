"""Which partitions are worth writing anew, those first that nothing is written to any more, and how much of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from frazil.iceberg.inspection import Inspection, PartitionFiles
from frazil.pipeline.maintenance import Compaction

_MONTHS: Final = 12
_EPOCH_YEAR: Final = 1970


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of a compaction.

    Attributes:
        before: Only partitions of time before this; None: all that are left.
        small_files: Small files in it, of partitions that have enough of them.
        small_bytes: Their size.
        partitions: How many such partitions.
    """

    before: datetime | None
    small_files: int
    small_bytes: int
    partitions: int


def portions(found: Inspection, rules: Compaction, now: datetime) -> tuple[Portion, ...]:
    """What is to be compacted, closed partitions first; those without anything to do are left out."""
    ready = [of for of in found.partitions if of.small_files >= rules.min_files]
    start = None if found.time_field is None else period_start(found.time_field.unit, now)
    if found.time_field is None or start is None:
        return tuple(_portion(None, ready))
    present = period(found.time_field.unit, now)
    closed = [of for of in ready if of.period is not None and of.period < present]
    others = [of for of in ready if of not in closed] if rules.partitions == "all" else []
    return (*_portion(start, closed), *_portion(None, others))


def _portion(before: datetime | None, partitions: list[PartitionFiles]) -> Iterator[Portion]:
    if partitions:
        files = sum(of.small_files for of in partitions)
        yield Portion(before, files, sum(of.small_bytes for of in partitions), len(partitions))


def most_files(portion: Portion, left_bytes: int, least: int) -> int | None:
    """How many files of a portion fit into what is left of the run's bytes; None if all do."""
    if portion.small_bytes <= left_bytes:
        return None
    mean = max(1, portion.small_bytes // max(1, portion.small_files))
    return max(least, left_bytes // mean)


def period(unit: str, at: datetime) -> int:
    """Years, months, days or hours from 1970 to an instant, as Iceberg's transforms count them."""
    if unit == "year":
        return at.year - _EPOCH_YEAR
    if unit == "month":
        return (at.year - _EPOCH_YEAR) * _MONTHS + at.month - 1
    seconds = int(at.timestamp())
    return seconds // (86_400 if unit == "day" else 3_600)


def period_start(unit: str, at: datetime) -> datetime:
    """The beginning of the year, month, day or hour of an instant, in UTC."""
    hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if unit == "hour":
        return hour
    day = hour.replace(hour=0)
    return day if unit == "day" else day.replace(day=1) if unit == "month" else day.replace(month=1, day=1)
