"""Which rows of a database come next, and where a transaction may end between them: plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from frazil.error_codes import BAD_CAPTURE_POSITION
from frazil.pipeline.settings.capture import JdbcCapture

Place = tuple[Any, ...]
"""Where a row stands in the order of a capture: its values of the ordering columns, in JSON's terms."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it becomes a record.

    All rows of a bulk have one place.
    """

    key: bytes | None
    value: bytes
    place: Place


def initial_state(capture: JdbcCapture, last: Place | None) -> dict[str, Any]:
    """The state after which a database is captured; None: from its beginning."""
    return {"by": list(capture.order), "last": None if last is None else list(last)}


def require_order(capture: JdbcCapture, state: Any) -> None:
    """Refuse to go on in another order than before.

    Raises:
        Terminal: The columns are others now.
    """
    if state["by"] != list(capture.order):
        raise BAD_CAPTURE_POSITION.terminal(
            f"capture {capture.name}: its position is told by {state['by']}, its file says {list(capture.order)}",
            next_step=f"take the change back, or: frazil capture {capture.name} --from beginning|end --reason TEXT",
        )


def row_condition(capture: JdbcCapture, state: Any, now: datetime) -> str | None:
    """Predicate in Spark SQL for the rows that come next; None for all. Spark translates it for the database.

    Rows that are younger than the delay are left alone.
    """
    last = state["last"]
    number = capture.incrementing_column
    if capture.timestamp_column is None:
        if number is None:
            return None
        return f"`{number}` IS NOT NULL" if last is None else f"`{number}` > {int(last[0])}"
    time = capture.timestamp_column
    until = f"`{time}` <= {_moment((now - capture.held_back).isoformat())}"
    if number is not None:  # it is a part of the position, which no row without one could be behind
        until += f" AND `{number}` IS NOT NULL"
    if last is None:
        return until
    since = f"`{time}` > {_moment(last[0])}"
    if number is not None and last[1] is not None:
        since = f"({since} OR (`{time}` = {_moment(last[0])} AND `{number}` > {int(last[1])}))"
    return f"{since} AND {until}"


def end_by_time(capture: JdbcCapture, now: datetime) -> Place:
    """The place after all rows that are older than the delay."""
    end = (now - capture.held_back).isoformat()
    return (end,) if capture.incrementing_column is None else (end, None)


def _moment(text: str) -> str:
    return f"TIMESTAMP '{datetime.fromisoformat(text).isoformat()}'"


class Cuts:
    """Rows on their way, in transactions. One ends only where the place changes: no position lies between equal places.

    `last` is the place of the last row that was taken.
    """

    def __init__(self, rows: Iterator[Row], most: int) -> None:
        self._rows = rows
        self._most = most
        self._next = next(rows, None)
        self.last: Place | None = None
        self.taken = 0

    @property
    def has_more(self) -> bool:
        """Whether there is a further row."""
        return self._next is not None

    def transaction(self) -> Iterator[Row]:
        """The rows of the next transaction, one by one."""
        count = 0
        while (row := self._next) is not None and (count < self._most or row.place == self.last):
            self.last, self._next = row.place, next(self._rows, None)
            self.taken, count = self.taken + 1, count + 1
            yield row
