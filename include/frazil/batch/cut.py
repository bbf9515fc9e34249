"""Cutting what a run reads into batches, and a batch into tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from frazil.batch.facts import Range

UNMEASURED_RECORD_BYTES = 10 * 1024
"""What a record is taken to be before the first batch measured it. Too large on purpose: the first batch of a topic
with big records stays small, and one with small records soon knows better."""


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Bounds of one batch.

    Attributes:
        records: Most offsets.
        bytes: Most bytes of keys and values, as estimated from what was read before.
    """

    records: int
    bytes: int

    def offsets(self, bytes_per_record: float | None) -> int:
        """How many offsets a batch may have, given the measured size of a record (None: nothing was measured)."""
        each = UNMEASURED_RECORD_BYTES if bytes_per_record is None else bytes_per_record
        return max(1, min(self.records, int(self.bytes / max(each, 1.0))))


def cut(ranges: tuple[Range, ...], max_records: int) -> Iterator[tuple[Range, ...]]:
    """Cut a run into batches of at most `max_records` offsets, in order, one at a time.

    Every partition advances in every batch in proportion to what it has left, so that all reach the end together.
    """
    left = tuple(r for r in ranges if r.span)
    while left:
        total = sum(r.span for r in left)
        shares = _shares(left, -(-total // -(-total // max_records)))
        yield tuple(replace(r, end=r.start + share) for r, share in zip(left, shares, strict=True) if share)
        left = tuple(replace(r, start=r.start + share) for r, share in zip(left, shares, strict=True) if share < r.span)


def _shares(ranges: tuple[Range, ...], size: int) -> list[int]:
    """How many of `size` offsets each range gives, in proportion to its span.

    What rounding down leaves over goes to the largest fractions: a batch is never empty and never larger than asked.
    """
    total = sum(r.span for r in ranges)
    shares = [r.span * size // total for r in ranges]
    by_fraction = sorted(range(len(ranges)), key=lambda at: ranges[at].span * size % total, reverse=True)
    for at in by_fraction[: size - sum(shares)]:
        shares[at] += 1
    return shares


def split(ranges: tuple[Range, ...], records_per_task: int, tasks: int = 1) -> tuple[Range, ...]:
    """Split ranges for staging, so that none is longer than `records_per_task` and big ones spread over `tasks`."""
    total = sum(r.span for r in ranges)
    longest = max(1, min(records_per_task, -(-total // max(1, tasks))))
    pieces = []
    for r in ranges:
        count = -(-r.span // longest)
        pieces += [_share(r, at, count) for at in range(count)]
    return tuple(pieces)


def _share(r: Range, at: int, count: int) -> Range:
    return Range(r.topic, r.partition, r.start + r.span * at // count, r.start + r.span * (at + 1) // count)
