"""Options that choose dead letters, and what they mean."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from frazil.batch.letters import LetterChoice, Place

Codes = Annotated[
    list[str] | None, typer.Option("--code", metavar="CODE", help="Only letters of this reason code. May be repeated.")
]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only letters of this topic. May be repeated.")
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="Only letters of this destination. May be repeated. Letters of records as a whole are of none.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="WHEN",
        help="Only records of before this Kafka timestamp, written alike.",
        show_default=False,
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="Only records of this Kafka timestamp or later: an instant, or how long ago: 90m, 24h, 7d.",
        show_default=False,
    ),
]

_PLACE = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d{1,10})[/:](?P<offset>\d{1,19})(?:/(?P<table>[^/]+\.[^/]+))?")


def choice_of(
    codes: list[str] | None,
    topics: list[str] | None,
    since: str | None,
    tables: list[str] | None = None,
    until: str | None = None,
) -> "LetterChoice":
    """The letters that options choose.

    Raises:
        typer.BadParameter: There is no such code, or the time ends before it begins.
        Terminal: The instant can't be read.
    """
    from frazil.batch.letters import LetterChoice

    now = datetime.now(UTC)
    begin = None if since is None else instant_of(since, now)
    end = None if until is None else instant_of(until, now, "--until")
    if begin is not None and end is not None and begin >= end:
        raise typer.BadParameter(f"--since {since} is not before --until {until}")
    return LetterChoice(
        frozenset(map(_code, codes or ())),
        frozenset(topics or ()),
        begin,
        tables=frozenset(tables or ()),
        until=end,
    )


def naming(choice: "LetterChoice", letters: Iterable[str]) -> "LetterChoice":
    """The choice among the letters that are named one by one, if any are.

    Raises:
        typer.BadParameter: A text names no letter.
    """
    named = [named_letter(text) for text in letters]
    return replace(
        choice,
        places=frozenset(place for place, table in named if table is None),
        of_tables=frozenset((place, table) for place, table in named if table is not None),
    )


def _code(text: str) -> str:
    from difflib import get_close_matches

    from frazil.records.dead import DeadCode

    known = [code.value for code in DeadCode]
    if text.upper() in known:
        return text.upper()
    near = get_close_matches(text.upper(), known, 1)
    said = f", did you mean {near[0]}?" if near else f"; codes: {', '.join(known)}"
    raise typer.BadParameter(f"{text!r} is no reason code{said}")


def instant_of(text: str, now: datetime, option: str = "--since") -> datetime:
    """The instant that an option names.

    Raises:
        typer.BadParameter: It names a place in a topic that is no instant.
        Terminal: It can't be read.
    """
    from frazil.batch.target import parse_instant

    try:
        return parse_instant(text, now)
    except ValueError as error:
        raise typer.BadParameter(f"{option} {error}") from error


def named_letter(text: str) -> "tuple[Place, str | None]":
    """The record that is meant by `TOPIC/PARTITION/OFFSET[/TABLE]`, and the table; None for whichever its letters are of.

    A colon before the offset will do, as dry runs print it.

    Raises:
        typer.BadParameter: The text is not of that form.
    """
    from frazil.batch.letters import Place

    match = _PLACE.fullmatch(text.strip())
    if match is None or int(match["partition"]) >= 2**31 or int(match["offset"]) >= 2**63:
        raise typer.BadParameter(f"{text!r} names no record; expected TOPIC/PARTITION/OFFSET, such as orders/0/1564")
    return Place(match["topic"], int(match["partition"]), int(match["offset"])), match["table"]
