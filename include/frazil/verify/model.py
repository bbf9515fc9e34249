"""A model of a merged table: the last change of each key, in a database of its own that spills to disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from frazil.verify.facts.result import cut
from frazil.verify.values.cdc_expectation import RowChange

_KEY_BYTES = 16
_HELD = 10_000
"""Changes and rows that are written to the database at once."""

_TABLES = """
CREATE TABLE change (
    key BLOB, topic TEXT, part INT, shown TEXT, ord, off INT, place INT, op TEXT, digest BLOB, batch INT,
    stamp INT, newest_stamp INT,
    PRIMARY KEY (key, topic, part)
) WITHOUT ROWID;
CREATE TABLE found (
    key BLOB, topic TEXT, part INT, shown TEXT, ord, off INT, digest BLOB, batch INT, deleted INT, stamp INT
);
CREATE TABLE ended (
    topic TEXT, part INT, ord, off INT, batch INT, stamp INT, newest_stamp INT, PRIMARY KEY (topic, part)
) WITHOUT ROWID;
"""
"""Times are those of Kafka's records, where they order changes: between two partitions, without `order_by`."""

_CHANGE = """
INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    shown = excluded.shown, ord = excluded.ord, off = excluded.off, place = excluded.place, op = excluded.op,
    digest = excluded.digest, batch = excluded.batch, stamp = excluded.stamp,
    newest_stamp = max(newest_stamp, excluded.stamp)
WHERE (excluded.ord, excluded.off, excluded.place) >= (ord, off, place)
"""

_ENDED = """
INSERT INTO ended VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    ord = excluded.ord, off = excluded.off, batch = excluded.batch, stamp = excluded.stamp,
    newest_stamp = max(newest_stamp, excluded.stamp)
WHERE (excluded.ord, excluded.off) >= (ord, off)
"""

_GOES_BACK = """newest_stamp > stamp OR EXISTS (
    SELECT 1 FROM ended e WHERE e.topic = change.topic AND (e.newest_stamp > e.stamp OR e.part = change.part
        AND iif(e.off > change.off, e.stamp < change.newest_stamp, change.stamp < e.newest_stamp))
)"""
"""Whether a key's partition, or a truncate's, has a later record with an earlier time: then the cut of batches matters."""

_IS_BEFORE = """iif(
    e.part = last.part AND e.ord = last.ord, last.off < e.off, (last.ord, last.stamp, last.part) < (e.ord, e.stamp, e.part)
)"""

_WANTED = f"""
CREATE TABLE wanted AS
SELECT *,
    EXISTS (SELECT 1 FROM ended e WHERE e.topic = last.topic AND {_IS_BEFORE}) AS is_ended,
    goes_back AND (places > 1 OR EXISTS (SELECT 1 FROM ended e WHERE e.topic = last.topic AND e.part <> last.part))
    OR EXISTS (
        SELECT 1 FROM ended e WHERE e.topic = last.topic AND e.part <> last.part AND e.batch < last.batch AND {_IS_BEFORE}
    ) AS depends
FROM (
    SELECT *, count(*) OVER (PARTITION BY key) AS places, max({_GOES_BACK}) OVER (PARTITION BY key) AS goes_back,
        row_number() OVER (
            PARTITION BY key ORDER BY ord DESC, stamp DESC, topic DESC, part DESC, off DESC, place DESC
        ) AS newest
    FROM change
) AS last WHERE newest = 1;
CREATE INDEX wanted_key ON wanted (key);
CREATE INDEX found_key ON found (key);
"""  # noqa: S608 - of constants

_BOTH = """
SELECT w.shown, w.topic, w.part, w.off, w.batch, w.is_ended, w.op, w.digest, w.depends,
    (f.ord, f.stamp, f.topic, f.part) < (w.ord, w.stamp, w.topic, w.part)
        AND (f.ord, f.topic, f.part) <> (w.ord, w.topic, w.part),
    f.topic, f.part, f.off, f.batch, f.digest, f.deleted
FROM wanted w LEFT JOIN found f ON f.key = w.key
"""

_OTHERS = (
    "SELECT shown, topic, part, off, batch FROM found f WHERE NOT EXISTS (SELECT 1 FROM wanted w WHERE w.key = f.key)"
)

_DOUBLES = "SELECT shown, topic, part, off, batch, count(*) FROM found GROUP BY key HAVING count(*) > 1"


class Place(NamedTuple):
    """A record, and the batch that read it."""

    topic: str
    partition: int
    offset: int
    batch: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """What a table holds of a key.

    Attributes:
        place: The record that changed it last.
        digest: Hash of its values, and of that record's timestamp.
        is_deleted: Whether it is marked as deleted.
    """

    place: Place
    digest: bytes
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a table must hold of a key: what its last change made of it, and what is there.

    Attributes:
        shown: The key.
        place: The record of its last change.
        is_there: Whether there must be a row.
        digest: Of its values.
        depends: Whether another cut of batches makes another row: times of records go back, or a truncate was read earlier.
        held: What is there.
        is_late: Whether that is of an older change, which may have been read after the last one: of another partition.
    """

    shown: str
    place: Place
    is_there: bool
    digest: bytes
    depends: bool
    held: Held | None
    is_late: bool


@dataclass
class Model:
    """Takes changes and rows, in any order of partitions, and tells of each key what there must be and what there is."""

    _database: sqlite3.Connection = field(default_factory=lambda: sqlite3.connect(""))
    _changes: list[Sequence[Any]] = field(default_factory=list)
    _rows: list[Sequence[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._database.executescript(_TABLES)

    def close(self) -> None:
        """Let go of the database, and of its file."""
        self._database.close()

    def change(self, place: Place, stamp: int | None, told: Iterable[tuple[RowChange, bytes]]) -> None:
        """Take what a record tells, with hashes of the values, and its timestamp. Those of a partition come in their order."""
        topic, partition, offset, n = place
        for number, (of, digest) in enumerate(told):
            order, time = _ordered(of.order), _time(of.order, stamp)
            if of.op == "truncate":
                self._database.execute(_ENDED, (topic, partition, order, offset, n, time, time))
                continue
            self._changes.append(
                (
                    *(key_of(of.key), topic, partition, cut(repr(of.key)), order, offset, number),
                    *(of.op, digest, n, time, time),
                )
            )
        if len(self._changes) >= _HELD:
            self._flush()

    def row(self, key: tuple[Any, ...], order: Any, stamp: int | None, held: Held) -> None:
        """Take a row of the table, with its value of `order_by`, and the timestamp of its record."""
        topic, partition, offset, batch = held.place
        of = (_ordered(order), offset, held.digest, batch, held.is_deleted, _time(order, stamp))
        self._rows.append((key_of(key), topic, partition, cut(repr(key)), *of))
        if len(self._rows) >= _HELD:
            self._flush()

    def _flush(self) -> None:
        self._database.executemany(_CHANGE, self._changes)
        self._database.executemany("INSERT INTO found VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._rows)
        self._changes.clear()
        self._rows.clear()

    def wanted(self) -> Iterator[Wanted]:
        """Each key that records tell of; a key with several rows comes several times. To be called once, at the end."""
        self._flush()
        self._database.executescript(_WANTED)
        for row in self._database.execute(_BOTH):
            shown, *place, is_ended, op, digest, depends, is_late = row[:10]
            *there, held_digest, deleted = row[10:]
            held = Held(Place(*there), held_digest, bool(deleted)) if there[0] is not None else None
            is_there = op == "upsert" and not is_ended
            yield Wanted(shown, Place(*place), is_there, digest, bool(depends), held, bool(is_late))

    def others(self) -> Iterator[tuple[str, Place]]:
        """Rows whose key no record tells of; after `wanted`."""
        for shown, *place in self._database.execute(_OTHERS):
            yield shown, Place(*place)

    def doubles(self) -> Iterator[tuple[str, Place, int]]:
        """Keys with more than one row, one of their places, and how many; after `wanted`."""
        for shown, *place, count in self._database.execute(_DOUBLES):
            yield shown, Place(*place), count


def key_of(key: tuple[Any, ...]) -> bytes:
    """Hash of a key, of a size at which a billion keys don't meet."""
    return blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


def _time(order: Any, stamp: int | None) -> int:
    """The time that orders a change between two partitions: none counts where there is a column to order by."""
    if order is not None:
        return 0
    return -(2**63) if stamp is None else stamp


def _ordered(value: Any) -> Any:
    """A value as the database compares it; whole numbers of more than 64 bits as text."""
    if value is None:
        return 0
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"{value + 10**40:041d}"
    return value
