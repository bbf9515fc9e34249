"""Merged tables of any format: rows are compared with the records that they name, without their values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from frazil.iceberg.schema.schema import declared_columns, declared_schema
from frazil.pipeline.models.pipeline_file import KafkaColumns, Pipeline
from frazil.records.decoder.decode import Decoder
from frazil.records.model.rows import KAFKA_SCHEMA
from frazil.run.staging.record_spec import record_specs, route_of
from frazil.verify.facts.result import Findings, PartitionResult
from frazil.verify.merged import MergedCheck, digests
from frazil.verify.merged_places import Certainty, PlacedCheck, PlaceStore
from frazil.verify.model import Model, RecordPlace
from frazil.verify.rules import rules_of
from frazil.verify.tables import ScannedTable
from frazil.verify.values.column_readers import Bad

TABLE = "shop.customers"
STAMP = datetime(2024, 5, 1, tzinfo=UTC)
MICROS = int(STAMP.timestamp() * 1_000_000)
LONG_KEY = {"key": {"format": "long"}}
ID = {"type": "long", "required": True}
OF_KEY = {**ID, "part": "key", "from": "value"}
OPS = {"format": "op_column", "op": "op", "values": {"insert": ["I"], "delete": ["D"]}}
AVRO = '{"type":"record","name":"r","fields":[{"name":"id","type":"long"},{"name":"op","type":"string"}]}'
PROTO = 'syntax = "proto3"; message R { int64 id = 1; string op = 2; }'
ENVELOPE = {
    "type": "struct",
    "fields": [{"field": "id", "type": "int64"}, {"field": "op", "type": "string"}],
}


def avro(id_: int, op: str) -> bytes:
    return bytes([2 * id_, 2 * len(op)]) + op.encode()


def protobuf(id_: int, op: str) -> bytes:
    return bytes([8, id_, 18, len(op)]) + op.encode()


FORMATS: dict[str, tuple[Mapping[str, Any], Any]] = {
    "json": (
        {"value": {"fields": {"id": "long", "op": "string"}}},
        lambda id_, op: json.dumps({"id": id_, "op": op}).encode(),
    ),
    "avro": ({"value": {"format": "avro", "schema": AVRO}}, avro),
    "protobuf": ({"value": {"format": "protobuf", "schema": PROTO, "message": "R"}}, protobuf),
    "delimited": ({"value": {"format": "delimited", "fields": ["id", "op"]}}, lambda id_, op: f"{id_},{op}".encode()),
    "json-envelope": (
        {"value": {"format": "json-envelope"}},
        lambda id_, op: json.dumps({"schema": ENVELOPE, "payload": {"id": id_, "op": op}}).encode(),
    ),
}
EVENTS = [(1, "I"), (2, "I"), (1, "I"), (2, "D"), (3, "I")]
STEP = {"type": "ReplaceField", "exclude": ["none"]}


def pipeline(write: str, more: Mapping[str, Any], id_: Mapping[str, Any] = ID, **options: Any) -> Pipeline:
    destination: dict[str, Any] = {"table": TABLE, "write": write, "columns": {"id": id_, "op": "string"}}
    if write != "append":
        destination["identifier"] = ["id"]
    if write == "cdc":
        destination["changes"] = OPS
    body = {"name": "customers", "source": {"topics": ["orders"]}, "destinations": [destination | options]}
    return Pipeline.model_validate(body | dict(more))


def records(messages: Sequence[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    rows = [
        {"topic": "orders", "partition": 0, "offset": index, "timestamp": STAMP, "key": key, "value": value}
        for index, (key, value) in enumerate(messages)
    ]
    return pa.RecordBatch.from_pylist(rows, KAFKA_SCHEMA)


def merged(declared: Pipeline, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of the table after all records, decoded by the code that writes and merged by this test."""
    columns = {destination.table: declared_columns(destination) for destination in declared.destinations}
    out = Decoder(record_specs(declared, columns), route_of(declared, columns), 7).decode(batch)
    table: dict[int, dict[str, Any]] = {}
    is_soft = declared.destinations[0].deleted_column is not None
    for row in out.rows[TABLE].to_pylist():
        cells = {name: cell for name, cell in row.items() if name not in ("_frazil_op", "_frazil_place")}
        if row["_frazil_op"] == "upsert":
            table[row["id"]] = cells
        elif is_soft:
            table[row["id"]] = table.get(row["id"], {}) | {
                name: cell for name, cell in cells.items() if cell is not None
            }
        else:
            table.pop(row["id"], None)
    return [*table.values()]


def merged_table(declared: Pipeline, root: Path, rows: Sequence[Mapping[str, Any]]) -> Table:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/warehouse")
    catalog.create_namespace("shop")
    table = catalog.create_table(TABLE, declared_schema(declared.destinations[0]))
    if rows:
        table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))
    return table


def checked(declared: Pipeline, table: Table, batch: pa.RecordBatch, low: int = 0) -> list[tuple[str, int | None]]:
    """Kind and offset of each difference, as `verify` finds them over these records."""
    [destination], findings = declared.destinations, Findings()
    rules, kafka = rules_of(declared, [], TABLE, destination.columns), ScannedTable(table, TABLE, KafkaColumns())
    rest = {("orders", 0): low}, {"orders": 0}, findings
    result = [PartitionResult("orders", 0)]
    if rules.not_compared_because is None:
        model = Model()
        for row in batch.to_pylist()[low:]:
            readings = () if row["value"] is None else rules.row(row["value"], "orders", Message())
            assert not isinstance(readings, Bad)
            readings_hashed: list[Any] = [
                (each, digests(each.row, MICROS, rules) if each.op == "upsert" else b"") for each in readings
            ]
            model.add_change(RecordPlace("orders", 0, row["offset"], 7), MICROS, readings_hashed)
        MergedCheck(destination, destination.columns, kafka, rules, *rest).results(model, result)
        return [(difference.kind, difference.offset) for difference in findings.described]
    places, certainty = PlaceStore(), Certainty.from_pipeline(declared, destination)
    for row in batch.to_pylist()[low:]:
        value = row["value"]
        is_filtered, kind = rules.filters_record(value, "orders", Message()), "tombstone" if value is None else "value"
        place = RecordPlace("orders", 0, row["offset"], 7)
        places.add_record(place, MICROS, kind, certainty.key(row["key"]), changes_row=not is_filtered)
    PlacedCheck(destination, destination.columns, kafka, rules, *rest, certainty=certainty).results(places, result)
    places.close()
    return [(difference.kind, difference.offset) for difference in findings.described]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("write", ["upsert", "cdc"])
@pytest.mark.parametrize("more", [{}, LONG_KEY, {"transforms": [STEP]}], ids=["plain", "key", "transform"])
def test_merged_table_of_any_format_is_judged_as_far_as_can_be(
    name: str, write: str, more: dict[str, Any], tmp_path: Path
) -> None:
    """A correct table has no difference; a row without record, a duplicate and a wrong timestamp are found without values."""
    options, encoded = FORMATS[name]
    declared = pipeline(write, {**options, **more}, OF_KEY if more is LONG_KEY else ID)
    batch = records([(id_.to_bytes(8, "big"), encoded(id_, op)) for id_, op in EVENTS])
    rows = merged(declared, batch)
    assert {row["id"] for row in rows} == ({1, 3} if write == "cdc" else {1, 2, 3})
    table = merged_table(declared, tmp_path, rows)
    assert checked(declared, table, batch) == []
    strange = rows[0] | {"id": 9, "_kafka_offset": 77}
    late = rows[-1] | {"_kafka_timestamp": datetime(2020, 1, 1, tzinfo=UTC)}
    schema = table.schema().as_arrow()
    table.overwrite(pa.Table.from_pylist([*rows[:-1], rows[0], late, strange], schema=schema))
    differences = checked(declared, table, batch)
    kinds = {kind for kind, _ in differences}
    assert {"duplicate", "unexpected"} <= kinds
    assert ("changed", late["_kafka_offset"]) in differences


@pytest.mark.parametrize("form", ["long", "json", "avro"])
@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_row_that_a_tombstone_did_not_delete_is_a_difference(form: str, deletes: str, tmp_path: Path) -> None:
    """Also if compaction deleted the record of the row, provided that the key's format is read here."""
    schema = '{"type":"record","name":"k","fields":[{"name":"value","type":"long"}]}'
    key = {"json": {"format": "json", "fields": {"value": "long"}}, "avro": {"format": "avro", "schema": schema}}
    raw = {
        "long": lambda key: key.to_bytes(8, "big"),
        "json": b'{"value": %d}'.__mod__,
        "avro": lambda key: bytes([2 * key]),
    }
    options, encoded = FORMATS["json"]
    declared = pipeline("upsert", {**options, "key": key.get(form, {"format": form})}, OF_KEY, deletes=deletes)
    messages = [(1, b"a"), (2, b"b"), (2, None), (3, b"c")]
    batch = records([(raw[form](of), None if value is None else encoded(of, "I")) for of, value in messages])
    right = merged(declared, batch)
    table = merged_table(declared, tmp_path, right)
    assert checked(declared, table, batch) == []

    stays = merged(declared, batch.slice(0, 2))
    wrong = [*[row for row in right if row["id"] != 2], *[row for row in stays if row["id"] == 2]]
    table.overwrite(pa.Table.from_pylist(wrong, schema=table.schema().as_arrow()))
    assert checked(declared, table, batch) == [("changed", 1)]
    assert checked(declared, table, batch, low=2) == ([] if form == "avro" else [("changed", 1)])

    lost = [row for row in right if row["id"] != 3]
    table.overwrite(pa.Table.from_pylist(lost, schema=table.schema().as_arrow()))
    assert checked(declared, table, batch) == ([] if form == "avro" else [("missing", 3)])


@pytest.mark.parametrize(
    ("stamps", "second_stamp", "later"), [((4, 5), 1, 1), ((5, 4), 1, None), ((5, 4), 0, 2), ((None, 4), 1, 1)]
)
def test_times_that_go_back_excuse_an_older_row_only_of_a_key_in_several_partitions(
    stamps: tuple[int | None, int], second_stamp: int, later: int | None
) -> None:
    """The split into batches decided which change counts; within one partition the offset always decides."""
    places = PlaceStore()
    for offset, stamp in enumerate(stamps):
        places.add_record(RecordPlace("orders", 0, offset, 7), stamp, "value", (1,), changes_row=True)
    places.add_record(RecordPlace("orders", second_stamp, 2 - 2 * second_stamp, 7), 4, "value", (1,), changes_row=True)
    places.add_row((1,), RecordPlace("orders", 0, 0, 7), stamps[0], is_deleted=False)
    [row] = places.rows(are_keys_read=True)
    places.close()
    assert row.later == later
