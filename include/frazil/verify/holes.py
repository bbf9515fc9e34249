"""Offsets that no batch read, although the position is beyond them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from frazil.verify.coverage import Key, rolled_back
from frazil.verify.ledger import MENDING, Batch, Position, offsets, unrecorded
from frazil.verify.spans import Segments, clip, gaps, with_pass


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
