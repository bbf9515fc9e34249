"""The plan of a run and of its batches: pure decisions from a position and what the broker said."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from frazil.batch.facts import ClusterFacts, Range, TopicFacts
from frazil.batch.position import Position, TopicPosition, whole_numbers
from frazil.errors import Terminal

PLAN_VERSION = 1
"""Version of the plan JSON."""


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """One topic of a plan, one offset per partition: where to begin (the position, or the log start of a partition
    that the position does not know yet) and the fixed end.
    """

    id: str | None
    begin: tuple[int, ...]
    end: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What one run will read. Its ends are fixed here, once.

    Attributes:
        pipeline: Name of the pipeline.
        run: Id of the run.
        planned_at: When the broker was asked, ISO 8601 in UTC.
        cluster: Kafka cluster id at plan time.
        topics: Topic -> what to read of it.
        complete: Whether the ends reach every partition's high watermark: then a batch that gets there holds
            everything that Kafka had accepted by `planned_at`.
    """

    pipeline: str
    run: str
    planned_at: str
    cluster: str
    topics: Mapping[str, PlannedTopic]
    complete: bool

    @property
    def ranges(self) -> tuple[Range, ...]:
        """What the run reads, empty ranges left out, by topic and partition."""
        return tuple(
            Range(name, number, begin, end)
            for name, topic in sorted(self.topics.items())
            for number, (begin, end) in enumerate(zip(topic.begin, topic.end, strict=True))
            if begin < end
        )

    @property
    def records(self) -> int:
        """Offsets to read, an upper bound of the records."""
        return sum(r.span for r in self.ranges)

    def to_json(self) -> str:
        """The plan JSON that travels from the plan task to the ingest task."""
        body = asdict(self) | {"v": PLAN_VERSION}
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RunPlan:
        """Read the plan JSON.

        Raises:
            Terminal: The text is not a plan of this version.
        """
        try:
            body = json.loads(text)
            version = body.pop("v")
            if version != PLAN_VERSION:
                raise Terminal(f"a plan of version {version} was handed over, this Frazil reads version {PLAN_VERSION}")
            return cls(topics={name: _planned(topic) for name, topic in body.pop("topics").items()}, **body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Terminal(f"this is not a plan: {text[:200]!r} ({error})") from error


def _planned(body: Mapping[str, Any]) -> PlannedTopic:
    begin, end = whole_numbers(body["begin"]), whole_numbers(body["end"])
    if len(begin) != len(end):
        raise ValueError(f"'begin' and 'end' differ in length: {begin} and {end}")
    return PlannedTopic(body["id"], begin, end)


def start_position(facts: ClusterFacts, start: str) -> Position:
    """The position a first run writes: ``earliest`` is every log start, ``latest`` every stable end, resolved now."""
    topics = {}
    for name, topic in facts.topics.items():
        offsets = tuple(p.log_start if start == "earliest" else p.stable_end for p in topic.partitions)
        topics[name] = TopicPosition(topic.id, offsets, offsets)
    return Position(0, 0, facts.cluster_id, topics)


def plan_topics(position: Position, facts: ClusterFacts) -> dict[str, PlannedTopic]:
    """What a run reads: from the position to the stable ends. Partitions that appeared begin at their log start.

    Raises:
        Terminal: Cluster, topic id, log start or log end don't fit the position.
    """
    check_position(position, facts)
    planned = {}
    for name, topic in facts.topics.items():
        begin = [_begin(position, name, number, p.log_start) for number, p in enumerate(topic.partitions)]
        ends = [max(at, p.stable_end) for at, p in zip(begin, topic.partitions, strict=True)]
        planned[name] = PlannedTopic(topic.id, tuple(begin), tuple(ends))
    return planned


def _begin(position: Position, topic: str, partition: int, log_start: int) -> int:
    known = position.next_offset(topic, partition)
    return log_start if known is None else known


def remaining(plan: RunPlan, position: Position) -> tuple[Range, ...]:
    """What is left of a run at a position: empty if the run, or a rival, already did it all."""
    ranges = []
    for r in plan.ranges:
        begin = _begin(position, r.topic, r.partition, r.start)
        if begin < r.end:
            ranges.append(Range(r.topic, r.partition, begin, r.end))
    return tuple(ranges)


def check_position(position: Position, facts: ClusterFacts) -> None:
    """Refuse a position that does not belong to what the broker shows.

    Raises:
        Terminal: Another cluster, a recreated topic, records lost to retention, or offsets beyond the log's end.
    """
    if position.cluster != facts.cluster_id:
        raise Terminal(
            f"the position belongs to Kafka cluster {position.cluster}, the settings lead to cluster {facts.cluster_id}",
            next_step="point the pipeline back to its cluster; a topic that moved to another cluster needs a new pipeline",
        )
    for name, topic in facts.topics.items():
        if name in position.topics:
            _check_topic(name, position.topics[name], topic)


def _check_topic(name: str, known: TopicPosition, topic: TopicFacts) -> None:
    if known.id is not None and topic.id is not None and known.id != topic.id:
        raise Terminal(
            f"topic {name} was recreated: the position belongs to topic id {known.id}, the broker shows {topic.id}",
            next_step="its offsets start anew, so the stored ones mean nothing; give the new topic a pipeline of its own",
        )
    if len(topic.partitions) < len(known.next):
        raise Terminal(f"topic {name} has {len(topic.partitions)} partitions, the position knows {len(known.next)}")
    for number, (offset, partition) in enumerate(zip(known.next, topic.partitions, strict=False)):
        if offset < partition.log_start:
            raise Terminal(
                f"topic {name}, partition {number}: records {offset} to {partition.log_start - 1} were deleted by retention"
                f" before they were read (position {offset}, log start {partition.log_start})",
                next_step="lengthen the topic's retention; Frazil does not skip lost records by itself",
            )
        if offset > partition.high_watermark:
            raise Terminal(
                f"topic {name}, partition {number}: the position is {offset}, the log ends at {partition.high_watermark};"
                " the topic lost records or was recreated",
                next_step="find out what happened to the topic before anything else is ingested",
            )


def reaches_high_watermarks(facts: ClusterFacts) -> bool:
    """Whether the stable ends are the high watermarks, so no open transaction hides accepted records."""
    return all(p.stable_end >= p.high_watermark for topic in facts.topics.values() for p in topic.partitions)


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


def _share(r: Range, at: int, count: int) -> Range:
    return Range(r.topic, r.partition, r.start + r.span * at // count, r.start + r.span * (at + 1) // count)


def split(ranges: tuple[Range, ...], records_per_task: int, tasks: int = 1) -> tuple[Range, ...]:
    """Split ranges for staging, so that none is longer than `records_per_task` and big ones spread over `tasks`."""
    total = sum(r.span for r in ranges)
    longest = max(1, min(records_per_task, -(-total // max(1, tasks))))
    pieces = []
    for r in ranges:
        count = -(-r.span // longest)
        pieces += [_share(r, at, count) for at in range(count)]
    return tuple(pieces)


def advance(position: Position, ranges: tuple[Range, ...], plan: RunPlan) -> Position:
    """The position after a batch over `ranges`: n + 1, and every partition read moved to its range's end.

    Raises:
        Terminal: A range does not begin where the position stands.
    """
    ends = {(r.topic, r.partition): r for r in ranges}
    topics = dict(position.topics)
    for name, planned in plan.topics.items():
        known = position.topics.get(name)
        start = [_begin(position, name, number, begin) for number, begin in enumerate(planned.begin)]
        if known is not None:
            start += known.next[len(start) :]
        following = [_end(ends.get((name, number)), at) for number, at in enumerate(start)]
        topics[name] = TopicPosition((known and known.id) or planned.id, tuple(start), tuple(following))
    for name in position.topics.keys() - plan.topics.keys():
        topics[name] = replace(position.topics[name], start=position.topics[name].next)
    return Position(position.n + 1, position.epoch, position.cluster, topics)


def _end(r: Range | None, at: int) -> int:
    if r is None:
        return at
    if r.start != at:
        raise Terminal(f"topic {r.topic}, partition {r.partition}: the position is {at}, the range begins at {r.start}")
    return r.end
