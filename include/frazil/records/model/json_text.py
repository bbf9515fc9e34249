"""JSON values back to text, and in words for messages."""

from __future__ import annotations

import re
from json.encoder import encode_basestring
from typing import Final

from frazil.records.model.json_number import Number

JsonValue = bool | Number | str | list["JsonValue"] | dict[str, "JsonValue"] | None

_HALVES: Final = re.compile(r"[\ud800-\udfff]")

SHOWN_CHARACTERS: Final = 80
"""A message shows this much of a found value: enough to know it again, too little to copy a payload
into a log."""


def compact(value: JsonValue) -> str:
    """Return JSON without blanks: numbers as they were sent, of repeated keys the last one."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def document(value: JsonValue) -> str:
    r"""Return JSON that UTF-8 can hold: as `compact`, with halves of surrogate pairs escaped, as they were sent."""
    text = compact(value)
    return text if text.isascii() else _HALVES.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def _write(value: JsonValue, parts: list[str]) -> None:
    # One Python frame per level, no comprehension: nesting up to MAX_DEPTH must fit into the
    # recursion limit.
    if isinstance(value, dict):
        mark = "{"
        for name, item in value.items():
            parts.append(f"{mark}{encode_basestring(name)}:")
            _write(item, parts)
            mark = ","
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        mark = "["
        for item in value:
            parts.append(mark)
            _write(item, parts)
            mark = ","
        parts.append("]" if value else "[]")
    else:
        parts.append(_scalar(value))


def _scalar(value: JsonValue) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, Number) else encode_basestring(str(value))


def kind(value: JsonValue) -> str:
    """Return the kind of a JSON value in a word."""
    if value is None or isinstance(value, bool):
        return _scalar(value)
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "list"
    return "number" if isinstance(value, Number) else "text"


def describe(value: JsonValue) -> str:
    """Return kind and (cut) text of a value, such as `text "abc"`."""
    if value is None or isinstance(value, bool):
        return _scalar(value)
    # A long text is cut before it is quoted, so that ten megabytes cost no more than eighty
    # characters.
    shown = value[: SHOWN_CHARACTERS + 1] if type(value) is str else value
    text = compact(shown)
    cut = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
    return f"{kind(value)} {cut}"
