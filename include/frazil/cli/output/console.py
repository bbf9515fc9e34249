"""Where commands write: reports to stdout, progress and failures to stderr. What is piped is plain text."""

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

if TYPE_CHECKING:
    from rich.table import Table

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
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, force_terminal=stream.isatty())


class _Shown:
    """Something to print with control characters escaped: producers choose some of the names in it."""

    def __init__(self, what: RenderableType) -> None:
        self._what = what

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self._what, options):
            yield Segment(text if control else _visible(text), style, control)


def _visible(text: str) -> str:
    if text.isprintable() or text == "\n":
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t" else character.encode("unicode_escape").decode()
        for character in text
    )


def say(line: str | Text = "") -> None:
    """Print one line of a report, literally and without wrapping."""
    out().print(_Shown(line), soft_wrap=True)


def new_table(*texts: str, numbers: Iterable[str] = (), is_tight: bool = False) -> "Table":
    """Return a table without rows, of columns of texts and then of numbers."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0) if is_tight else (0, 1))
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    return table


def show_table(table: "Table") -> None:
    """Print a table in its full width: a page that is too narrow wraps lines, it cuts nothing."""
    console = out()
    width = console.measure(table, options=console.options.update(width=_ENDLESS)).maximum
    # print() takes no more than the console has; on a dumb terminal that is 80, unless both sides of it are set.
    console.size = ConsoleDimensions(max(width, console.width), console.height)
    console.print(_Shown(table), crop=False)


def headline(text: str) -> None:
    """Print the heading of a part of a report."""
    console = out()
    console.print()
    console.print(Text(text, style="bold"))


def show_failure(label: str, message: str, next_step: str | None) -> None:
    """Print what went wrong and what to do now."""
    console = err()
    console.print(_Shown(Text.assemble((f"{label}: ", "bold red"), message)), soft_wrap=True)
    if next_step is not None:
        console.print(_Shown(Text.assemble(("  next: ", "bold"), next_step)), soft_wrap=True)


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
