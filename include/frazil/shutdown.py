"""Orderly shutdown: a run that is asked to stop finishes its decided batch, and begins no other.

SIGTERM, a closed terminal and the first Ctrl-C only request a stop. A run checks for the request between its phases, where
nothing is half done. So a stopped run leaves whole batches, and nothing of the next one but files of cancelled Spark tasks,
which orphan removal deletes. A second Ctrl-C ends the process at once, and so does the end of the grace period; then it is as
if the process had been killed, and the next run carries on.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from types import FrameType
from typing import Final

from frazil.error_codes import STOP_REQUESTED
from frazil.errors import EXIT_PARENT_LOST, Stopped

GRACE_SECONDS: Final = 20.0
"""How long a run may take to end after a stop request. Whoever sends the request waits for 30 s."""

_URGED_EVERY_SECONDS = 0.5
"""Pause between two attempts to cancel the engine's work: a job may begin right after the first attempt."""

_PARENT_CHECK_SECONDS = 0.5
"""How soon a process ends after its parent: it must not keep committing when its caller is gone."""

_FINISHING_SECONDS = 20.0
"""How long a process without a parent may go on with a decided batch. Work that needs Spark fails by itself."""

_WAIT_SECONDS = 0.5
"""Pause between two checks of `wait`: a waiting run ends so soon after a stop request."""

_PARENT_WATCH = "parent-watch"
"""Name of the thread that checks whether the parent lives."""

_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class _Stop:
    """The stop request to this process: global, because signals are."""

    requester: str | None = None
    is_heeded: bool = False
    is_finishing: bool = False
    cancel: Callable[[], object] | None = None


_stop = _Stop()


def requester() -> str | None:
    """The source of the stop request, such as SIGTERM; None without a request."""
    return _stop.requester


def stopped(what: str) -> Stopped:
    """The error that ends a run after a stop request.

    Args:
        what: What became of the run's work.
    """
    return Stopped(
        f"asked to stop by {_stop.requester}: {what}",
        code=STOP_REQUESTED,
        next_step="the next run continues where this one stopped; nothing is lost",
    )


def wait(until: datetime, clock: Callable[[], datetime]) -> None:
    """Wait for the instant `until`, or for a stop request. `clock` is read again and again, since clocks are set."""
    while (seconds := (until - clock()).total_seconds()) > 0 and not _stop.requester:
        time.sleep(min(seconds, _WAIT_SECONDS))


@contextmanager
def handled(report: Callable[[str], None], grace_seconds: float = GRACE_SECONDS) -> Iterator[None]:
    """While the block runs, signals request a stop. Outside of the main thread, which gets all signals, nothing changes.

    Args:
        report: Called with one line for people, from another thread.
        grace_seconds: Time after the signal until the process is killed.
    """
    if _stop.is_heeded or threading.current_thread() is not threading.main_thread():
        yield
        return
    # Python runs a handler only when the main thread returns from C, where it may wait long for records or for Spark. The
    # signal's number is in the pipe at once, so a thread reads it there and does what can't wait.
    arrived, writer = os.pipe()
    os.set_blocking(writer, False)
    was_handled = False

    def ask(number: int, _: FrameType | None) -> None:
        nonlocal was_handled
        if number == signal.SIGINT and was_handled:
            raise KeyboardInterrupt
        was_handled = True
        _ask(number)

    # A signal that the caller ignores, as nohup does with SIGHUP, must not stop the run.
    numbers = [number for number in _ASKING if signal.getsignal(number) is not signal.SIG_IGN]
    urging = threading.Thread(
        target=_urge, args=(arrived, numbers, report, grace_seconds), daemon=True, name="stopping"
    )
    urging.start()
    woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, ask) for number in numbers}
    _stop.is_heeded = True
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(woken)
        os.close(writer)  # which ends the thread
        urging.join(_URGED_EVERY_SECONDS)
        _stop.requester, _stop.is_heeded = None, False


@contextmanager
def cancelling(cancel: Callable[[], object]) -> Iterator[None]:
    """While the block runs, a stop request calls `cancel`, maybe repeatedly, in another thread, so that the block ends soon."""
    _stop.cancel = cancel
    try:
        yield
    finally:
        _stop.cancel = None


@contextmanager
def finishing() -> Iterator[None]:
    """Protect a block that decides a batch and rolls it forward: a process whose parent has ended exits only after it."""
    _stop.is_finishing = True
    try:
        yield
    finally:
        _stop.is_finishing = False


def end_with_parent(is_alone: Callable[[], bool] = lambda: False) -> None:
    """End this process when its parent has ended. A batch that is being decided is finished first.

    Repeated calls, as by each job of a session, change nothing.

    Args:
        is_alone: Returns whether another process that this one needs has ended.
    """
    if any(thread.name == _PARENT_WATCH for thread in threading.enumerate()):  # a fork has none of its parent's threads
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent and not is_alone():
            time.sleep(_PARENT_CHECK_SECONDS)
        end = time.monotonic() + _FINISHING_SECONDS
        while _stop.is_finishing and time.monotonic() < end:  # in another thread, the run decides or finishes a batch
            time.sleep(_PARENT_CHECK_SECONDS / 10)
        os._exit(EXIT_PARENT_LOST)  # no print: stdout is a pipe to the dead parent

    threading.Thread(target=watch, daemon=True, name=_PARENT_WATCH).start()


def _ask(number: int) -> None:
    _stop.requester = _stop.requester or signal.Signals(number).name


def _urge(arrived: int, asking: Container[int], report: Callable[[str], None], grace_seconds: float) -> None:
    """Wait for a signal that requests a stop; then cancel the engine's work, and end the process if that takes too long."""
    with os.fdopen(arrived, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            if number[0] in asking:
                _ask(number[0])
                _end_soon(numbers, report, grace_seconds)
                return


def _end_soon(numbers: FileIO, report: Callable[[str], None], grace_seconds: float) -> None:
    _in_own_thread(report, f"{_stop.requester}: stopping; a batch that is decided is finished first")
    end = time.monotonic() + grace_seconds
    canceller: threading.Thread | None = None
    while True:
        if _stop.cancel is not None and (canceller is None or not canceller.is_alive()):
            canceller = _in_own_thread(_stop.cancel)
        if _has_ended(numbers):
            return
        if time.monotonic() >= end:
            message = f"not ended within {grace_seconds:.0f} s, so it ends here; the next run finishes what is decided"
            _in_own_thread(report, message).join(_URGED_EVERY_SECONDS)
            os._exit(Stopped.exit_code)


def _has_ended(numbers: FileIO) -> bool:
    """Wait a while, and return whether the run has ended: then the pipe is closed. A further signal is the handler's."""
    is_readable, _, _ = select.select([numbers], [], [], _URGED_EVERY_SECONDS)
    return bool(is_readable) and not numbers.read(1)


def _in_own_thread(work: Callable[..., object], *arguments: object) -> threading.Thread:
    """Run in a thread of its own what may hang or fail, such as a write to a closed pipe: the process must end anyway."""
    thread = threading.Thread(target=work, args=arguments, daemon=True, name="stopping-aside")
    thread.start()
    return thread
