"""Options that choose dead letters, and what they mean."""

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
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
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="Only records of this Kafka timestamp or later: an instant, or how long ago: 90m, 24h, 7d.",
        show_default=False,
    ),
]

_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_PLACE = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d{1,10})[/:](?P<offset>\d{1,19})(?:/(?P<table>[^/]+\.[^/]+))?")


def choice_of(
    codes: list[str] | None, topics: list[str] | None, since: str | None, tables: list[str] | None = None
) -> "LetterChoice":
    """The letters that options choose.

    Raises:
        typer.BadParameter: There is no such code.
        Terminal: The instant can't be read.
    """
    from frazil.batch.letters import LetterChoice

    return LetterChoice(
        frozenset(map(_code, codes or ())),
        frozenset(topics or ()),
        None if since is None else instant_of(since, datetime.now(UTC)),
        tables=frozenset(tables or ()),
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


def instant_of(text: str, now: datetime) -> datetime:
    """The instant that `--since` names.

    Raises:
        typer.BadParameter: It names a place in a topic that is no instant.
        Terminal: It can't be read.
    """
    from frazil.batch.target import parse_target

    if match := _AGO.fullmatch(text.strip()):
        try:
            return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError as error:
            raise typer.BadParameter(f"--since {text} is before the calendar begins") from error
    instant = parse_target(text).instant
    if instant is None:
        raise typer.BadParameter(f"--since takes an instant, or how long ago (90m, 24h, 7d), and not {text!r}")
    return instant


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
