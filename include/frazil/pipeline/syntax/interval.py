"""When a pipeline runs: its interval, runs that a trigger starts early, and sessions that land a batch per interval."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated

from croniter import croniter
from pydantic import Field, model_validator

from frazil.pipeline.syntax.strict import InvalidKey, Model, readable

SHORTEST = timedelta(minutes=1)
"""Shortest interval between runs: Airflow schedules on whole minutes, so that more frequent runs would only wait."""

SHORTEST_IN_SESSION = timedelta(seconds=1)
"""Shortest interval between batches of a session, and between checks of a trigger: a batch takes about as long."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d+)\s*([smhd])")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_CRON_FIELDS = ((0, 59, ()), (0, 23, ()), (1, 31, ("l",)), (1, 12, _MONTHS), (0, 7, _WEEKDAYS))
"""Lowest number, highest number and names of minute, hour, day of the month, month and day of the week."""

_CRON_PART = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/[1-9]\d*|#[1-5])?")
_CRON_MACROS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")


@dataclass(frozen=True, slots=True)
class Interval:
    """Either a duration (`every`) or a cron expression."""

    every: timedelta | None = None
    cron: str | None = None


def parse_interval(text: str, shortest: timedelta = SHORTEST) -> Interval:
    """Parse ``90s``, ``5m``, ``1h``, ``1d`` or a cron expression of five fields.

    Raises:
        ValueError: The text is neither, the duration is shorter than `shortest`, or the expression is never due.
    """
    text = text.strip()
    if _DURATION.fullmatch(text):
        every = parse_duration(text)
        if every < shortest:
            least = "a minute" if shortest == SHORTEST else "a second"
            raise ValueError(f"{text!r} is shorter than {least}, the shortest interval")
        return Interval(every=every)
    fields = text.split()
    if text in _CRON_MACROS or (len(fields) == len(_CRON_FIELDS) and all(map(_is_cron, fields, _CRON_FIELDS))):
        # Airflow would fail only when it schedules the DAG: `1-5#2` is no weekday, the 31st of February never comes.
        if not croniter.is_valid(text, strict=True):
            raise ValueError(f"{text!r} is not a cron expression that can be scheduled")
        return Interval(cron=text)
    raise ValueError(f"{text!r} is neither a duration such as '5m' nor a cron expression such as '*/5 * * * *'")


def parse_duration(text: str) -> timedelta:
    """Parse ``10s``, ``5m``, ``1h`` or ``1d``.

    Raises:
        ValueError: The text is no duration, or one of more than 2.7 million years.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration such as '10s' or '5m'")
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError as error:
        raise ValueError(f"{text!r} is too long an interval") from error


def _is_cron(field: str, allowed: tuple[int, int, tuple[str, ...]]) -> bool:
    lowest, highest, names = allowed
    parts = [_CRON_PART.fullmatch(part) for part in field.lower().split(",")]
    words = [word for part in parts if part for word in part.group("first", "last") if word]
    return all(parts) and all(word in names or (word.isdecimal() and lowest <= int(word) <= highest) for word in words)


def _parse_check_interval(text: str) -> None:
    if parse_duration(text) < SHORTEST_IN_SESSION:
        raise ValueError(f"{text!r} is shorter than a second, the shortest time between two checks")


class Trigger(Model):
    """How many unread records in Kafka start a run early. Airflow's triggerer checks."""

    records: int | None = Field(None, gt=0, description="Number of unread records (offsets) that starts a run.")
    bytes: int | None = Field(
        None,
        gt=0,
        description="Bytes of keys and values of unread records that start a run, estimated from the sizes in the last batch.",
    )
    every: Annotated[str, readable(_parse_check_interval)] = Field(
        "10s", description="Time between two checks of Kafka: a duration of a second or more."
    )

    @model_validator(mode="after")
    def _has_threshold(self) -> Trigger:
        if self.records is None and self.bytes is None:
            raise ValueError("needs records or bytes: the number of unread ones that starts a run")
        return self

    @property
    def pause(self) -> timedelta:
        """`every`, parsed."""
        return parse_duration(self.every)


LONGEST_SESSION = timedelta(days=1)
"""Longest session: a run reports to Airflow only at its end, and Frazil is no long-running service."""


def _parse_session(text: str) -> None:
    length = parse_duration(text)
    if length < SHORTEST:
        raise ValueError(f"{text!r} is shorter than a minute, the shortest session: Airflow starts runs no more often")
    if length > LONGEST_SESSION:
        raise ValueError(f"{text!r} is longer than a day, the longest session")


BatchInterval = Annotated[str, readable(partial(parse_interval, shortest=SHORTEST_IN_SESSION))]
SessionLength = Annotated[str, readable(_parse_session)]


def refuse_unfit_session(interval: str, session_for: str | None, *, catch_up: bool, trigger: bool) -> None:
    """Refuse a session that does not fit the interval, `catch_up` or `trigger`.

    Raises:
        InvalidKey: It does not fit.
    """
    every = parse_interval(interval, SHORTEST_IN_SESSION).every
    if session_for is None:
        if every is not None and every < SHORTEST:
            raise InvalidKey(
                "interval",
                f"{interval!r} is shorter than a minute, the shortest interval that Airflow schedules; with session_for, such"
                " as 10m, each run stays and lands a batch so often",
            )
        return
    if every is None:
        raise InvalidKey("session_for", f"needs an interval that is a duration, such as 10s, not {interval!r}")
    if parse_duration(session_for) <= every:
        raise InvalidKey(
            "session_for", f"{session_for!r} is not longer than the interval, {interval!r}: one batch is no session"
        )
    if catch_up:
        raise InvalidKey("catch_up", "excludes session_for: a session lands waiting records at every tick anyway")
    if trigger:
        raise InvalidKey("trigger", "excludes session_for: a session checks for waiting records at every tick anyway")
