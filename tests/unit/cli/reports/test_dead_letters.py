"""`frazil dead-letters` before it reads anything: options, help, and how letters look."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.changes import Place
from frazil.cli.output import console
from frazil.cli.reports.dead_letter_views import (
    choice_by_names,
    choice_of,
    hex_lines,
    indented_json,
    instant_of,
    letter_lines,
    letter_rows,
    named_letter,
    part_lines,
)
from frazil.cli.reports.dead_letters import app
from frazil.errors import Terminal
from frazil.report.dead_letters import DeadLetter, WholeLetter

Frazil = Callable[..., Any]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
VERBS = [command.name or "" for command in app.registered_commands]


def letter(message: str = 'id: expected a long, found "x"', topic: str = "orders") -> DeadLetter:
    return DeadLetter(topic, 3, 1564, NOW, "WRONG_TYPE", "id", message, 7, 2, None)


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_has_an_example_that_exists(frazil: Frazil, verb: str) -> None:
    """A reader copies the example; it must name this verb and options that it has."""
    ended = frazil("dead-letters", verb, "--help")

    examples = re.findall(r"^ *Example: (.*)$", ended.out, re.MULTILINE)
    options = set(re.findall(r"--[a-z-]+", ended.out.split("Example:")[0]))
    assert ended.code == 0
    assert examples
    assert all(f"frazil dead-letters {verb}" in example for example in examples)
    assert {option for example in examples for option in re.findall(r" (--[a-z-]+)", example)} <= options


def test_all_verbs_exist() -> None:
    """Renaming a verb breaks scripts."""
    assert {"list", "show", "report"} <= set(VERBS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90m", NOW - timedelta(minutes=90)),
        ("7d", NOW - timedelta(days=7)),
        ("2026-11-20T10:00:00", datetime(2026, 11, 20, 10, tzinfo=UTC)),
        ("2026-11-20T10:00:00+02:00", datetime(2026, 11, 20, 8, tzinfo=UTC)),
    ],
)
def test_since_is_an_age_or_an_instant_in_utc(text: str, expected: datetime) -> None:
    """How long ago, or an instant, in UTC unless it says otherwise."""
    assert instant_of(text, NOW) == expected


@pytest.mark.parametrize("text", ["latest", "earliest", "999999d"])
def test_invalid_since_is_a_usage_error(text: str) -> None:
    """A wrong use, with what was expected."""
    with pytest.raises(typer.BadParameter):
        instant_of(text, NOW)


@pytest.mark.parametrize("text", ["soon", "7", "7w", ""])
def test_since_refuses_unreadable_text(text: str) -> None:
    """What can't be read is refused, not ignored."""
    with pytest.raises(Terminal):
        instant_of(text, NOW)


@pytest.mark.parametrize("until", ["24h", "7d", "2020-01-01"])
def test_time_range_that_ends_before_it_begins_is_refused(until: str) -> None:
    """It is refused; so is what is no instant."""
    with pytest.raises(typer.BadParameter, match=f"--since 24h is not before --until {until}"):
        choice_of(None, None, "24h", None, until)
    with pytest.raises(typer.BadParameter, match="--until latest"):
        choice_of(None, None, None, None, "latest")
    assert choice_of(None, None, "7d", None, "24h").until is not None


@pytest.mark.parametrize("text", ["orders/0/1564", "orders/0:1564", " orders/0/1564 "])
def test_record_is_named_as_lists_and_dry_runs_print_it(text: str) -> None:
    """As the list prints it, and as dry runs do."""
    assert named_letter(text) == (Place("orders", 0, 1564), None)


@pytest.mark.parametrize("text", ["orders", "orders/0", "a/b/0/1", "/0/1", "o/-1/1", "o/x/1", f"o/0/{2**63}"])
def test_invalid_record_name_is_a_usage_error(text: str) -> None:
    """A wrong use, with the form that was expected."""
    with pytest.raises(typer.BadParameter, match="TOPIC/PARTITION/OFFSET"):
        named_letter(text)


def test_dead_letter_of_one_table_can_be_named() -> None:
    """A record may have several: the table behind it says which; without one all are meant."""
    place = Place("orders", 0, 7)
    assert named_letter("orders/0/7/shop.orders") == (place, "shop.orders")

    choice = choice_by_names(choice_of(None, None, None, ["shop.audit"]), ["orders/0/7/shop.orders", "orders/0:8"])

    assert choice.of_tables == {(place, "shop.orders")}
    assert choice.places == {Place("orders", 0, 8)}
    assert choice.tables == {"shop.audit"}


def test_mistyped_code_is_refused_with_the_nearest_one() -> None:
    """It is refused with the nearest one; the case does not matter."""
    with pytest.raises(typer.BadParameter, match="did you mean INVALID_JSON"):
        choice_of(["INVALID_JSN"], None, None)
    assert choice_of(["invalid_json"], ["t"], None).codes == {"INVALID_JSON"}


@pytest.mark.parametrize("options", [("--open", "--all"), ("--landed", "--all")])
def test_contradicting_options_are_refused(frazil: Frazil, options: tuple[str, ...]) -> None:
    """Both can't be meant."""
    ended = frazil("dead-letters", "list", "pizzas", *options)

    assert ended.code == 2
    assert "exclude each other" in ended.err


@pytest.mark.parametrize("width", [80, 120, 200])
def test_long_message_is_cut_to_fit_the_table(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is cut; the record's place, which the next command needs, never is."""
    monkeypatch.setenv("COLUMNS", str(width))
    topic = "a.topic.with.a.long.name-of-40-characters"

    for line in letter_rows([letter("m" * 500, topic), letter("\x1b[2J\nx", topic)], with_landed=True):
        console.say(line)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "…" in lines[1]
    assert all(len(line) <= max(width, 140) for line in lines)
    assert all(f"{topic}/3/1564" in line and "WRONG_TYPE" in line for line in lines[1:])
    assert r"\x1b[2J\nx" in lines[2]


def test_dead_letters_of_one_record_show_their_table() -> None:
    """With several destinations the list names the table; a letter that has its row already is marked."""
    lost = replace(letter(), destination="shop.audit", row_batch=9)
    head, first, second = letter_rows([replace(letter(), destination="shop.orders"), lost], with_landed=False)

    assert head.split() == ["record", "table", "time", "code", "path", "attempts", "batch", "row", "message"]
    assert "shop.orders" in first
    assert "of batch 9" not in first
    assert "shop.audit" in second
    assert "of batch 9" in second
    assert next(letter_rows([letter()], with_landed=False)).split() == [
        *("record", "time", "code", "path", "attempts", "batch", "message")
    ]
    text = "\n".join(letter_lines(WholeLetter(lost, "convert", None, b"{}", ())))
    assert "table     shop.audit" in text
    assert "its row exists since batch 9" in text


def test_dead_letter_shows_reason_and_remedy() -> None:
    """Reason, remedy, attempts, and every part of the record."""
    whole_letter = WholeLetter(letter(), "convert", b"\x00key", b'{"id":"x"}', (("trace", b"1"), ("none", None)))

    text = "\n".join(letter_lines(whole_letter))

    for phrase in ("orders/3/1564  WRONG_TYPE", "Correct the producer", "tried 2 times, kept by batch 7", "it is open"):
        assert phrase in text
    assert 'value: 10 bytes, JSON\n  {\n    "id": "x"\n  }' in text
    assert "00000000  00 6b 65 79" in text
    assert "header none: null" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"a":1e400,"a":0.10}', '{\n  "a": 1e400,\n  "a": 0.10\n}'),
        (b"[]", "[]"),
        (b"[{},[1]]", "[\n  {},\n  [\n    1\n  ]\n]"),
        (b'"a\\"b{,"', '"a\\"b{,"'),
        (b"9" * 5000, "9" * 5000),
        (b"[NaN]", None),
        (b"{'a': 1}", None),
        (b"", None),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_json_is_shown_as_it_was_sent(value: bytes, shown: str | None) -> None:
    """Digits, doubled fields and escapes stay as they were sent."""
    assert indented_json(value) == shown


@given(st.binary(max_size=6000))
def test_any_bytes_of_a_record_are_shown_safely(value: bytes) -> None:
    """Whatever the bytes, they are shown, within bounds and without steering the terminal."""
    lines = list(part_lines("value", value))

    assert all(line.isprintable() for line in lines)
    assert sum(map(len, lines)) < 30_000


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"id": 4\n', ["value: 9 bytes, text", '  {"id": 4', "  "]),
        ("größe\t5".encode(), ["value: 9 bytes, text", "  größe\\t5"]),
        (b"\x1b[2J", ["value: 4 bytes", f"  00000000  {'1b 5b 32 4a':47}  .[2J"]),
    ],
)
def test_text_that_is_no_json_is_shown_as_text(value: bytes, shown: list[str]) -> None:
    """A record that was cut off can be read; one that would steer a terminal is a hex dump."""
    assert list(part_lines("value", value)) == shown


def test_dump_shows_offset_bytes_and_ascii() -> None:
    """Offset, 16 bytes, and their ASCII."""
    assert list(hex_lines(bytes(range(60, 78)))) == [
        "00000000  3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b  <=>?@ABCDEFGHIJK",
        f"00000010  {'4c 4d':47}  LM",
    ]


def test_large_value_is_shown_in_part() -> None:
    """The first 4 KiB, and how much is left."""
    *_, last = part_lines("value", b"\x00" * 5000)
    *_, last_of_json = part_lines("value", json.dumps("x" * 5000).encode())

    assert last == "  … and 904 more bytes"
    assert last_of_json == "  … and 906 more characters"


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """It is named, with what the system said."""
    from frazil.cli.reports.dead_letters import _write

    with pytest.raises(Terminal, match=r"can't be written: Is a directory"):
        _write(tmp_path, b"")
