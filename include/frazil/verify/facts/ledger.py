"""The ledger as plain data: the ranges of each batch, the position after it, and the rows for one destination."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from frazil.error_codes import BAD_STATE

READ_KINDS = frozenset({"ingest", "replay", "dead_letters"})
"""Kinds of batches that read records from Kafka, or from dead letters."""

REPAIR_KINDS = frozenset({"repair", "settle"})
"""Kinds of batches that record what a table lost; older versions of Frazil wrote `settle`."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of a position: its Kafka id, offsets per partition, and the first batch since the topic was created."""

    id: str | None
    start: tuple[int, ...]
    next: tuple[int, ...]
    since: int = 0


@dataclass(frozen=True, slots=True)
class Position:
    """The Kafka position of a pipeline after batch `n`. `body` is the whole JSON document, for comparing."""

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
class Removal:
    """Rows of batch `since` or later that a batch deleted. `partition` None: all partitions. `end` None: no upper bound."""

    topic: str
    partition: int | None
    start: int
    end: int | None
    since: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch, assembled from its rows in the ledger.

    Attributes:
        ids: Ids of the batches that have this number: more than one is an error.
        kind: start, ingest, replay, dead_letters, reset, rewind, repair, or settle of an older Frazil.
        config: Hash of the pipeline file that the batch ran under.
        read: Records read: `written` became rows, `dead` became dead letters, `filtered` were filtered out.
        written_position: The position after the batch, as JSON text, which takes much less memory than a `Position`.
        ranges: The ranges that the batch read.
        skipped: Offsets that the batch gave up, because retention had deleted them.
        removals: Role of a table -> rows that the batch removed from the table, where the ledger names them.
        abandoned: Number of batches that a settle, or a repair of the ledger, gave up.
        rows: Role of a table -> rows that the batch wrote into it.
        tables: Tables of the batch's ledger rows, one name per row.
        lost: Dead letters that the batch removed while the table, no destination then, kept the rows of the same offsets.
        dead_codes: Records per code of a dead letter; None where the ledger has no codes, and for a retry of dead letters.
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
    removals: Mapping[str, tuple[Removal, ...]] = field(default_factory=dict)
    abandoned: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    lost: tuple[Removal, ...] = ()
    dead_codes: Mapping[str, int] | None = None

    @property
    def position(self) -> Position:
        """The position after the batch."""
        return parse_position(self.written_position, f"batch {self.n} of the ledger")

    @property
    def has_more_rows(self) -> bool:
        """Whether the batch wrote more rows than records."""
        return self.rows.get("destination", 0) > self.written

    @property
    def removed(self) -> tuple[Removal, ...]:
        """Ranges of rows that the batch deleted from any table, each once."""
        return tuple(dict.fromkeys(removed for removals in self.removals.values() for removed in removals))


def next_offsets(position: Position) -> dict[tuple[str, int], int]:
    """Topic and partition -> next offset to read."""
    return {(name, n): offset for name, topic in position.topics.items() for n, offset in enumerate(topic.next)}


def unrecorded_batches(batches: Sequence[Batch]) -> frozenset[int]:
    """Numbers of batches without ledger rows: the rows were lost, and a repair of the ledger gave them up."""
    repairs = (
        b.n for b in batches if b.kind in REPAIR_KINDS and b.abandoned and not (b.ranges or b.skipped or b.removed)
    )
    return frozenset(range(max(repairs, default=0))) - {batch.n for batch in batches}


def parse_position(text: str, where: str) -> Position:
    """Parse a position of the ledger.

    Raises:
        Terminal: The text is no position.
    """
    try:
        body = json.loads(text)
        topics = {
            name: Topic(topic["id"], tuple(topic["from"]), tuple(topic["next"]), topic.get("since", 0))
            for name, topic in body["topics"].items()
        }
        return Position(body["n"], body["epoch"], body["cluster"], topics, body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BAD_STATE.terminal(
            f"{where} holds no position: {text[:200]!r} ({error})", next_step=_EDITED_HINT
        ) from error


_EDITED_HINT = "it was probably edited by hand; frazil history PIPELINE shows the positions of all batches"


def read_batches(rows: Iterable[Mapping[str, Any]], ledger: str) -> list[Batch]:
    """The batches of a pipeline, by number. Columns that older versions did not write may be missing.

    Raises:
        Terminal: A row can't be read.
    """
    try:
        ordered = sorted(rows, key=lambda row: (row["n"], row["role"] != "destination", row["table"]))
    except (
        ValueError,
        TypeError,
        RecursionError,
    ) as error:  # `destination_view` reads ranges, which somebody may have edited
        raise BAD_STATE.terminal(f"ledger {ledger} can't be read: {error}", next_step=_EDITED_HINT) from error
    return [_batch(n, list(batch_rows), ledger) for n, batch_rows in groupby(ordered, key=lambda row: row["n"])]


def _batch(n: int, rows: list[Mapping[str, Any]], ledger: str) -> Batch:
    first = rows[0]
    where = f"ledger {ledger}, batch {n}"
    position = parse_position(first["position"], where)
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
            ranges=_ranges_from_position(first["kind"], position) if ranges is None else ranges,
            skipped=_ranges(first.get("skipped")) or (),
            removals={row["role"]: _removed(row["removed"]) for row in rows if row.get("removed") is not None},
            abandoned=first.get("abandoned") or 0,
            rows=roles,
            tables=tuple(row["table"] for row in rows),
            lost=_removed(first.get("lost") or "[]"),
            dead_codes=None if first["kind"] == "dead_letters" else json.loads(first.get("dead_codes") or "null"),
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise BAD_STATE.terminal(f"{where} can't be read: {error}", next_step=_EDITED_HINT) from error


def _ranges(text: str | None) -> tuple[Range, ...] | None:
    if text is None:
        return None
    ranges = tuple(Range(*parts) for parts in json.loads(text))
    for r in ranges:
        if type(r.topic) is not str or any(type(number) is not int for number in (r.partition, r.start, r.end)):
            raise TypeError("expected ranges of a topic and three numbers")
    return ranges


def _removed(text: str) -> tuple[Removal, ...]:
    return tuple(Removal(*parts) for parts in json.loads(text))


def _ranges_from_position(kind: str, position: Position) -> tuple[Range, ...]:
    """Ranges that a batch read, derived from its position, because older versions did not record them."""
    if kind != "ingest":
        return ()
    return tuple(
        Range(name, number, begin, end)
        for name, topic in position.topics.items()
        for number, (begin, end) in enumerate(zip(topic.start, topic.next, strict=True))
        if begin < end
    )


Row = Mapping[str, Any]

_EMPTY_ROW = dict.fromkeys(("removed", "table_written", "table_dead", "table_ranges")) | {"rows": 0}
"""Columns of the row that stands in for a destination without a row in a batch: no rows, no counts."""

RESTART_KINDS = frozenset({"reset", "rewind"})
"""Kinds of batches that move the position and delete the outcomes of offsets to be read again: rows of the destinations, and
all dead letters. A table that is no destination at that batch keeps its rows, and loses only its dead letters.
"""

_GAVE_NOTHING_UP = {"ranges": "[]", "skipped": "[]", "abandoned": 0}

_NO_RECORDS = {f"records_{name}": 0 for name in ("read", "written", "dead", "filtered")}


def destination_view(rows: Iterable[Row], table: str) -> Iterator[Row]:
    """Rows of the ledger as they would be if this destination were the only one.

    Records that a batch wrote to other tables only count as filtered here. While the table was no destination, the
    records of a batch count as skipped.
    """
    for batch_rows, is_member in _rows_per_batch(rows, table):
        if _is_only_destination(batch_rows, table):
            yield from (row for row in batch_rows if row["role"] != "ledger")
        else:
            yield from _rows_of_shared_batch(batch_rows, table, is_member=is_member)


def absent_batches(rows: Iterable[Row], table: str) -> frozenset[int]:
    """Numbers of the batches for which the table was no destination: not yet, or no longer."""
    return frozenset(batch_rows[0]["n"] for batch_rows, is_member in _rows_per_batch(rows, table) if not is_member)


def _rows_per_batch(rows: Iterable[Row], table: str) -> Iterator[tuple[list[Row], bool]]:
    """The ledger rows of each batch, and whether the table was one of its destinations."""
    ordered = sorted(rows, key=lambda row: (row["n"], row["role"] != "destination", row["table"]))
    is_member = False
    for _, group in groupby(ordered, key=lambda row: row["n"]):
        batch_rows = list(group)
        roles = {row["role"] for row in batch_rows if row["table"] == table}
        is_member = (is_member or "destination" in roles) and "left" not in roles
        yield batch_rows, is_member


def _is_only_destination(rows: Sequence[Row], table: str) -> bool:
    """Whether a batch had no destination but this table."""
    other_tables = {row["table"] for row in rows if row["role"] in ("destination", "left")} - {table}
    has_own = any(row["table"] == table and row["role"] == "destination" for row in rows)
    has_role = has_own or all(row["role"] != "ledger" for row in rows)
    return not other_tables and has_role and all(row.get("table_written") is None for row in rows)


def _rows_of_shared_batch(rows: Sequence[Row], table: str, *, is_member: bool) -> Iterator[Row]:
    destination_row = next((row for row in rows if row["table"] == table and row["role"] == "destination"), None)
    letters = next((row for row in rows if row["role"] == "dead_letters"), None)
    own = dict(destination_row or {**rows[0], **_EMPTY_ROW, "table": table, "role": "destination"})
    if rows[0]["kind"] in RESTART_KINDS and not is_member:
        yield own | {"kind": "reset", "removed": None, "lost": letters["removed"] if letters is not None else None}
        return
    if rows[0]["kind"] not in READ_KINDS:
        yield own | (_GAVE_NOTHING_UP if _repairs_another(rows, table) else {})
        if letters is not None:
            yield letters
        return
    if not is_member:
        yield own | _NO_RECORDS | {"rows": 0, "ranges": "[]", "skipped": _read_and_skipped(rows[0])}
        return
    if rows[0]["kind"] == "dead_letters":
        yield _retried_letters(own, rows[0])
        return
    table_letters = sum(row.get("table_dead") or 0 for row in rows)
    record_letters = letters["rows"] - table_letters if letters is not None else 0
    written, dead = _written_records(destination_row), (own.get("table_dead") or 0) + record_letters
    counts = {
        "records_written": written,
        "records_dead": dead,
        "records_filtered": own["records_read"] - written - dead,
    }
    yield own | counts
    if letters is not None:
        yield {**letters, "records_read": own["records_read"], **counts, "rows": dead}


def _written_records(destination_row: Row | None) -> int:
    """Number of records that became rows of a table. A batch without counts per table has only one: all written records are its."""
    if destination_row is None:
        return 0
    written: int | None = destination_row.get("table_written")
    return destination_row["records_written"] if written is None else written


def _repairs_another(rows: Sequence[Row], table: str) -> bool:
    """Whether a batch repaired the rows of another destination, so that this table lost nothing.

    Destinations that were not repaired have a ledger row with empty ranges, or none. A repair of dead letters or of the
    ledger concerns all destinations.
    """
    ranges_per_table = {row["table"]: row.get("table_ranges") for row in rows if row["role"] == "destination"}
    is_repair_of_rows = rows[0]["kind"] in REPAIR_KINDS and all(row["role"] != "dead_letters" for row in rows)
    if not is_repair_of_rows or _read_and_skipped(rows[0]) == "[]":
        return False
    return ranges_per_table.get(table) == "[]" or (bool(ranges_per_table) and table not in ranges_per_table)


def _retried_letters(own: Row, first: Row) -> Row:
    """The row of a batch that retried dead letters: those of this destination, and those that name no destination."""
    ranges = own.get("table_ranges") or first["ranges"]
    read = sum(end - start for _, _, start, end in json.loads(ranges))
    counts = {"records_read": read, "records_written": own["rows"], "records_dead": 0}
    return dict(own) | counts | {"ranges": ranges, "records_filtered": read - own["rows"]}


def _read_and_skipped(row: Row) -> str:
    """The ranges that a batch read together with those it skipped, as JSON."""
    return json.dumps([*json.loads(row.get("ranges") or "[]"), *json.loads(row.get("skipped") or "[]")])
