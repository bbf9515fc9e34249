"""What a batch changes besides appending rows: rows that it removes (selected by Kafka coordinates, never by values)
or merges by key, and dead letters that it makes rows of.

Rows are staged as plain Parquet in the order they were read. Of two rows of one key the later one counts: by the column that
`order_by` names (never null in a staged row, but for a truncate), then by Kafka partition and offset, then by `PLACE`. Without
`order_by` Kafka's timestamp comes first between two partitions. Of a deleted row all columns may be null but the key, the one
of `order_by`, and those that tell where it came from; of a truncate the key as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple, Self

from frazil.batch.facts import Range
from frazil.batch.position import LostTail, Position, TopicPosition


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


OP: Final = "_frazil_op"
"""What happens: text, one of `Op`."""

PLACE: Final = "_frazil_place"
"""int32: place of a row among the rows of its record, from 0."""

Op = Literal["upsert", "delete", "truncate"]
UPSERT: Final = "upsert"
DELETE: Final = "delete"
TRUNCATE: Final = "truncate"


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Counts of staged changes by operation. Of several changes of one key, only the last one takes effect in the table.

    Rows that an update of a key takes away are deletes; a truncate takes all rows of a topic.
    """

    upserts: int = 0
    deletes: int = 0
    truncates: int = 0

    @classmethod
    def from_ops(cls, ops: Mapping[str, int]) -> Self:
        """Counts by `frazil.batch.changes.Op`."""
        return cls(ops.get(UPSERT, 0), ops.get(DELETE, 0), ops.get(TRUNCATE, 0))

    def __add__(self, addend: ChangeCounts) -> ChangeCounts:
        return ChangeCounts(
            self.upserts + addend.upserts, self.deletes + addend.deletes, self.truncates + addend.truncates
        )

    @property
    def summary(self) -> str:
        """For people: `12 upserts, 3 deletes`."""
        counts = {"upserts": self.upserts, "deletes": self.deletes, "truncates": self.truncates}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count or name != "truncates")


@dataclass(frozen=True, slots=True)
class Merge:
    """How to merge changes: the key that identifies a row, and the order of changes of one row.

    Attributes:
        keys: Columns that identify a row.
        columns: Columns that say which record changed a row last, and in which batch.
        timestamp: Column of that record's time.
        order_by: Column whose larger value is the later change. None: the larger offset is, of one partition; of two
            partitions the larger timestamp.
        deleted: Column that says whether a row was deleted. None: deleted rows go.
        since: Topic -> number of the first batch of its present incarnation; an earlier row's offset says nothing.
        lost_tails: Topic -> what its logs lost; the offsets of those rows say nothing either.
    """

    keys: tuple[str, ...]
    columns: Coordinates
    timestamp: str
    order_by: str | None = None
    deleted: str | None = None
    since: Mapping[str, int] = field(default_factory=dict)
    lost_tails: Mapping[str, tuple[LostTail, ...]] = field(default_factory=dict)

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Merge:
        """Read the form that `dataclasses.asdict` gives."""
        return cls(
            tuple(body["keys"]),
            Coordinates(**body["columns"]),
            body["timestamp"],
            body["order_by"],
            body["deleted"],
            dict(body["since"]),
            {topic: tuple(LostTail(*tail) for tail in tails) for topic, tails in body.get("lost_tails", {}).items()},
        )


class Place(NamedTuple):
    """Coordinates of a dead letter's record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class OpenLetter(NamedTuple):
    """One open dead letter: its record's coordinates, the batch that stored it, and the table it does not fit (None: the
    whole record).

    A record may have had several.
    """

    place: Place
    batch: int
    destination: str | None = None

    @property
    def order(self) -> tuple[Place, int, str]:
        """Sort key of letters."""
        return self.place, self.batch, self.destination or ""


@dataclass(frozen=True, slots=True)
class LetterChoice:
    """Filters for the letters to retry: a letter must match all that are set.

    Attributes:
        codes: Reason codes; empty for any.
        topics: Names of topics; empty for any.
        since: Kafka timestamp from which on; None for any.
        until: Kafka timestamp before which; None for any.
        places: Records, whichever table their letters are of; empty for any, unless `of_tables` names some.
        tables: Letters of these destinations; empty for any. Letters of records as a whole are of none.
        of_tables: Records, each with the destination that its letter is of; empty for any, unless `places` names some.
    """

    codes: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    since: datetime | None = None
    places: frozenset[Place] = frozenset()
    tables: frozenset[str] = frozenset()
    of_tables: frozenset[tuple[Place, str]] = frozenset()
    until: datetime | None = None

    def fits(self, place: Place, code: str, timestamp: datetime | None, destination: str | None = None) -> bool:
        """Whether a letter matches. One without a timestamp matches no time range."""
        return (
            (not self.codes or code in self.codes)
            and (not self.topics or place.topic in self.topics)
            and (not self.tables or destination in self.tables)
            and self._names(place, destination)
            and (self.since is None or (timestamp is not None and timestamp >= self.since))
            and (self.until is None or (timestamp is not None and timestamp < self.until))
        )

    def _names(self, place: Place, destination: str | None) -> bool:
        if not self.places and not self.of_tables:
            return True
        return place in self.places or (place, destination) in self.of_tables


def undone(rewinds: Iterable[tuple[int, Iterable[RemovedRange]]]) -> frozenset[int]:
    """Numbers of batches that a rollback of the closing table undid: letters that they landed are open again.

    A rewind says so by taking out, whatever the partition, all that batches from a number on landed. One that was rolled
    back itself undoes nothing.

    Of each rewinding batch it takes the number, and what it removed.
    """
    numbers: set[int] = set()
    for n, removed in sorted(rewinds, key=lambda rewind: rewind[0], reverse=True):
        if n not in numbers:
            numbers.update(number for r in removed if r.partition is None for number in range(r.since, n))
    return frozenset(numbers)


def spans(places: Collection[Place]) -> tuple[RemovedRange, ...]:
    """Per partition, the range from the first to the last offset of these letters, of any batch."""
    by_partition = groupby(sorted(places), key=lambda place: place[:2])
    offsets_by_partition: Mapping[tuple[str, int], list[int]] = {
        key: [place.offset for place in group] for key, group in by_partition
    }
    return tuple(RemovedRange(*key, offsets[0], offsets[-1] + 1, 0) for key, offsets in offsets_by_partition.items())


def ranges_of(places: Iterable[Place]) -> tuple[Range, ...]:
    """Exactly these offsets, neighbours as one range."""
    return tuple(_joined(sorted(places)))


def first_letters(letters: Iterable[OpenLetter], most: int, most_ranges: int) -> tuple[OpenLetter, ...]:
    """The first of these ascending letters: at most `most`, in at most `most_ranges` contiguous ranges."""
    chosen: list[OpenLetter] = []
    ranges = 0
    for letter in letters:
        place = letter.place
        is_next = bool(chosen) and chosen[-1].place in (place, place._replace(offset=place.offset - 1))
        ranges += not is_next
        if len(chosen) == most or ranges > most_ranges:
            break
        chosen.append(letter)
    return tuple(chosen)


def _joined(places: Iterable[Place]) -> Iterator[Range]:
    begun: Range | None = None
    for topic, partition, offset in places:
        if begun is not None and (topic, partition, offset) == (begun.topic, begun.partition, begun.end):
            begun = Range(topic, partition, begun.start, offset + 1)
            continue
        if begun is not None:
            yield begun
        begun = Range(topic, partition, offset, offset + 1)
    if begun is not None:
        yield begun
