"""Which offsets a pipeline answers for, by what its ledger says was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from frazil.verify.ledger import MENDING, READING, Batch, Position, Range, Removed
from frazil.verify.spans import Segments, with_pass, without

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
