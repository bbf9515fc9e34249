"""Undeclared JSON before transforms: each record is decoded by itself, and none stops the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from frazil.records.model.format import Transform
from frazil.records.model.spec import Evolution, RecordSpec
from frazil.records.transforms.catalogue import transform
from tests.unit.records.evolution.evolving import land, land_still, spec, transformed

ID, NOTE = pa.field("id", pa.int64()), pa.field("note", pa.string())


def behind(steps: Sequence[Transform], *columns: pa.Field) -> RecordSpec:
    """How records become rows behind transforms."""
    fields = pa.schema(columns)
    return spec(columns, infers=True, fields=fields, transforms=tuple(steps))


def outcomes(values: Sequence[object], spec: RecordSpec, *, alone: bool) -> list[dict[str, Any] | None]:
    """The row of each value, None if it is dead, all in one batch or each in one of its own."""
    landed = land([[value] for value in values] if alone else [values], spec)
    rows = [landed.row(number, 0) if alone else landed.row(0, number) for number in range(len(values))]
    names = spec.columns.names
    return [None if row is None else {name: row[name] for name in names} for row in rows]


@pytest.mark.parametrize(
    ("step", "values", "columns"),
    [
        (transform("ReplaceField", {"renames": {"a": "id"}}), [{"a": 1}, {"a": 2}, {"a": 3, "id": 7}], (ID,)),
        (transform("ExtractField", {"field": "y"}), [{"x": 1}, {"x": 1, "y": {"id": 2}}], (ID,)),
        (transform("Explode", {"field": "y"}), [{"y": None}, {"y": [{"id": 1}]}], (ID,)),
        (transform("MaskField", {"fields": ["x"]}), [{"c": "x", "l": [1, "a"]}, {"z": True}, {"id": 1}], (ID,)),
    ],
)
def test_record_behind_transforms_does_not_depend_on_its_neighbours(
    step: Transform, values: list[object], columns: tuple[pa.Field, ...]
) -> None:
    """In one batch with others a record is what it is alone."""
    evolving_spec = behind([step], *columns)
    assert outcomes(values, evolving_spec, alone=False) == outcomes(values, evolving_spec, alone=True)


def change(before: object, after: object, op: object = "u") -> dict[str, object]:
    source = {"db": "shop", "table": "orders"}
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": 1}


def test_update_from_null_lands() -> None:
    """Images of undeclared JSON have the types of their values: null, and whole numbers among others, go together."""
    evolving_spec = behind([transform("DebeziumTransform", {})], ID, NOTE, pa.field("price", pa.float64()))
    values = [
        change({"id": 1, "note": None, "price": 1}, {"id": 1, "note": "x", "price": 1.5}),
        change({"id": 2, "note": "y", "price": 2.5}, {"id": 2, "note": None, "price": 2}),
    ]
    assert outcomes(values, evolving_spec, alone=False) == [
        {"id": 1, "note": "x", "price": 1.5},
        {"id": 2, "note": None, "price": 2.0},
    ]


@pytest.mark.parametrize("odd", [{"op": 7}, {"op": "c", "after": 7}, change({"id": "x"}, {"id": 2})])
def test_one_record_of_another_shape_is_a_dead_letter(odd: dict[str, object]) -> None:
    """It is a dead letter, its neighbour a row."""
    evolving_spec = behind([transform("DebeziumTransform", {})], ID)
    landed = land([[odd, change(None, {"id": 1}, "c")]], evolving_spec)
    assert [row["id"] for row in landed.rows] == [1]
    assert landed.codes == ["TRANSFORM_FAILED"]


@pytest.mark.parametrize("number", ["9" * 309, "-" + "9" * 420, "1" + "0" * 400, "1e400", "9" * 400 + ".5"])
def test_a_number_that_no_double_holds_is_a_dead_letter_beside_a_double(number: str) -> None:
    """A record with hundreds of digits is one dead letter; the records around it land, in whichever order they came."""
    evolving_spec = behind([transform("ReplaceField", {"renames": {"a": "b"}})], ID, pa.field("score", pa.float64()))
    good, huge = b'{"id": 1, "score": 0.5}', f'{{"id": 2, "score": {number}}}'.encode()
    for values in ([good, huge], [huge, good], [good, huge, good]):
        landed = land([values], evolving_spec)
        assert {(row["id"], row["score"]) for row in landed.rows} == {(1, 0.5)}
        assert landed.codes == ["OUT_OF_RANGE"]


@pytest.mark.parametrize("is_first", [True, False])
def test_dead_record_brings_no_column_beside_its_neighbours(is_first: bool) -> None:
    """Its neighbours are decoded as they are without it."""
    evolving_spec = behind([transform("RegexRouter", {"regex": "a", "replacement": "b"})], ID)
    bad, good = b'{"id": 1, "junk": 1, "t": "\\ud800"}', {"id": 2, "t": "x"}

    landed = land([[bad, good] if is_first else [good, bad]], evolving_spec)

    assert landed.codes == ["LONE_SURROGATE"]
    assert landed.rounds == land([[good]], evolving_spec).rounds
    assert [(row["id"], row["t"]) for row in landed.rows] == [(2, "x")]


SPELLINGS: list[dict[str, Any]] = [
    {"id": 1, "ID": 2},
    {"ID": 2, "id": 1},
    {"ID": 2},
    {"Id": 3},
    {"B": True, "b": None},
    {"a": {"x": 1, "X": 2}},
    {"a": {"X": 2, "x": 1}},
    {"A": {"y": 2}},
    {"A": {"b": 1}, "a": {"B": 2}},
]


@pytest.mark.parametrize("names", ["exact", "case_insensitive"])
@pytest.mark.parametrize(
    "step",
    [
        transform("InsertField", {"static_field": "added", "static_value": "x"}),
        transform("Sql", {"select": "*, 1 AS added"}),
        transform("ReplaceField", {"exclude": ["id"]}),
    ],
    ids=["insert", "sql", "exclude"],
)
def test_spellings_of_a_name_do_not_depend_on_neighbours(step: Transform, names: str) -> None:
    """Names that differ in case only: a record's fields have the same values alone and beside any other record."""
    evolving_spec = replace(behind([step]), field_names=names)
    for pair in permutations(SPELLINGS, 2):
        landed = land([list(pair)], evolving_spec)
        columns = landed.spec.columns.names
        at_once = [landed.row(0, number) for number in range(2)]
        alone = [land([[value]], landed.spec).row(0, 0) for value in pair]
        shown = [[row and {name: row[name] for name in columns} for row in rows] for rows in (at_once, alone)]
        assert shown[0] == shown[1], pair


def test_fields_that_differ_in_case_only_come_through_transforms() -> None:
    """Where case means something both are fields, as they are without a transform: none is lost."""
    evolving_spec = behind([transform("InsertField", {"static_field": "added", "static_value": "x"})])
    (row,) = land([[{"B": False, "b": True, "A": {"x": 1}, "a": {"X": 2}}]], evolving_spec).rows
    assert row == {"A": {"x": 1}, "B": False, "a": {"X": 2}, "added": "x", "b": True}


LARGE = 3_000_000_000
NUMBERS = pa.field("m", pa.map_(pa.string(), pa.int32()))
PARTS = pa.field("m", pa.map_(pa.string(), pa.struct([pa.field("x", pa.int32())])))
LISTS = pa.field("m", pa.map_(pa.string(), pa.list_(PARTS.type)))


@pytest.mark.parametrize("evolution", [Evolution("add"), Evolution("widen"), Evolution("widen", "variant_column")])
@pytest.mark.parametrize(
    ("column", "value", "needs"),
    [
        (NUMBERS, {"a": 1, "b": 2}, ""),
        (NUMBERS, {"a": 1, "b": LARGE}, "m.value"),
        (NUMBERS, {"a": "x", "b": 1}, ""),
        (PARTS, {"a": {"x": 1}, "b": {"x": 3, "y": 1}}, "m.value.y"),
        (PARTS, {"a": {"x": 1}, "b": {"x": LARGE}}, "m.value.x"),
        (PARTS, {"a": None, "b": {"z": {"q": "t"}}, "c": {"z": {"r": "t"}}}, "m.value.z"),
        (LISTS, {"a": [{"k": {"x": LARGE}}, {"k": {"x": 1}}], "b": []}, "m.value.element.value.x"),
        (LISTS, {"a": [{"k": {"x": 1, "y": 1}}], "b": None}, "m.value.element.value.y"),
    ],
)
def test_values_of_a_map_request_the_same_changes_behind_transforms(
    column: pa.Field, value: object, needs: str, evolution: Evolution
) -> None:
    """Transforms see an object that becomes a map: the table changes as without transforms."""
    straight = spec([column], evolution)
    behind_one, straight_landing = (
        land([[{"m": value}]], evolving_spec) for evolving_spec in (transformed(straight), straight)
    )
    assert (behind_one.rounds, behind_one.rows, behind_one.codes) == (
        straight_landing.rounds,
        straight_landing.rows,
        straight_landing.codes,
    )
    if needs and evolution.level != "add":
        assert needs in {".".join(change.path) for change in straight_landing.rounds[0]}


def test_fields_in_map_values_are_counted_under_the_map() -> None:
    """What no column takes is counted under the name of the map: its keys are values."""
    still = transformed(replace(spec([PARTS]), evolution=None))
    landed = land_still(b'{"m":{"a":{"x":1},"b":{"x":3,"y":1},"c":{"y":null}}}', still)
    assert landed.unknown_fields.names == {"m.y": 1}
