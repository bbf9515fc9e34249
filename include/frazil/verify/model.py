"""A model of a merged table: the last change of each key, in a database of its own that spills to disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from frazil.verify.result import cut
from frazil.verify.told import Told

_KEY_BYTES = 16
_HELD = 10_000
"""Changes and rows that are written to the database at once."""

_TABLES = """
CREATE TABLE change (
    key BLOB, topic TEXT, part INT, shown TEXT, ord, off INT, place INT, op TEXT, digest BLOB, batch INT,
    PRIMARY KEY (key, topic, part)
) WITHOUT ROWID;
CREATE TABLE found (
    key BLOB, topic TEXT, part INT, shown TEXT, ord, off INT, digest BLOB, batch INT, deleted INT
);
CREATE TABLE ended (ord, topic TEXT, part INT, off INT);
"""

_CHANGE = """
INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    shown = excluded.shown, ord = excluded.ord, off = excluded.off, place = excluded.place, op = excluded.op,
    digest = excluded.digest, batch = excluded.batch
WHERE (excluded.ord, excluded.off, excluded.place) >= (ord, off, place)
"""

_WANTED = """
CREATE TABLE wanted AS
SELECT *, (ord, part, off) < (
        SELECT ord, part, off FROM ended WHERE ended.topic = last.topic ORDER BY 1 DESC, 2 DESC, 3 DESC LIMIT 1
    ) AS is_ended
FROM (
    SELECT *, count(*) OVER (PARTITION BY key) AS places,
        row_number() OVER (PARTITION BY key ORDER BY ord DESC, topic DESC, part DESC, off DESC, place DESC) AS newest
    FROM change
) AS last WHERE newest = 1;
CREATE INDEX wanted_key ON wanted (key);
CREATE INDEX found_key ON found (key);
"""

_BOTH = """
SELECT w.shown, w.topic, w.part, w.off, w.batch, w.ord, coalesce(w.is_ended, 0), w.op, w.digest, w.places,
    f.topic, f.part, f.off, f.batch, f.ord, f.digest, f.deleted
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
        order: The value of `order_by`.
        digest: Hash of its values, and of that record's timestamp.
        is_deleted: Whether it is marked as deleted.
    """

    place: Place
    order: Any
    digest: bytes
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a table must hold of a key: what its last change made of it, and what is there.

    Attributes:
        shown: The key.
        place: The record of its last change.
        order: The value of `order_by`.
        is_there: Whether there must be a row.
        digest: Of its values.
        is_moved: Whether its changes are in several partitions.
        held: What is there.
    """

    shown: str
    place: Place
    order: Any
    is_there: bool
    digest: bytes
    is_moved: bool
    held: Held | None


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

    def change(self, place: Place, told: Iterable[tuple[Told, bytes]]) -> None:
        """Take what a record tells, with hashes of the values."""
        for number, (of, digest) in enumerate(told):
            order = _ordered(of.order)
            if of.op == "truncate":
                self._database.execute(
                    "INSERT INTO ended VALUES (?, ?, ?, ?)", (order, place.topic, place.partition, place.offset)
                )
                continue
            self._changes.append(
                (
                    *(key_of(of.key), place.topic, place.partition, cut(repr(of.key)), order, place.offset, number),
                    *(of.op, digest, place.batch),
                )
            )
        if len(self._changes) >= _HELD:
            self._flush()

    def row(self, key: tuple[Any, ...], held: Held) -> None:
        """Take a row of the table."""
        topic, partition, offset, batch = held.place
        of = (_ordered(held.order), offset, held.digest, batch, held.is_deleted)
        self._rows.append((key_of(key), topic, partition, cut(repr(key)), *of))
        if len(self._rows) >= _HELD:
            self._flush()

    def _flush(self) -> None:
        self._database.executemany(_CHANGE, self._changes)
        self._database.executemany("INSERT INTO found VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._rows)
        self._changes.clear()
        self._rows.clear()

    def wanted(self) -> Iterator[Wanted]:
        """Each key that records tell of; a key with several rows comes several times. To be called once, at the end."""
        self._flush()
        self._database.executescript(_WANTED)
        for row in self._database.execute(_BOTH):
            shown, *place, order, is_ended, op, digest, places = row[:10]
            *there, held_order, held_digest, deleted = row[10:]
            held = Held(Place(*there), held_order, held_digest, bool(deleted)) if there[0] is not None else None
            yield Wanted(shown, Place(*place), order, op == "upsert" and not is_ended, digest, places > 1, held)

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


def _ordered(value: Any) -> Any:
    """A value as the database compares it; whole numbers of more than 64 bits as text."""
    if value is None:
        return 0
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"{value + 10**40:041d}"
    return value
