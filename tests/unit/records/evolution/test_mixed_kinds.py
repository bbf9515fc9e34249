"""Values of several kinds under one new name: all of them land, and so does whatever comes later."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from frazil.records.model.spec import Evolution, OnIncompatible, RecordSpec
from tests.format_specs import format_spec
from tests.unit.records.evolution.evolving import Landed, land, spec, transformed


def later(before: Landed, values: list[bytes]) -> Landed:
    """What becomes of records that come after others, into the columns that those brought."""
    return land([values], before.spec)


def texts(landed: Landed) -> list[Any]:
    return [row["v"] for row in landed.rows]


@pytest.mark.parametrize("otherwise", ["dead_letter", "variant_column", "fail"])
def test_numbers_and_texts_land_as_texts_in_an_undeclared_column(otherwise: OnIncompatible) -> None:
    """Numbers and booleans as they were sent, to the last digit, whatever the policy for values that don't fit."""
    values = [b'{"v":1}', b'{"v":1.50}', b'{"v":-0.0}', b'{"v":12345678901234567890123}', b'{"v":true}', b'{"v":"4"}']
    landed = land([values], spec((), Evolution("widen", otherwise)))
    assert landed.columns == {"v": pa.string()}
    assert texts(landed) == ["1", "1.50", "-0.0", "12345678901234567890123", "true", "4"]
    assert landed.codes == []


def test_one_object_among_numbers_makes_no_dead_letters() -> None:
    """900 numbers and one object under one new name: all land, and so do the numbers that come later."""
    values = [b'{"v":%d}' % number for number in range(900)]
    landed = land([[*values, b'{"v":{"a":[1.0]}}', b'{"v":[1]}']], spec())
    assert landed.columns == {"v": pa.string()}
    assert texts(landed)[-3:] == ["899", '{"a":[1.0]}', "[1]"]

    after = later(landed, [b'{"v":7}', b'{"v":false}', b'{"v":"x"}', b'{"v":null}'])
    assert (after.rounds, after.codes, texts(after)) == ([], [], ["7", "false", "x", None])


def test_tasks_with_different_kinds_make_the_column_that_one_task_would_make() -> None:
    """One task has numbers, one texts, one objects: however the batch is cut, each record becomes the same."""
    values = [b'{"v":1,"w":[1]}', b'{"v":"x","w":["a",true]}', b'{"v":{"a":1},"w":[{"b":1}]}']
    once = land([values], spec())
    for tasks in ([values[2:], values[:2]], [[each] for each in values], [[each] for each in values[::-1]]):
        again = land(tasks, spec())
        assert again.columns == once.columns == {"v": pa.string(), "w": pa.list_(pa.string())}
        assert sorted(map(str, again.rows)) == sorted(map(str, once.rows))
    assert again.codes == []


def test_mixed_kinds_inside_of_new_structs_land() -> None:
    """The rule holds at any level of a column that nobody declared."""
    values = [b'{"a":{"b":1,"c":[1]}}', b'{"a":{"b":"x","c":["y"]}}', b'{"a":{"b":{"d":1}}}']
    landed = land([values], spec())
    assert [row["a"]["b"] for row in landed.rows] == ["1", "x", '{"d":1}']
    assert landed.codes == []


def test_number_for_a_declared_text_column_stays_a_dead_letter() -> None:
    """Who declares a string says what the field is; a column that the records brought says nothing of the kind."""
    column = pa.field("v", pa.string())
    assert land([[b'{"v":1}']], spec([column])).codes == ["WRONG_TYPE"]
    assert texts(land([[b'{"v":1}']], spec([column], declared=frozenset()))) == ["1"]


def test_mixed_kinds_land_through_transforms() -> None:
    """There numbers are columns before they are texts: the text names the same number."""
    values = [b'{"v":1}', b'{"v":2.5}', b'{"v":true}', b'{"v":"4"}', b'{"v":{"a":1}}']
    landed = land([values], transformed(spec()))
    assert texts(landed) == ["1", "2.5", "true", "4", '{"a":1}']
    assert landed.codes == []


def test_versions_of_a_schema_with_other_types_share_a_text_column() -> None:
    """A field that was a long and is a text, or a timestamp: all land as JSON texts."""
    landed = None
    types: list[tuple[Any, Any]] = [
        ("string", "x"),
        ("long", 5),
        ({"type": "long", "logicalType": "timestamp-millis"}, 0),
    ]
    values = []
    for type_, value in types:
        schema = {"type": "record", "name": "r", "fields": [{"name": "v", "type": type_}]}
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), {"v": value})
        format_ = format_spec("avro", schema=json.dumps(schema))
        evolving_spec = spec(format=format_) if landed is None else replace(landed.spec, format=format_)
        landed = land([[buffer.getvalue()]], evolving_spec)
        assert landed.codes == []
        values += texts(landed)
    assert values == ["x", "5", "1970-01-01T00:00:00Z"]


MIXED = [
    ([None, 1, "1", {}], [None, "1", "1", "{}"]),
    ([[1], {"a": 1}, 2.5], ["[1]", '{"a":1}', "2.5"]),
    ([{"a": 1}, {"a": "x"}], [{"a": "1"}, {"a": "x"}]),
    ([True, 1], ["true", "1"]),
    ([[1], ["x"]], [["1"], ["x"]]),
]


@pytest.mark.parametrize("way", [spec, lambda: transformed(spec())], ids=["plain", "transformed"])
@pytest.mark.parametrize(("value", "lands"), MIXED)
def test_list_with_items_of_several_kinds_lands_as_json_text(
    value: object, lands: object, way: Callable[[], RecordSpec]
):
    """Whether values become columns at once or go through transforms before."""
    landed = land([[{"items": value}]], way())
    assert landed.codes == []
    assert [row["items"] for row in landed.rows] == [lands]
