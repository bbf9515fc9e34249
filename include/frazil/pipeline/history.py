"""The log of changes beside a merged table: a destination of its own, made of what the file says of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from frazil.pipeline.strict import AtKey

if TYPE_CHECKING:
    from frazil.pipeline.destination import Destination

_SAME: Final = ("catalog", "branch", "columns", "kafka_columns", "identifier", "order_by", "changes")
"""Keys of a merged destination that its log has, too: what a change is, and where it is kept."""


def with_histories(destinations: object) -> object:
    """Destinations as the file lists them, and behind them the logs that they name and that it does not list itself."""
    if not isinstance(destinations, list | tuple):
        return destinations
    listed = [of for of in destinations if isinstance(of, Mapping)]
    there = {of.get("table") for of in listed if of.get("write") == "history"}
    wanted = [of for of in listed if isinstance(of.get("append_history"), str) and of["append_history"] not in there]
    return [*destinations, *map(_history, wanted)]


def refuse_shared_logs(destinations: Sequence[Destination]) -> None:
    """Refuse a log beside two tables: nothing in it would say of which one a change is.

    Raises:
        AtKey: There is one.
    """
    seen: dict[str, str] = {}
    for at, of in enumerate(destinations):
        if of.append_history is not None and (other := seen.setdefault(of.append_history, of.table)) != of.table:
            raise AtKey(
                f"destinations.{at}.append_history",
                f"{of.append_history} is the log beside {other} already: name another one for {of.table}",
            )


def _history(of: Mapping[str, Any]) -> dict[str, Any]:
    return {key: of[key] for key in _SAME if key in of} | {"table": of["append_history"], "write": "history"}
