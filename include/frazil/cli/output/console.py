"""Output of commands: reports go to stdout, progress and failures to stderr, and what is piped is plain text. Also the
options that several commands share.
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
"""Columns of a table that goes to a file or a pipe, unless the variable COLUMNS gives a number."""

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
    # A new console for each use, because the streams may have been redirected meanwhile. A file gets no colours, whatever
    # FORCE_COLOR says: control codes in a log help nobody.
    return _EscapingConsole(
        file=stream, width=width, highlight=False, markup=False, emoji=False, force_terminal=stream.isatty()
    )


class Escaped:
    """Something to print with its control characters escaped. Producers choose values and names, and none may control a terminal."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._renderable, options):
            yield Segment(text if control else visible(text, "\n\t"), style, control)


class _EscapingConsole(Console):
    """A console that escapes control characters in everything that commands print."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*map(Escaped, objects), **options)


def say(line: str | Text = "") -> None:
    """Print one line of a report, literally and without wrapping."""
    out().print(line, soft_wrap=True)


def new_table(*texts: str, numbers: Iterable[str] = (), is_tight: bool = False) -> Table:
    """Return a table without rows: columns of text, then columns of numbers, which are right-aligned."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0) if is_tight else (0, 1))
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    return table


def show_table(table: Table) -> None:
    """Print a table in its full width. A narrower terminal wraps its lines, so nothing is cut."""
    console = out()
    # print() uses the console's width at most. On a dumb terminal that is 80 columns, unless width and height are both set.
    console.size = ConsoleDimensions(max(full_width(console, table), console.width), console.height)
    console.print(table, crop=False)


def full_width(console: Console, table: Table) -> int:
    """Columns that a table takes if nothing in it is wrapped or cut."""
    return console.measure(table, options=console.options.update(width=_ENDLESS)).maximum


def headline(text: str) -> None:
    """Print the heading of a section of a report."""
    console = out()
    console.print()
    console.print(Text(text, style="bold"))


def show_failure(label: str, message: str, next_step: str | None) -> None:
    """Print an error and its next step."""
    console = err()
    console.print(Text.assemble((f"{label}: ", "bold red"), message), soft_wrap=True)
    if next_step is not None:
        console.print(Text.assemble(("  next: ", "bold"), next_step), soft_wrap=True)


def print_json(value: object) -> None:
    """Print one line of JSON. Times are ISO 8601, decimals text, bytes UTF-8 text or base64. Control characters are escaped."""
    line = json.dumps(json_value(value), ensure_ascii=False, separators=(",", ":"))
    if not line.isprintable():  # json.dumps escapes those below U+0020; others control terminals too, or end lines
        line = "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in line)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def json_value(value: Any) -> Any:
    """Convert a value to the types of JSON. A dataclass becomes an object with the names of its fields."""
    if is_dataclass(value):
        return {declared.name: json_value(getattr(value, declared.name)) for declared in fields(value)}
    match value:
        case Mapping():
            return {str(key): json_value(member) for key, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [json_value(member) for member in value]
        case bool() | int() | None:
            return value
        case float() if math.isfinite(value):
            return value
    return value.isoformat() if isinstance(value, date | time) else _text(value)


def _text(value: object) -> str:
    """A value as text: of bytes their UTF-8 text, or else `base64:` and the encoded bytes."""
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return f"base64:{b64encode(value).decode()}"


_COUNT_SECONDS = 5.0
"""Least time between two plain lines about one count: often enough to see it grow, rarely enough for a log."""

_REPEAT_SECONDS = 20.0
"""Time after which a plain line repeats a step that still goes on."""


class Progress:
    """Shows progress: each finished step as a line with the seconds since the start, and the current step below.

    Use it as a context manager, more than once if a report is printed in between; the seconds run on.
    """

    def __init__(self) -> None:
        self._console = err()
        self._began = monotonic()
        self._last_line = ""
        self._printed_at = self._began
        self._live = _live(self._console) if self._console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def done(self, line: str) -> None:
        """Print a line about a finished step."""
        self._print(line)
        self._spin("")

    def doing(self, text: str) -> None:
        """Show the current step. Without a terminal, print it as a line if it changed."""
        self._spin(text)
        if self._live is None and (text != self._last_line or self._silent_seconds() >= _REPEAT_SECONDS):
            self._print(text)

    def counting(self, text: str) -> None:
        """Like `doing`, for a text with a number that changes all the time."""
        self._spin(text)
        if self._live is None and self._silent_seconds() >= _COUNT_SECONDS:
            self._print(text)

    def _spin(self, text: str) -> None:
        if self._live is not None:
            self._live.update(self._live.task_ids[0], description=visible(text, "\n\t"))

    def _silent_seconds(self) -> float:
        return monotonic() - self._printed_at

    def _print(self, line: str) -> None:
        instant = monotonic()
        self._last_line, self._printed_at = line, instant
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
    """Names of the usable pipelines, for a shell's completion; none if the project can't be loaded."""
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

_REASON = typer.Option("--reason", metavar="TEXT", help="The reason, stored in the ledger.", show_default=False)
Reason = Annotated[str, _REASON]
OptionalReason = Annotated[str | None, _REASON]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="An engine of the settings file, 'inline' (this process), or 'auto' (chosen by the number of waiting records).",
        show_default="the pipeline's own",
    ),
]

TARGET_FORMS = "earliest|latest|TIMESTAMP|FILE.json"
"""The forms in which an option names offsets of topics."""


@overload
def read_target(text: str) -> Target: ...
@overload
def read_target(text: str | None) -> Target | None: ...
def read_target(text: str | None) -> Target | None:
    """The offsets that an option names; None if the option was not given.

    Raises:
        Terminal: The text has none of the forms, or the file can't be read.
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
    """Return the docstring of a command, one line per paragraph: Typer breaks lines by the terminal's width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (command.__doc__ or "").split("\n\n"))


def examples(lines: str, command: str) -> str:
    """Return the examples in a command's help: the lines in which it is the last command."""
    own = (line for line in lines.splitlines() if f"frazil {line.rpartition('frazil ')[2]} ".startswith(f"{command} "))
    return "\n\n".join(f"Example: [cyan]{line}[/cyan]" for line in own)


def confirm(*, yes: bool) -> None:
    """Continue if the user confirms.

    Raises:
        typer.BadParameter: No terminal can show the question.
        typer.Exit: The user declines.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal for the question, so nothing was changed: add --yes to confirm")
    if not typer.confirm("Do it?", default=False, err=True):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(1)
