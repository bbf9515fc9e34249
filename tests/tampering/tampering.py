"""A way to tamper with what a pipeline wrote, where it finds its victims, and what it needs to edit them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tests.tampering.pipelines import LETTERS, ORDERS, Landed, Place, Row

VICTIM, OTHER, BAD, FILTERED = (0, 1), (0, 4), (0, 2), (0, 3)
"""Records of batch 1: two good ones, one that is a dead letter, one that is filtered."""

BEYOND = (0, 2**40)
"""A place that no batch read."""

Edit = Callable[[Landed], None]


@dataclass(frozen=True)
class Tampering:
    """One way to tamper.

    Attributes:
        kind: What is tampered with.
        name: What is done, in words.
        edit: Does it.
        says: Kinds of the differences that must be told, and of no others.
        at: The places that they must name, if they name one; None: any place of the batch.
        words: What one difference without a place, or the refusal, must hold.
        but: Circumstance, or `edited` for a file edited since -> what must be said there instead; "" if nothing can be edited there.
    """

    kind: str
    name: str
    edit: Edit
    says: str
    at: Collection[Place] | None
    words: str
    but: Mapping[str, str]

    def expected(self, circumstance: str, *, is_edited: bool) -> str:
        """What verify must say in a circumstance, of a file as it landed or edited since; empty if nothing can be edited there."""
        usual = self.but.get(circumstance, self.says)
        return self.but.get("edited", usual) if is_edited else usual


def add_to(
    tamperings: list[Tampering],
    kind: str,
    says: str,
    *places: Place,
    words: str = "",
    anywhere: bool = False,
    **but: str,
) -> Callable[[Edit], Edit]:
    """Add a function to ways to tamper; its docstring is what the table says of it."""

    def add(edit: Edit) -> Edit:
        name = (edit.__doc__ or "").rstrip(".")
        tamperings.append(Tampering(kind, name, edit, says, None if anywhere else places, words, but))
        return edit

    return add


def place_of(row: Row) -> Place:
    return row["_kafka_partition"], row["_kafka_offset"]


def row_at(landed: Landed, place: Place = VICTIM) -> Row:
    return next(row for row in landed.rows.rows().to_pylist() if place_of(row) == place)


def bad_letter(landed: Landed) -> Row:
    return next(row for row in landed.letters.rows().to_pylist() if (row["partition"], row["offset"]) == BAD)


def change_row(landed: Landed, place: Place = VICTIM, **change: Any) -> None:
    landed.rows.overwrite(lambda row: row | change if place_of(row) == place else row)


def remove_row(landed: Landed, place: Place = VICTIM) -> None:
    landed.rows.delete(_kafka_partition=place[0], _kafka_offset=place[1])


def add_row(landed: Landed, place: Place, **change: Any) -> None:
    """A row like another one, of a key of its own, at a place."""
    coordinates = {"_kafka_partition": place[0], "_kafka_offset": place[1]}
    landed.rows.append([row_at(landed, OTHER) | {"id": 63} | coordinates | change])


def change_letter(landed: Landed, **change: Any) -> None:
    landed.letters.overwrite(lambda row: row | change if (row["partition"], row["offset"]) == BAD else row)


def remove_letter(landed: Landed) -> None:
    landed.letters.delete(partition=BAD[0], offset=BAD[1])


def change_ledger(landed: Landed, n: int, /, *roles: str, **change: Any) -> None:
    """Change what rows of a batch say: of some roles, or all. Functions get what was there."""

    def changed(row: Row) -> Row:
        if row["n"] != n or (roles and (row["role"] not in roles or row["table"] not in (ORDERS, LETTERS))):
            return row
        return row | {key: value(row[key]) if callable(value) else value for key, value in change.items()}

    landed.ledger.overwrite(changed)


def less_by(count: int = 1) -> Callable[[int | None], int | None]:
    return lambda value: None if value is None else value - count


def count_as_filtered(landed: Landed, code: str | None = None) -> None:
    """One row, or dead letter of a code, of batch 1 less in the ledger, one record left out more."""
    count, own = ("records_written", "table_written") if code is None else ("records_dead", "table_dead")

    def counted(row: Row) -> Row:
        if row["n"] != 1:
            return row
        change: Row = {} if code is None else {"dead_codes": json.dumps(without_one(row["dead_codes"], code))}
        if row["table"] == (ORDERS if code is None else LETTERS):
            change["rows"] = row["rows"] - 1
        if row["table"] == ORDERS and row[own] is not None:
            change[own] = row[own] - 1
        if not landed.has_several:
            change |= {count: row[count] - 1, "records_filtered": row["records_filtered"] + 1}
        return row | change

    landed.ledger.overwrite(counted)


def without_one(codes: str, code: str) -> dict[str, int]:
    """Counts of codes, one of them less."""
    counts = {name: count - (name == code) for name, count in json.loads(codes).items()}
    return {name: count for name, count in counts.items() if count}
