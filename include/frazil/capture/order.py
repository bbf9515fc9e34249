"""What a run of a capture is asked for: plain data, also between a process and its job."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from frazil.capture.position import Where


@dataclass(frozen=True, slots=True)
class CaptureOrder:
    """What a run is asked for.

    Attributes:
        run: Id of the run; tries of one run share it.
        by: Who asked.
        to: Where to go on instead of at the position; None: at the position.
        reason: Why.
    """

    run: str
    by: str = ""
    to: Where | None = None
    reason: str = ""

    def to_json(self) -> str:
        """As a job is given it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CaptureOrder:
        """What a job is given."""
        return cls(**json.loads(text))
