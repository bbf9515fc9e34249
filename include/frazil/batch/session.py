"""A session as plain data: the fixed instants at which a long run plans its batches, and its result at the end."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

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
        complete_through: Everything that Kafka had accepted by this instant, ISO 8601, is in; None if that is unknown.
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
