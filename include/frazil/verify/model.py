"""A model of a merged table: the last change of each key, in a SQLite database that spills to disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from frazil.verify.facts.result import shorten
from frazil.verify.values.cdc_expectation import RowChange

_KEY_BYTES = 16
_FLUSH_SIZE = 10_000
"""Number of changes and rows that are inserted at once."""

_CREATE_TABLES = """
CREATE TABLE change (
    key BLOB, topic TEXT, part INT, shown TEXT, ord, off INT, place INT, op TEXT, digest BLOB, batch INT,
    stamp INT, newest_stamp INT,
    PRIMARY KEY (key, topic, part)
) WITHOUT ROWID;
CREATE TABLE found (
    key BLOB, topic TEXT, part INT, shown TEXT, ord, off INT, digest BLOB, batch INT, deleted INT, stamp INT
);
CREATE TABLE truncated (
    topic TEXT, part INT, ord, off INT, batch INT, stamp INT, newest_stamp INT, PRIMARY KEY (topic, part)
) WITHOUT ROWID;
"""
"""`change`: the last change of each key in each partition. `found`: the rows of the table. `truncated`: the last truncate of each
partition. `ord` is the value of `order_by`; without that column `stamp`, Kafka's timestamp, orders changes of two partitions.
`place` is the number of a change within its record, `shown` the text of a key.
"""

_UPSERT_CHANGE = """
INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    shown = excluded.shown, ord = excluded.ord, off = excluded.off, place = excluded.place, op = excluded.op,
    digest = excluded.digest, batch = excluded.batch, stamp = excluded.stamp,
    newest_stamp = max(newest_stamp, excluded.stamp)
WHERE (excluded.ord, excluded.off, excluded.place) >= (ord, off, place)
"""

_UPSERT_TRUNCATE = """
INSERT INTO truncated VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    ord = excluded.ord, off = excluded.off, batch = excluded.batch, stamp = excluded.stamp,
    newest_stamp = max(newest_stamp, excluded.stamp)
WHERE (excluded.ord, excluded.off) >= (ord, off)
"""

_GOES_BACK = """newest_stamp > stamp OR EXISTS (
    SELECT 1 FROM truncated e WHERE e.topic = change.topic AND (e.newest_stamp > e.stamp OR e.part = change.part
        AND iif(e.off > change.off, e.stamp < change.newest_stamp, change.stamp < e.newest_stamp))
)"""
"""Whether timestamps of a key, or of a truncate, decrease within a partition: then the outcome depends on how records were split
into batches.
"""

_IS_BEFORE = """iif(
    e.part = last.part AND e.ord = last.ord, last.off < e.off, (last.ord, last.stamp, last.part) < (e.ord, e.stamp, e.part)
)"""

_CREATE_EXPECTED = f"""
CREATE TABLE expected AS
SELECT *,
    EXISTS (SELECT 1 FROM truncated e WHERE e.topic = last.topic AND {_IS_BEFORE}) AS is_truncated,
    goes_back AND (places > 1 OR EXISTS (SELECT 1 FROM truncated e WHERE e.topic = last.topic AND e.part <> last.part))
    OR EXISTS (
        SELECT 1 FROM truncated e WHERE e.topic = last.topic AND e.part <> last.part AND e.batch < last.batch AND {_IS_BEFORE}
    ) AS depends
FROM (
    SELECT *, count(*) OVER (PARTITION BY key) AS places, max({_GOES_BACK}) OVER (PARTITION BY key) AS goes_back,
        row_number() OVER (
            PARTITION BY key ORDER BY ord DESC, stamp DESC, topic DESC, part DESC, off DESC, place DESC
        ) AS newest
    FROM change
) AS last WHERE newest = 1;
CREATE INDEX expected_key ON expected (key);
CREATE INDEX found_key ON found (key);
"""  # noqa: S608 - of constants

_SELECT_EXPECTED_AND_FOUND = """
SELECT w.shown, w.topic, w.part, w.off, w.batch, w.is_truncated, w.op, w.digest, w.depends,
    (f.ord, f.stamp, f.topic, f.part) < (w.ord, w.stamp, w.topic, w.part)
        AND (f.ord, f.topic, f.part) <> (w.ord, w.topic, w.part),
    f.topic, f.part, f.off, f.batch, f.digest, f.deleted
FROM expected w LEFT JOIN found f ON f.key = w.key
"""

_SELECT_ROWS_WITHOUT_CHANGE = (
    "SELECT shown, topic, part, off, batch FROM found f WHERE NOT EXISTS (SELECT 1 FROM expected w WHERE w.key = f.key)"
)

_INSERT_ROW = "INSERT INTO found VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

_SELECT_DUPLICATE_KEYS = "SELECT shown, topic, part, off, batch, count(*) FROM found GROUP BY key HAVING count(*) > 1"


class RecordPlace(NamedTuple):
    """Topic, partition and offset of a record, and the number of the batch that read it."""

    topic: str
    partition: int
    offset: int
    batch: int | None


class SpilledRows:
    """Collects rows for a join in a SQLite database that spills to disk; the table's own rows are in its table `found`."""

    def __init__(self, tables: str) -> None:
        self._database = sqlite3.connect("")
        self._database.executescript(tables)
        self._waiting: dict[str, list[Sequence[Any]]] = {}

    def close(self) -> None:
        """Close the database, which deletes its file."""
        self._database.close()

    def _add(self, statement: str, values: Sequence[Any]) -> None:
        waiting = self._waiting.setdefault(statement, [])
        waiting.append(values)
        if len(waiting) >= _FLUSH_SIZE:
            self._flush()

    def _flush(self) -> None:
        for statement, values in self._waiting.items():
            self._database.executemany(statement, values)
        self._waiting.clear()

    def duplicate_keys(self) -> Iterator[tuple[str, RecordPlace, int]]:
        """Each key with several rows, the record of one of these, and their number. Call it after rows and records were joined."""
        for shown, *place, count in self._database.execute(_SELECT_DUPLICATE_KEYS):
            yield shown, RecordPlace(*place), count


@dataclass(frozen=True, slots=True)
class TableRow:
    """The row that a table has for a key.

    Attributes:
        place: The record that changed it last.
        digest: Hash of its values, and of that record's timestamp.
        is_deleted: Whether it is marked as deleted.
    """

    place: RecordPlace
    digest: bytes
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class ExpectedRow:
    """The row that the table must have for a key after its last change, and the row that it has.

    Attributes:
        shown: The key, as text.
        place: The record of the last change.
        is_there: Whether the table must have a row.
        digest: Hash of the row's values.
        depends_on_batches: Whether the row depends on how records were split into batches, because timestamps decrease, or a
            truncate in another partition was read earlier.
        table_row: The row that the table has; None if it has none.
        is_late: Whether that row is from an older change in another partition, which may have been read after the last change.
    """

    shown: str
    place: RecordPlace
    is_there: bool
    digest: bytes
    depends_on_batches: bool
    table_row: TableRow | None
    is_late: bool


class Model(SpilledRows):
    """Collects the changes in records and the rows of the table, and yields for each key the expected and the actual row."""

    def __init__(self) -> None:
        super().__init__(_CREATE_TABLES)

    def add_change(self, place: RecordPlace, stamp: int | None, changes: Iterable[tuple[RowChange, bytes]]) -> None:
        """Add the changes of a record, each with the hash of its values. Records of a partition must come in their order."""
        topic, partition, offset, n = place
        for number, (change, digest) in enumerate(changes):
            order, time = _sortable(change.order), _ordering_time(change.order, stamp)
            if change.op == "truncate":
                self._database.execute(_UPSERT_TRUNCATE, (topic, partition, order, offset, n, time, time))
                continue
            key = (key_hash(change.key), topic, partition, shorten(repr(change.key)))
            self._add(_UPSERT_CHANGE, (*key, order, offset, number, change.op, digest, n, time, time))

    def add_row(self, key: tuple[Any, ...], order: Any, stamp: int | None, table_row: TableRow) -> None:
        """Add a row of the table, with its value of `order_by`, and the timestamp of its record."""
        topic, partition, offset, batch = table_row.place
        rest = (_sortable(order), offset, table_row.digest, batch, table_row.is_deleted, _ordering_time(order, stamp))
        self._add(_INSERT_ROW, (key_hash(key), topic, partition, shorten(repr(key)), *rest))

    def expected_rows(self) -> Iterator[ExpectedRow]:
        """Each key that a record changed, once per row that the table has for it. Call it once, after all additions."""
        self._flush()
        self._database.executescript(_CREATE_EXPECTED)
        for row in self._database.execute(_SELECT_EXPECTED_AND_FOUND):
            shown, *place, is_truncated, op, digest, depends, is_late = row[:10]
            *row_place, row_digest, is_deleted = row[10:]
            table_row = (
                TableRow(RecordPlace(*row_place), row_digest, bool(is_deleted)) if row_place[0] is not None else None
            )
            is_there = op == "upsert" and not is_truncated
            yield ExpectedRow(shown, RecordPlace(*place), is_there, digest, bool(depends), table_row, bool(is_late))

    def rows_without_change(self) -> Iterator[tuple[str, RecordPlace]]:
        """Rows whose key no record changed. Call it after `expected_rows`."""
        for shown, *place in self._database.execute(_SELECT_ROWS_WITHOUT_CHANGE):
            yield shown, RecordPlace(*place)


def key_hash(key: tuple[Any, ...]) -> bytes:
    """Hash of a key, long enough that a billion keys don't collide."""
    return blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


def _ordering_time(order: Any, stamp: int | None) -> int:
    """The timestamp that orders changes of different partitions; 0 if the table has an `order_by` column."""
    if order is not None:
        return 0
    return -(2**63) if stamp is None else stamp


def _sortable(value: Any) -> Any:
    """A value that SQLite sorts like the original; integers of more than 64 bits become text of fixed width."""
    if value is None:
        return 0
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"{value + 10**40:041d}"
    return value
