"""Options that select dead letters, and their form on a terminal: a table, or one letter with its record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.output import console
from frazil.pipeline.channels import shortened, visible

if TYPE_CHECKING:
    from frazil.batch.changes import LetterChoice, Place
    from frazil.report.dead_letters import DeadLetter, WholeLetter


Codes = Annotated[
    list[str] | None,
    typer.Option("--code", metavar="CODE", help="Only dead letters with this reason code. May be repeated."),
]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only dead letters of this topic. May be repeated.")
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="Only dead letters of this destination. May be repeated. A record that failed as a whole has no destination.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="WHEN",
        help="Only records with a Kafka timestamp before this, in the same forms.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="Only records with this Kafka timestamp or a later one: a timestamp, or an age such as 90m, 24h, 7d.",
        show_default=False,
    ),
]

_RECORD = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d{1,10})[/:](?P<offset>\d{1,19})(?:/(?P<table>[^/]+\.[^/]+))?")


def choice_of(
    codes: list[str] | None,
    topics: list[str] | None,
    since: str | None,
    tables: list[str] | None = None,
    until: str | None = None,
) -> LetterChoice:
    """The choice of letters that the options describe.

    Raises:
        typer.BadParameter: There is no such code, or --until is not after --since.
        Terminal: A time can't be read.
    """
    from frazil.batch.changes import LetterChoice

    instant = datetime.now(UTC)
    begin = None if since is None else instant_of(since, instant)
    end = None if until is None else instant_of(until, instant, "--until")
    if begin is not None and end is not None and begin >= end:
        raise typer.BadParameter(f"--since {since} is not before --until {until}")
    return LetterChoice(
        frozenset(map(_code, codes or ())),
        frozenset(topics or ()),
        begin,
        tables=frozenset(tables or ()),
        until=end,
    )


def choice_by_names(choice: LetterChoice, letters: Iterable[str]) -> LetterChoice:
    """The choice, narrowed to single letters; `letters` are texts as `named_letter` takes them.

    Raises:
        typer.BadParameter: A text names no record.
    """
    named = [named_letter(text) for text in letters]
    return replace(
        choice,
        places=frozenset(place for place, table in named if table is None),
        of_tables=frozenset((place, table) for place, table in named if table is not None),
    )


def _code(text: str) -> str:
    from difflib import get_close_matches

    from frazil.records.model.dead_letter import DeadCode

    codes = [code.value for code in DeadCode]
    if text.upper() in codes:
        return text.upper()
    similar = get_close_matches(text.upper(), codes, 1)
    hint = f", did you mean {similar[0]}?" if similar else f"; codes: {', '.join(codes)}"
    raise typer.BadParameter(f"{text!r} is not a reason code{hint}")


def instant_of(text: str, instant: datetime, option: str = "--since") -> datetime:
    """The instant that an option names: a timestamp, or an age that counts back from `instant`.

    Raises:
        typer.BadParameter: The text is an offset such as `latest`, or an age before the calendar begins.
        Terminal: It can't be read.
    """
    from frazil.batch.position import parse_instant

    try:
        return parse_instant(text, instant)
    except ValueError as error:
        raise typer.BadParameter(f"{option} {error}") from error


def named_letter(text: str) -> tuple[Place, str | None]:
    """The record and the table of `TOPIC/PARTITION/OFFSET[/TABLE]`; without a table, letters of all tables are meant.

    A colon may stand before the offset, because dry runs print it so.

    Raises:
        typer.BadParameter: The text does not have this form.
    """
    from frazil.batch.changes import Place

    match = _RECORD.fullmatch(text.strip())
    if match is None or int(match["partition"]) >= 2**31 or int(match["offset"]) >= 2**63:
        raise typer.BadParameter(f"{text!r} names no record; expected TOPIC/PARTITION/OFFSET, such as orders/0/1564")
    return Place(match["topic"], int(match["partition"]), int(match["offset"])), match["table"]


SHOWN_BYTES = 4096
"""Bytes of a key, a value or a header that are shown."""

_COLUMNS = ("record", "table", "time", "code", "path", "attempts", "batch", "landed", "row")
_LEAST_MESSAGE = 24
_PATH_WIDTH = 28
_HEX_BYTES = 16
"""Bytes on a line of a hex dump."""

_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def letter_rows(letters: Sequence[DeadLetter], *, with_landed: bool) -> Iterator[str]:
    """Letters as a table, line by line. Records and codes are whole; paths and messages are cut to the page.

    The column `table` appears if a letter names its table; `row` if an open letter already has its row.
    """
    from rich.cells import cell_len, set_cell_size

    shown = {
        "table": any(letter.destination for letter in letters),
        "landed": with_landed,
        "row": any(letter.row_batch is not None for letter in letters),
    }
    cells = [_row(letter) for letter in letters]
    names = [name for name in _COLUMNS if shown.get(name, True)]
    rows = [names, *([row[name] for name in names] for row in cells)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    room = max(_LEAST_MESSAGE, console.out().width - sum(widths) - len(widths))
    messages = ["message", *(shortened(visible(letter.plain_message), room) for letter in letters)]
    for row, message in zip(rows, messages, strict=True):
        yield " ".join([*map(set_cell_size, row, widths), message])


def _row(letter: DeadLetter) -> dict[str, str]:
    numbers = (letter.attempts, letter.batch, letter.landed_batch)
    values = (
        visible(str(letter.place)),
        visible(letter.destination or ""),
        f"{letter.timestamp:%Y-%m-%d %H:%M:%S}" if letter.timestamp else "",
        letter.code,
        shortened(visible(letter.path or ""), _PATH_WIDTH),
        *("" if n is None else str(n) for n in numbers),
        "" if letter.row_batch is None else f"of batch {letter.row_batch}",
    )
    return dict(zip(_COLUMNS, values, strict=True))


def letter_lines(whole: WholeLetter) -> Iterator[str]:
    """One letter: its reason, what to do, and the parts of its record."""
    from frazil.report.dead_letters_summary import meaning, remedy

    letter = whole.letter
    yield f"{visible(str(letter.place))}  {letter.code}"
    if letter.destination:
        yield f"  table     {visible(letter.destination)}"
    yield f"  message   {visible(letter.message)}"
    for name, text in (("path", letter.path), ("meaning", meaning(letter.code)), ("to do", remedy(letter.code))):
        if text:
            yield f"  {name:9} {visible(text)}"
    yield f"  time      {letter.timestamp.isoformat() if letter.timestamp else 'none'}"
    yield f"  stage     {whole.stage}, {_attempts(letter)}"
    yield f"  landed    {_landed(letter)}"
    for name, value in whole.headers:
        yield from part_lines(f"header {visible(name)}", value)
    yield from part_lines("key", whole.key)
    yield from part_lines("value", whole.value)


def _landed(letter: DeadLetter) -> str:
    if letter.row_batch is not None:
        return f"its row exists since batch {letter.row_batch}, but the letter is not marked as landed; it does not land again"
    return "no, it is open" if letter.landed_batch is None else f"by batch {letter.landed_batch}"


def _attempts(letter: DeadLetter) -> str:
    tried = "tried once" if letter.attempts == 1 else f"tried {letter.attempts} times"
    return tried if letter.batch is None else f"{tried}, kept by batch {letter.batch}"


def part_lines(name: str, value: bytes | None) -> Iterator[str]:
    """A part of a record: indented if it is JSON, as it is if it is other text, else as a hex dump."""
    if value is None:
        yield f"{name}: null"
        return
    if (text := indented_json(value)) is not None:
        form = ", JSON"
    else:
        text = _as_text(value)
        form = "" if text is None else ", text"
    yield f"{name}: {len(value):,} bytes{form}"
    if text is None:
        yield from (f"  {line}" for line in hex_lines(value[:SHOWN_BYTES]))
        more = len(value) - SHOWN_BYTES
    else:
        yield from (f"  {visible(line)}" for line in text[:SHOWN_BYTES].split("\n"))
        more = len(text) - SHOWN_BYTES
    if more > 0:
        yield f"  … and {more:,} more {'bytes' if text is None else 'characters'}"


def _as_text(value: bytes) -> str | None:
    """Bytes as text; None if they are not UTF-8, or if a terminal would not show one of their characters."""
    try:
        text = value.decode()
    except ValueError:
        return None
    return text if all(line.expandtabs().isprintable() for line in text.split("\n")) else None


def indented_json(value: bytes) -> str | None:
    """Bytes as indented JSON; None if they are no JSON. Digits, repeated fields and escapes stay as they were sent."""
    try:
        text = value.decode()
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return "".join(_indented(_JSON_TOKEN.findall(text)))


def _refuse_constant(name: str) -> Any:
    """Python would take NaN and Infinity, which are no JSON."""
    raise ValueError(f"{name} is no JSON")


def _indented(parts: list[str]) -> Iterator[str]:
    depth, last = 0, ""
    for part in parts:
        if part in ("}", "]"):
            depth -= 1
            yield "" if last in ("{", "[") else _new_line(depth)
        elif last in ("{", "[", ","):
            yield _new_line(depth)
        yield ": " if part == ":" else part
        depth += part in ("{", "[")
        last = part


def _new_line(depth: int) -> str:
    return "\n" + "  " * depth


def hex_lines(value: bytes) -> Iterator[str]:
    """Bytes as lines of a hex dump: offset, hexadecimal digits, printable ASCII."""
    for start in range(0, len(value), _HEX_BYTES):
        row = value[start : start + _HEX_BYTES]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)  # noqa: PLR2004 - printable ASCII
        yield f"{start:08x}  {row.hex(' ', 1):{3 * _HEX_BYTES - 1}}  {shown}"
