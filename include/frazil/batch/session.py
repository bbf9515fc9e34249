"""When runs begin by themselves: at the fixed instants of a session, and when a pipeline has enough unread records.
Plain data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from frazil.batch.plan import RunPlan
from frazil.batch.position import check_version
from frazil.batch.target import RunRequest
from frazil.error_codes import BAD_HANDOVER

END_VERSION = 1
"""Version of what a session tells when it ends."""

_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The result of a session. The batches that it landed are in the ledger.

    Attributes:
        complete_through: Every record that Kafka had accepted by this instant, ISO 8601, has landed; None if that is unknown.
    """

    complete_through: str | None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"v": END_VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> SessionEnd:
        """Read `to_json`, also from a job that runs another version of Frazil.

        Raises:
            Terminal: The text is not the end of a session, or of a version this Frazil does not know.
        """
        try:
            body = json.loads(text)
            check_version("session's end", body.get("v", 1), END_VERSION)
            return cls(body["complete_through"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BAD_HANDOVER.terminal(f"this is not the end of a session: {text[:200]!r} ({error})") from error


def next_tick(now: datetime, every: timedelta, until: datetime) -> datetime | None:
    """Return when the next batch is due, after `now`. Ticks during a long batch are skipped.

    They are whole numbers of `every` since 1970 (`10s`: :00, :10, :20 of each minute), so they are the same for every run;
    the last one is the end of the session, whenever that is.

    None if the session is over.
    """
    if now >= until:
        return None
    return min(now - (now - _BEGIN) % every + every, until)


def session_end(due: datetime, length: timedelta, now: datetime) -> datetime:
    """Return when the session of a scheduled run ends: when the next run is due, also if this one began late."""
    return due + max(1, (now - due) // length + 1) * length


def session_order(pipeline: str, request: RunRequest, now: datetime, until: datetime) -> RunPlan:
    """Return the order for a session: a plan without ranges."""
    return RunPlan(
        pipeline=pipeline,
        run=request.run,
        planned_at=now.isoformat(timespec="milliseconds"),
        cluster="",
        topics={},
        complete=False,
        started_by=request.started_by,
        reason=request.reason,
        until=until.isoformat(timespec="milliseconds"),
    )


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
        position: `topic/partition` -> next offset to read, if that is known.
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
