"""Tunes how often Python's garbage collector looks for reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_RARELY: Final = (500_000, 20, 20)
"""Thresholds of the three generations. The first: how many more objects are created than freed before the collector looks at the
youngest ones (default 700). The imports of a command create half as many, and it would look through them for nothing.
"""


def collect_rarely() -> None:
    """Let the garbage collector run rarely in this process from now on: imported modules are many objects that all stay."""
    gc.set_threshold(*_RARELY)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Let the garbage collector run rarely in this block, while a batch is staged.

    Tens of thousands of messages live from the moment they are consumed until they are an Arrow batch, none of them in a
    cycle. By default the collector walks through them some forty times meanwhile, which costs as much as consuming them
    (`python -m tests.bench.readers`). Objects outside of cycles are freed with their last reference, as always.
    """
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
