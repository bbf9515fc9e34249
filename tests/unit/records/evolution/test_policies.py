"""Values that don't fit, several tables, occupied names: where each value goes, and which table gets which column."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import time
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from frazil.errors import Terminal
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.route import Route, StaticRoute
from frazil.records.evolution.schema_requests import apply_changes, merge_changes
from frazil.records.model.spec import Evolution, RecordSpec
from tests.format_specs import format_spec
from tests.unit.records.evolution.evolving import TABLE, Landed, land, spec, transformed
from tests.unit.records.kafka_batches import kafka_batch

VARIANTS = Evolution("widen", "variant_column")
PRICE = pa.field("price", pa.int64())


def requests_of(landed: Landed) -> list[list[str]]:
    return [[str(change) for change in changes] for changes in landed.rounds]


@pytest.mark.parametrize("through", [False, True])
def test_value_of_another_type_gets_a_variant_column(through: bool) -> None:
    """With `variant_column` it goes to a column beside the one of its name, at any level, and the others stay."""
    evolving_spec = spec((PRICE, pa.field("a", pa.struct([PRICE]))), VARIANTS)
    documents = [{"price": 1}, {"price": "1"}, {"price": [2.5]}, {"a": {"price": "x"}}, {"price": 1.5}]
    landed = land([documents], transformed(evolving_spec) if through else evolving_spec)
    assert requests_of(landed) == [
        [
            "add price__double double",
            "add price__list list<double>",
            "add price__string string",
            "add a.price__string string",
        ]
    ]
    assert [{name: cell for name, cell in row.items() if cell is not None} for row in landed.rows] == [
        {"price": 1},
        {"price__string": "1"},
        {"price__list": [2.5]},
        {"a": {"price": None, "price__string": "x"}},
        {"price__double": 1.5},
    ]


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("type_", [pa.int32(), pa.int64(), pa.string(), pa.list_(pa.int32())], ids=str)
@pytest.mark.parametrize("value", [10**39, -(10**40)])
def test_number_beyond_every_column_is_a_dead_letter(type_: pa.DataType, value: int, through: bool) -> None:
    """No column takes an integer of more than 38 digits: the record is a dead letter, and the table stays as it is."""
    evolving_spec = spec((pa.field("price", type_),), VARIANTS)
    stored = [value] if pa.types.is_list(type_) else value
    landed = land([[{"price": stored, "other": 1}]], transformed(evolving_spec) if through else evolving_spec)
    assert (landed.rounds, len(landed.codes)) == ([], 1)


def test_record_with_a_field_named_like_its_variant_column_is_dead() -> None:
    """A record that has both, the field and one named as the column for its type, is a dead letter: neither is lost."""
    landed = land([[{"price": "x", "price__string": "y"}, {"price": "x"}]], spec((PRICE,), VARIANTS))
    assert landed.codes == ["WRONG_TYPE"]
    assert landed.rows == [{"price": None, "price__string": "x"}]


@pytest.mark.parametrize("through", [False, True])
def test_incompatible_value_fails_the_batch(through: bool) -> None:
    """With `fail` one such record ends the batch: the message has its coordinates, not its value."""
    evolving_spec = spec((PRICE,), Evolution("full", "fail"))
    with pytest.raises(
        Terminal, match=r"partition 0, offset 101: field price does not fit .* a\.t \(WRONG_TYPE\)"
    ) as e:
        land([[{"price": 1}, {"price": "secret"}]], transformed(evolving_spec) if through else evolving_spec)
    assert "secret" not in str(e.value)


def test_fail_policy_waits_for_requested_columns() -> None:
    """`fail` waits until the table has what it can have: a larger integer is no failure."""
    landed = land([[{"price": 2**40, "new": 1}]], spec((pa.field("price", pa.int32()),), Evolution("widen", "fail")))
    assert requests_of(landed) == [["widen price long", "add new long"]]
    assert landed.rows == [{"price": 2**40, "new": 1}]


def test_each_table_gets_columns_of_its_own_records() -> None:
    """Each table gets the columns of the records that are routed to it, and declared ones stay as they are."""
    specs = {name: spec() for name in ("a.x", "a.y")} | {"a.z": RecordSpec(pa.schema([("kind", pa.string())]))}
    route = Route(StaticRoute(("kind",), {"a.x": "x", "a.y": "y|both", "a.z": "z|both"}))
    documents = [{"kind": "x", "n": 1}, {"kind": "y", "m": "s"}, {"kind": "z", "k": 1}, {"kind": "both", "b": 1.5}]
    batch = kafka_batch([json.dumps(document).encode() for document in documents])
    outcomes = Decoder(specs, route, 7).decode(batch)
    assert {table: [str(change) for change in changes] for table, changes in outcomes.demands.items()} == {
        "a.x": ["add kind string", "add n long"],
        "a.y": ["add b digits(10,9)", "add kind string", "add m string"],
    }
    specs |= {
        name: replace(specs[name], columns=apply_changes(specs[name].columns, merge_changes(changes, specs[name])))
        for name, changes in outcomes.demands.items()
    }
    again = Decoder(specs, route, 7).decode(batch)
    assert not again.demands
    rows = {
        table: rows_of_table.select(specs[table].columns.names).to_pylist()
        for table, rows_of_table in again.rows.items()
    }
    assert rows == {
        "a.x": [{"kind": "x", "n": 1}],
        "a.y": [{"b": None, "kind": "y", "m": "s"}, {"b": 1.5, "kind": "both", "m": None}],
        "a.z": [{"kind": "z"}, {"kind": "both"}],
    }


def test_pizzas_get_columns_of_their_fields() -> None:
    """The orders of the demo, without declared columns: `store_id` is a long, everything else a text, all optional."""
    pizza = {
        "order_id": "307",
        "store_id": 4,
        "sauce": "light",
        "cheese": "extra",
        "meats": "ham",
        "veggies": "",
        "date_ordered": "2026-05-01 12:00:00",
    }
    landed = land([[pizza, pizza | {"meats": None}]], spec())
    assert landed.columns == {name: pa.int64() if name == "store_id" else pa.string() for name in sorted(pizza)}
    assert all(column.nullable for column in landed.spec.columns)
    assert landed.codes == []


def test_fields_that_differ_in_case_share_a_column_where_case_is_ignored() -> None:
    """Where case means nothing they are one, whichever record comes first; else they are two."""
    tasks = [[{"Id": 1}], [{"id": 2, "ID": 3}]]
    folded = land(tasks, spec(field_names="case_insensitive"))
    assert folded.columns == {"ID": pa.int64()}
    assert land(tasks[::-1], spec(field_names="case_insensitive")).columns == folded.columns
    assert sorted(row[next(iter(folded.columns))] for row in folded.rows) == [1, 3]
    assert set(land(tasks, spec()).columns) == {"ID", "Id", "id"}


def test_known_decimal_keeps_its_digits_before_transforms() -> None:
    """A number for a decimal column is read as decimal, not as the nearest double."""
    digits = "0.1234567890123456789"
    evolving_spec = transformed(spec((pa.field("x", pa.decimal128(38, 19)),)))
    (row,) = land([[f'{{"x":{digits}}}'.encode()]], evolving_spec).rows
    assert str(row["x"]) == digits


@pytest.mark.parametrize("unknown_fields", ["ignore", "rescue", "fail"])
def test_field_without_a_type_follows_the_unknown_field_policy(unknown_fields: Any) -> None:
    """What evolution does not take is an unknown field like any other."""
    landed = land([[{"id": 1, "x": []}]], spec(unknown_fields=unknown_fields))
    if unknown_fields == "fail":
        assert landed.codes == ["UNKNOWN_FIELD"]
    else:
        assert landed.rows == [{"id": 1} | ({"_rescued": '{"x":[]}'} if unknown_fields == "rescue" else {})]
        assert landed.tasks[0].unknown_fields.records == (1 if unknown_fields == "ignore" else 0)


def test_fields_of_lines_are_texts() -> None:
    """Delimited values are texts, and so are their columns."""
    evolving_spec = spec(format=format_spec("delimited", fields=("id", "at")))
    landed = land([[b"1,2026-05-01"]], evolving_spec)
    assert landed.columns == {"id": pa.string(), "at": pa.string()}
    assert landed.rows == [{"at": "2026-05-01", "id": "1"}]


def test_record_that_needs_no_column_is_decoded_once() -> None:
    """Records that need no column request nothing, and become rows of a table without columns."""
    landed = land([[{}, {"x": None}]], spec())
    assert landed.rounds == []
    assert landed.tasks[0].rows[TABLE].num_rows == 2


@pytest.mark.parametrize("through", [False, True])
def test_keys_that_are_data_get_a_bounded_number_of_columns(through: bool) -> None:
    """Objects with ever new keys get as many columns as the table may have; the others are rescued, each with its record."""
    documents = [{"at": number, "stock": {f"sku{number:04}": number}} for number in range(50)]
    evolving_spec = spec((), Evolution(max_columns=20))
    landed = land([documents], transformed(evolving_spec) if through else evolving_spec)
    assert landed.columns["stock"].num_fields == 19
    assert landed.rows[0]["stock"]["sku0000"] == 0
    assert landed.rows[49]["_rescued"] == '{"stock":{"sku0049":49}}'
    assert landed.codes == []


def test_items_with_keys_that_are_data_become_json_texts() -> None:
    """Before transforms such a list is one of JSON texts: a column of each key in each item would fill the memory."""
    (row,) = land([[{"stock": [{f"sku{number}": number} for number in range(600)]}]], transformed(spec())).rows
    assert row["stock"][599] == '{"sku599":599}'


def test_text_of_an_object_does_not_depend_on_its_neighbours() -> None:
    """An object for a text column is what was sent, whichever fields the objects next to it have."""
    documents = [{"a": {"b": 1}}, {"a": {"c": None}}, {"a": {}}, {"a": [{"b": 1}]}, {"a": [{"c": 1}]}]
    landed = land([documents], transformed(spec((pa.field("a", pa.string()),))))
    assert [row["a"] for row in landed.rows] == [json.dumps(document["a"]).replace(" ", "") for document in documents]


@pytest.mark.parametrize(
    ("data_type", "value", "path"),
    [
        (pa.int32(), 2**40, "{}"),
        (pa.struct([("x", pa.int32()), ("y", pa.int32())]), {"x": 2**40, "y": 1}, "{}.x"),
        (pa.list_(pa.field("element", pa.int32())), [1, 2**40], "{}.element"),
    ],
)
def test_large_number_widens_only_its_own_column(data_type: pa.DataType, value: object, path: str) -> None:
    """Through transforms as without, only the column of the number itself gets wider."""
    columns = [pa.field("a", data_type), pa.field("b", data_type), pa.field("c", pa.int32())]
    landed = land([[{"a": value, "b": None, "c": 1}]], transformed(spec(columns)))
    assert requests_of(landed) == [[f"widen {path.format('a')} long"]]
    assert landed.codes == []


def test_time_of_a_schema_is_text_where_the_writer_has_no_times() -> None:
    """At every depth, also within a string column that is there; with a writer that has them it is a time."""
    micros = {"type": "long", "logicalType": "time-micros"}
    inner = {"type": "record", "name": "inner", "fields": [{"name": "at", "type": micros}]}
    fields = [("opens", micros), ("known", micros), ("days", {"type": "array", "items": inner})]
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": name, "type": type_name} for name, type_name in fields],
    }
    written, half = io.BytesIO(), time(12, 30, 0, 500_000)
    fastavro.schemaless_writer(written, schema, {"opens": half, "known": time(7), "days": [{"at": time(23, 59)}]})
    options = {"format": format_spec("avro", schema=json.dumps(schema))}
    columns = [pa.field("known", pa.string())]

    landed = land([[written.getvalue()]], spec(columns, Evolution(as_text=frozenset({"time"})), **options))

    assert requests_of(landed) == [["add opens string", "add days list<struct<at: string>>"]]
    assert landed.rows == [{"known": "07:00:00", "days": [{"at": "23:59:00"}], "opens": "12:30:00.5"}]
    plain = land([[written.getvalue()]], spec(columns, **options))
    assert requests_of(plain) == [["add opens time", "add days list<struct<at: time>>"]]
