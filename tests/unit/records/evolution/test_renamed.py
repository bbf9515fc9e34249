"""Renamed fields: which column takes them does not depend on which records come together."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from frazil.records.casting.renames import with_former
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.route import Route, StaticRoute, route_texts
from frazil.records.model.format import WriterSchema
from tests.format_specs import format_spec
from tests.unit.records.evolution.cases import avro_field
from tests.unit.records.evolution.evolving import Landed, land, spec
from tests.unit.records.kafka_batches import kafka_batch


@dataclass(frozen=True)
class Versions:
    """A registry with the versions of one schema: fields are named with their aliases behind bars."""

    versions: tuple[Mapping[str, Any], ...]

    def text(self, number: int) -> str:
        """One version."""
        fields = [avro_field(name, type_name) for name, type_name in self.versions[number].items()]
        return json.dumps({"type": "record", "name": "r", "fields": fields})

    def schema(self, schema_id: int | Any) -> WriterSchema | None:
        """What a registry says of an id."""
        return WriterSchema("AVRO", self.text(schema_id))

    def value(self, number: int, **fields: Any) -> bytes:
        """A value of one version, in its frame."""
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(self.text(number))), fields)
        return b"\0" + number.to_bytes(4, "big") + buffer.getvalue()


def landed(versions: Versions, tasks: list[list[bytes]], *columns: pa.Field, **options: Any) -> Landed:
    return land(tasks, spec(columns, format=format_spec("avro", source=versions), **options))


RENAMED_TWICE = Versions(({"price": "int"}, {"cost|price": "long"}, {"sum|cost|price": "double"}))
THERE_AND_BACK = Versions(({"price": "int"}, {"cost|price": "int"}, {"price|cost": "long"}))


@pytest.mark.parametrize(
    ("versions", "names", "column"),
    [(RENAMED_TWICE, ("price", "cost", "sum"), ("price", pa.float64())),
     (THERE_AND_BACK, ("price", "cost", "price"), ("price", pa.int64()))],
)  # fmt: skip
def test_renamed_fields_share_one_column_in_any_order(
    versions: Versions, names: tuple[str, ...], column: tuple[str, pa.DataType]
) -> None:
    """Each version in a task of its own, in any order, or all in one: one column, and each record's value in it."""
    values = [versions.value(number, **{name: 10 + number}) for number, name in enumerate(names)]
    for order in itertools.permutations(range(3)):
        for tasks in ([[values[index]] for index in order], [[values[index] for index in order]]):
            landing = landed(versions, tasks)
            assert [(name, data_type) for name, data_type in landing.columns.items() if name != "_rescued"] == [column]
            assert [row[column[0]] for row in landing.rows] == [10 + index for index in order]


def test_second_of_two_renamed_fields_gets_its_own_column() -> None:
    """Of two that had the same name the first has the column; the other one is a field of its own."""
    versions = Versions(({"a|price": "long", "b|price": "long"},))
    landing = landed(versions, [[versions.value(0, a=1, b=2)]], pa.field("price", pa.int64()))
    assert landing.rows == [{"price": 1, "b": 2}]


def test_renamed_nested_fields_keep_their_column() -> None:
    """In records, lists and maps of records the field that is there takes the values of the renamed one."""
    inner = {"type": "record", "name": "inner", "fields": [avro_field("c|b", "int")]}
    versions = Versions(
        ({"x|a": inner, "l": {"type": "array", "items": "inner"}, "m": {"type": "map", "values": "inner"}},)
    )
    has = pa.struct([pa.field("b", pa.int32())])
    columns = (
        pa.field("a", has),
        pa.field("l", pa.list_(pa.field("element", has))),
        pa.field("m", pa.map_(pa.string(), has)),
    )
    landing = landed(versions, [[versions.value(0, x={"c": 1}, l=[{"c": 2}], m={"k": {"c": 3}})]], *columns)
    assert landing.rounds == []
    assert landing.rows == [{"a": {"b": 1}, "l": [{"b": 2}], "m": [("k", {"b": 3})]}]


def test_alias_of_another_case_is_recognised() -> None:
    """Where names that differ in case only are one field, so are former names."""
    versions = Versions(({"cost|PRICE": "long"},))
    columns = (pa.field("price", pa.int64()),)
    assert landed(versions, [[versions.value(0, cost=1)]], *columns, field_names="case_insensitive").rows == [
        {"price": 1}
    ]
    assert landed(versions, [[versions.value(0, cost=1)]], *columns).rows == [{"price": None, "cost": 1}]


def test_renamed_field_still_routes() -> None:
    """Its column goes on, so its records do as well; a field that has the name now decides alone."""
    versions = Versions(({"kind": "string"}, {"type|kind": "string"}, {"type|kind": "string", "kind": "string"}))
    evolving_spec = spec([pa.field("kind", pa.string())], format=format_spec("avro", source=versions))
    route = Route(StaticRoute(("kind",), {"a.t": "x"}), otherwise="filter")
    values = [versions.value(0, kind="x"), versions.value(1, type="x"), versions.value(2, type="x", kind="y")]

    outcomes = Decoder({"a.t": evolving_spec}, route, 1).decode(kafka_batch(values))

    assert outcomes.rows["a.t"].column("kind").to_pylist() == ["x", "x"]


def test_renamed_nested_field_still_routes() -> None:
    """At any level of the path, and whatever the case where case does not count."""
    field = with_former(pa.field("type", pa.string()), ["Kind"])
    data = with_former(pa.field("body", pa.struct([field])), ["data"])
    value = pa.RecordBatch.from_arrays([pa.array([{"type": "x"}], data.type)], schema=pa.schema([data]))

    assert route_texts(value, ("data", "kind")).to_pylist() == [None]
    assert route_texts(value, ("data", "kind"), case_insensitive=True).to_pylist() == ["x"]
