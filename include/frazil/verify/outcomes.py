"""What the tables hold of a stretch of offsets, as hashes, and how many rows and letters they hold in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa

from frazil.pipeline.syntax.types import ColumnType, Primitive
from frazil.verify.facts.result import Difference
from frazil.verify.tables import Held, scan, within
from frazil.verify.values.canonical import Digest, column_values, digest
from frazil.verify.values.evolved_schema import without_empties

_LONG = Primitive("long")
_CELLS = ("key", "value")
_PAYLOAD = "frazil.payload"
"""Header of a dead letter that does not keep its record; docs/dead-letters.md has its form."""

_BYTES = "frazil.bytes"
"""Header behind it of a letter whose record was too large: its size."""

_WITHOUT_RECORD = ((_PAYLOAD, b"redacted"), (_PAYLOAD, b"none"))

Cells = tuple[Digest | None, ...]


class Outcome(NamedTuple):
    """What became of one record.

    Attributes:
        batch: Number of the batch that says so.
        code: Reason of a dead letter, None for a row.
        digest: Hash of all values; for a row of a batch under another pipeline file, the hash of each.
        payload: What a dead letter keeps of its record: `full`, `redacted` (sizes and hashes), `bytes` (the size of all) or
            `none`.
    """

    batch: int | None
    code: str | None
    digest: Digest | Cells
    payload: str = "full"


Found = dict[int, list[Outcome]]
"""Offset -> outcomes."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets `start` <= o < `end` of one partition, of rows landed by batch `since` or later; no end: no bound."""

    topic: str
    partition: int
    start: int
    end: int | None
    since: int


def cell_digests(values: Sequence[Any]) -> Cells:
    """Hash of each value, None for null."""
    return tuple(None if value is None else digest(value) for value in values)


@dataclass(frozen=True)
class Reading:
    """How rows of a batch are read.

    Attributes:
        types: Columns that are compared, in order.
        lenient: Numbers of batches of which each value is judged alone.
        is_grown: Whether records brought columns: then what holds nothing counts as null.
        is_by_cell: Whether each value is judged alone in every batch.
    """

    types: Mapping[str, ColumnType]
    lenient: Collection[int | None] = ()
    is_grown: bool = False
    is_by_cell: bool = False


class Outcomes:
    """Reads outcomes from the destination and the dead letters.

    Args:
        destination: The table of rows.
        letters: The dead letters.
        reading: How rows of a batch are read, by its number.
        columns: All columns that some reading has.
    """

    def __init__(
        self,
        destination: Held,
        letters: Held,
        reading: Callable[[int | None], Reading],
        columns: Collection[str],
    ) -> None:
        self._destination, self._letters = destination, letters
        self._reading, self._columns = reading, tuple(columns)

    def rows(self, stretch: Stretch, found: Found, *, with_values: bool) -> int:
        """Add the rows of a stretch to `found` and return how many there are."""
        count = 0
        for batch in self._scan(self._destination, stretch, self._columns if with_values else ()):
            rows: dict[int, list[tuple[Any, ...]]] = {}
            last: object = rows  # the number of no batch
            values: list[tuple[Any, ...]] | None = None
            is_by_cell = False
            for at, (offset, n) in enumerate(zip(*self._places(self._destination, batch), strict=True)):
                if n is not None and n < stretch.since:
                    continue
                if n != last:  # rows of one batch stand together
                    last, reading = n, self._reading(n)
                    is_by_cell = reading.is_by_cell or n in reading.lenient
                    if with_values and id(reading) not in rows:
                        rows[id(reading)] = self._values(batch, reading)
                    values = rows.get(id(reading))
                row = () if values is None else values[at]
                found.setdefault(offset, []).append(Outcome(n, None, cell_digests(row) if is_by_cell else digest(row)))
                count += 1
        return count

    def letters(self, stretch: Stretch, found: Found) -> int:
        """Add the dead letters of a stretch to `found` and return how many there are."""
        count = 0
        for batch in self._scan(self._letters, stretch, ["code", "headers", *_CELLS]):
            code, headers, key, value = (batch.column(name).to_pylist() for name in ("code", "headers", *_CELLS))
            stamps = column_values(batch.column(self._letters.columns.timestamp), _LONG)
            places = self._places(self._letters, batch)
            for offset, n, why, *record in zip(*places, code, key, value, map(pairs, headers), stamps, strict=True):
                if n is None or n >= stretch.since:
                    payload = payload_of(record)
                    found.setdefault(offset, []).append(Outcome(n, why or "", digest(tuple(record)), payload))
                    count += 1
        return count

    def offsets(self, stretch: Stretch) -> Iterator[tuple[str, int, int | None]]:
        """Table, offset and batch number of every outcome of a stretch."""
        for held in (self._destination, self._letters):
            for batch in self._scan(held, stretch, []):
                for offset, n in zip(*self._places(held, batch), strict=True):
                    if n is None or n >= stretch.since:
                        yield held.name, offset, n

    def row(self, stretch: Stretch, n: int | None) -> tuple[Any, ...] | None:
        """Values of the first row of a stretch that batch `n` landed, the timestamp last; None if it is gone."""
        for batch in self._scan(self._destination, stretch, self._columns):
            _, numbers = self._places(self._destination, batch)
            if n in numbers:
                return self._values(batch, self._reading(n))[numbers.index(n)]
        return None

    def _scan(self, held: Held, stretch: Stretch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        names = held.columns
        wanted = list(dict.fromkeys([*columns, names.offset, names.timestamp, names.batch]))
        return scan(held, within(held, stretch.topic, stretch.partition, stretch.start, stretch.end), wanted)

    @staticmethod
    def _places(held: Held, batch: pa.RecordBatch) -> tuple[list[int], list[int | None]]:
        return batch.column(held.columns.offset).to_pylist(), batch.column(held.columns.batch).to_pylist()

    def _values(self, batch: pa.RecordBatch, reading: Reading) -> list[tuple[Any, ...]]:
        """Of each row the columns of a reading, then the timestamp, in canonical form."""
        columns = [column_values(batch.column(name), of) for name, of in reading.types.items()]
        if reading.is_grown:
            columns = [[without_empties(value) for value in values] for values in columns]
        stamps = column_values(batch.column(self._destination.columns.timestamp), _LONG)
        return list(zip(*columns, stamps, strict=True))


def payload_of(letter: Sequence[Any]) -> str:
    """What a letter (key, value, headers, ...) keeps of its record. One that keeps it not says so in its first header."""
    key, value, headers = letter[:3]
    if key is None and value is None and headers and headers[0] in _WITHOUT_RECORD:
        return "bytes" if headers[1:] and headers[1][0] == _BYTES else str(headers[0][1].decode())
    return "full"


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    """Bytes of key, value, and names and values of headers."""
    own = sum(len(name.encode()) + len(text or b"") for name, text in headers or ())
    return len(key or b"") + len(value or b"") + own


def kept(record: tuple[Any, ...], payload: str) -> tuple[Any, ...]:
    """A record (key, value, headers, timestamp) as a letter keeps it that has only sizes and hashes, or nothing."""
    if payload == "full":
        return record
    key, value, headers, stamp = record
    said = [(_PAYLOAD, b"none" if payload == "bytes" else payload.encode())]
    if payload == "bytes":
        said.append((_BYTES, b"%d" % record_bytes(key, value, headers)))
    if payload == "redacted":
        text = None if headers is None else b"".join(part for of in headers for part in map(_sized, of))
        parts = (("frazil.key", key), ("frazil.value", value), ("frazil.headers", text))
        said += [
            (name, b"%d %s" % (len(part), blake2b(part, digest_size=16).hexdigest().encode()))
            for name, part in parts
            if part is not None
        ]
    return None, None, tuple(said), stamp


def _sized(part: str | bytes | None) -> bytes:
    if part is None:
        return b"-1 "
    text = part.encode() if isinstance(part, str) else part
    return b"%d %s" % (len(text), text)


def pairs(headers: Sequence[Any] | None) -> tuple[tuple[str, bytes | None], ...] | None:
    """Headers of a record, from Kafka or from a table; None where there are none."""
    if not headers:
        return None
    return tuple((h["key"], h["value"]) if isinstance(h, dict) else (h[0], h[1]) for h in headers)


@dataclass
class RowCounts:
    """Counts of one table or several.

    Attributes:
        counts: (topic, partition) -> outcomes of the present incarnation.
        older_incarnation: Outcomes of topics that are gone, or were recreated since.
        foreign: Rows without any Kafka column, or of topics of another pipeline: not ours.
        nowhere: Table -> outcomes with some of these columns, but not topic, partition and offset.
        unknown: (table, topic) -> outcomes of a topic that no position ever named.
        by_batch: (table, batch number) -> outcomes of the present incarnation.
    """

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    older_incarnation: int = 0
    foreign: int = 0
    nowhere: Counter[str] = field(default_factory=Counter)
    unknown: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_batch: Counter[tuple[str, int]] = field(default_factory=Counter)

    def differences(self) -> Iterator[Difference]:
        """Outcomes that name no record."""
        for table, count in sorted((+self.nowhere).items()):
            yield Difference("unexpected", f"topic, partition and offset in every row of {table}", f"{count} without")
        for (table, topic), count in sorted(self.unknown.items()):
            yield Difference(
                "unexpected", f"only topics that were read, in {table}", f"{count} of a topic never read", topic
            )


@dataclass(frozen=True, slots=True)
class Topics:
    """What is known of topics.

    Attributes:
        live: Topics that are still what the position knows -> first batch number of their present incarnation.
        read: All that any position of the pipeline names.
        others: Topics of other pipelines that land into the same table.
        unrecorded: Numbers of batches whose ledger rows were given up: they may have read any topic.
    """

    live: Mapping[str, int]
    read: frozenset[str]
    others: frozenset[str] = frozenset()
    unrecorded: frozenset[int] = frozenset()


def count(row_counts: RowCounts, held: Held, topics: Topics) -> None:
    """Add a table to a row_counts."""
    names = held.columns
    columns = [names.topic, names.partition, names.offset, names.batch]
    for batch in scan(held, None, columns):
        # Counting non-null offsets apart from rows finds those that name a partition and no offset.
        table = pa.Table.from_batches([batch]).select(columns).rename_columns(["topic", "partition", "offset", "batch"])
        counted = table.group_by(["topic", "partition", "batch"]).aggregate([([], "count_all"), ("offset", "count")])
        for group in counted.to_pylist():
            _add(row_counts, held.name, topics, group)


def _add(row_counts: RowCounts, table: str, topics: Topics, group: Mapping[str, int | str | None]) -> None:
    topic, partition, n = group["topic"], group["partition"], group["batch"]
    rows, placed = int(group["count_all"] or 0), int(group["offset_count"] or 0)
    if topic is None and partition is None and n is None and not placed:
        row_counts.foreign += rows
    elif topic is None or partition is None:
        row_counts.nowhere[table] += rows
    elif (name := str(topic)) not in topics.read and n not in topics.unrecorded:
        if name in topics.others:
            row_counts.foreign += rows
        else:
            row_counts.unknown[table, name] += rows
    elif name not in topics.live or (n is not None and int(n) < topics.live[name]):
        row_counts.older_incarnation += rows
    else:
        row_counts.counts[name, int(partition)] += placed
        row_counts.nowhere[table] += rows - placed
        if n is not None:
            row_counts.by_batch[table, int(n)] += placed
