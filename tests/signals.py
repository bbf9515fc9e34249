"""Signals of the process that runs the tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hearing_ctrl_c() -> Iterator[None]:
    """In the block Ctrl-C is heard, also by what is started: a shell has its background jobs ignore it, and theirs inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
