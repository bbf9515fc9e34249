"""An instant as a person names it: by its date, or by how long ago it was."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from frazil.batch.target import parse_target

_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_instant(text: str, now: datetime) -> datetime:
    """Read ``90m``, ``24h``, ``7d``, or an instant in ISO 8601; without an offset it is in UTC.

    Raises:
        ValueError: It is before the calendar begins, or a place in a topic that is no instant; the message begins with
            the text.
        Terminal: It can't be read.
    """
    if match := _AGO.fullmatch(text.strip()):
        try:
            return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError as error:
            raise ValueError(f"{text} is before the calendar begins") from error
    instant = parse_target(text.strip()).instant
    if instant is None:
        raise ValueError(f"{text} is neither an instant nor how long ago it was (90m, 24h, 7d)")
    return instant
