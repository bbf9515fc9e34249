"""When a pipeline runs: its commit interval, runs triggered early, and sessions that land a batch in every interval."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Annotated

from croniter import croniter
from pydantic import Field, model_validator

from frazil.pipeline.syntax.strict import AtKey, Model, readable

SHORTEST = timedelta(minutes=1)
"""Airflow schedules on whole minutes; a shorter interval would only be queued."""

SHORTEST_IN_SESSION = timedelta(seconds=1)
"""Between two batches of a run that stays: a batch takes about as long."""

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
    """Either `every` (a duration) or `cron` is set."""

    every: timedelta | None = None
    cron: str | None = None


def parse_interval(text: str, shortest: timedelta = SHORTEST) -> Interval:
    """Parse ``90s``, ``5m``, ``1h``, ``1d`` or a cron expression of five fields.

    Raises:
        ValueError: Neither of both, shorter than the shortest one, or never due.
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
        # Airflow would find it only when it schedules the DAG: `1-5#2` is no weekday, the 31st of February never comes.
        if not croniter.is_valid(text, strict=True):
            raise ValueError(f"{text!r} is not a cron expression that can be scheduled")
        return Interval(cron=text)
    raise ValueError(f"{text!r} is neither a duration such as '5m' nor a cron expression such as '*/5 * * * *'")


def parse_duration(text: str) -> timedelta:
    """Parse ``10s``, ``5m``, ``1h`` or ``1d``.

    Raises:
        ValueError: It is no duration, or one beyond all calendars.
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


SHORTEST_LOOK = timedelta(seconds=1)


def _parse_look(text: str) -> None:
    if parse_duration(text) < SHORTEST_LOOK:
        raise ValueError(f"{text!r} is shorter than a second, the shortest time between two checks")


class Trigger(Model):
    """When a run starts early, because enough waits in Kafka. Airflow's triggerer looks."""

    records: int | None = Field(None, gt=0, description="Records (offsets) that wait at which a run starts.")
    bytes: int | None = Field(
        None,
        gt=0,
        description="Bytes of keys and values that wait at which a run starts, as estimated from what the last batch measured.",
    )
    every: Annotated[str, readable(_parse_look)] = Field(
        "10s", description="Time between two looks: a duration of a second or more."
    )

    @model_validator(mode="after")
    def _says_how_much(self) -> Trigger:
        if self.records is None and self.bytes is None:
            raise ValueError("needs records or bytes: the number that must wait")
        return self

    @property
    def pause(self) -> timedelta:
        """`every` as plain data."""
        return parse_duration(self.every)


LONGEST_SESSION = timedelta(days=1)
"""A run of Airflow tells what it landed when it ends; and a process that stays for ever is another product."""


def _parse_session(text: str) -> None:
    length = parse_duration(text)
    if length < SHORTEST:
        raise ValueError(f"{text!r} is shorter than a minute, the shortest session: Airflow starts runs no more often")
    if length > LONGEST_SESSION:
        raise ValueError(f"{text!r} is longer than a day, the longest session")


BatchInterval = Annotated[str, readable(partial(parse_interval, shortest=SHORTEST_IN_SESSION))]
SessionLength = Annotated[str, readable(_parse_session)]


def refuse_unfit_session(interval: str, session_for: str | None, *, catch_up: bool, trigger: bool) -> None:
    """Refuse a session that does not fit the interval, or what else starts runs.

    Raises:
        AtKey: What does not fit, and what to do.
    """
    every = parse_interval(interval, SHORTEST_IN_SESSION).every
    if session_for is None:
        if every is not None and every < SHORTEST:
            raise AtKey(
                "interval",
                f"{interval!r} is shorter than a minute, the shortest interval that Airflow schedules; with session_for, such"
                " as 10m, each run stays and lands a batch so often",
            )
        return
    if every is None:
        raise AtKey("session_for", f"needs an interval that is a duration, such as 10s, not {interval!r}")
    if parse_duration(session_for) <= every:
        raise AtKey(
            "session_for", f"{session_for!r} is not longer than the interval, {interval!r}: one batch is no session"
        )
    if catch_up:
        raise AtKey("catch_up", "excludes session_for: a session lands waiting records at every tick anyway")
    if trigger:
        raise AtKey("trigger", "excludes session_for: a session checks for waiting records at every tick anyway")
