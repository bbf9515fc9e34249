"""Names in another case, with `case_insensitive`: a table follows them like names in its own case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa
import pytest

from frazil.records.model.spec import Evolution, RecordSpec
from tests.unit.records.evolution.evolving import Landed, land, spec, transformed

LARGE = 3_000_000_000

PRICE = pa.field("price", pa.int32())
KEY = pa.field("price", pa.int64(), nullable=False)
PLACE = pa.field("place", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.int32()), pa.field("t", pa.string())]))
LINES = pa.field("lines", pa.list_(pa.struct([pa.field("x", pa.int32()), pa.field("t", pa.string())])))

CASES: list[tuple[pa.Field, object]] = [
    (PRICE, {"price": 1}),
    (PRICE, {"price": LARGE}),
    (PRICE, {"price": "1.5"}),
    (KEY, {"price": 3}),
    (KEY, {"price": None}),
    (KEY, {}),
    (PLACE, {"place": {"x": LARGE, "y": 1, "t": "q"}}),
    (PLACE, {"place": {"t": "q", "y": LARGE}}),
    (LINES, {"lines": [{"x": 1}, None, {"t": "q", "x": LARGE}]}),
]


def spelled(value: object, spell: Callable[[str], str]) -> object:
    """A value with its names in another case."""
    if isinstance(value, dict):
        return {spell(name): spelled(item, spell) for name, item in value.items()}
    return [spelled(item, spell) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("spell", [str.upper, str.title])
@pytest.mark.parametrize("level", ["add", "widen", "full"])
@pytest.mark.parametrize("way", [transformed, lambda spec: spec], ids=["behind transforms", "straight"])
@pytest.mark.parametrize(("column", "value"), CASES, ids=[f"{column.name} {value}" for column, value in CASES])
def test_name_in_another_case_changes_the_table_alike(
    column: pa.Field,
    value: object,
    way: Callable[[RecordSpec], RecordSpec],
    level: Literal["add", "widen", "full"],
    spell: Callable[[str], str],
) -> None:
    """The changes, the row and the dead letter are those of the same record in the table's own spelling."""
    same, second_landing = (
        _outcome(land([[document]], way(spec([column], Evolution(level), field_names="case_insensitive"))))
        for document in (value, spelled(value, spell))
    )
    assert second_landing == same
    assert same == _outcome(land([[value]], way(spec([column], Evolution(level)))))


def _outcome(landing: Landed) -> tuple[Any, ...]:
    return landing.rounds, landing.rows, landing.codes
