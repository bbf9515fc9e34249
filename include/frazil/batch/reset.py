"""Changes of a position that a person requests: moves without reading (resets, rewinds after a rollback), and repairs of the
ranges that a table lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, groupby, zip_longest
from typing import Any, Final

from frazil.batch.changes import RemovedRange
from frazil.batch.facts import ClusterFacts, Range, TopicFacts, TopicPartition, known_epochs
from frazil.batch.position import LostTail, Position, TopicPosition, merge_tails
from frazil.error_codes import BAD_ARGUMENT


@dataclass(frozen=True, slots=True)
class Move:
    """How a reset moves one partition; `before` is None for a partition that the position did not know."""

    topic: str
    partition: int
    before: int | None
    after: int
    recreated: bool

    @property
    def distance(self) -> int:
        """Number of offsets that are skipped (positive) or read again (negative)."""
        return 0 if self.before is None or self.recreated else self.after - self.before


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A batch that a rollback of the closing table undid.

    Attributes:
        position: The position after the batch.
        replayed: Ranges that a replay landed again.
        removed: Whether the batch removed rows or dead letters. The rollback does not restore dead letters.
    """

    position: Position
    replayed: tuple[Range, ...]
    removed: bool = True


def reset_position(
    before: Position, facts: ClusterFacts, offsets: Mapping[TopicPartition, int], n: int, epoch: int
) -> Position:
    """The position that a reset writes.

    Topics and partitions without an offset stay where they are; a partition that was never read begins at 0. A recreated topic
    counts as a new one, and the rows of the old one stay in the table. In another cluster every topic counts as recreated.

    Raises:
        Terminal: A recreated topic has a partition without an offset, or a topic in another cluster has no offset at all.
    """
    is_other_cluster = before.cluster != facts.cluster_id
    topics = _topics_of_other_cluster(before, facts, offsets, n) if is_other_cluster else dict(before.topics)
    for name in sorted({topic for topic, _ in offsets}):
        topic_facts, former = facts.topics[name], before.topics.get(name)
        recreated = former is not None and (is_other_cluster or is_recreated(former, topic_facts))
        base = None if recreated else former or TopicPosition(topic_facts.id, (), ())
        next_offsets = tuple(_offset((name, number), offsets, base) for number in range(len(topic_facts.partitions)))
        epochs = known_epochs(
            p.leader_epoch if (name, number) in offsets or base is None else base.leader_epoch(number)
            for number, p in enumerate(topic_facts.partitions)
        )
        topics[name] = TopicPosition(
            topic_facts.id,
            next_offsets,
            next_offsets,
            since=n if base is None else base.since,
            leader_epochs=epochs,
            lost_tails=() if base is None else base.lost_tails,
        )
    return Position(n, epoch, facts.cluster_id, topics)


def _topics_of_other_cluster(
    before: Position, facts: ClusterFacts, offsets: Mapping[TopicPartition, int], n: int
) -> dict[str, TopicPosition]:
    """The former cluster's topics, without offsets. A topic of the same name in the new cluster needs offsets in the request."""
    unnamed = sorted((before.topics.keys() & facts.topics.keys()) - {topic for topic, _ in offsets})
    if unnamed:
        raise BAD_ARGUMENT.terminal(
            f"the position belongs to Kafka cluster {before.cluster}, the settings name cluster {facts.cluster_id}, and no offset"
            f" is given for {', '.join(unnamed)}",
            next_step="name every topic and partition, or reset to earliest or latest without --topic",
        )
    return {name: TopicPosition(None, (), (), since=n) for name in before.topics}


def is_recreated(topic_position: TopicPosition | None, topic_facts: TopicFacts) -> bool:
    """Whether a topic is another one than the position knows: by its id, or without ids because its log is too short."""
    if topic_position is None:
        return False
    if topic_position.id is not None and topic_facts.id is not None:
        return topic_position.id != topic_facts.id
    beyond = any(
        offset > p.high_watermark for offset, p in zip(topic_position.next, topic_facts.partitions, strict=False)
    )
    return beyond or len(topic_facts.partitions) < len(topic_position.next)


def _offset(key: TopicPartition, offsets: Mapping[TopicPartition, int], base: TopicPosition | None) -> int:
    topic, number = key
    if key in offsets:
        return offsets[key]
    if base is None:
        raise BAD_ARGUMENT.terminal(
            f"topic {topic} was recreated, and no offset is given for partition {number}",
            next_step="name every partition of a topic that was recreated, or reset it to earliest or latest",
        )
    return base.next[number] if number < len(base.next) else 0  # the next plan reports records that are gone


def moves(before: Position, after: Position) -> tuple[Move, ...]:
    """The move of each partition whose position changes."""
    changes = []
    for name, topic_position in sorted(after.topics.items()):
        former = before.topics.get(name)
        recreated = former is not None and former.since != topic_position.since
        for number, offset in enumerate(topic_position.next):
            was = before.next_offset(name, number)
            if was != offset or recreated:
                changes.append(Move(name, number, was, offset, recreated))
    return tuple(changes)


def rewound_position(holds: Position, abandoned: Iterable[Abandoned], n: int, epoch: int) -> Position:
    """The position after the closing table was rolled back to the position `holds`.

    Records that abandoned batches landed are read again from there. Abandoned batches that removed rows (replays, moves back)
    also removed dead letters, which the rollback does not restore, so the position moves back to where they began. Topics and
    partitions that only abandoned batches read stay in the position, at their first offset.

    `abandoned` is in ascending order.
    """
    later = [batch for batch in abandoned if batch.position.cluster == holds.cluster]
    latest = {name: t for batch in later for name, t in batch.position.topics.items()} | dict(holds.topics)
    lowest = {(name, number): offset for name, t in holds.topics.items() for number, offset in enumerate(t.next)}
    farthest = {(name, number): end for name, t in holds.topics.items() for number, end in enumerate(t.known_end)}
    for batch in later:
        for key, begin, end in _batch_spans(latest, batch):
            # A batch that removed nothing, such as a reset with --allow-duplicates, left nothing to land again.
            if batch.removed or key not in lowest:
                lowest[key] = min(lowest.get(key, begin), begin)
            farthest[key] = max(farthest.get(key, end), end)
    topics = {name: replace(t, lost_tails=_lost_tails(name, t, later)) for name, t in latest.items()}
    return Position(
        n, epoch, holds.cluster, {name: _rewound_topic(t, name, lowest, farthest) for name, t in topics.items()}
    )


def _lost_tails(name: str, topic: TopicPosition, abandoned: Iterable[Abandoned]) -> tuple[LostTail, ...]:
    """The topic's lost tails, with those of abandoned batches: merged tables keep rows of both."""
    positions = (batch.position.topics.get(name) for batch in abandoned)
    noted = (t.lost_tails for t in positions if t is not None and t.since == topic.since)
    return merge_tails([*topic.lost_tails, *chain.from_iterable(noted)])


def _batch_spans(latest: Mapping[str, TopicPosition], batch: Abandoned) -> Iterator[tuple[TopicPartition, int, int]]:
    """Partitions that a batch read, with its first and next offset; only of each topic's latest incarnation."""
    topics = {name: t for name, t in batch.position.topics.items() if t.since == latest[name].since}
    for r in batch.replayed:
        if r.topic in topics:
            yield (r.topic, r.partition), r.start, r.end
    for name, t in topics.items():
        for number, (begin, end) in enumerate(zip(t.start, t.known_end, strict=False)):
            yield (name, number), begin, end


def _rewound_topic(
    topic: TopicPosition, name: str, lowest: Mapping[TopicPartition, int], farthest: Mapping[TopicPartition, int]
) -> TopicPosition:
    count = sum(topic_name == name for topic_name, _ in lowest)
    start = tuple(lowest[name, number] for number in range(count))
    rewound_to = replace(topic, start=start, next=start, end=tuple(farthest[name, number] for number in range(count)))
    return rewound_to if rewound_to.unread else replace(rewound_to, end=())


def limit_to_log(position: Position, reached: Iterable[Position], facts: ClusterFacts) -> Position:
    """Move a rewound position up to Kafka's log starts: rows that can't be read again stay in the table.

    It moves no further than the positions that the pipeline once `reached`. Beyond them nothing has landed, and if Kafka lost
    records there, the next plan must report it.
    """
    past = [former.topics for former in reached if former.cluster == position.cluster]
    topics = {}
    for name, t in position.topics.items():
        same = [by_topic[name] for by_topic in past if name in by_topic and by_topic[name].since == t.since]
        farthest = tuple(
            max(offsets)
            for offsets in zip_longest(t.next, *(topic_position.next for topic_position in same), fillvalue=0)
        )
        starts = tuple(map(max, t.next, _lowest_offsets(replace(t, next=farthest), facts.topics.get(name))))
        topics[name] = t if starts == t.next else _skip_to(t, starts, same)
    return replace(position, topics=topics)


def _skip_to(topic: TopicPosition, starts: tuple[int, ...], reached: Iterable[TopicPosition]) -> TopicPosition:
    """The topic's position moved to `starts`, with leader epochs that cover the skipped records."""
    epochs = list(map(topic.leader_epoch, range(len(starts))))
    for number, offset in enumerate(starts):
        if offset > topic.next[number]:
            beyond = (
                topic_position
                for topic_position in reached
                if number < len(topic_position.next) and topic_position.next[number] >= offset
            )
            epochs[number] = max(topic_position.leader_epoch(number) for topic_position in beyond)
    return replace(topic, start=starts, next=starts, leader_epochs=known_epochs(epochs))


def _lowest_offsets(farthest: TopicPosition, topic_facts: TopicFacts | None) -> tuple[int, ...]:
    """The lowest offsets that partitions may move back to: the log starts; of a deleted or recreated topic, its `farthest`."""
    if topic_facts is None or is_recreated(farthest, topic_facts):
        return farthest.next
    return tuple(min(offset, p.log_start) for offset, p in zip(farthest.next, topic_facts.partitions, strict=False))


Row = Mapping[str, Any]
"""One row of the ledger. Older ledgers lack some columns."""

_READING: Final = ("ingest", "replay", "dead_letters")
"""Kinds of batches that read records."""


def lost_ranges(rows: Iterable[Row], table: str, after: int, position: Position) -> tuple[Range, ...]:
    """Ranges that batches after `after` read for a table, up to the position, behind which a run reads anyway.

    `after` is the last batch that the table contains; -1 if it contains none.
    """
    ranges: list[Range] = []
    for n, batch_rows in _batches(rows):
        own = _row_of_table(batch_rows, table)
        if n > after and own is not None and own["kind"] in _READING:
            ranges += (_read_so_far(r, n, position) for r in read_ranges(own))
    return union(ranges)


def lost_removals(rows: Iterable[Row], table: str, after: int) -> tuple[RemovedRange, ...]:
    """Ranges that batches after `after` removed from a table, so that its rollback brought their rows back."""
    own = (row for row in rows if row["table"] == table and row["n"] > after)
    removed = (RemovedRange(*r) for row in own for r in json.loads(row.get("removed") or "[]"))
    return tuple(dict.fromkeys(removed))


def unfilled_ranges(rows: Iterable[Row], table: str) -> tuple[Range, ...]:
    """Ranges that repairs of a table recorded as lost, and that no later batch has read again."""
    ranges: tuple[Range, ...] = ()
    for _, batch_rows in _batches(rows):
        own, first = _row_of_table(batch_rows, table), batch_rows[0]
        if first["kind"] == "repair" and own is not None:
            ranges = union((*ranges, *_read_ranges(own.get("skipped"))))
        elif first["kind"] in ("ingest", "replay"):
            ranges = subtract(ranges, read_ranges(first))
    return ranges


def union(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The offsets of all ranges, each once; ranges that overlap or touch become one."""
    segments: list[Range] = []
    for r in sorted((r for r in ranges if r.span > 0), key=lambda r: (r.topic, r.partition, r.start)):
        last = segments[-1] if segments else None
        if last is not None and (last.topic, last.partition) == (r.topic, r.partition) and r.start <= last.end:
            segments[-1] = replace(last, end=max(last.end, r.end))
        else:
            segments.append(r)
    return tuple(segments)


def subtract(ranges: Iterable[Range], excluded: Iterable[Range]) -> tuple[Range, ...]:
    """The ranges without the excluded ones."""
    segments = union(excluded)
    return tuple(part for r in ranges for part in _parts_outside(r, segments))


def split_readable(
    ranges: Iterable[Range], position: Position, facts: ClusterFacts
) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """Split ranges into those that a replay can read, and those that Kafka deleted or lost with a recreated topic."""
    present, missing = [], []
    for r in ranges:
        start, end = _readable_bounds(r, position, facts)
        present.append(replace(r, start=max(r.start, start), end=min(r.end, end)))
        missing.append(replace(r, end=min(r.end, start)))
    return union(present), union(missing)


def read_ranges(row: Row) -> tuple[Range, ...]:
    """The ranges that a batch read for the table of a ledger row."""
    return _read_ranges(row.get("table_ranges") or row["ranges"])


def _batches(rows: Iterable[Row]) -> Iterator[tuple[int, list[Row]]]:
    ordered = sorted(rows, key=lambda row: row["n"])
    return ((n, list(group)) for n, group in groupby(ordered, key=lambda row: row["n"]))


def _row_of_table(rows: Iterable[Row], table: str) -> Row | None:
    return next((row for row in rows if row["table"] == table), None)


def _read_ranges(text: str | None) -> tuple[Range, ...]:
    return tuple(Range(*r) for r in json.loads(text or "[]"))


def _read_so_far(r: Range, n: int, position: Position) -> Range:
    """A range of a batch, up to the position; a range of an earlier incarnation of the topic stays whole."""
    next_offset = position.next_offset(r.topic, r.partition)
    if next_offset is None or n < position.topics[r.topic].since:
        return r
    return replace(r, end=min(r.end, next_offset))


def _readable_bounds(r: Range, position: Position, facts: ClusterFacts) -> tuple[int, int]:
    """First and next offset of the records in the range's partition that the pipeline has read and Kafka still has."""
    topic_position, topic = position.topics.get(r.topic), facts.topics.get(r.topic)
    if (
        topic_position is None
        or topic is None
        or facts.cluster_id != position.cluster
        or (None not in (topic_position.id, topic.id) and topic_position.id != topic.id)
        or r.partition >= len(topic.partitions)
    ):
        return r.end, r.end
    return topic.partitions[r.partition].log_start, position.next_offset(r.topic, r.partition) or 0


def _parts_outside(r: Range, segments: Iterable[Range]) -> Iterator[Range]:
    start = r.start
    for segment in segments:
        if (
            (segment.topic, segment.partition) == (r.topic, r.partition)
            and start < segment.end
            and segment.start < r.end
        ):
            if start < segment.start:
                yield replace(r, start=start, end=segment.start)
            start = segment.end
    if start < r.end:
        yield replace(r, start=start)
