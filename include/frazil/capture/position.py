"""The position of a capture as plain data, stored in Kafka, and the checks before a run continues from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from frazil.error_codes import BAD_CAPTURE_POSITION

_VERSION: Final = 1

Where = Literal["beginning", "end", "position"]
"""Where a person lets a capture go on: `position` is where it stood, of whichever topic."""


@dataclass(frozen=True, slots=True)
class CaptureOrder:
    """The request for a capture run; a job receives it as JSON.

    Tries of one run share its id. Without `restart_at` it goes on at the position.
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
        state: What the source goes on from, in JSON's terms.
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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BAD_CAPTURE_POSITION.terminal(
                f"the kept position can't be read: {error}", next_step="see who else writes to the topic of positions"
            ) from error
        raise BAD_CAPTURE_POSITION.terminal(
            f"the kept position is of version {version}, expected {_VERSION}", next_step="run the newer Frazil"
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
                f" {topic.used:,} offsets; nobody can tell which of them are of this capture",
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
