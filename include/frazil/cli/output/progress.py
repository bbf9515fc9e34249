"""Shows what a long command is doing, on stderr: a moving line in a terminal, plain lines anywhere else."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.text import Text

from frazil.cli.output import console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Live

_PLAIN_EVERY_SECONDS = 5.0
"""Between two plain lines about the same count: enough to see that it moves, few enough for a log."""


_STILL_SECONDS = 20.0
"""After this time without news a plain line says that the same is still going on."""


class Progress:
    """Shows progress: each finished step as a line with the seconds since the start, and the current step below.

    Use it as a context manager, more than once if a report comes in between; the seconds run on. Its methods may be
    handed over as callbacks.
    """

    def __init__(self) -> None:
        self._console = console.err()
        self._began = time.monotonic()
        self._said = ""
        self._said_at = self._began
        self._live = _live(self._console) if self._console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def done(self, line: str) -> None:
        """Keep a line: something was reached."""
        self._print(line)
        self._move("")

    def doing(self, text: str) -> None:
        """Show the current step. Without a terminal, print it as a line if it changed."""
        self._move(text)
        if self._live is None and (text != self._said or self._since_last() >= _STILL_SECONDS):
            self._print(text)

    def counting(self, text: str) -> None:
        """Like `doing` for a text whose number changes all the time."""
        self._move(text)
        if self._live is None and self._since_last() >= _PLAIN_EVERY_SECONDS:
            self._print(text)

    def _move(self, text: str) -> None:
        if self._live is not None:
            self._live.update(self._live.task_ids[0], description=text)

    def _since_last(self) -> float:
        return time.monotonic() - self._said_at

    def _print(self, line: str) -> None:
        instant = time.monotonic()
        self._said, self._said_at = line, instant
        self._console.print(Text.assemble((f"{instant - self._began:6.1f} s  ", "dim"), line), soft_wrap=True)


def _live(screen: "Console") -> "Live":
    from rich.progress import Progress as Live
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    live = Live(SpinnerColumn(), TimeElapsedColumn(), text, console=screen, transient=True)
    live.add_task("", total=None)
    return live
