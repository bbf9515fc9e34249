"""A broker and the tables of one pipeline in memory, moved by the protocol's own pure functions.

It keeps what no real table knows: which incarnation of a topic an outcome came from, and what must have become of
every offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from frazil.batch.changes import RemovedRange, moved_back_ranges, ranges_landed_after
from frazil.batch.facts import ClusterFacts, PartitionFacts, Range, TopicFacts, TopicPartition
from frazil.batch.manifest import Kind
from frazil.batch.position import Position
from frazil.batch.reset import Abandoned, rewound_position
from tests.unit.batch.kafka_facts import CLUSTER

EMPTY = PartitionFacts(0, 0, 0)


PartitionOf = tuple[str | None, int]
"""A partition of one incarnation: topic id and number."""


class Offset(NamedTuple):
    """One offset of one incarnation of a topic."""

    id: str | None
    partition: int
    offset: int


class Outcome(NamedTuple):
    """One row, or one dead letter: what it is about, and what its table's columns say."""

    of: Offset
    topic: str
    batch: int


class Broker:
    """Topics that grow, shrink at their start, and are made anew."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicFacts] = {}
        self._created = 0

    @property
    def facts(self) -> ClusterFacts:
        """What the broker says."""
        return ClusterFacts(CLUSTER, dict(self.topics))

    def partitions(self) -> dict[TopicPartition, PartitionFacts]:
        """Every partition."""
        return {(name, n): p for name, topic in self.topics.items() for n, p in enumerate(topic.partitions)}

    def create(self, name: str, partitions: int) -> None:
        """Make a topic, also in place of one of that name."""
        self._created += 1
        self.topics[name] = TopicFacts(f"id-{self._created}", (EMPTY,) * partitions)

    def grow(self, name: str) -> None:
        """Add a partition."""
        topic = self.topics[name]
        self.topics[name] = replace(topic, partitions=(*topic.partitions, EMPTY))

    def produce(self, name: str, records: Iterable[int]) -> None:
        """Append records: so many to each partition."""
        topic = self.topics[name]
        logs = list(topic.partitions)
        for number, count in enumerate(list(records)[: len(logs)]):
            end = logs[number].stable_end + count
            logs[number] = replace(logs[number], stable_end=end, high_watermark=end)
        self.topics[name] = replace(topic, partitions=tuple(logs))

    def expire(self, name: str, partition: int, records: int) -> None:
        """Let retention delete the oldest records of a partition."""
        topic = self.topics[name]
        logs = list(topic.partitions)
        index = partition % len(logs)
        logs[index] = replace(logs[index], log_start=min(logs[index].log_start + records, logs[index].stable_end))
        self.topics[name] = replace(topic, partitions=tuple(logs))


@dataclass(frozen=True)
class Snapshot:
    """The closing table after a batch.

    Attributes:
        position: What its summary says.
        rows: Its rows.
        past: The snapshots before it, oldest first.
        fates: What must have become of every offset: landed (True), or given up on record (False).
    """

    position: Position
    rows: tuple[Outcome, ...] = ()
    past: tuple[Snapshot, ...] = ()
    fates: Mapping[Offset, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """What one deciding commit and what follows from it do."""

    kind: Kind
    position: Position
    ranges: tuple[Range, ...] = ()
    removed: tuple[RemovedRange, ...] = ()
    removed_letters: tuple[RemovedRange, ...] = ()
    given_up: tuple[Range, ...] = ()


def goes(outcome: Outcome, removed: tuple[RemovedRange, ...]) -> bool:
    """Whether a removal takes an outcome: what `frazil.iceberg.commit.removal` asks of the columns."""
    return any(
        outcome.topic == r.topic
        and r.partition in (None, outcome.of.partition)
        and r.start <= outcome.of.offset
        and (r.end is None or outcome.of.offset < r.end)
        and outcome.batch >= r.since
        for r in removed
    )


class Tables:
    """Closing table, dead letters and ledger of a pipeline."""

    def __init__(self, start: Position) -> None:
        self.main = Snapshot(start)
        self.letters: tuple[Outcome, ...] = ()
        self.ledger = [Batch("start", start)]
        self.snapshots = [self.main]

    @property
    def newest(self) -> Position:
        """The position of the last batch, abandoned or not."""
        return self.ledger[-1].position

    def commit(self, batch: Batch, fates: Mapping[Offset, bool]) -> None:
        """Decide a batch and roll it forward.

        Args:
            batch: The batch.
            fates: What must have become of every offset afterwards.
        """
        n = batch.position.n
        landed = tuple(Outcome(offset, r.topic, n) for r in batch.ranges for offset in offsets_of(batch.position, r))
        letters = tuple(outcome for outcome in landed if (outcome.of.offset * 7 + n * 3) % 5 < 2)
        rows = tuple(outcome for outcome in landed if outcome not in letters)
        kept_rows = tuple(row for row in self.main.rows if not goes(row, batch.removed))
        # What a snapshot summary and a ledger row hold is text.
        position = Position.from_json(batch.position.to_json())
        self.main = Snapshot(position, kept_rows + rows, (*self.main.past, self.main), dict(fates))
        self.letters = tuple(o for o in self.letters if not goes(o, batch.removed_letters)) + letters
        self.ledger.append(replace(batch, position=position))
        self.snapshots.append(self.main)

    def rewind(self, first: Mapping[PartitionOf, int]) -> None:
        """Follow a rollback of the closing table, as `frazil.run.repair.rewind` does."""
        holds = self.main.position
        later = [batch for batch in self.ledger if batch.position.n > holds.n]
        abandoned = [Abandoned(b.position, b.ranges if b.kind == "replay" else ()) for b in later]
        position = rewound_position(holds, abandoned, self.newest.n + 1, self.newest.epoch + 1)
        topics: dict[str, object] = dict(position.topics)
        for batch in later:
            topics |= batch.position.topics
        removed = moved_back_ranges(holds, position)
        letters = (*ranges_landed_after(topics, holds.n), *removed)
        self.commit(Batch("rewind", position, (), removed, letters), passed(self.main.fates, holds, position, first))

    def outcomes(self) -> Counter[Offset]:
        """How many rows and letters every offset has."""
        return Counter(outcome.of for outcome in (*self.main.rows, *self.letters))


def offsets_of(position: Position, r: Range) -> Iterable[Offset]:
    """The offsets of a range, in the incarnation that the position knows."""
    return (Offset(position.topics[r.topic].id, r.partition, number) for number in range(r.start, r.end))


def passed(
    fates: Mapping[Offset, bool], before: Position, after: Position, first: Mapping[PartitionOf, int]
) -> dict[Offset, bool]:
    """The fates after the position was moved: given up where it moves forward, open again where it moves back.

    Args:
        fates: The fates so far.
        before: The position so far.
        after: The position it was moved to.
        first: Where partitions were begun.
    """
    outcomes = dict(fates)
    for name, topic in after.topics.items():
        topic_before = before.topics.get(name)
        for number, start in enumerate(topic.next):
            key = topic.id, number
            was = before.next_offset(name, number) if topic_before is not None and topic_before.id == topic.id else None
            begin = first[key] if was is None else was
            outcomes = {
                key_of_outcome: fate
                for key_of_outcome, fate in outcomes.items()
                if key_of_outcome[:2] != key or key_of_outcome.offset < start
            }
            outcomes |= {Offset(*key, o): False for o in range(begin, start)}
    return outcomes
