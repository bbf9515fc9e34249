"""Shows what a long command is doing, on stderr: a moving line in a terminal, plain lines anywhere else."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.text import Text

from frazil.cli import console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Live

_PLAIN_EVERY_SECONDS = 5.0
"""Between two plain lines about the same count: enough to see that it moves, few enough for a log."""


class Progress:
    """What is done stays as a line with the seconds since the start; what is going on is shown below it.

    Use it as a context manager. Its methods may be handed over as callbacks.
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
        self._clear()
        self._print(line)

    def doing(self, text: str) -> None:
        """Say what is going on now; where nothing can move, a line if it is news."""
        if self._live is not None:
            self._move(self._live, text)
        elif text != self._said:
            self._print(text)

    def counting(self, text: str) -> None:
        """Like `doing` for a text whose number changes all the time."""
        if self._live is not None:
            self._move(self._live, text)
        elif time.monotonic() - self._said_at >= _PLAIN_EVERY_SECONDS:
            self._print(text)

    def _move(self, live: "Live", text: str) -> None:
        if not live.task_ids:
            live.add_task(text, total=None)
        live.update(live.task_ids[0], description=text)

    def _clear(self) -> None:
        if self._live is not None:
            for task in self._live.task_ids:
                self._live.remove_task(task)

    def _print(self, line: str) -> None:
        now = time.monotonic()
        self._said, self._said_at = line, now
        self._console.print(Text.assemble((f"{now - self._began:6.1f} s  ", "dim"), line), soft_wrap=True)


def _live(on: "Console") -> "Live":
    from rich.progress import Progress as Live
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    return Live(SpinnerColumn(), text, TimeElapsedColumn(), console=on, transient=True)
