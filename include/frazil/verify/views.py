"""The ledger as one of several destinations sees it: what every batch made of its records in that table alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from frazil.verify.ledger import MENDING, READING

Row = Mapping[str, Any]

_BARE = dict.fromkeys(("removed", "table_written", "table_dead", "table_ranges")) | {"rows": 0}
"""Of a batch that has no row for the destination: nothing went in, nothing was counted."""

_MOVING = frozenset({"reset", "rewind"})
"""Kinds of batches that take out what comes again: of destinations, and all letters. One that is no destination then keeps
its rows, and they stand beside what comes again elsewhere; only its letters go.
"""

_GAVE_NOTHING_UP = {"ranges": "[]", "skipped": "[]", "abandoned": 0}

_NOTHING = {f"records_{name}": 0 for name in ("read", "written", "dead", "filtered")}


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
    if rows[0]["kind"] in _MOVING and not is_member:
        yield own | {"kind": "reset", "removed": None, "lost": letters["removed"] if letters is not None else None}
        return
    if rows[0]["kind"] not in READING:
        yield own | (_GAVE_NOTHING_UP if _repairs_another(rows, table) else {})
        if letters is not None:
            yield letters
        return
    if not is_member:
        yield own | _NOTHING | {"rows": 0, "ranges": "[]", "skipped": _joined(rows[0])}
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
