"""The position of a capture as plain data, stored in Kafka, the checks before a run continues from it, and which rows
of a database come next after it.
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

Where = Literal["beginning", "end", "position"]
"""Where a person lets a capture go on: `position` is where it stood, of whichever topic."""


@dataclass(frozen=True, slots=True)
class CaptureOrder:
    """The request for a capture run; a job receives it as JSON.

    Tries of one run share its id. Without `restart_at` it continues at the position.
    """

    run: str
    requested_by: str = ""
    restart_at: Where | None = None
    reason: str = ""

    def to_json(self) -> str:
        """JSON text for the job."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CaptureOrder:
        """Read the JSON text given to the job."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Reset:
    """The last time that a person moved a capture.

    `n` is the number of the position before; None if there was none.
    """

    target: Where
    reason: str
    requested_by: str
    moved_at: str
    n: int | None


_KEYS: Final = {"target": "to", "requested_by": "by", "moved_at": "at"}
"""Field of a reset -> its key in stored positions, where the two differ: the stored form stays."""

_FIELDS: Final = {key: name for name, key in _KEYS.items()}


def _written(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {_KEYS.get(name, name): value for name, value in pairs}


def _read_reset(body: Mapping[str, Any]) -> Reset:
    return Reset(**{_FIELDS.get(key, key): value for key, value in body.items()})


@dataclass(frozen=True, slots=True)
class CapturePosition:
    """How far a capture got.

    Attributes:
        kind: `file` or `jdbc`.
        topic: Topic that the records are in.
        topic_id: Id of the topic; None where the broker gives none.
        n: Counts transactions. The first one, 0, holds no records.
        epoch: Counts resets.
        run: The run that wrote it.
        state: What the source continues from, in JSON's terms.
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
        return json.dumps({"v": _VERSION, **asdict(self, dict_factory=_written)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: bytes | str) -> CapturePosition:
        """Read a kept position.

        Raises:
            Terminal: It is none, or of a later version.
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

    The id is None where the broker gives none; `used` counts offsets that were ever given, markers of transactions
    included.
    """

    name: str
    id: str | None
    used: int


def require_position(name: str, kind: str, position: CapturePosition | None, topic: TopicState) -> None:
    """Refuse a run without a position: it would capture lines or rows again, or skip some.

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
            next_step=f"frazil capture {name} --from position --reason TEXT goes on in the new one; or {reset_command}",
        )


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
    """Refuse to continue in another order than before.

    Raises:
        Terminal: The columns are others now.
    """
    if state["by"] != list(capture.order):
        raise BAD_CAPTURE_POSITION.terminal(
            f"capture {capture.name}: its position has the columns {state['by']}, its file says {list(capture.order)}",
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
    """Cuts rows into transactions. A transaction ends only where the place changes: no position is between equal places.

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
