"""What a run of a capture is asked for: plain data, also between a process and its job."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from frazil.capture.position import Where

_KEYS: Final = {"requested_by": "by", "restart_at": "to"}
"""Field of an order -> its key in JSON, where the two differ."""

_FIELDS: Final = {key: name for name, key in _KEYS.items()}


@dataclass(frozen=True, slots=True)
class CaptureOrder:
    """What a run is asked for.

    Attributes:
        run: Id of the run; tries of one run share it.
        requested_by: Who asked.
        restart_at: Where to go on instead of at the position; None: at the position.
        reason: Why.
    """

    run: str
    requested_by: str = ""
    restart_at: Where | None = None
    reason: str = ""

    def to_json(self) -> str:
        """As a job is given it."""
        return json.dumps({_KEYS.get(name, name): value for name, value in asdict(self).items()})

    @classmethod
    def from_json(cls, text: str) -> CaptureOrder:
        """What a job is given."""
        return cls(**{_FIELDS.get(key, key): value for key, value in json.loads(text).items()})
