"""Guesses of formats: right for what producers send, and some guess for any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.records.formats.catalogue import FORMATS
from frazil.records.formats.guess import REGISTERED, Guess, guess, likeliest, schema_id


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, Guess("none")),
        (b'{"id": 1}', Guess("json")),
        (b'{"schema": null, "payload": {"id": 1}}', Guess("json-envelope")),
        (b"\0\0\0\0\7rest", Guess(REGISTERED)),
        (b"\1" + b"g" * 16 + b"rest", Guess(REGISTERED)),
        ((42).to_bytes(8, "big"), Guess("long")),
        ((42).to_bytes(4, "big"), Guess("int")),
        (b"1;Ann;2.5", Guess("delimited", ";", 3)),
        (b"1,Ann\n", Guess("delimited", ",", 2)),
        (b'1,"a, b"', Guess("delimited", ",", 2)),
        (b"[1, 2]", Guess("string")),
        (b"{broken, json", Guess("string")),
        ("Grüße".encode(), Guess("string")),
        (b"", Guess("string")),
        (b"\x9f\0\xff", Guess("bytes")),
        (b"red \x1b[31m", Guess("bytes")),
    ],
)
def test_format_is_guessed_from_bytes(data: bytes | None, expected: Guess) -> None:
    """The formats that topics hold, each by what its bytes begin with."""
    assert guess(data) == expected


@given(st.binary(max_size=64) | st.text("1,;|\t\n\"'{}[]a", max_size=40).map(str.encode))
def test_all_bytes_have_a_guess(data: bytes) -> None:
    """A producer sends anything: the command that looks must not end with it."""
    guessed = guess(data)

    assert guessed.format in (*FORMATS, REGISTERED)
    assert (guessed.format == REGISTERED) == (schema_id(data) is not None)
    assert (guessed.format == "delimited") == bool(guessed.fields)


def test_most_records_decide() -> None:
    """Broken records among good ones, and commas in sentences, do not change what a topic holds."""
    line = guess(b"1,2")

    assert likeliest([Guess("none")]) is None
    assert likeliest([guess(b"{}"), guess(b"{}"), guess(b"no"), Guess("none")]) == Guess("json")
    assert likeliest([line, line, guess(b"note")]) == line
    assert likeliest([guess(text) for text in (b"one, two", b"a, b, c", b"none", b"so, a, b, c")]) == Guess("string")
