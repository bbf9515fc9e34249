"""What is said of a record that no destination is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frazil.errors import Terminal
from frazil.records.dead import DeadCode, Reason
from frazil.records.route import Route

_SHOWN: Final = 80
"""Characters of a value that a message shows."""


def unrouted(route: Route, text: str | None) -> Reason:
    """Return why a record is in no table; `text` is what decides about it, or None."""
    what = "topic" if route.field is None else ".".join(route.field)
    if text is None:
        return Reason(DeadCode.UNROUTED, "expected a text to find the table by, found none", what)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    if route.field is None:
        return Reason(DeadCode.UNROUTED, f"expected a topic that a destination is for, found {shown!r}")
    return Reason(DeadCode.UNROUTED, f"expected a value that a destination is for, found {shown!r}", what)


def no_table(record: Mapping[str, object], route: Route) -> Terminal:
    """Return what ends a run: it says where the record is, never what it holds: errors go to logs, and payloads may be secrets."""
    what = "its topic" if route.field is None else f"its field {'.'.join(route.field)}"
    return Terminal(
        f"topic {record['topic']}, partition {record['partition']}, offset {record['offset']}: {what} names no destination"
        " for this record; nothing was published",
        next_step="name its table under destinations and route, or set route.otherwise to dead_letter or filter",
    )
