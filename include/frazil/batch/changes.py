"""Changes that a batch makes besides appending rows: it removes rows (selected by Kafka coordinates, never by values),
merges rows by key, and turns dead letters into rows.

Rows are staged as plain Parquet in the order of reading. Of two rows with one key the later one counts: by the column of
`order_by`, then by Kafka partition and offset, then by `PLACE`. Without `order_by`, Kafka's timestamp orders rows of two
partitions. A row that deletes may be null in all columns but the key, that of `order_by`, and its Kafka coordinates. A truncate
has no key, and may be null in the column of `order_by`.
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
    """Names of the columns with a row's Kafka coordinates and batch number."""

    topic: str
    partition: str
    offset: str
    batch: str


@dataclass(frozen=True, slots=True)
class RemovedRange:
    """A range of offsets in one topic whose rows are removed.

    Attributes:
        partition: Number of the partition; None for all.
        start: First offset.
        end: One past the last offset; None for no bound.
        since: First batch whose rows are removed. Rows of an earlier incarnation of the topic have lower numbers and stay.
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
        """Read what `dataclasses.asdict` returned."""
        return cls(Coordinates(**body["columns"]), tuple(RemovedRange(**r) for r in body["ranges"]))


def replayed_ranges(ranges: tuple[Range, ...], position: Position) -> tuple[RemovedRange, ...]:
    """The rows that a replay of `ranges` replaces: those of each topic's present incarnation."""
    return tuple(RemovedRange(r.topic, r.partition, r.start, r.end, position.topics[r.topic].since) for r in ranges)


def ranges_from(position: Position) -> tuple[RemovedRange, ...]:
    """All rows from a position on, whose records will be read again, including rows of unrecorded batches."""
    return tuple(
        RemovedRange(name, number, offset, None, topic_position.since)
        for name, topic_position in sorted(position.topics.items())
        for number, offset in enumerate(topic_position.next)
    )


def farthest_position(before: Position, after: Position) -> Position:
    """Per partition, the farther of the positions before and after a reset."""
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


def moved_back_ranges(before: Position, after: Position) -> tuple[RemovedRange, ...]:
    """Rows from `after` on, in partitions that move back from `before` within one incarnation of the topic."""
    return tuple(r for r in ranges_from(after) if _moves_back(before, r) and before.topics[r.topic].since == r.since)


def _moves_back(before: Position, r: RemovedRange) -> bool:
    next_offset = None if r.partition is None else before.next_offset(r.topic, r.partition)
    return next_offset is not None and r.start < next_offset


def ranges_landed_after(topics: Mapping[str, object], n: int) -> tuple[RemovedRange, ...]:
    """All rows of these topics that batches after `n` landed."""
    return tuple(RemovedRange(name, None, 0, None, n + 1) for name in sorted(topics))


OP: Final = "_frazil_op"
"""Column of staged changes: the operation, one of `Op`."""

PLACE: Final = "_frazil_place"
"""Column of staged changes, int32: place of a row among the rows of its record, from 0."""

Op = Literal["upsert", "delete", "truncate"]
UPSERT: Final = "upsert"
DELETE: Final = "delete"
TRUNCATE: Final = "truncate"


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Counts of staged changes by operation; of several changes of one key, only the last one takes effect in the table.

    A record that changes a key counts as a delete and an upsert. A truncate removes all rows of its topic.
    """

    upserts: int = 0
    deletes: int = 0
    truncates: int = 0

    @classmethod
    def from_ops(cls, ops: Mapping[str, int]) -> Self:
        """Read counts by `Op`."""
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
        timestamp: Column with the timestamp of that record.
        order_by: Column whose larger value is the later change. None: the larger offset within a partition, and the larger
            timestamp between two.
        deleted: Column that says whether a row was deleted. None: deleted rows are removed.
        since: Topic -> first batch of its present incarnation; offsets of earlier rows can't be compared.
        lost_tails: Topic -> ends that its logs lost; offsets of their rows can't be compared either.
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
        """Read what `dataclasses.asdict` returned."""
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
    """One open dead letter: its record's coordinates, the batch that stored it, and the table that the record does not fit.

    `destination` is None for a letter of the whole record. A record may have several letters.
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
    """Filters for dead letters to replay: a letter must match all that are set.

    Attributes:
        codes: Reason codes; empty for any.
        topics: Names of topics; empty for any.
        since: First Kafka timestamp; None for any.
        until: Kafka timestamp after the last one; None for any.
        places: Records, with their letters for any destination.
        tables: Destinations of the letters; empty for any. A letter for a whole record has none, and never matches.
        of_tables: Records, each with one destination. If `places` and `of_tables` are both empty, all records match.
    """

    codes: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    since: datetime | None = None
    places: frozenset[Place] = frozenset()
    tables: frozenset[str] = frozenset()
    of_tables: frozenset[tuple[Place, str]] = frozenset()
    until: datetime | None = None

    def fits(self, place: Place, code: str, timestamp: datetime | None, destination: str | None = None) -> bool:
        """Whether a letter matches. A letter without a timestamp matches no time range."""
        return (
            (not self.codes or code in self.codes)
            and (not self.topics or place.topic in self.topics)
            and (not self.tables or destination in self.tables)
            and self._is_chosen(place, destination)
            and (self.since is None or (timestamp is not None and timestamp >= self.since))
            and (self.until is None or (timestamp is not None and timestamp < self.until))
        )

    def _is_chosen(self, place: Place, destination: str | None) -> bool:
        if not self.places and not self.of_tables:
            return True
        return place in self.places or (place, destination) in self.of_tables


def undone_batches(rewinds: Iterable[tuple[int, Iterable[RemovedRange]]]) -> frozenset[int]:
    """Numbers of batches that a rollback of the closing table undid: dead letters that they replayed are open again.

    `rewinds` are batches of kind `rewind`, each with its number and removed ranges. A range without a partition names the
    undone batches: those from its `since` up to the rewind. A rewind that was rolled back itself undoes nothing.
    """
    numbers: set[int] = set()
    for n, removed in sorted(rewinds, key=lambda rewind: rewind[0], reverse=True):
        if n not in numbers:
            numbers.update(number for r in removed if r.partition is None for number in range(r.since, n))
    return frozenset(numbers)


def letter_spans(places: Collection[Place]) -> tuple[RemovedRange, ...]:
    """Per partition, the range from the first to the last offset of these letters, whichever batch stored them."""
    groups = (list(group) for _, group in groupby(sorted(places), key=lambda place: place[:2]))
    return tuple(RemovedRange(*group[0], group[-1].offset + 1, 0) for group in groups)


def letter_ranges(places: Iterable[Place]) -> tuple[Range, ...]:
    """Exactly these offsets, with neighbours joined to one range."""
    return tuple(_joined(sorted(places)))


def first_letters(letters: Iterable[OpenLetter], most: int, most_ranges: int) -> tuple[OpenLetter, ...]:
    """The first of these letters, which ascend: at most `most`, in at most `most_ranges` contiguous ranges."""
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
    current: Range | None = None
    for topic, partition, offset in places:
        if current is not None and (topic, partition, offset) == (current.topic, current.partition, current.end):
            current = replace(current, end=offset + 1)
            continue
        if current is not None:
            yield current
        current = Range(topic, partition, offset, offset + 1)
    if current is not None:
        yield current
