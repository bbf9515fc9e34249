"""Wait for a condition instead of for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

_EVERY_SECONDS = 0.05
"""Between two looks: short beside every start that is waited for, and idle on a machine with two
cores."""


def until(condition: Callable[[], bool], timeout_seconds: float, every_seconds: float = _EVERY_SECONDS) -> bool:
    """Return True as soon as the condition holds, False when it did not within the time."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_seconds)
    return True
