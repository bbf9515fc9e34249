"""Which rows a batch takes out of a table: by Kafka coordinates, never by guesses about values."""

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
    """Rows of one topic that go.

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
    """What goes from one table."""

    columns: Coordinates
    ranges: tuple[RemovedRange, ...]

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Removal:
        """Read the form that `dataclasses.asdict` gives."""
        return cls(Coordinates(**body["columns"]), tuple(RemovedRange(**r) for r in body["ranges"]))


def replaced(ranges: tuple[Range, ...], position: Position) -> tuple[RemovedRange, ...]:
    """What a replay of `ranges` takes out: their rows of the present incarnation of each topic."""
    return tuple(RemovedRange(r.topic, r.partition, r.start, r.end, position.topics[r.topic].since) for r in ranges)


def at_or_beyond(position: Position) -> tuple[RemovedRange, ...]:
    """Whatever will come again from a position on, also of batches that nobody recorded."""
    return tuple(
        RemovedRange(name, number, offset, None, topic_position.since)
        for name, topic_position in sorted(position.topics.items())
        for number, offset in enumerate(topic_position.next)
    )


def farthest(before: Position, after: Position) -> Position:
    """The position after a reset, where it moves back as if it had not: what it moves over may stand twice."""
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
    """What lies at or beyond `after` in partitions that move back from `before` within one incarnation."""
    return tuple(r for r in at_or_beyond(after) if _moves_back(before, r) and before.topics[r.topic].since == r.since)


def _moves_back(before: Position, r: RemovedRange) -> bool:
    next_offset = None if r.partition is None else before.next_offset(r.topic, r.partition)
    return next_offset is not None and r.start < next_offset


def landed_after(topics: Mapping[str, object], n: int) -> tuple[RemovedRange, ...]:
    """Everything that batches above `n` landed of these topics."""
    return tuple(RemovedRange(name, None, 0, None, n + 1) for name in sorted(topics))
