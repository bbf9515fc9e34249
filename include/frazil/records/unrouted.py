"""What is said of a record that no destination is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from frazil.batch.schema_change import unfit_because
from frazil.errors import Terminal
from frazil.records.dead import DeadCode, Reason
from frazil.records.route import Route, Router

_SHOWN: Final = 80
"""Characters of a value that a message shows."""


def unrouted(route: Route, text: str | None) -> Reason:
    """Return why a record is in no table; `text` is what decides about it, or None."""
    what = "topic" if route.field is None else ".".join(route.field)
    if text is None:
        return Reason(DeadCode.UNROUTED, "expected a text to find the table by, found none", what)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    why = unfit_because(text) if route.new is not None and route.field is not None else None
    so = f", which {why}" if why else ""
    if route.field is None:
        return Reason(DeadCode.UNROUTED, f"expected a topic that a destination is for, found {shown!r}")
    return Reason(DeadCode.UNROUTED, f"expected a value that a destination is for, found {shown!r}{so}", what)


def without_table(
    route: Route, router: Router, texts: Iterable[tuple[int, str | None]], only: str | None = None
) -> tuple[dict[int, Reason], set[str]]:
    """Tell records that are in no table from those whose table is to be made first.

    Args:
        route: How records find their tables.
        router: Knows the tables that are there.
        texts: Position of a record, and what decides about it; a record may have several rows.
        only: The one table that is asked about: no other is made then.

    Returns:
        Position -> why; and the names of tables that are to be made.
    """
    lost, new_tables = dict[int, Reason](), set[str]()
    reasons: dict[str | None, Reason | None] = {}
    for position, text in texts:
        if text not in reasons:
            name = router.new_table(text)
            reasons[text] = unrouted(route, text) if name is None else _not_made(route, name, only)
            if name is not None and reasons[text] is None:
                new_tables.add(name)
        if (reason := reasons[text]) is not None:
            lost.setdefault(position, reason)
    return lost, new_tables


def _not_made(route: Route, name: str, only: str | None) -> Reason | None:
    """Why a table that a record names is not made; None if it is to be."""
    refusal = None if route.new is None else route.new.refusal(name)
    if refusal is None and only is not None:
        refusal = f"the letter is of table {only}"
    what = "" if route.field is None else ".".join(route.field)
    return None if refusal is None else Reason(DeadCode.TABLE_NOT_MADE, f"table {name} is not made: {refusal}", what)


def no_table(record: Mapping[str, object], route: Route) -> Terminal:
    """Return what ends a run: it says where the record is, never what it holds: errors go to logs, and payloads may be secrets."""
    what = "its topic" if route.field is None else f"its field {'.'.join(route.field)}"
    return Terminal(
        f"topic {record['topic']}, partition {record['partition']}, offset {record['offset']}: {what} names no destination"
        " for this record; nothing was published",
        next_step="name its table under destinations and route, or set route.otherwise to dead_letter or filter",
    )
