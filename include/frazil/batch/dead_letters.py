"""Dead letters that become rows later: which ones are open, and what a batch records about those it lands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from frazil.batch.changes import RemovedRange
from frazil.batch.facts import Range


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
