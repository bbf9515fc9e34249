"""Numbers that come as text: as JSON writes them, with a plus or zeros in front too."""

from __future__ import annotations

import re
from typing import Final

from frazil.records.json.number import Number

_NUMBER: Final = re.compile(r"\+?(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")


def number_of(text: str) -> Number | None:
    """Return the number that a text is, or None if it is none."""
    match = _NUMBER.fullmatch(text)
    return None if match is None or text.startswith("+-") else Number(match[1])
