"""Findings of checks as plain data, and the comparison of clocks."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, Final, Literal

from frazil.errors import FrazilError

State = Literal["ok", "warning", "failed"]
"""`warning`: runs work for now. `failed`: a run would fail."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: Name of the check, such as `cluster local`.
        state: Whether runs would work.
        observed: What the check found.
        expected: What it expects; empty if nothing is wrong.
        next_step: What to do; None if nothing is wrong.
    """

    check: str
    state: State
    observed: str
    expected: str = ""
    next_step: str | None = None

    def to_body(self) -> dict[str, Any]:
        """The finding as a JSON object of `frazil doctor --json`."""
        return {"found" if name == "observed" else name: value for name, value in asdict(self).items()}


Check = Callable[[], Iterable[Finding]]
"""Checks one thing, and may ask servers for it."""


def error_finding(check: str, error: FrazilError, state: State = "failed", expected: str = "") -> Finding:
    """An error as a finding."""
    return Finding(check, state, error.message_with_code, expected, error.next_step)


def findings_of(check: str, ask: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Findings of one check. An error of Frazil ends the check and becomes a finding."""
    try:
        yield from ask()
    except FrazilError as error:
        yield error_finding(check, error)


TOLERATED: Final = 5.0
"""Seconds that clocks may differ: too little to break anything, and more than clocks differ that NTP keeps."""

REFUSED: Final = 900.0
"""Seconds from which S3 refuses signed requests (RequestTimeTooSkewed); tokens expire long before."""

_SECONDS: Final = 5.0
"""Bounds the request for a server's time."""

_STEP: Final = "keep the clocks of both machines by NTP: `timedatectl` shows whether they are synchronized"


@dataclass(frozen=True, slots=True)
class ServerTime:
    """A server's clock reading.

    Attributes:
        date: The server's time, seconds since 1970 without fractions.
        asked_at, answered_at: Times of request and answer, by this machine's clock.
    """

    date: float
    asked_at: float
    answered_at: float

    @property
    def ahead(self) -> float:
        """Seconds that the server's clock is ahead of this one, at least. Negative if it is behind, 0 if both may agree."""
        least, most = self.date - self.answered_at, self.date + 1 - self.asked_at
        return 0.0 if least <= 0 <= most else min(least, most, key=abs)


def ask_time(url: str) -> ServerTime | None:
    """The time in a server's HTTP answer, whatever its status; None without an answer or a Date header."""
    asked_at = time.time()
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 - an address of the settings file
            date = answer.headers.get("Date")
    except urllib.error.HTTPError as refusal:  # it has a Date header too
        with refusal:
            date = refusal.headers.get("Date")
    except (OSError, HTTPException, ValueError):  # another check reports that the server does not answer
        return None
    answered_at = time.time()
    try:
        return None if date is None else ServerTime(parsedate_to_datetime(date).timestamp(), asked_at, answered_at)
    except ValueError:
        return None


def clock_finding(machine: str, ahead: float) -> Finding:
    """Judge how many seconds a clock is ahead of this one; negative if it is behind."""
    check = f"clock of {machine}"
    if abs(ahead) <= TOLERATED:
        return Finding(check, "ok", "agrees with this machine's within a few seconds")
    difference = f"{abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    return Finding(
        check, "failed" if abs(ahead) > REFUSED else "warning", difference, f"within {TOLERATED:.0f} s", _STEP
    )


def record_finding(cluster: str, newest: float, now: float) -> Finding:
    """Judge the newest timestamp of a cluster's records. Both times are seconds since 1970."""
    check, ahead = f"clock of cluster {cluster}", newest - now
    if ahead <= TOLERATED:
        return Finding(check, "ok", "no record has a timestamp in the future; Kafka shows no more about clocks")
    difference = f"the newest record is {ahead:,.0f} s ahead of this machine's clock"
    step = f"a producer's clock, a broker's (LogAppendTime) or this one is off. {_STEP}"
    return Finding(check, "warning", difference, "records with timestamps in the past", step)
