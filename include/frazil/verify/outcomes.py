"""Reads the outcomes of a range of offsets as hashes, and counts all rows and dead letters of the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa

from frazil.pipeline.syntax.types import ColumnType
from frazil.verify.facts.result import Difference
from frazil.verify.tables import ScannedTable, offset_filter, scan
from frazil.verify.values.canonical import LONG, Digest, column_values, digest, null_empty_values

_KEY_AND_VALUE = ("key", "value")
_PAYLOAD = "frazil.payload"
"""Header of a dead letter that does not keep its record, as docs/dead-letters.md describes."""

_BYTES = "frazil.bytes"
"""Second header of such a dead letter: the size of its record, if that was too large."""

_WITHOUT_RECORD = ((_PAYLOAD, b"redacted"), (_PAYLOAD, b"none"))

Cells = tuple[Digest | None, ...]


class Outcome(NamedTuple):
    """The row or dead letter of one record.

    Attributes:
        batch: Number of the batch that wrote it.
        code: Reason of a dead letter, None for a row.
        digest: Hash of all values; of each value, if rows of the batch are compared value by value.
        payload: What a dead letter keeps of its record: `full`, `redacted` (sizes and hashes), `bytes` (the total size) or
            `none`.
    """

    batch: int | None
    code: str | None
    digest: Digest | Cells
    payload: str = "full"


OutcomesByOffset = dict[int, list[Outcome]]
"""Offset -> outcomes."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start` <= o < `end` of one partition, in rows of batch `since` or later; an end of None means no upper bound."""

    topic: str
    partition: int
    start: int
    end: int | None
    since: int


def cell_digests(values: Sequence[Any]) -> Cells:
    """Hash of each value, None for null."""
    return tuple(None if value is None else digest(value) for value in values)


@dataclass(frozen=True)
class RowReading:
    """How rows of a batch are read and hashed.

    Attributes:
        types: Columns that are compared, in order.
        lenient: Numbers of batches whose rows are compared value by value.
        is_evolving: Whether records may add columns: then an empty list, map or struct counts as null, see `Expectation`.
        is_by_cell: Whether rows of every batch are compared value by value.
    """

    types: Mapping[str, ColumnType]
    lenient: Collection[int | None] = ()
    is_evolving: bool = False
    is_by_cell: bool = False


class Outcomes:
    """Reads outcomes from the destination and the dead letters.

    Args:
        destination: The table of rows.
        letters: The table of dead letters.
        reading: Batch number -> how its rows are read.
        columns: All columns that any batch compares.
    """

    def __init__(
        self,
        destination: ScannedTable,
        letters: ScannedTable,
        reading: Callable[[int | None], RowReading],
        columns: Collection[str],
    ) -> None:
        self._destination, self._letters = destination, letters
        self._reading, self._columns = reading, tuple(columns)

    def rows(self, offset_range: OffsetRange, outcomes: OutcomesByOffset, *, with_values: bool) -> int:
        """Add the rows of an offset range to `outcomes` and return how many there are."""
        count = 0
        for batch in self._scan(self._destination, offset_range, self._columns if with_values else ()):
            rows: dict[int, list[tuple[Any, ...]]] = {}
            last: object = rows  # no batch number equals it, so the first row sets the reading
            values: list[tuple[Any, ...]] | None = None
            is_by_cell = False
            for index, (offset, n) in enumerate(zip(*self._places(self._destination, batch), strict=True)):
                if n is not None and n < offset_range.since:
                    continue
                if n != last:  # rows of one batch stand together
                    last, reading = n, self._reading(n)
                    is_by_cell = reading.is_by_cell or n in reading.lenient
                    if with_values and id(reading) not in rows:
                        rows[id(reading)] = self._values(batch, reading)
                    values = rows.get(id(reading))
                row = () if values is None else values[index]
                outcomes.setdefault(offset, []).append(
                    Outcome(n, None, cell_digests(row) if is_by_cell else digest(row))
                )
                count += 1
        return count

    def letters(self, offset_range: OffsetRange, outcomes: OutcomesByOffset) -> int:
        """Add the dead letters of an offset range to `outcomes` and return how many there are."""
        count = 0
        for batch in self._scan(self._letters, offset_range, ["code", "headers", *_KEY_AND_VALUE]):
            code, headers, key, value = (
                batch.column(name).to_pylist() for name in ("code", "headers", *_KEY_AND_VALUE)
            )
            stamps = column_values(batch.column(self._letters.columns.timestamp), LONG)
            places = self._places(self._letters, batch)
            for offset, n, why, *record in zip(
                *places, code, key, value, map(header_pairs, headers), stamps, strict=True
            ):
                if n is None or n >= offset_range.since:
                    payload = payload_of(record)
                    outcomes.setdefault(offset, []).append(Outcome(n, why or "", digest(tuple(record)), payload))
                    count += 1
        return count

    def offsets(self, offset_range: OffsetRange) -> Iterator[tuple[str, int, int | None]]:
        """Table, offset and batch number of every outcome of an offset range."""
        for table in (self._destination, self._letters):
            for batch in self._scan(table, offset_range, []):
                for offset, n in zip(*self._places(table, batch), strict=True):
                    if n is None or n >= offset_range.since:
                        yield table.name, offset, n

    def row(self, offset_range: OffsetRange, n: int | None) -> tuple[Any, ...] | None:
        """Values of the first row of an offset range that batch `n` landed, with the timestamp last; None if there is none."""
        for batch in self._scan(self._destination, offset_range, self._columns):
            _, numbers = self._places(self._destination, batch)
            if n in numbers:
                return self._values(batch, self._reading(n))[numbers.index(n)]
        return None

    def _scan(self, table: ScannedTable, offset_range: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        names = table.columns
        column_names = list(dict.fromkeys([*columns, names.offset, names.timestamp, names.batch]))
        return scan(
            table,
            offset_filter(table, offset_range.topic, offset_range.partition, offset_range.start, offset_range.end),
            column_names,
        )

    @staticmethod
    def _places(table: ScannedTable, batch: pa.RecordBatch) -> tuple[list[int], list[int | None]]:
        return batch.column(table.columns.offset).to_pylist(), batch.column(table.columns.batch).to_pylist()

    def _values(self, batch: pa.RecordBatch, reading: RowReading) -> list[tuple[Any, ...]]:
        """Per row the columns of a reading, then the timestamp, in canonical form."""
        columns = [column_values(batch.column(name), column_type) for name, column_type in reading.types.items()]
        if reading.is_evolving:
            columns = [[null_empty_values(value) for value in values] for values in columns]
        stamps = column_values(batch.column(self._destination.columns.timestamp), LONG)
        return list(zip(*columns, stamps, strict=True))


def payload_of(letter: Sequence[Any]) -> str:
    """The payload mode of a dead letter (key, value, headers, ...): the first header names it, if it is not `full`."""
    key, value, headers = letter[:3]
    if key is None and value is None and headers and headers[0] in _WITHOUT_RECORD:
        return "bytes" if headers[1:] and headers[1][0] == _BYTES else str(headers[0][1].decode())
    return "full"


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    """Number of bytes of key, value, and names and values of headers."""
    header_bytes = sum(len(name.encode()) + len(content or b"") for name, content in headers or ())
    return len(key or b"") + len(value or b"") + header_bytes


def stored_record(record: tuple[Any, ...], payload: str) -> tuple[Any, ...]:
    """The form of a record (key, value, headers, timestamp) that a dead letter with this payload mode stores."""
    if payload == "full":
        return record
    key, value, headers, stamp = record
    markers = [(_PAYLOAD, b"none" if payload == "bytes" else payload.encode())]
    if payload == "bytes":
        markers.append((_BYTES, b"%d" % record_bytes(key, value, headers)))
    if payload == "redacted":
        written = None if headers is None else b"".join(_length_prefixed(part) for header in headers for part in header)
        parts = (("frazil.key", key), ("frazil.value", value), ("frazil.headers", written))
        markers += [
            (name, b"%d %s" % (len(part), blake2b(part, digest_size=16).hexdigest().encode()))
            for name, part in parts
            if part is not None
        ]
    return None, None, tuple(markers), stamp


def _length_prefixed(part: str | bytes | None) -> bytes:
    if part is None:
        return b"-1 "
    text = part.encode() if isinstance(part, str) else part
    return b"%d %s" % (len(text), text)


def header_pairs(headers: Mapping[str, Any] | Sequence[Any] | None) -> tuple[tuple[str, bytes | None], ...] | None:
    """Headers of a record, from Kafka or from a table; None if there are none."""
    listed = headers.items() if isinstance(headers, Mapping) else headers or ()
    return tuple((h["key"], h["value"]) if isinstance(h, dict) else (h[0], h[1]) for h in listed) or None


@dataclass
class RowCounts:
    """Counts of the outcomes in one table or several.

    Attributes:
        counts: (topic, partition) -> outcomes of the present incarnation.
        older_incarnation: Outcomes of topics that were deleted, or recreated, since they were read.
        foreign: Rows that somebody else wrote: without any Kafka column, or from topics of another pipeline.
        without_place: Table -> outcomes with some Kafka columns, but not all of topic, partition and offset.
        unknown_topics: (table, topic) -> outcomes of a topic that no position ever named.
        by_batch: (table, batch number) -> outcomes of the present incarnation.
    """

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    older_incarnation: int = 0
    foreign: int = 0
    without_place: Counter[str] = field(default_factory=Counter)
    unknown_topics: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_batch: Counter[tuple[str, int]] = field(default_factory=Counter)

    def differences(self) -> Iterator[Difference]:
        """Outcomes that name no record, or a topic that the pipeline never read."""
        for table, count in sorted((+self.without_place).items()):
            yield Difference("unexpected", f"topic, partition and offset in every row of {table}", f"{count} without")
        for (table, topic), count in sorted(self.unknown_topics.items()):
            yield Difference(
                "unexpected", f"only topics that were read, in {table}", f"{count} of a topic never read", topic
            )


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics that rows of the tables may name.

    Attributes:
        live: Topics that still have the id of the position -> first batch number of their present incarnation.
        read: All topics that any position of the pipeline names.
        foreign_topics: Topics of other pipelines that write into the same table.
        unrecorded: Numbers of batches whose ledger rows were given up: they may have read any topic.
    """

    live: Mapping[str, int]
    read: frozenset[str]
    foreign_topics: frozenset[str] = frozenset()
    unrecorded: frozenset[int] = frozenset()


def count_outcomes(row_counts: RowCounts, scanned: ScannedTable, topics: Topics) -> None:
    """Add the outcomes of a table to the counts."""
    names = scanned.columns
    columns = [names.topic, names.partition, names.offset, names.batch]
    for batch in scan(scanned, None, columns):
        # Both rows and non-null offsets are counted, to find rows that name a partition and no offset.
        table = pa.Table.from_batches([batch]).select(columns).rename_columns(["topic", "partition", "offset", "batch"])
        counted = table.group_by(["topic", "partition", "batch"]).aggregate([([], "count_all"), ("offset", "count")])
        for group in counted.to_pylist():
            _add_group(row_counts, scanned.name, topics, group)


def _add_group(row_counts: RowCounts, table: str, topics: Topics, group: Mapping[str, int | str | None]) -> None:
    topic, partition, n = group["topic"], group["partition"], group["batch"]
    rows, placed = int(group["count_all"] or 0), int(group["offset_count"] or 0)
    if topic is None and partition is None and n is None and not placed:
        row_counts.foreign += rows
    elif topic is None or partition is None:
        row_counts.without_place[table] += rows
    elif (name := str(topic)) not in topics.read and n not in topics.unrecorded:
        if name in topics.foreign_topics:
            row_counts.foreign += rows
        else:
            row_counts.unknown_topics[table, name] += rows
    elif name not in topics.live or (n is not None and int(n) < topics.live[name]):
        row_counts.older_incarnation += rows
    else:
        row_counts.counts[name, int(partition)] += placed
        row_counts.without_place[table] += rows - placed
        if n is not None:
            row_counts.by_batch[table, int(n)] += placed
