"""Guesses from bytes how a record is encoded: for people who look at a topic, and for proposals of pipeline files."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from frazil.records.formats.registered import BY_GUID, HEAD_BYTES
from frazil.records.json.exact import parse_object
from frazil.records.model.dead_letter import Rejection

REGISTERED: Final = "registered"
"""The guess for bytes that begin with the id of a schema. The registry knows the schema's language, and so the format."""

_DELIMITERS: Final = "\t|;,"
_LONGEST_LINE: Final = 100_000
"""Characters of a line in which delimiters are searched."""

_INTEGERS: Final = {4: "int", 8: "long"}
"""Length of a value that begins with a zero byte -> its format: most numbers are small, so they begin with zeros."""

_MOST_FIELDS: Final = 1_000
"""Fields of a line. By default a table gets no more columns."""

_OPENINGS: Final = ("{", "[", "<")
"""The first characters of documents, whose commas are no delimiters."""


class Guess(NamedTuple):
    """How bytes seem to be encoded.

    Attributes:
        format: Name of a format in pipeline files, or `REGISTERED`; `none` for null.
        delimiter: The character between the fields of a delimited line.
        fields: The number of fields of a delimited line.
    """

    format: str
    delimiter: str = ""
    fields: int = 0


def guess(data: bytes | None) -> Guess:
    """Guess how a value or key is encoded. No bytes make this fail."""
    if data is None:
        return Guess("none")
    if schema_id(data) is not None:
        return Guess(REGISTERED)
    if data[:1] == b"\0" and len(data) in _INTEGERS:
        return Guess(_INTEGERS[len(data)])
    try:
        names = parse_object(data).keys()
    except Rejection:
        return _guess_text(data)
    return Guess("json-envelope" if names == {"schema", "payload"} else "json")


def schema_id(data: bytes) -> int | UUID | None:
    """Return the schema id that stands before a value; None if there is none. Registries count from 1, so 0 is no id."""
    head = HEAD_BYTES.get(data[0]) if data else None
    if head is None or len(data) < head:
        return None
    return UUID(bytes=data[1:head]) if data[0] == BY_GUID else int.from_bytes(data[1:head], "big") or None


def likeliest(guesses: Iterable[Guess]) -> Guess | None:
    """Return the most frequent guess, not counting nulls; None if there are only nulls.

    Texts count as delimited if at least half of them have the same fields: a comma in a sentence is no delimiter.
    """
    votes = Counter(vote for vote in guesses if vote.format != "none")
    texts = Counter({vote: count for vote, count in votes.items() if vote.format in ("string", "delimited")})
    if texts:
        (line, count) = texts.most_common(1)[0]
        votes = Counter({vote: number for vote, number in votes.items() if vote not in texts})
        votes[line if 2 * count >= texts.total() else Guess("string")] += texts.total()
    return votes.most_common(1)[0][0] if votes else None


def _guess_text(data: bytes) -> Guess:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Guess("bytes")
    if not all(character.isprintable() or character in "\t\r\n" for character in text):
        return Guess("bytes")
    line = text[:_LONGEST_LINE].removesuffix("\n")
    delimiter = next((sign for sign in _DELIMITERS if sign in line), None)
    if delimiter is None or line.startswith(_OPENINGS) or "\n" in line:
        return Guess("string")
    try:
        fields = len(next(csv.reader([line], delimiter=delimiter)))
    except csv.Error:
        return Guess("string")
    return Guess("delimited", delimiter, fields) if 1 < fields <= _MOST_FIELDS else Guess("string")
