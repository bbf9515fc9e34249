"""How dead letters look in a terminal: a table, and one letter with what is in its record."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from frazil.cli import console

if TYPE_CHECKING:
    from frazil.report.dead_letters import DeadLetter, WholeLetter

SHOWN_BYTES = 4096
"""Of a key, a value or a header that are shown."""

_CELLS = ("record", "table", "time", "code", "path", "attempts", "batch", "landed", "row")
_LEAST_MESSAGE = 24
_PATH_WIDTH = 28
_ROW = 16
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def letter_rows(letters: "Sequence[DeadLetter]", *, with_landed: bool) -> Iterator[str]:
    """Letters as a table, line by line. Records and codes are whole; paths and messages are cut to the page.

    There are tables where several are written, and rows where a letter has one and does not say so.
    """
    from rich.cells import cell_len, set_cell_size

    shown = {
        "table": any(letter.destination for letter in letters),
        "landed": with_landed,
        "row": any(letter.row_batch is not None for letter in letters),
    }
    cells = [_row(letter) for letter in letters]
    names = [name for name in _CELLS if shown.get(name, True)]
    rows = [names, *([row[name] for name in names] for row in cells)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    room = max(_LEAST_MESSAGE, console.out().width - sum(widths) - len(widths))
    messages = ["message", *(cut(_visible(letter.found), room) for letter in letters)]
    for row, message in zip(rows, messages, strict=True):
        yield " ".join([*map(set_cell_size, row, widths), message])


def _row(letter: "DeadLetter") -> dict[str, str]:
    numbers = (letter.attempts, letter.batch, letter.landed_batch)
    values = (
        _visible(str(letter.place)),
        _visible(letter.destination or ""),
        f"{letter.timestamp:%Y-%m-%d %H:%M:%S}" if letter.timestamp else "",
        letter.code,
        cut(_visible(letter.path or ""), _PATH_WIDTH),
        *("" if n is None else str(n) for n in numbers),
        "" if letter.row_batch is None else f"of batch {letter.row_batch}",
    )
    return dict(zip(_CELLS, values, strict=True))


def cut(text: str, width: int) -> str:
    """A text of at most so many characters; `…` stands for what is left out."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def letter_lines(found: "WholeLetter") -> Iterator[str]:
    """One letter: its reason, what to do, and the parts of its record."""
    from frazil.report.dead_letters_page import meaning, remedy

    letter = found.letter
    yield f"{_visible(str(letter.place))}  {letter.code}"
    if letter.destination:
        yield f"  table     {_visible(letter.destination)}"
    yield f"  message   {_visible(letter.message)}"
    for name, text in (("path", letter.path), ("meaning", meaning(letter.code)), ("to do", remedy(letter.code))):
        if text:
            yield f"  {name:9} {_visible(text)}"
    yield f"  time      {letter.timestamp.isoformat() if letter.timestamp else 'none'}"
    yield f"  stage     {found.stage}, {_attempts(letter)}"
    yield f"  landed    {_landed(letter)}"
    for name, value in found.headers:
        yield from part_lines(f"header {_visible(name)}", value)
    yield from part_lines("key", found.key)
    yield from part_lines("value", found.value)


def _landed(letter: "DeadLetter") -> str:
    if letter.row_batch is not None:
        return f"its row is there, of batch {letter.row_batch}; the mark that said so was lost, and it stays as it is"
    return "no, it is open" if letter.landed_batch is None else f"by batch {letter.landed_batch}"


def _attempts(letter: "DeadLetter") -> str:
    tried = "tried once" if letter.attempts == 1 else f"tried {letter.attempts} times"
    return tried if letter.batch is None else f"{tried}, kept by batch {letter.batch}"


def part_lines(name: str, value: bytes | None) -> Iterator[str]:
    """A part of a record: indented if it is JSON, else as a hex dump."""
    if value is None:
        yield f"{name}: null"
        return
    text = as_json(value)
    yield f"{name}: {len(value):,} bytes" + ("" if text is None else ", JSON")
    if text is None:
        yield from (f"  {line}" for line in hex_lines(value[:SHOWN_BYTES]))
        more = len(value) - SHOWN_BYTES
    else:
        yield from (f"  {_visible(line)}" for line in text[:SHOWN_BYTES].split("\n"))
        more = len(text) - SHOWN_BYTES
    if more > 0:
        yield f"  … and {more:,} more {'bytes' if text is None else 'characters'}"


def as_json(value: bytes) -> str | None:
    """Bytes as indented JSON, None if they are none. Digits, doubled fields and escapes stay as they were sent."""
    try:
        text = value.decode()
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return "".join(_indented(_PART.findall(text)))


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _indented(parts: list[str]) -> Iterator[str]:
    depth, last = 0, ""
    for part in parts:
        if part in ("}", "]"):
            depth -= 1
            yield "" if last in ("{", "[") else _line(depth)
        elif last in ("{", "[", ","):
            yield _line(depth)
        yield ": " if part == ":" else part
        depth += part in ("{", "[")
        last = part


def _line(depth: int) -> str:
    return "\n" + "  " * depth


def hex_lines(value: bytes) -> Iterator[str]:
    """Bytes as offset, hexadecimal digits, and the characters of ASCII."""
    for at in range(0, len(value), _ROW):
        row = value[at : at + _ROW]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)  # noqa: PLR2004 - printable ASCII
        yield f"{at:08x}  {row.hex(' ', 1):{3 * _ROW - 1}}  {shown}"


def _visible(text: str) -> str:
    from frazil.report.dead_letters_page import visible

    return visible(text)
