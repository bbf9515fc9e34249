"""Which batches read an offset, as the ledger records it, and which offsets no batch read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from frazil.verify.facts.ledger import (
    READ_KINDS,
    REPAIR_KINDS,
    Batch,
    Position,
    Range,
    Removal,
    next_offsets,
    unrecorded_batches,
)

Passes = tuple[int, ...]
"""Numbers of the batches that read an offset and whose outcomes are still there. Usually one; a backward reset that
allowed duplicates adds another.
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """Offsets `start` <= o < `end` that the same batches read."""

    start: int
    end: int
    passes: Passes


Segments = list[Segment]
"""Ascending, none empty, none overlapping."""


def add_pass(segments: Segments, start: int, end: int, n: int) -> Segments:
    """The segments after batch `n` read `start` <= o < `end`.

    The list passed in may be changed: use only the one that is returned.
    """
    if start >= end:
        return segments
    if not segments or segments[-1].end <= start:  # the usual case, and cheap: a batch carries on where another ended
        segments.append(Segment(start, end, (n,)))
        return segments
    return _change_passes(segments, start, end, lambda passes: (*passes, n))


def remove_passes(segments: Segments, start: int, end: int, is_removed: Callable[[int], bool]) -> Segments:
    """Remove batches from the segments within `start` <= o < `end`, in place: their outcomes there were removed."""
    return _change_passes(segments, start, end, lambda passes: tuple(n for n in passes if not is_removed(n)))


def _change_passes(segments: Segments, start: int, end: int, change: Callable[[Passes], Passes]) -> Segments:
    # Rebuild only the segments that overlap: a retry of dead letters changes thousands of single offsets.
    low = bisect_right(segments, start, key=lambda s: s.end)
    high = bisect_left(segments, end, key=lambda s: s.start)
    overlapping = segments[low:high]
    inside = (replace(s, passes=change(s.passes)) for s in _with_gaps(clip(overlapping, start, end), start, end))
    before = clip(overlapping, overlapping[0].start, start) if overlapping else []
    after = clip(overlapping, end, overlapping[-1].end) if overlapping else []
    segments[low:high] = [*before, *(s for s in inside if s.passes), *after]
    return segments


def _with_gaps(segments: Segments, start: int, end: int) -> Iterator[Segment]:
    """The segments, and each gap between them as a segment without passes."""
    cursor = start
    for segment in segments:
        if cursor < segment.start:
            yield Segment(cursor, segment.start, ())
        yield segment
        cursor = segment.end
    if cursor < end:
        yield Segment(cursor, end, ())


def clip(segments: Segments, start: int, end: int) -> Segments:
    """The parts of the segments within `start` <= o < `end`."""
    if start >= end:
        return []
    low = bisect_right(segments, start, key=lambda s: s.end)
    high = bisect_left(segments, end, key=lambda s: s.start)
    return [replace(s, start=max(s.start, start), end=min(s.end, end)) for s in segments[low:high]]


def union_of_segments(segments_per_table: Sequence[Segments]) -> Segments:
    """Offsets that at least one of several tables needs; the passes are dropped."""
    if len(segments_per_table) == 1:
        return segments_per_table[0]
    union: Segments = []
    for s in sorted((s for segments in segments_per_table for s in segments), key=lambda s: s.start):
        if union and s.start <= union[-1].end:
            union[-1] = Segment(union[-1].start, max(union[-1].end, s.end), ())
        else:
            union.append(Segment(s.start, s.end, ()))
    return union


def length(segments: Segments) -> int:
    """How many offsets the segments contain."""
    return sum(s.end - s.start for s in segments)


@dataclass(frozen=True, slots=True)
class Window:
    """A range of offsets that is compared in one go; its size bounds the memory."""

    start: int
    end: int
    segments: tuple[Segment, ...]

    def has(self, offset: int) -> bool:
        """Whether a batch read this offset of the window."""
        index = bisect_right(self.segments, offset, key=lambda s: s.end)
        return index < len(self.segments) and self.segments[index].start <= offset


def windows(segments: Segments, size: int) -> Iterator[Window]:
    """Cut segments into windows of at most `size` offsets; neighbours share one, with the small gaps between them."""
    pieces: list[Segment] = []
    for segment in segments:
        for start in range(segment.start, segment.end, size):
            piece = replace(segment, start=start, end=min(segment.end, start + size))
            if pieces and piece.end - pieces[0].start > size:
                yield Window(pieces[0].start, pieces[-1].end, tuple(pieces))
                pieces = []
            pieces.append(piece)
    if pieces:
        yield Window(pieces[0].start, pieces[-1].end, tuple(pieces))


def gaps(spans: Sequence[tuple[int, int]], start: int, end: int | None) -> list[tuple[int, int | None]]:
    """The offsets of `start` <= o < `end` that no span covers. The spans ascend; an `end` of None means no upper bound."""
    uncovered: list[tuple[int, int | None]] = []
    cursor = start
    for low, high in spans:
        if cursor < low:
            uncovered.append((cursor, low))
        cursor = max(cursor, high)
    if end is None or cursor < end:
        uncovered.append((cursor, end))
    return uncovered


Key = tuple[str, int]

_NO_END = 2**63 - 1


def coverage(batches: Sequence[Batch], position: Position) -> dict[Key, Segments]:
    """Offsets of each topic's present incarnation that batches read and whose outcomes still exist.

    A replay deletes the outcomes of its range and reads it again; a backward reset deletes all outcomes from its offset
    on. Then an offset has one pass. A backward reset that allowed duplicates deletes nothing: each read adds a pass, and
    outcomes differ by the batch number that they carry.
    """
    covered: dict[Key, Segments] = {
        (name, number): [] for name, topic in position.topics.items() for number in range(len(topic.next))
    }
    undone = _rewind_per_undone_batch(batches)
    for batch in batches:
        for removed in final_removals(batch) if batch.n not in undone else ():
            _apply_removal(covered, removed, batch.n)
        ranges = _unrepeatable_ranges(batch.ranges, undone[batch.n].skipped) if batch.n in undone else batch.ranges
        for r in ranges if batch.kind in READ_KINDS else ():
            if r.topic in position.topics and batch.n >= position.topics[r.topic].since:
                key = r.topic, r.partition
                covered[key] = add_pass(covered.setdefault(key, []), r.start, r.end, batch.n)
    return covered


def rolled_back_batches(batches: Sequence[Batch]) -> frozenset[int]:
    """Numbers of batches that a rollback of the closing table undid: neither their reads nor their deletions count.

    A rewind records the rollback: its removals without a partition delete all rows of batches from a number on. A rewind
    that was rolled back itself undoes nothing.
    """
    return frozenset(_rewind_per_undone_batch(batches))


def _rewind_per_undone_batch(batches: Sequence[Batch]) -> dict[int, Batch]:
    """Number of each undone batch -> the rewind that undid it."""
    undone: dict[int, Batch] = {}
    for batch in reversed(batches):
        if batch.kind == "rewind" and batch.n not in undone:
            undone |= {n: batch for r in batch.removed if r.partition is None for n in range(r.since, batch.n)}
    return undone


def _unrepeatable_ranges(ranges: Sequence[Range], skipped: Sequence[Range]) -> Iterator[Range]:
    """Ranges of an undone batch that retention had deleted before they could be read again: their outcomes stay."""
    for r in ranges:
        for skipped_range in skipped:
            start, end = max(r.start, skipped_range.start), min(r.end, skipped_range.end)
            if (r.topic, r.partition) == (skipped_range.topic, skipped_range.partition) and start < end:
                yield Range(r.topic, r.partition, start, end)


def final_removals(batch: Batch) -> Sequence[Removal]:
    """Rows that a batch deleted from tables for good."""
    if batch.kind in REPAIR_KINDS:
        return ()  # a repair only repeats earlier removals; a settle staged rows again
    if batch.kind == "dead_letters":  # its records became rows and are no dead letters any more
        since = {name: topic.since for name, topic in batch.position.topics.items()}
        return [Removal(r.topic, r.partition, r.start, r.end, since[r.topic]) for r in batch.ranges]
    if batch.removed or batch.kind != "rewind":
        return batch.removed
    return [  # the rewind deleted no rows itself: the rollback of the table had done that
        Removal(name, number, offset, None, 0)
        for name, topic in batch.position.topics.items()
        for number, offset in enumerate(topic.next)
    ]


def given_up_offsets(batches: Sequence[Batch]) -> dict[Key, list[tuple[int, int, int]]]:
    """Per partition the spans whose outcomes may be missing: start, end, number of the batch that recorded the loss.

    A repair gave up their rows or dead letters, or their dead letters were deleted while rows of other tables stayed.
    """
    spans: dict[Key, list[tuple[int, int, int]]] = {}
    for batch in batches:
        for r in batch.skipped if batch.kind in REPAIR_KINDS else ():
            spans.setdefault((r.topic, r.partition), []).append((r.start, r.end, batch.n))
        for removed in batch.lost:
            for key in _partitions(removed, batch.position):
                end = _NO_END if removed.end is None else removed.end
                spans.setdefault(key, []).append((removed.start, end, batch.n))
    return spans


def is_read_again(repair: Batch, batches: Sequence[Batch]) -> bool:
    """Whether later batches read again all offsets that a repair gave up."""
    later_ranges = [r for batch in batches if batch.n > repair.n and batch.kind in READ_KINDS for r in batch.ranges]
    return repair.kind == "repair" and all(_is_covered(lost, later_ranges) for lost in repair.skipped)


def _is_covered(lost: Range, later_ranges: Sequence[Range]) -> bool:
    read_up_to = lost.start
    for r in sorted(later_ranges, key=lambda r: r.start):
        if (r.topic, r.partition) == (lost.topic, lost.partition) and r.start <= read_up_to:
            read_up_to = max(read_up_to, r.end)
    return read_up_to >= lost.end


def _partitions(removed: Removal, position: Position) -> Iterator[Key]:
    if removed.partition is not None:
        yield removed.topic, removed.partition
    elif removed.topic in position.topics:
        yield from ((removed.topic, number) for number in range(len(position.topics[removed.topic].next)))


def _apply_removal(covered: dict[Key, Segments], removed: Removal, n: int) -> None:
    end = _NO_END if removed.end is None else removed.end
    for key, segments in covered.items():
        if key[0] == removed.topic and removed.partition in (None, key[1]):
            covered[key] = remove_passes(segments, removed.start, end, lambda number: removed.since <= number < n)


@dataclass(slots=True)
class _Duty:
    """The offsets of one partition that a pipeline must have read.

    Attributes:
        first: First offset. 0 for a partition that appeared later: it is read from its beginning.
        next: Offset after the last one.
        since: Number of the batch that began this incarnation of the topic.
        excused: Segments that the ledger records as skipped.
    """

    first: int
    next: int
    since: int
    excused: Segments = field(default_factory=list)


def unread_spans(
    batches: Sequence[Batch], covered: Mapping[Key, Segments], position: Position
) -> dict[Key, list[tuple[int, int]]]:
    """Per partition the spans between its first offset and the position that were neither read nor given up.

    Given up are offsets that a batch recorded as skipped, that a forward reset jumped over, or that were read by batches
    whose ledger rows are recorded as lost. A later batch that moves the position back must read them again.
    """
    duties: dict[Key, _Duty] = {}
    undone, lost = rolled_back_batches(batches), unrecorded_batches(batches)
    before = -1
    for batch in batches:
        if batch.n not in undone:
            is_after_loss = not lost.isdisjoint(range(before + 1, batch.n))
            _advance_duties(duties, batch, is_after_loss=is_after_loss)
        before = batch.n
    live = next_offsets(position)
    return {key: _unaccounted_spans(duty, covered.get(key, [])) for key, duty in sorted(duties.items()) if key in live}


def _advance_duties(duties: dict[Key, _Duty], batch: Batch, *, is_after_loss: bool) -> None:
    """Update the duties with one batch: new partitions, skipped offsets, the new position."""
    position, former_duties = batch.position, dict(duties)
    is_move, skips = batch.kind in ("start", "reset", "rewind"), _skipped_spans(batch)
    duties.clear()  # a partition that a rewind drops from the position counts as new when it appears again
    for key, next_offset in next_offsets(position).items():
        topic = position.topics[key[0]]
        batch_start = topic.start[key[1]] if batch.kind == "ingest" else next_offset
        duty = former_duties.get(key)
        if duty is None or duty.since != topic.since:
            duty = _Duty(batch_start if is_move or is_after_loss else 0, next_offset, topic.since)
        elif batch.kind == "reset" or is_after_loss:
            duty.excused = add_pass(duty.excused, duty.next, batch_start, batch.n)
        for start, end in skips.get(key, ()):
            duty.excused = add_pass(duty.excused, start, end, batch.n)
        if duty.excused and duty.excused[-1].end > next_offset:
            duty.excused = clip(duty.excused, 0, next_offset)  # offsets beyond the position must still be read
        duty.first, duty.next = min(duty.first, next_offset), next_offset
        duties[key] = duty


def _skipped_spans(batch: Batch) -> dict[Key, list[tuple[int, int]]]:
    """Per partition the spans of Kafka's log that a batch skipped. What a repair skips are rows of a table, not offsets."""
    spans: dict[Key, list[tuple[int, int]]] = {}
    for r in batch.skipped if batch.kind not in REPAIR_KINDS else ():
        spans.setdefault((r.topic, r.partition), []).append((r.start, r.end))
    return spans


def _unaccounted_spans(duty: _Duty, covered: Segments) -> list[tuple[int, int]]:
    accounted = clip(covered, duty.first, duty.next) + clip(duty.excused, duty.first, duty.next)
    spans = sorted((segment.start, segment.end) for segment in accounted)
    return [(start, end) for start, end in gaps(spans, duty.first, duty.next) if end is not None]
