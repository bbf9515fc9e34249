"""A value of another kind than the column that earlier records brought: its record lands, the field is kept with the rescued ones."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from frazil.pipeline.models.pipeline_file import Destination, Value
from frazil.records.model.column import type_name
from frazil.records.model.spec import Evolution
from frazil.verify.values.canonical import column_values, null_empty_values
from frazil.verify.values.column_readers import Bad, Expectation, RescuedColumn, compared_columns
from tests.format_specs import format_spec
from tests.unit.records.cdc.growing import grown
from tests.unit.records.cdc.landing import TABLE, pipeline
from tests.unit.records.evolution.evolving import Landed, land, spec, transformed

WAYS = pytest.mark.parametrize("way", [lambda spec: spec, transformed], ids=["plain", "transformed"])
FIRST = [{"v": {"a": 1}}, {"v": True}, {"v": [1]}, {"v": 5}]


def after(first: object, documents: list[Any], way: Any) -> Landed:
    """What becomes of records that come a batch after another one."""
    before = land([[first]], way(spec()))
    return land([documents], before.spec)


@WAYS
@pytest.mark.parametrize("first", FIRST, ids=str)
def test_one_record_leaves_the_new_column_usable_for_others(first: object, way: Any) -> None:
    """One object, one bool; then 900 numbers under its name: all land, each with its value, and the field is counted."""
    documents = [{"v": number + 0.5, "id": number} for number in range(900)]
    landed = after(first, documents, way)

    assert landed.codes == []
    assert [row["id"] for row in landed.rows] == list(range(900))
    assert {row["v"] for row in landed.rows} == {None}
    assert [json.loads(row["_rescued"]) for row in landed.rows] == [{"v": document["v"]} for document in documents]
    assert landed.tasks[0].unknown_fields.records == 900
    assert dict(landed.tasks[0].unknown_fields.names) == {"_rescued: v": 900}


@WAYS
def test_values_that_fit_stay_in_their_column(way: Any) -> None:
    """Beside others, in one batch; two fields of one record are kept together."""
    documents = [{"v": 1, "w": "x"}, {"v": "1", "w": "y"}, {"v": 2**70, "w": {"a": 1}}, {"v": 7, "x": []}]
    before = land([[{"v": 1, "w": "x", "x": 1}]], way(spec()))
    landed = land([documents], before.spec)
    assert landed.codes == []
    assert [(row["v"], row["w"], row["_rescued"]) for row in landed.rows] == [
        (1, "x", None),
        (None, "y", '{"v":"1"}'),
        (None, '{"a":1}', f'{{"v":{2**70}}}'),
        (7, None, '{"x":[]}'),
    ]


def test_part_of_a_field_is_left_out_alone() -> None:
    """In structs, also in lists, the rest of the field has its place; the whole field is kept as it was sent."""
    before = land([[{"a": {"b": 1, "c": 1}, "l": [{"b": 1, "c": 1}]}]], spec())
    documents: dict[str, Any] = {"a": {"b": {"x": 1}, "c": 2}, "l": [{"b": 1, "c": 1}, {"b": "x", "c": 2}, 3]}
    (row,) = land([[{"a": documents["a"], "l": documents["l"][:2]}]], before.spec).rows
    assert row["a"] == {"b": None, "c": 2}
    assert row["l"] == [{"b": 1, "c": 1}, {"b": None, "c": 2}]
    assert json.loads(row["_rescued"]) == {"a": documents["a"], "l": documents["l"][:2]}
    (row,) = land([[documents]], before.spec).rows
    assert (row["a"], row["l"]) == ({"b": None, "c": 2}, None)


@WAYS
def test_declared_columns_refuse_such_values_as_before(way: Any) -> None:
    """So do all columns with `dead_letter`, and those that must have a value."""
    price = pa.field("v", pa.int64())
    assert land([[{"v": "x"}]], way(spec([price]))).codes == ["WRONG_TYPE"]
    chosen = spec([price], Evolution(on_incompatible="dead_letter"), declared=frozenset())
    assert land([[{"v": "x"}]], way(chosen)).codes == ["WRONG_TYPE"]
    must = spec([price.with_nullable(nullable=False)], declared=frozenset())
    assert land([[{"v": "x"}]], way(must)).codes == ["WRONG_TYPE"]


def test_field_that_a_declared_column_takes_a_part_of_is_refused_whole() -> None:
    """Else the declared column were null in silence."""
    columns = [
        pa.field("cents", pa.int64()),
        pa.field("price", pa.struct([("cents", pa.int64()), ("was", pa.int64())])),
    ]
    evolving_spec = spec(columns, sources={"cents": ("price", "cents")}, declared=frozenset({"cents"}))
    assert land([[{"price": {"cents": 1, "was": "x"}}]], evolving_spec).codes == ["WRONG_TYPE"]


def test_all_spellings_of_a_field_are_rescued_where_case_is_ignored() -> None:
    """The one that does not count must not take the place of the one that does."""
    evolving_spec = spec([pa.field("v", pa.int64())], declared=frozenset(), field_names="case_insensitive")
    (row,) = land([[b'{"V":1,"v":"x"}']], evolving_spec).rows
    assert (row["v"], row["_rescued"]) == (None, '{"v":"x"}')


def test_later_version_of_a_schema_with_another_type_lands() -> None:
    """A field that was a record is a long: by its type, without a look at values."""
    inner = {"type": "record", "name": "i", "fields": [{"name": "a", "type": "long"}]}
    evolving_spec, kinds = spec(), []
    for type_, value in [(inner, {"a": 1}), ("long", 5)]:
        schema = {
            "type": "record",
            "name": "r",
            "fields": [{"name": "v", "type": type_}, {"name": "id", "type": "long"}],
        }
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), {"v": value, "id": 1})
        evolving_spec = replace(evolving_spec, format=format_spec("avro", schema=json.dumps(schema)))
        landed = land([[buffer.getvalue()]], evolving_spec)
        assert landed.codes == []
        evolving_spec, kinds = landed.spec, landed.rows
    assert kinds == [{"v": None, "id": 1, "_rescued": '{"v":5}'}]


def test_row_of_a_change_lands_without_the_field() -> None:
    """Of merged tables too: the key is there, and the rest of the row."""
    changes = {"format": "debezium"}
    pipeline_file = pipeline(changes=changes, columns={"id": {"type": "int", "required": True}}, evolve="widen")
    documents = [{"op": "c", "before": None, "after": {"id": 1, "v": {"a": 1}}}]
    columns = grown(pipeline_file, documents).columns
    growth = grown(pipeline_file, [{"op": "c", "before": None, "after": {"id": 2, "v": 7, "w": 1}}], columns=columns)
    (row,) = growth.outcomes.rows[TABLE].select(["id", "v", "w", "_rescued"]).to_pylist()
    assert row == {"id": 2, "v": None, "w": 1, "_rescued": '{"v":7}'}


def test_verify_expects_the_same_rows() -> None:
    """For values that fit, that don't, and that are invalid for any column."""
    columns = {"v": "long", "d": "double", "a": "struct<b: boolean, c: string>", "l": "list<struct<b: long>>"}
    schema = land([[{"v": 1, "d": 1.5, "a": {"b": True, "c": "x"}, "l": [{"b": 1}]}]], spec())
    assert {name: type_name(data_type) for name, data_type in schema.columns.items()} == columns
    expected = Expectation({name: RescuedColumn(type=type_name) for name, type_name in columns.items()}, Value())
    parts = [
        1,
        "x",
        True,
        1.5,
        2**70,
        9007199254740993,
        {},
        {"b": True},
        {"b": 1, "c": 2},
        [],
        [1],
        [{"b": "x"}],
        "\ud800",
    ]
    documents = [{name: part} for name in columns for part in parts] + [dict.fromkeys(columns, part) for part in parts]
    raw = [json.dumps(document).encode() for document in documents]
    landed = land([raw], schema.spec)
    for index, text in enumerate(raw):
        row, expected_cells = landed.row(0, index), expected.row(text)
        assert (row is None) == isinstance(expected_cells, Bad), text
        if row is not None and not isinstance(expected_cells, Bad):
            changes = [
                column_values(pa.array([row[name]], landed.columns[name]), RescuedColumn(type=kind).parsed)[0]
                for name, kind in columns.items()
            ]
            assert [*map(null_empty_values, changes)] == [*map(null_empty_values, expected_cells)], text


@pytest.mark.parametrize(
    ("options", "name"), [({}, "RescuedColumn"), ({"on_incompatible": "dead_letter"}, "InferredColumn")]
)
def test_verify_reads_columns_as_the_file_says(options: dict[str, Any], name: str) -> None:
    """Only undeclared ones, and only where nothing else was chosen."""
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "v", LongType(), required=False))
    destination = Destination.model_validate({"table": "a.b", "columns": {"id": "long"}, "evolve": "widen", **options})
    columns_compared = compared_columns(destination, schema, Value())
    assert {column: type(column_class).__name__ for column, column_class in columns_compared.items()} == {
        "id": "Column",
        "v": name,
    }
