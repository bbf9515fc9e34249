"""The position of a capture, which is stored in Kafka; the checks before a run continues from it; the rows of a database
that come after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from frazil.error_codes import BAD_CAPTURE_POSITION
from frazil.pipeline.settings.capture import JdbcCapture

_VERSION: Final = 1

RestartPoint = Literal["beginning", "end", "position"]
"""Where a person restarts a capture. `position` keeps its position, although the topic is another one."""


@dataclass(frozen=True, slots=True)
class CaptureOrder:
    """The request for a capture run, which a job receives as JSON.

    All attempts of a run have its id. Without `restart_at` the run continues at the position.
    """

    run: str
    requested_by: str = ""
    restart_at: RestartPoint | None = None
    reason: str = ""

    def to_json(self) -> str:
        """The order for a job."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CaptureOrder:
        """Read the order of a job."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Reset:
    """The last restart of a capture by a person.

    `n` is the number of the position before it; None if there was none.
    """

    target: RestartPoint
    reason: str
    requested_by: str
    moved_at: str
    n: int | None


_KEYS: Final = {"target": "to", "requested_by": "by", "moved_at": "at"}
"""Field of a reset -> its key in stored positions, if they differ. The stored form must not change."""

_FIELDS: Final = {key: name for name, key in _KEYS.items()}


def _with_stored_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {_KEYS.get(name, name): value for name, value in pairs}


def _read_reset(body: Mapping[str, Any]) -> Reset:
    return Reset(**{_FIELDS.get(key, key): value for key, value in body.items()})


@dataclass(frozen=True, slots=True)
class CapturePosition:
    """How far a capture got.

    Attributes:
        kind: `file` or `jdbc`.
        topic: Topic of the records.
        topic_id: Id of the topic; None if the broker gives none.
        n: Number of the transaction. The first one, 0, has no records.
        epoch: Number of resets.
        run: The run that wrote the position.
        state: What was captured of the source, as a JSON value.
        reset: The last reset.
    """

    kind: str
    topic: str
    topic_id: str | None
    n: int
    epoch: int
    run: str
    state: Any
    reset: Reset | None = None

    def following(self, run: str, state: Any) -> CapturePosition:
        """The position of the next transaction."""
        return replace(self, n=self.n + 1, run=run, state=state)

    def to_json(self) -> str:
        """The stored form, as JSON."""
        return json.dumps({"v": _VERSION, **asdict(self, dict_factory=_with_stored_keys)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: bytes | str) -> CapturePosition:
        """Read a stored position.

        Raises:
            Terminal: The text is no position, or one of a later version.
        """
        try:
            body = json.loads(text)
            version = body.pop("v")
            reset = body.pop("reset")
            if version == _VERSION:
                return cls(**body, reset=None if reset is None else _read_reset(reset))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BAD_CAPTURE_POSITION.terminal(
                f"the stored position can't be read: {error}",
                next_step="find out what else writes to the topic of positions",
            ) from error
        raise BAD_CAPTURE_POSITION.terminal(
            f"the stored position is of version {version}, expected {_VERSION}",
            next_step="install the newer release of Frazil",
        )


@dataclass(frozen=True, slots=True)
class TopicState:
    """The present state of a capture's topic.

    The id is None if the broker gives none. `used` is the number of offsets that records and markers of transactions took.
    """

    name: str
    id: str | None
    used: int


def require_position(name: str, kind: str, position: CapturePosition | None, topic: TopicState) -> None:
    """Check that the position fits the capture and its topic. Otherwise a run would capture lines or rows again, or skip some.

    Raises:
        Terminal: The position is lost, or of another topic or kind of source.
    """
    reset_command = f"frazil capture {name} --from beginning|end --reason TEXT"
    if position is None:
        if topic.used:
            raise BAD_CAPTURE_POSITION.terminal(
                f"capture {name} has no position, and topic {topic.name!r} is not new: expected no records, found"
                f" {topic.used:,} offsets; it is unknown which of them came from this capture",
                next_step=f"if it never ran, or its position is lost: {reset_command}",
            )
        return
    if position.kind != kind:
        raise BAD_CAPTURE_POSITION.terminal(
            f"capture {name}: its position is of kind {position.kind}, its file says {kind}",
            next_step=f"give it another name, or: {reset_command}",
        )
    if (position.topic, position.topic_id) != (topic.name, topic.id):
        was, present = f"{position.topic!r} ({position.topic_id})", f"{topic.name!r} ({topic.id})"
        raise BAD_CAPTURE_POSITION.terminal(
            f"capture {name}: its position {position.n} is of topic {was}, and the topic is {present} now",
            next_step=f"frazil capture {name} --from position --reason TEXT continues in the new one; or {reset_command}",
        )


OrderValues = tuple[Any, ...]
"""A row's values of the ordering columns, as JSON values. A position has those of the last captured row."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a database, as key and value of a record. All rows of a bulk have the same order values."""

    key: bytes | None
    value: bytes
    order_values: OrderValues


def row_state(capture: JdbcCapture, last: OrderValues | None) -> dict[str, Any]:
    """The state of a position after the row with these order values; None: before the first row."""
    return {"by": list(capture.order), "last": None if last is None else list(last)}


def require_order(capture: JdbcCapture, state: Any) -> None:
    """Check that the ordering columns are those of the position.

    Raises:
        Terminal: They are not.
    """
    if state["by"] != list(capture.order):
        raise BAD_CAPTURE_POSITION.terminal(
            f"capture {capture.name}: its position has the columns {state['by']}, its file says {list(capture.order)}",
            next_step=f"undo the change, or: frazil capture {capture.name} --from beginning|end --reason TEXT",
        )


def row_condition(capture: JdbcCapture, state: Any, now: datetime) -> str | None:
    """Condition in Spark SQL for the rows that come after a state; None for all. Spark translates it for the database.

    Rows that are younger than the capture's delay are left to a later run.
    """
    last = state["last"]
    number = capture.incrementing_column
    if capture.timestamp_column is None:
        if number is None:
            return None
        return f"`{number}` IS NOT NULL" if last is None else f"`{number}` > {int(last[0])}"
    time = capture.timestamp_column
    until = f"`{time}` <= {_timestamp((now - capture.held_back).isoformat())}"
    if number is not None:  # a position has this number, so no row without one can come after it
        until += f" AND `{number}` IS NOT NULL"
    if last is None:
        return until
    since = f"`{time}` > {_timestamp(last[0])}"
    if number is not None and last[1] is not None:
        since = f"({since} OR (`{time}` = {_timestamp(last[0])} AND `{number}` > {int(last[1])}))"
    return f"{since} AND {until}"


def end_by_time(capture: JdbcCapture, now: datetime) -> OrderValues:
    """Order values after all rows that are older than the capture's delay."""
    end = (now - capture.held_back).isoformat()
    return (end,) if capture.incrementing_column is None else (end, None)


def _timestamp(text: str) -> str:
    return f"TIMESTAMP '{datetime.fromisoformat(text).isoformat()}'"


class Transactions:
    """Rows, divided into transactions. Rows with equal order values share one, because no position can be between them.

    `last` has the order values of the last row that was taken.
    """

    def __init__(self, rows: Iterator[Row], most: int) -> None:
        self._rows = rows
        self._most = most
        self._next = next(rows, None)
        self.last: OrderValues | None = None
        self.taken = 0

    @property
    def has_more(self) -> bool:
        """Whether there is a further row."""
        return self._next is not None

    def take(self) -> Iterator[Row]:
        """The rows of the next transaction, one by one."""
        count = 0
        while (row := self._next) is not None and (count < self._most or row.order_values == self.last):
            self.last, self._next = row.order_values, next(self._rows, None)
            self.taken, count = self.taken + 1, count + 1
            yield row
