"""The unread records of a pipeline: when they are enough to start a run, and whether a run was already triggered for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CALL_SECONDS = 900.0
"""After so long a call counts as lost: nothing of it landed and no run is at work, so the next one may be called."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """Thresholds of unread records and bytes: reaching either one is enough; None disables it."""

    records: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The unread records of a pipeline.

    Attributes:
        records: Offsets that can be read and were not.
        bytes: Bytes of their keys and values, as the last batch measured a record; None if none did.
        epoch: Epoch of the position; None before the first run.
        position: `topic/partition` -> next offset to read, where that can be told.
        ends: `topic/partition` -> where the log ended for readers.
    """

    records: int
    bytes: int | None
    epoch: int | None
    position: Mapping[str, int]
    ends: Mapping[str, int]

    def reaches(self, threshold: Threshold) -> bool:
        """Whether enough records wait to start a run. A pipeline that never ran waits for its schedule."""
        if self.epoch is None:
            return False
        enough = ((self.records, threshold.records), (self.bytes, threshold.bytes))
        return any(count is not None and most is not None and count >= most for count, most in enough)


@dataclass(frozen=True, slots=True)
class Call:
    """A run that was triggered because enough records waited.

    Attributes:
        ends: What it will take: `topic/partition` -> end.
        called_at: When, seconds since 1970.
    """

    epoch: int
    ends: Mapping[str, int]
    called_at: float

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"epoch": self.epoch, "ends": dict(self.ends), "at": self.called_at}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Call:
        """Read what `to_json` returned."""
        return cls(body["epoch"], dict(body["ends"]), body["at"])

    def is_open(self, waiting: Waiting, instant: float) -> bool:
        """Whether the triggered run has not read its records yet."""
        if waiting.epoch != self.epoch or instant - self.called_at > CALL_SECONDS:
            return False
        return any(place in waiting.position and waiting.position[place] < end for place, end in self.ends.items())
