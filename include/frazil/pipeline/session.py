"""What a pipeline file says of sessions: runs that stay, and land a batch at every tick of the interval."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator

from frazil.pipeline.interval import SHORTEST, SHORTEST_IN_SESSION, parse_duration, parse_interval
from frazil.pipeline.strict import AtKey

LONGEST_SESSION = timedelta(days=1)
"""A run of Airflow tells what it landed when it ends; and a process that stays for ever is another product."""


def _is_interval(text: str) -> str:
    parse_interval(text, SHORTEST_IN_SESSION)
    return text


def _is_session(text: str) -> str:
    length = parse_duration(text)
    if length < SHORTEST:
        raise ValueError(f"{text!r} is shorter than a minute, the shortest session: Airflow starts runs no more often")
    if length > LONGEST_SESSION:
        raise ValueError(f"{text!r} is longer than a day, the longest session")
    return text


BatchInterval = Annotated[str, AfterValidator(_is_interval)]
SessionLength = Annotated[str, AfterValidator(_is_session)]


def refuse_unfit_session(interval: str, session_for: str | None, *, catch_up: bool, trigger: bool) -> None:
    """Refuse a session that does not fit the interval, or what else starts runs.

    Args:
        interval: As the file says, a duration of a second or more, or a cron expression.
        session_for: How long a run stays; None if it does not.
        catch_up: Whether a run that ends behind starts the next one.
        trigger: Whether waiting records start runs.

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
        raise AtKey("catch_up", "does not go with session_for: a session lands what waits at every tick")
    if trigger:
        raise AtKey("trigger", "does not go with session_for: a session looks what waits at every tick")
