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
    unread = tuple(r for r in ranges if r.span)
    while unread:
        total = sum(r.span for r in unread)
        shares = _shares(unread, -(-total // -(-total // max_records)))
        yield tuple(replace(r, end=r.start + share) for r, share in zip(unread, shares, strict=True) if share)
        unread = tuple(
            replace(r, start=r.start + share) for r, share in zip(unread, shares, strict=True) if share < r.span
        )


def _shares(ranges: tuple[Range, ...], size: int) -> list[int]:
    """How many of `size` offsets each range gives, in proportion to its span.

    What rounding down leaves over goes to the largest fractions: a batch is never empty and never larger than asked.
    """
    total = sum(r.span for r in ranges)
    shares = [r.span * size // total for r in ranges]
    by_fraction = sorted(range(len(ranges)), key=lambda index: ranges[index].span * size % total, reverse=True)
    for index in by_fraction[: size - sum(shares)]:
        shares[index] += 1
    return shares


def shared_out(ranges: tuple[Range, ...], records_per_task: int, tasks: int = 1) -> tuple[tuple[Range, ...], ...]:
    """Share ranges out to tasks: stretches of the same length, in order, none longer than `records_per_task`.

    A task may get many small partitions, or a part of a big one.

    Args:
        ranges: What is read; of a partition there may be several, where parts of a batch are staged again.
        records_per_task: Most offsets of a task.
        tasks: How many tasks run at once. There are that many, or, if they would be too long, a multiple: all end together.
    """
    total = sum(r.span for r in ranges)
    count = min(tasks * max(1, -(-total // (records_per_task * tasks))), max(total, 1))
    bounds = [total * task // count for task in range(count + 1)]
    shares: list[list[Range]] = [[] for _ in range(count)]
    task = passed = 0
    for r in ranges:
        start = r.start
        while start < r.end:
            end = min(r.end, r.start + bounds[task + 1] - passed)
            shares[task].append(replace(r, start=start, end=end))
            start = end
            if passed + end - r.start == bounds[task + 1]:
                task += 1
        passed += r.span
    return tuple(map(tuple, shares))
