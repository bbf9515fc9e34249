"""Which records of a stream are broken on purpose, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from random import Random
from typing import Final

CUT_OFF: Final = "cut-off JSON"
TEXT_FOR_NUMBER: Final = "text for a number"
EMPTY: Final = "empty value"

_BLOCK: Final = 1_000


def breakages(random: Random, per_thousand: int, kinds: Sequence[str]) -> Iterator[str | None]:
    """Yield for record after record, without end, how it is broken, or None for a sound one.

    Exactly `per_thousand` of each full thousand are broken, at random places; the kinds take turns.

    Raises:
        ValueError: `per_thousand` is not between 0 and 1000.
    """
    if not 0 <= per_thousand <= _BLOCK:
        raise ValueError(f"broken records per thousand: expected 0 to {_BLOCK}, found {per_thousand}")
    turns = cycle(kinds)
    while True:
        places = set(random.sample(range(_BLOCK), per_thousand))
        for place in range(_BLOCK):
            yield next(turns) if place in places else None


def broken_value(text: str, kind: str | None) -> bytes:
    """The bytes of a record's value: intact, cut off, or empty. A text in place of a number is already in the document."""
    return {CUT_OFF: text[: len(text) // 2], EMPTY: ""}.get(kind or "", text).encode()
