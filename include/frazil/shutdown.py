"""Orderly shutdown: a run that is asked to stop finishes its decided batch, and begins no other.

SIGTERM, a closed terminal and the first Ctrl-C only ask; a run looks whether it was asked between its phases, where
nothing is half done. So what is to be seen when it ends is known: batches that are finished, and nothing of the next
one; files that tasks of a cancelled Spark job had finished are left to orphan removal. A second Ctrl-C ends at once, as
does time that runs out; then it is as if the process had been killed, and the next run carries on.
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
"""How long a run may take to end after it was asked. Who asks waits for 30 s."""

_URGED_EVERY_SECONDS = 0.5
"""Between two attempts to end what the engine works at: a job may begin just behind the first."""

_PARENT_CHECK_SECONDS = 0.5
"""How soon a process without a parent ends: it must not keep committing after its caller is gone."""

_FINISHING_SECONDS = 20.0
"""How long it may go on with a batch that is decided. What needs Spark fails by itself."""

_WAITED_SECONDS = 0.5
"""Between two looks of `wait`: how soon a run that waits ends when it is asked to."""

_PARENT_WATCH = "parent-watch"
"""Name of the thread that looks whether the parent is there."""

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
        what: The outcome of its work.
    """
    return Stopped(
        f"asked to stop by {_stop.requester}: {what}",
        code=STOP_REQUESTED,
        next_step="the next run continues where this one stopped; nothing is lost",
    )


def wait(until: datetime, clock: Callable[[], datetime]) -> None:
    """Wait for an instant, or until this process is asked to stop.

    Args:
        until: The instant.
        clock: Tells the time. It is asked again and again: clocks are set.
    """
    while (seconds := (until - clock()).total_seconds()) > 0 and not _stop.requester:
        time.sleep(min(seconds, _WAITED_SECONDS))


@contextmanager
def handled(report: Callable[[str], None], grace_seconds: float = GRACE_SECONDS) -> Iterator[None]:
    """While the block runs, signals ask it to stop. Outside of the main thread, which gets all signals, nothing changes.

    Args:
        report: Called with one line for people, from another thread.
        grace_seconds: Time after the signal until the process is killed.
    """
    if _stop.is_heeded or threading.current_thread() is not threading.main_thread():
        yield
        return
    # A handler runs when the main thread is back from C, which may wait there for long: for records, for Spark's answer.
    # The signal's number is in the pipe at once, and a thread does what can't wait.
    arrived, writer = os.pipe()
    os.set_blocking(writer, False)
    was_handled = False

    def ask(number: int, _: FrameType | None) -> None:
        nonlocal was_handled
        if number == signal.SIGINT and was_handled:
            raise KeyboardInterrupt
        was_handled = True
        _ask(number)

    # Who ignores a signal, as nohup does with SIGHUP, wants to go on in spite of it.
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
    """While the block runs, a stop calls `cancel`, from another thread and maybe repeatedly, to have the block end soon."""
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
        is_alone: Returns whether another process that this one depends on has ended.
    """
    if any(thread.name == _PARENT_WATCH for thread in threading.enumerate()):  # a fork has none of its parent's threads
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent and not is_alone():
            time.sleep(_PARENT_CHECK_SECONDS)
        _wait_finished()
        os._exit(EXIT_PARENT_LOST)  # no print: stdout is a pipe to the dead parent

    threading.Thread(target=watch, daemon=True, name=_PARENT_WATCH).start()


def _wait_finished() -> None:
    """Wait until the run, in another thread, is outside of blocks that decide or finish a batch."""
    end = time.monotonic() + _FINISHING_SECONDS
    while _stop.is_finishing and time.monotonic() < end:
        time.sleep(_PARENT_CHECK_SECONDS / 10)


def _ask(number: int) -> None:
    _stop.requester = _stop.requester or signal.Signals(number).name


def _urge(arrived: int, asking: Container[int], report: Callable[[str], None], grace_seconds: float) -> None:
    """Wait for a signal that asks to stop; then have the engine end its work, and end the process if it takes too long."""
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
    """Wait a while, and return whether the run has ended. The signal handler deals with further signals."""
    is_readable, _, _ = select.select([numbers], [], [], _URGED_EVERY_SECONDS)
    return bool(is_readable) and not numbers.read(1)


def _in_own_thread(work: Callable[..., object], *arguments: object) -> threading.Thread:
    """Run something that may hang or fail in a separate thread, such as writing to a closed pipe: the process must end anyway."""
    thread = threading.Thread(target=work, args=arguments, daemon=True, name="stopping-aside")
    thread.start()
    return thread
