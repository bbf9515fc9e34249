"""Which offsets a pipeline answers for: which batches read them by its ledger, and which ones no batch read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from frazil.verify.facts.ledger import MENDING, READING, Batch, Position, Range, Removed, offsets, unrecorded

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


def with_pass(segments: Segments, start: int, end: int, n: int) -> Segments:
    """The segments after batch `n` read `start` <= o < `end`. The given list may be changed, and must not be used again."""
    if start >= end:
        return segments
    if not segments or segments[-1].end <= start:  # the usual case, and cheap: a batch carries on where another ended
        segments.append(Segment(start, end, (n,)))
        return segments
    return _changed(segments, start, end, lambda passes: (*passes, n))


def without(segments: Segments, start: int, end: int, is_gone: Callable[[int], bool]) -> Segments:
    """The segments after the outcomes of some batches were taken out of `start` <= o < `end`; the list is changed."""
    return _changed(segments, start, end, lambda passes: tuple(n for n in passes if not is_gone(n)))


def _changed(segments: Segments, start: int, end: int, change: Callable[[Passes], Passes]) -> Segments:
    # Only what is met is made anew: a batch that brought letters home changes thousands of single offsets.
    low = bisect_right(segments, start, key=lambda s: s.end)
    high = bisect_left(segments, end, key=lambda s: s.start)
    met = segments[low:high]
    inside = (replace(s, passes=change(s.passes)) for s in _filled(clip(met, start, end), start, end))
    before = clip(met, met[0].start, start) if met else []
    after = clip(met, end, met[-1].end) if met else []
    segments[low:high] = [*before, *(s for s in inside if s.passes), *after]
    return segments


def _filled(segments: Segments, start: int, end: int) -> Iterator[Segment]:
    """The segments, and the gaps between them as segments that nobody read."""
    at = start
    for segment in segments:
        if at < segment.start:
            yield Segment(at, segment.start, ())
        yield segment
        at = segment.end
    if at < end:
        yield Segment(at, end, ())


def clip(segments: Segments, start: int, end: int) -> Segments:
    """What lies in `start` <= o < `end`."""
    if start >= end:
        return []
    low = bisect_right(segments, start, key=lambda s: s.end)
    high = bisect_left(segments, end, key=lambda s: s.start)
    return [replace(s, start=max(s.start, start), end=min(s.end, end)) for s in segments[low:high]]


def together(several: Sequence[Segments]) -> Segments:
    """What any of several tables wants to be read, whichever batches did."""
    if len(several) == 1:
        return several[0]
    found: Segments = []
    for s in sorted((s for segments in several for s in segments), key=lambda s: s.start):
        if found and s.start <= found[-1].end:
            found[-1] = Segment(found[-1].start, max(found[-1].end, s.end), ())
        else:
            found.append(Segment(s.start, s.end, ()))
    return found


def length(segments: Segments) -> int:
    """How many offsets the segments hold."""
    return sum(s.end - s.start for s in segments)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of offsets that is compared at once: bounds the memory."""

    start: int
    end: int
    segments: tuple[Segment, ...]


def windows(segments: Segments, size: int) -> Iterator[Window]:
    """Cut segments into windows of at most `size` offsets; neighbours share one, with the small gaps between them."""
    taken: list[Segment] = []
    for piece in _pieces(segments, size):
        if taken and piece.end - taken[0].start > size:
            yield _window(taken)
            taken = []
        taken.append(piece)
    if taken:
        yield _window(taken)


def _pieces(segments: Segments, size: int) -> Iterator[Segment]:
    for segment in segments:
        for start in range(segment.start, segment.end, size):
            yield replace(segment, start=start, end=min(segment.end, start + size))


def _window(taken: Sequence[Segment]) -> Window:
    return Window(taken[0].start, taken[-1].end, tuple(taken))


def gaps(spans: Sequence[tuple[int, int]], start: int, end: int | None) -> list[tuple[int, int | None]]:
    """What ascending spans leave of `start` <= o < `end`; no end stands for no bound."""
    found: list[tuple[int, int | None]] = []
    at = start
    for low, high in spans:
        if at < low:
            found.append((at, low))
        at = max(at, high)
    if end is None or at < end:
        found.append((at, end))
    return found


Key = tuple[str, int]

_NO_END = 2**63 - 1


def coverage(batches: Sequence[Batch], position: Position) -> dict[Key, Segments]:
    """What batches read of the present incarnation of each topic, and whose outcomes are still there.

    A replay takes the outcomes of its range out and reads it anew, a backward reset takes out what lies beyond: then
    an offset has one pass. A backward reset that allowed duplicates takes nothing out: then each pass adds one, and an
    outcome is told from another by the batch number it carries.

    Args:
        batches: All batches of the ledger.
        position: The last position: which topics there are, and since which batch.
    """
    covered: dict[Key, Segments] = {
        (name, number): [] for name, topic in position.topics.items() for number in range(len(topic.next))
    }
    undone = _undone(batches)
    for batch in batches:
        for removed in taken_out(batch) if batch.n not in undone else ():
            _take_out(covered, removed, batch.n)
        ranges = _stayed(batch.ranges, undone[batch.n].skipped) if batch.n in undone else batch.ranges
        for r in ranges if batch.kind in READING else ():
            if r.topic in position.topics and batch.n >= position.topics[r.topic].since:
                key = r.topic, r.partition
                covered[key] = with_pass(covered.setdefault(key, []), r.start, r.end, batch.n)
    return covered


def rolled_back(batches: Sequence[Batch]) -> frozenset[int]:
    """Numbers of batches that a rollback of the closing table undid: what they read, and what they took out.

    A rewind says so by taking out, whatever the partition, all that batches from a number on landed. One that was rolled
    back itself undoes nothing.
    """
    return frozenset(_undone(batches))


def _undone(batches: Sequence[Batch]) -> dict[int, Batch]:
    """Numbers of batches that were undone -> the rewind that did."""
    undone: dict[int, Batch] = {}
    for batch in reversed(batches):
        if batch.kind == "rewind" and batch.n not in undone:
            undone |= {n: batch for r in batch.removed if r.partition is None for n in range(r.since, batch.n)}
    return undone


def _stayed(ranges: Sequence[Range], skipped: Sequence[Range]) -> Iterator[Range]:
    """Of what an undone batch read, what could not come again: outcomes that a table has of it stay."""
    for r in ranges:
        for of in skipped:
            start, end = max(r.start, of.start), min(r.end, of.end)
            if (r.topic, r.partition) == (of.topic, of.partition) and start < end:
                yield Range(r.topic, r.partition, start, end)


def taken_out(batch: Batch) -> Sequence[Removed]:
    """What a batch took out of tables for good."""
    if batch.kind in MENDING:
        return ()  # only what earlier batches took out, or what a settle staged again
    if batch.kind == "dead_letters":  # what it landed is no dead letter any more
        since = {name: topic.since for name, topic in batch.position.topics.items()}
        return [Removed(r.topic, r.partition, r.start, r.end, since[r.topic]) for r in batch.ranges]
    if batch.removed or batch.kind != "rewind":
        return batch.removed
    return [  # nothing was left to take out of followers: the rollback itself took the rows
        Removed(name, number, offset, None, 0)
        for name, topic in batch.position.topics.items()
        for number, offset in enumerate(topic.next)
    ]


def given_up(batches: Sequence[Batch]) -> dict[Key, list[tuple[int, int, int]]]:
    """Per partition the offsets whose rows or dead letters a repair gave up, or letters that went without the rows beside them.

    Each with start, end and the number of the batch that says so.
    """
    found: dict[Key, list[tuple[int, int, int]]] = {}
    for batch in batches:
        for r in batch.skipped if batch.kind in MENDING else ():
            found.setdefault((r.topic, r.partition), []).append((r.start, r.end, batch.n))
        for removed in batch.lost:
            for key in _partitions(removed, batch.position):
                end = _NO_END if removed.end is None else removed.end
                found.setdefault(key, []).append((removed.start, end, batch.n))
    return found


def is_filled(repair: Batch, batches: Sequence[Batch]) -> bool:
    """Whether later batches read all again that a repair gave up."""
    later = [r for of in batches if of.n > repair.n and of.kind in READING for r in of.ranges]
    return repair.kind == "repair" and all(_is_read(lost, later) for lost in repair.skipped)


def _is_read(lost: Range, later: Sequence[Range]) -> bool:
    at = lost.start
    for r in sorted(later, key=lambda r: r.start):
        if (r.topic, r.partition) == (lost.topic, lost.partition) and r.start <= at:
            at = max(at, r.end)
    return at >= lost.end


def _partitions(removed: Removed, position: Position) -> Iterator[Key]:
    if removed.partition is not None:
        yield removed.topic, removed.partition
    elif removed.topic in position.topics:
        yield from ((removed.topic, number) for number in range(len(position.topics[removed.topic].next)))


def _take_out(covered: dict[Key, Segments], removed: Removed, n: int) -> None:
    end = _NO_END if removed.end is None else removed.end
    for key, segments in covered.items():
        if key[0] == removed.topic and removed.partition in (None, key[1]):
            covered[key] = without(segments, removed.start, end, _between(removed.since, n))


def _between(since: int, n: int) -> Callable[[int], bool]:
    return lambda number: since <= number < n


@dataclass(slots=True)
class _Duty:
    """What a pipeline answers for in one partition.

    Attributes:
        first: From where on. 0 for a partition that appeared later: it is taken from its beginning.
        next: Up to where.
        since: Batch that began this incarnation of the topic.
        excused: What it gave up on record, or jumped over.
    """

    first: int
    next: int
    since: int
    excused: Segments = field(default_factory=list)


def holes(
    batches: Sequence[Batch], covered: Mapping[Key, Segments], position: Position
) -> dict[Key, list[tuple[int, int]]]:
    """Per partition what lies between its first offset and the position, and was neither read nor given up.

    Given up is what a batch skipped on record, what a forward reset jumped over, and what batches read whose ledger rows
    are lost on record. A later batch that moves back answers for all of it anew.

    Args:
        batches: All batches of the ledger.
        covered: What is covered by outcomes.
        position: The last position.
    """
    duties: dict[Key, _Duty] = {}
    undone, lost = rolled_back(batches), unrecorded(batches)
    before = -1
    for batch in batches:
        if batch.n not in undone:
            is_after_loss = not lost.isdisjoint(range(before + 1, batch.n))
            _follow(duties, batch, is_after_loss=is_after_loss)
        before = batch.n
    live = offsets(position)
    return {key: _left(duty, covered.get(key, [])) for key, duty in sorted(duties.items()) if key in live}


def _follow(duties: dict[Key, _Duty], batch: Batch, *, is_after_loss: bool) -> None:
    """Take the duties through one batch."""
    position, known = batch.position, dict(duties)
    is_move, skips = batch.kind in ("start", "reset", "rewind"), _skips(batch)
    duties.clear()  # a partition that a rewind forgets is new when it comes again
    for key, after in offsets(position).items():
        topic = position.topics[key[0]]
        begin = topic.start[key[1]] if batch.kind == "ingest" else after
        duty = known.get(key)
        if duty is None or duty.since != topic.since:
            duty = _Duty(begin if is_move or is_after_loss else 0, after, topic.since)
        elif batch.kind == "reset" or is_after_loss:
            _excuse(duty, duty.next, begin, batch.n)
        for start, end in skips.get(key, ()):
            _excuse(duty, start, end, batch.n)
        if duty.excused and duty.excused[-1].end > after:
            duty.excused = clip(duty.excused, 0, after)  # what lies beyond the position is to be read yet
        duty.first, duty.next = min(duty.first, after), after
        duties[key] = duty


def _skips(batch: Batch) -> dict[Key, list[tuple[int, int]]]:
    """What it gave up of the log. A repair gives up what a table had."""
    found: dict[Key, list[tuple[int, int]]] = {}
    for r in batch.skipped if batch.kind not in MENDING else ():
        found.setdefault((r.topic, r.partition), []).append((r.start, r.end))
    return found


def _excuse(duty: _Duty, start: int, end: int, n: int) -> None:
    duty.excused = with_pass(duty.excused, start, end, n)


def _left(duty: _Duty, covered: Segments) -> list[tuple[int, int]]:
    known = clip(covered, duty.first, duty.next) + clip(duty.excused, duty.first, duty.next)
    spans = sorted((segment.start, segment.end) for segment in known)
    return [(start, end) for start, end in gaps(spans, duty.first, duty.next) if end is not None]
