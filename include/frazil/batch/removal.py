"""The rows that a batch removes from a table, selected by Kafka coordinates, never by values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from frazil.batch.facts import Range
from frazil.batch.position import Position, TopicPosition


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Names of the columns that hold a row's Kafka coordinates."""

    topic: str
    partition: str
    offset: str
    batch: str


@dataclass(frozen=True, slots=True)
class RemovedRange:
    """A range of offsets in one topic whose rows are removed.

    Attributes:
        topic: Name of the topic.
        partition: Its number; None for all.
        start: First offset.
        end: One past the last offset; None for no bound.
        since: First batch number whose rows go. Rows of an earlier incarnation of the topic have lower ones and stay.
    """

    topic: str
    partition: int | None
    start: int
    end: int | None
    since: int


@dataclass(frozen=True, slots=True)
class Removal:
    """The ranges of rows to remove from one table."""

    columns: Coordinates
    ranges: tuple[RemovedRange, ...]

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Removal:
        """Read the form that `dataclasses.asdict` gives."""
        return cls(Coordinates(**body["columns"]), tuple(RemovedRange(**r) for r in body["ranges"]))


def replaced(ranges: tuple[Range, ...], position: Position) -> tuple[RemovedRange, ...]:
    """The removal for a replay of `ranges`: their rows of each topic's present incarnation."""
    return tuple(RemovedRange(r.topic, r.partition, r.start, r.end, position.topics[r.topic].since) for r in ranges)


def at_or_beyond(position: Position) -> tuple[RemovedRange, ...]:
    """All rows at or after a position, which will be read again, including those of unrecorded batches."""
    return tuple(
        RemovedRange(name, number, offset, None, topic_position.since)
        for name, topic_position in sorted(position.topics.items())
        for number, offset in enumerate(topic_position.next)
    )


def farthest(before: Position, after: Position) -> Position:
    """The farther of the positions before and after a reset, per partition: rows between the two may exist twice."""
    return replace(
        after,
        topics={
            name: _farthest(before.topics.get(name), topic_position) for name, topic_position in after.topics.items()
        },
    )


def _farthest(before: TopicPosition | None, after: TopicPosition) -> TopicPosition:
    if before is None or before.since != after.since:
        return after
    next_offsets = (*before.next, *after.next[len(before.next) :])
    return replace(after, next=tuple(map(max, after.next, next_offsets)))


def moved_back(before: Position, after: Position) -> tuple[RemovedRange, ...]:
    """Ranges at or after `after` in partitions that move back from `before` within one incarnation."""
    return tuple(r for r in at_or_beyond(after) if _moves_back(before, r) and before.topics[r.topic].since == r.since)


def _moves_back(before: Position, r: RemovedRange) -> bool:
    next_offset = None if r.partition is None else before.next_offset(r.topic, r.partition)
    return next_offset is not None and r.start < next_offset


def landed_after(topics: Mapping[str, object], n: int) -> tuple[RemovedRange, ...]:
    """All rows of these topics that batches after `n` landed."""
    return tuple(RemovedRange(name, None, 0, None, n + 1) for name in sorted(topics))
