"""Where commands write: reports to stdout, progress and failures to stderr, plain text where it is piped. And the
options that several commands take.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self, TextIO, overload

import typer
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from frazil.error_codes import BAD_ARGUMENT
from frazil.pipeline.channels import visible

if TYPE_CHECKING:
    from rich.progress import Progress as Live
    from rich.table import Table

    from frazil.batch.position import Target


PIPED_WIDTH = 120
"""Columns of a table that goes to a file or a pipe; COLUMNS says otherwise."""


_ENDLESS = 10_000
"""Columns of a page on which every table fits."""


def out() -> Console:
    """The console for reports."""
    return _console(sys.stdout)


def err() -> Console:
    """The console for progress and failures."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    # Made when it is used, not kept: the streams may have been redirected meanwhile. A file is never coloured, whatever
    # FORCE_COLOR says: control codes in a log help nobody.
    return _EscapingConsole(
        file=stream, width=width, highlight=False, markup=False, emoji=False, force_terminal=stream.isatty()
    )


class Escaped:
    """Something to print with control characters escaped: producers choose some of the names in it."""

    def __init__(self, what: RenderableType) -> None:
        self._what = what

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._what, options):
            yield Segment(text if control else visible(text, "\n\t"), style, control)


class _EscapingConsole(Console):
    """A console that escapes control characters in everything that commands print."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*map(Escaped, objects), **options)


def say(line: str | Text = "") -> None:
    """Print one line of a report, literally and without wrapping."""
    out().print(line, soft_wrap=True)


def new_table(*texts: str, numbers: Iterable[str] = (), is_tight: bool = False) -> Table:
    """Return a table without rows, of columns of texts and then of numbers."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0) if is_tight else (0, 1))
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    return table


def show_table(table: Table) -> None:
    """Print a table in its full width: a page that is too narrow wraps lines, it cuts nothing."""
    console = out()
    width = console.measure(table, options=console.options.update(width=_ENDLESS)).maximum
    # print() takes no more than the console has; on a dumb terminal that is 80, unless both sides of it are set.
    console.size = ConsoleDimensions(max(width, console.width), console.height)
    console.print(table, crop=False)


def headline(text: str) -> None:
    """Print the heading of a part of a report."""
    console = out()
    console.print()
    console.print(Text(text, style="bold"))


def show_failure(label: str, message: str, next_step: str | None) -> None:
    """Print what went wrong and what to do now."""
    console = err()
    console.print(Text.assemble((f"{label}: ", "bold red"), message), soft_wrap=True)
    if next_step is not None:
        console.print(Text.assemble(("  next: ", "bold"), next_step), soft_wrap=True)


def print_json(value: object) -> None:
    """Print one line of JSON. Times are ISO 8601, decimals text, bytes UTF-8 text or base64. Control characters are escaped."""
    line = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    if not line.isprintable():  # JSON escapes those below a blank; others control terminals, too, or end lines
        line = "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in line)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """A value in JSON's terms; a dataclass by the names of its fields."""
    if is_dataclass(value):
        return {declared.name: plain(getattr(value, declared.name)) for declared in fields(value)}
    match value:
        case Mapping():
            return {str(key): plain(member) for key, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(member) for member in value]
        case bool() | int() | None:
            return value
        case float() if math.isfinite(value):
            return value
    return _text(value)


def _text(value: object) -> str:
    match value:
        case bytes():
            return text_of(value)
        case date() | time():
            return value.isoformat()
    return str(value)


def text_of(value: bytes) -> str:
    """Bytes as UTF-8 text, or else as `base64` and the encoded bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return f"base64:{b64encode(value).decode()}"


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
        self._console = err()
        self._began = monotonic()
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
            self._live.update(self._live.task_ids[0], description=visible(text, "\n\t"))

    def _since_last(self) -> float:
        return monotonic() - self._said_at

    def _print(self, line: str) -> None:
        instant = monotonic()
        self._said, self._said_at = line, instant
        self._console.print(Text.assemble((f"{instant - self._began:6.1f} s  ", "dim"), line), soft_wrap=True)


def _live(screen: Console) -> Live:
    from rich.progress import Progress as Live
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    live = Live(SpinnerColumn(), TimeElapsedColumn(), text, console=screen, transient=True)
    live.add_task("", total=None)
    return live


Json = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]


def pipeline_names() -> list[str]:
    """Names of the usable pipelines, for the completion of a shell; none if they can't be read."""
    from frazil.errors import FrazilError
    from frazil.project import Project

    try:
        return sorted(Project.load().pipelines.usable)
    except FrazilError:
        return []


PipelineName = Annotated[
    str,
    typer.Argument(metavar="PIPELINE", help="Name of a pipeline.", show_default=False, autocompletion=pipeline_names),
]

Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="The reason, stored in the ledger.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="An engine of the settings file, 'inline' (this process), or 'auto' (chosen by the number of waiting records).",
        show_default="the pipeline's own",
    ),
]

PLACES = "earliest|latest|TIMESTAMP|FILE.json"
"""How a place in topics is written in an option."""


@overload
def place(text: str) -> Target: ...
@overload
def place(text: str | None) -> Target | None: ...
def place(text: str | None) -> Target | None:
    """The place in topics that an option names, None if it was not given.

    Raises:
        Terminal: The text is no such place, or the file can't be read.
    """
    from frazil.batch.position import parse_offsets, parse_target

    if text is None:
        return None
    if not text.endswith(".json"):
        return parse_target(text)
    try:
        return parse_offsets(Path(text).read_text(encoding="utf-8"), text)
    except OSError as error:
        raise BAD_ARGUMENT.terminal(f"the offsets can't be read: {error}") from error


def help_text(command: Callable[..., Any]) -> str:
    """Return the docstring of a command with one line per paragraph: the help breaks lines by the terminal's width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.__doc__ or "").split("\n\n"))


def examples(lines: str, command: str) -> str:
    """Return the examples for a command's help: lines of the examples file that use this command and no longer one."""
    own = (line for line in lines.splitlines() if f"frazil {line.rpartition('frazil ')[2]} ".startswith(f"{command} "))
    return "\n\n".join(f"Example: [cyan]{line}[/cyan]" for line in own)


QUESTION = "Do it?"


def confirm(*, yes: bool) -> None:
    """Continue if the user confirms.

    Raises:
        typer.BadParameter: There is no terminal to ask at.
        typer.Exit: The answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal for the question, so nothing was changed: add --yes to confirm")
    if not typer.confirm(QUESTION, default=False, err=True):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(1)
