"""What is in a record's key, value or header, as a person reads it: JSON, text or bytes in hexadecimal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

MOST = 16_384
"""Bytes that are shown; a page with megabytes in it helps nobody."""

MOST_OF_HEADER = 512
"""Bytes that are shown of a header: a record may have many."""

MOST_INDENTED = 4 * MOST
"""Characters of indented JSON. Brackets in brackets become forty times as long by it."""

Kind = Literal["null", "empty", "json", "text", "hex"]

_WIDTH = 16
_VISIBLE = range(32, 127)


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes made readable.

    Attributes:
        kind: What they are taken for.
        size: How many there are.
        text: As JSON or text; None if they are neither.
        hexadecimal: As a dump: offset, bytes, characters.
        is_cut: Whether there are more than are shown.
        most: How many are shown at most.
    """

    kind: Kind
    size: int
    text: str | None = None
    hexadecimal: str = ""
    is_cut: bool = False
    most: int = MOST


def shown(content: bytes | None, most: int = MOST) -> Payload:
    """Make bytes readable, the first `most` of them. Whole JSON is indented; what is cut or is no JSON is shown as it came."""
    if content is None:
        return Payload("null", 0)
    if not content:
        return Payload("empty", 0)
    cut, is_cut = content[:most], len(content) > most
    text = _text(cut, is_cut=is_cut)
    pretty = None if is_cut or text is None else _json(text)
    kind: Kind = "json" if pretty is not None else "hex" if text is None else "text"
    return Payload(kind, len(content), pretty if pretty is not None else text, dump(cut), is_cut, most)


def dump(content: bytes) -> str:
    """Sixteen bytes a line: offset, hexadecimal, and the characters that are ASCII."""
    lines = []
    for start in range(0, len(content), _WIDTH):
        part = content[start : start + _WIDTH]
        characters = "".join(chr(byte) if byte in _VISIBLE else "·" for byte in part)
        lines.append(f"{start:06x}  {part.hex(' '):<{3 * _WIDTH - 1}}  {characters}")
    return "\n".join(lines)


def _text(content: bytes, *, is_cut: bool) -> str | None:
    """As UTF-8, unless too much of it can't be read by people. A cut may go through a character: that one is left out."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if not (is_cut and error.start >= len(content) - 3):
            return None
        text = content[: error.start].decode()
    hidden = sum(not (c.isprintable() or c in "\n\r\t") for c in text)
    return text if hidden * 10 <= len(text) else None


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


_COLON = ":"


def _json(text: str) -> str | None:
    """Indented, every token as it came: parsed and written again, numbers would lose digits. None if it is no JSON, or would be
    too long.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    indented = "".join(_indented(_TOKEN.findall(text)))
    return indented if len(indented) <= MOST_INDENTED else None


def _indented(tokens: Sequence[str]) -> Iterator[str]:
    depth = 0
    for number, token in enumerate(tokens):
        before = tokens[number - 1] if number else ""
        if token in {"}", "]"}:
            depth -= 1
            yield "" if before in ("{", "[") else _line(depth)
        elif before in ("{", "[", ","):
            yield _line(depth)
        yield ": " if token == _COLON else token
        depth += token in ("{", "[")


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, 40)
