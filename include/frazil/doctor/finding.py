"""What one check found, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from frazil.errors import FrazilError

State = Literal["ok", "warning", "failed"]
"""`warning`: runs go on, for now. `failed`: a run would fail."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: What was looked at, such as `cluster local`.
        state: How it is.
        found: What is there.
        expected: What should be; empty where nothing is wrong.
        next_step: What to do; None where nothing is wrong.
    """

    check: str
    state: State
    found: str
    expected: str = ""
    next_step: str | None = None


Check = Callable[[], Iterable[Finding]]
"""Looks at one thing, and may ask others for it."""


def of_error(check: str, error: FrazilError, state: State = "failed", expected: str = "") -> Finding:
    """The finding that an error is."""
    return Finding(check, state, error.message, expected, error.next_step)


def tried(check: str, ask: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What a question finds; an error of Frazil ends it, and is a finding itself."""
    try:
        yield from ask()
    except FrazilError as error:
        yield of_error(check, error)
