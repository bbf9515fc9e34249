"""Java's properties: the files of Kafka and of its config providers, and what spark-submit reads its configuration from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])*)[ \t\f]*(?:[=:][ \t\f]*|(?<=[ \t\f])|$)(?P<value>.*)", re.DOTALL)
_SPECIAL = re.compile(r"[\\=:#! \t\f\r\n]")
_LETTERS = {plain: letter for letter, plain in _PLAIN.items()}


class UnreadableProperties(ValueError):
    """A text that has no properties; the message never quotes it."""


def read(text: str) -> dict[str, str]:
    """Comments, continued lines, `=`, `:` or a blank, escapes. Of a repeated key the last one counts.

    Raises:
        UnreadableProperties: A Unicode escape is broken.
    """
    properties = {}
    for line in _logical_lines(text.removeprefix("\ufeff")):
        match = _KEY.match(line)
        if match is None:
            raise UnreadableProperties("a line has no key")
        properties[_unescaped(match["key"])] = _unescaped(match["value"])
    return properties


def write(properties: Mapping[str, str]) -> str:
    """A text that `read`, and Java, read as these properties."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda match: "\\" + _LETTERS.get(match[0], match[0]), text)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; a backslash at the end of a line joins the next one."""
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        ends = len(line) - len(line.rstrip("\\"))
        if ends % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise UnreadableProperties("a \\u escape is not followed by four hexadecimal digits")
        return _PLAIN.get(escaped, escaped)

    return _ESCAPE.sub(plain, text)
