"""The ledger as plain data: which batch read what, where the position stood after it, and how one destination sees that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from frazil.errors import Terminal

READING = frozenset({"ingest", "replay", "dead_letters"})
"""Kinds of batches that read records: from Kafka, or from the dead letters that they were before."""

MENDING = frozenset({"repair", "settle"})
"""Kinds of batches that say what a table lost; `settle` is that of an older Frazil."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of a position: its Kafka id, offsets per partition, and the batch that began this incarnation of it."""

    id: str | None
    start: tuple[int, ...]
    next: tuple[int, ...]
    since: int = 0


@dataclass(frozen=True, slots=True)
class Position:
    """Where a pipeline stood after batch `n`. `body` is all of it, for comparing."""

    n: int
    epoch: int
    cluster: str
    topics: Mapping[str, Topic]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `start` <= o < `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Removed:
    """Rows that a batch took out of a table: None stands for every partition, or for no upper bound."""

    topic: str
    partition: int | None
    start: int
    end: int | None
    since: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: what its rows of the ledger say together.

    Attributes:
        n: Batch number.
        ids: Ids of the batches that claim the number; one, if all is well.
        kind: start, ingest, replay, dead_letters, reset, rewind, repair, or settle of an older Frazil.
        config: Hash of the pipeline file it ran under.
        read: Records read; `written`, `dead` and `filtered` are what became of them, in records.
        written_position: The position after it, as it was written: many of them take much less memory this way.
        ranges: What it read.
        skipped: Offsets it gave up because retention had deleted them.
        removals: Role -> what it took out of the table, where it says so.
        abandoned: How much a settle, or a repair of the ledger, gave up.
        rows: Role -> rows put into its tables.
        tables: Tables of its ledger rows, one name per row.
        lost: Dead letters that it took out although the rows beside them stay: the table was no destination then.
        dead_codes: Dead letters per code, in records; None where it does not say, and of letters that were tried again.
    """

    n: int
    ids: tuple[str, ...]
    kind: str
    config: str
    read: int
    written: int
    dead: int
    filtered: int
    written_position: str
    ranges: tuple[Range, ...] = ()
    skipped: tuple[Range, ...] = ()
    removals: Mapping[str, tuple[Removed, ...]] = field(default_factory=dict)
    abandoned: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    lost: tuple[Removed, ...] = ()
    dead_codes: Mapping[str, int] | None = None

    @property
    def position(self) -> Position:
        """The position after it."""
        return position_of(self.written_position, f"batch {self.n} of the ledger")

    @property
    def has_more_rows(self) -> bool:
        """Whether it made several rows of a record."""
        return self.rows.get("destination", 0) > self.written

    @property
    def removed(self) -> tuple[Removed, ...]:
        """What it took out of any table."""
        return tuple(dict.fromkeys(removed for of in self.removals.values() for removed in of))


def offsets(position: Position) -> dict[tuple[str, int], int]:
    """Topic and partition -> next offset to read."""
    return {(name, n): offset for name, topic in position.topics.items() for n, offset in enumerate(topic.next)}


def unrecorded(batches: Sequence[Batch]) -> frozenset[int]:
    """Numbers of batches whose ledger rows were lost, and given up by a repair of the ledger: nobody knows them."""
    repairs = [b.n for b in batches if b.kind in MENDING and b.abandoned and not (b.ranges or b.skipped or b.removed)]
    return frozenset(range(max(repairs, default=0))) - {batch.n for batch in batches}


def position_of(text: str, where: str) -> Position:
    """Read a position.

    Raises:
        Terminal: The text is none.
    """
    try:
        body = json.loads(text)
        topics = {
            name: Topic(of["id"], tuple(of["from"]), tuple(of["next"]), of.get("since", 0))
            for name, of in body["topics"].items()
        }
        return Position(body["n"], body["epoch"], body["cluster"], topics, body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Terminal(f"{where} holds no position: {text[:200]!r} ({error})", next_step=_EDITED) from error


_EDITED = "was it edited by hand? frazil history PIPELINE shows the positions of all batches"


def batches_of(rows: Iterable[Mapping[str, Any]], ledger: str) -> list[Batch]:
    """The batches of a pipeline, by number.

    Args:
        rows: Rows of the ledger, as mappings. Columns that older versions did not write may be missing.
        ledger: Name of the ledger, for messages.

    Raises:
        Terminal: A row can't be read.
    """
    ordered = sorted(rows, key=lambda row: (row["n"], row["role"] != "destination", row["table"]))
    return [_batch(n, list(of), ledger) for n, of in groupby(ordered, key=lambda row: row["n"])]


def _batch(n: int, rows: list[Mapping[str, Any]], ledger: str) -> Batch:
    first = rows[0]
    where = f"ledger {ledger}, batch {n}"
    position = position_of(first["position"], where)
    counts = {name: first[f"records_{name}"] for name in ("read", "written", "dead", "filtered")}
    roles: dict[str, int] = {}
    for row in rows:
        roles[row["role"]] = roles.get(row["role"], 0) + row["rows"]
    try:
        ranges = _ranges(first.get("ranges"))
        return Batch(
            n=n,
            ids=tuple(sorted({row["batch"] for row in rows})),
            kind=first["kind"],
            config=first["config"],
            **counts,
            written_position=first["position"],
            ranges=_by_position(first["kind"], position) if ranges is None else ranges,
            skipped=_ranges(first.get("skipped")) or (),
            removals={row["role"]: _removed(row["removed"]) for row in rows if row.get("removed") is not None},
            abandoned=first.get("abandoned") or 0,
            rows=roles,
            tables=tuple(row["table"] for row in rows),
            lost=_removed(first.get("lost") or "[]"),
            dead_codes=None if first["kind"] == "dead_letters" else json.loads(first.get("dead_codes") or "null"),
        )
    except (ValueError, TypeError) as error:
        raise Terminal(f"{where} can't be read: {error}", next_step=_EDITED) from error


def _ranges(text: str | None) -> tuple[Range, ...] | None:
    return None if text is None else tuple(Range(*of) for of in json.loads(text))


def _removed(text: str) -> tuple[Removed, ...]:
    return tuple(Removed(*of) for of in json.loads(text))


def _by_position(kind: str, position: Position) -> tuple[Range, ...]:
    """What a batch read, where an older version wrote it into the position only."""
    if kind != "ingest":
        return ()
    return tuple(
        Range(name, number, begin, end)
        for name, topic in position.topics.items()
        for number, (begin, end) in enumerate(zip(topic.start, topic.next, strict=True))
        if begin < end
    )


Row = Mapping[str, Any]

_BARE = dict.fromkeys(("removed", "table_written", "table_dead", "table_ranges")) | {"rows": 0}
"""Of a batch that has no row for the destination: nothing went in, nothing was counted."""

MOVING = frozenset({"reset", "rewind"})
"""Kinds of batches that take out what comes again: of destinations, and all letters. One that is no destination then keeps
its rows, and they stand beside what comes again elsewhere; only its letters go.
"""

_GAVE_NOTHING_UP = {"ranges": "[]", "skipped": "[]", "abandoned": 0}

_NO_RECORDS = {f"records_{name}": 0 for name in ("read", "written", "dead", "filtered")}


def view(rows: Iterable[Row], table: str) -> Iterator[Row]:
    """Rows of the ledger as they would be if this destination were the only one.

    What a batch sent to other tables is left out on purpose, for this one. Batches before the table was a destination, or
    after it was named no more, gave their records up as far as it goes.

    Args:
        rows: Rows of the ledger.
        table: Name of the destination.
    """
    for of, is_member in _batches(rows, table):
        if _is_alone(of, table):
            yield from (row for row in of if row["role"] != "ledger")
        else:
            yield from _seen(of, table, is_member=is_member)


def absent_from(rows: Iterable[Row], table: str) -> frozenset[int]:
    """Numbers of the batches that did not know the destination: it was none yet, or was named no more."""
    return frozenset(of[0]["n"] for of, is_member in _batches(rows, table) if not is_member)


def _batches(rows: Iterable[Row], table: str) -> Iterator[tuple[list[Row], bool]]:
    """The rows of each batch, and whether the table was a destination then."""
    ordered = sorted(rows, key=lambda row: (row["n"], row["role"] != "destination", row["table"]))
    is_member = False
    for _, group in groupby(ordered, key=lambda row: row["n"]):
        of = list(group)
        roles = {row["role"] for row in of if row["table"] == table}
        is_member = (is_member or "destination" in roles) and "left" not in roles
        yield of, is_member


def _is_alone(rows: Sequence[Row], table: str) -> bool:
    """Whether a batch knew no other destination. A ledger that closes may be beside the only one."""
    others = {row["table"] for row in rows if row["role"] in ("destination", "left")} - {table}
    has_own = any(row["table"] == table and row["role"] == "destination" for row in rows)
    may_be = has_own or all(row["role"] != "ledger" for row in rows)
    return not others and may_be and all(row.get("table_written") is None for row in rows)


def _seen(rows: Sequence[Row], table: str, *, is_member: bool) -> Iterator[Row]:
    mine = next((row for row in rows if row["table"] == table and row["role"] == "destination"), None)
    letters = next((row for row in rows if row["role"] == "dead_letters"), None)
    own = dict(mine) if mine is not None else {**rows[0], **_BARE, "table": table, "role": "destination"}
    if rows[0]["kind"] in MOVING and not is_member:
        yield own | {"kind": "reset", "removed": None, "lost": letters["removed"] if letters is not None else None}
        return
    if rows[0]["kind"] not in READING:
        yield own | (_GAVE_NOTHING_UP if _repairs_another(rows, table) else {})
        if letters is not None:
            yield letters
        return
    if not is_member:
        yield own | _NO_RECORDS | {"rows": 0, "ranges": "[]", "skipped": _joined(rows[0])}
        return
    if rows[0]["kind"] == "dead_letters":
        yield _brought_home(own, rows[0])
        return
    alone = sum(row.get("table_dead") or 0 for row in rows)
    whole = letters["rows"] - alone if letters is not None else 0
    written, dead = _written(mine), (own.get("table_dead") or 0) + whole
    left_out = own["records_read"] - written - dead
    counts = {"records_written": written, "records_dead": dead, "records_filtered": left_out}
    yield own | counts
    if letters is not None:
        yield {**letters, "records_read": own["records_read"], **counts, "rows": dead}


def _written(mine: Row | None) -> int:
    """Records that became rows of a table; without a count of its own the table got all that were written."""
    if mine is None:
        return 0
    written: int | None = mine.get("table_written")
    return mine["records_written"] if written is None else written


def _repairs_another(rows: Sequence[Row], table: str) -> bool:
    """Whether a repair was of another destination: what it gave up is about that one alone.

    The other destinations have a row without ranges there, or none. Lost letters and a lost ledger are of all of them.
    """
    told = {row["table"]: row.get("table_ranges") for row in rows if row["role"] == "destination"}
    is_of_rows = rows[0]["kind"] in MENDING and all(row["role"] != "dead_letters" for row in rows)
    if not is_of_rows or _joined(rows[0]) == "[]":
        return False
    return told.get(table) == "[]" or (bool(told) and table not in told)


def _brought_home(own: Row, first: Row) -> Row:
    """Letters that came home: those of this table, and those of records as a whole."""
    ranges = own.get("table_ranges") or first["ranges"]
    read = sum(end - start for _, _, start, end in json.loads(ranges))
    counts = {"records_read": read, "records_written": own["rows"], "records_dead": 0}
    return dict(own) | counts | {"ranges": ranges, "records_filtered": read - own["rows"]}


def _joined(row: Row) -> str:
    """What a batch read and gave up, as given up."""
    return json.dumps([*json.loads(row.get("ranges") or "[]"), *json.loads(row.get("skipped") or "[]")])
