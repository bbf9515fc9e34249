"""Records without value: each deletes the row of its key, in tables that have one row per key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from frazil.batch.changes import OP
from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.decoder.decode import Decoder
from frazil.records.model.rows import UNREAD_BYTES, Outcomes
from frazil.run.staging.record_spec import record_specs, route_of
from tests.unit.records.cdc.landing import TABLE, batch_of, filtered, landed, ops_of

ID = {"type": "long", "required": True, "part": "key"}
COLUMNS: Mapping[str, Any] = {"id": ID, "name": {"type": "string", "required": True}}
JSON_KEY = {"format": "json", "fields": {"id": "long"}}
SECOND_TABLE = "shop.others"
VALUES = [{"name": "a"}, {"name": "b"}, None, {"name": "c"}]
KEYS = [{"id": 1}, {"id": 2}, {"id": 2}, {"id": 3}]
CHANGED = [("upsert", 1, "a"), ("upsert", 2, "b"), ("delete", 2, None), ("upsert", 3, "c")]


def upsert(
    more: Mapping[str, Any] | None = None, destinations: tuple[Mapping[str, Any], ...] = (), **options: Any
) -> Pipeline:
    """A pipeline file with a table that keeps the last row of each key, and maybe others."""
    destination = {"table": TABLE, "write": "upsert", "identifier": ["id"], "columns": COLUMNS} | options
    body = {"name": "customers", "source": {"topics": ["orders"]}, "key": JSON_KEY}
    body |= {"destinations": [destination, *destinations]} | dict(more or {})
    return Pipeline.model_validate({name: part for name, part in body.items() if part is not None})


def letters(outcomes: Outcomes) -> list[tuple[int, str, str | None]]:
    """Offset, code and path of each dead letter."""
    return [(letter["offset"], letter["code"], letter["path"]) for letter in outcomes.dead.to_pylist()]


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, {}),
        ({"deletes": "soft", "columns": {**COLUMNS, "name": "string"}}, {}),
        ({"evolve": "widen"}, {}),
        ({}, {"transforms": [{"type": "Filter", "when": {"predicate": "TopicNameMatches", "pattern": "none"}}]}),
        ({}, {"transforms": [{"type": "Cast", "spec": {"id": "int64"}, "target": "key"}]}),
        (
            {"columns": {**COLUMNS, "id": {"type": "long", "required": True}}},
            {"value": {"fields": {"id": "long", "name": "string"}}},
        ),
        ({}, {"key": {"format": "json", "fields": {"id": "long", "other": "string"}}}),
    ],
    ids=["plain", "soft", "evolving", "filter", "key transform", "identifier of the value", "more in the key"],
)
def test_tombstone_deletes_the_row_of_its_key(options: dict[str, Any], more: dict[str, Any]) -> None:
    """In its order among the records: a later record of the key counts."""
    values = [value and {**key, **value} for key, value in zip(KEYS, VALUES, strict=True)]
    outcomes = landed(upsert(more, **options), values, KEYS)
    assert ops_of(outcomes) == CHANGED
    assert letters(outcomes) == []
    assert filtered(outcomes) == {}
    offsets = outcomes.rows[TABLE].column("_kafka_offset").to_pylist()
    assert offsets == [100, 101, 102, 103]
    if options.get("deletes") == "soft":
        assert outcomes.rows[TABLE].column("_frazil_deleted").to_pylist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("key", "of_key", "raw"),
    [
        ({"format": "long"}, {**ID, "from": "value"}, (2).to_bytes(8, "big")),
        ({"format": "int"}, {**ID, "type": "int", "from": "value"}, (2).to_bytes(4, "big")),
        ({"format": "string"}, {**ID, "type": "string", "from": "value"}, b"2"),
        ({"format": "delimited", "fields": ["a", "id"]}, ID, b"x,2"),
        (
            {"format": "avro", "schema": '{"type":"record","name":"k","fields":[{"name":"id","type":"long"}]}'},
            ID,
            b"\x04",
        ),
        (
            {"format": "protobuf", "schema": 'syntax = "proto3"; message K { int64 id = 1; }', "message": "K"},
            ID,
            b"\x08\x02",
        ),
    ],
    ids=["long", "int", "text", "delimited", "avro", "protobuf"],
)
def test_tombstone_deletes_by_keys_of_every_format(key: dict[str, Any], of_key: dict[str, Any], raw: bytes) -> None:
    """The row has the key that a record with a value would have."""
    merged = upsert({"key": key}, columns={**COLUMNS, "id": of_key})
    outcomes = landed(merged, [{"name": "b"}, None], [raw, raw])
    assert letters(outcomes) == []
    (_, one, _), (op, second_key, _) = ops_of(outcomes)
    assert (op, str(one), str(second_key)) == ("delete", "2", "2")


def test_tombstone_without_a_usable_key_is_a_dead_letter() -> None:
    """No key, a key that can't be read, one without the identifier, one of another type: each has its message."""
    keys = [None, b"no", {"other": 1}, {"id": None}, {"id": 2}]
    outcomes = landed(upsert(), [None] * 5, keys)
    dead_letters = letters(outcomes)
    assert [code for _, code, _ in dead_letters] == [
        "NULL_VALUE",
        "INVALID_KEY",
        "MISSING_REQUIRED",
        "MISSING_REQUIRED",
    ]
    assert dead_letters[2][2] == "key.id"
    assert ops_of(outcomes) == [("delete", 2, None)]


@pytest.mark.parametrize(
    ("options", "more", "said"),
    [
        ({"columns": {"id": {"type": "long", "required": True}}}, {"key": None}, "does not say how keys are decoded"),
        (
            {"order_by": "at", "columns": {**COLUMNS, "at": {"type": "long", "required": True}}},
            {},
            "a value for order_by",
        ),
        (
            {},
            {
                "transforms": [{"type": "ValueToKey", "fields": ["id"]}],
                "value": {"fields": {"id": "long", "name": "string"}},
            },
            "ValueToKey makes the keys",
        ),
    ],
    ids=["no key", "order by a value", "key made of the value"],
)
def test_tombstone_whose_row_is_unknown_is_a_dead_letter(
    options: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    """It is not dropped, and nothing is guessed: the dead letter names the option to set."""
    outcomes = landed(upsert(more, **options), [None, None], [{"id": 1}, {"id": 2}])
    assert [code for _, code, _ in letters(outcomes)] == ["NULL_VALUE"] * 2
    for message in outcomes.dead.column("message").to_pylist():
        assert said in message
        assert "value.null_value: filter" in message


@pytest.mark.parametrize(("policy", "codes", "left_out"), [("filter", [], 1), ("dead_letter", ["NULL_VALUE"], 0)])
def test_tombstone_deletes_nothing_under_another_policy(policy: str, codes: list[str], left_out: int) -> None:
    """Only `delete` deletes rows."""
    outcomes = landed(upsert({"value": {"null_value": policy}}), VALUES, KEYS)
    assert [code for _, code, _ in letters(outcomes)] == codes
    assert filtered(outcomes).get("tombstone", 0) == left_out
    assert ops_of(outcomes) == [CHANGED[0], CHANGED[1], CHANGED[3]]


def test_tombstone_is_left_out_of_an_appended_table() -> None:
    """The merged table deletes a row; the appended table has none of it, and counts it as filtered."""
    second_destination = {"table": SECOND_TABLE, "columns": {"name": "string"}}
    outcomes = landed(upsert(destinations=(second_destination,)), VALUES, KEYS)
    assert ops_of(outcomes) == CHANGED
    assert outcomes.rows[SECOND_TABLE].column("name").to_pylist() == ["a", "b", "c"]
    assert filtered(outcomes) == {}
    counts = {
        table: (table_counts.routed, table_counts.written, table_counts.dead)
        for table, table_counts in outcomes.tables.items()
    }
    assert counts == {TABLE: (4, 4, 0), SECOND_TABLE: (3, 3, 0)}
    only_appended = landed(upsert(write="append", identifier=[], destinations=(second_destination,)), VALUES, KEYS)
    assert filtered(only_appended) == {"tombstone": 1}


def test_tombstone_is_a_row_of_the_log_of_changes() -> None:
    """The log gets the same change as the table."""
    outcomes = landed(upsert(append_history="shop.log"), VALUES, KEYS)
    assert ops_of(outcomes) == ops_of(outcomes, table="shop.log") == CHANGED


def test_tombstone_is_routed_by_its_topic_only() -> None:
    """A route by topic finds its table; for a route by field it has no value, so `otherwise` decides."""
    second_destination = {"table": SECOND_TABLE, "write": "upsert", "identifier": ["id"], "columns": COLUMNS}
    by_topic = {"route": {"topic": {"rename": {"orders": TABLE}}}, "value": {"fields": {"name": "string"}}}
    outcomes = landed(upsert(by_topic, (second_destination,)), VALUES, KEYS)
    assert ops_of(outcomes) == CHANGED
    assert ops_of(outcomes, table=SECOND_TABLE) == []

    fields = {"value": {"fields": {"name": "string", "to": "string"}}}
    by_field = {"route": {"static": {"field": "to", "tables": {TABLE: "a", SECOND_TABLE: "b"}}}, **fields}
    values = [value and {**value, "to": "a"} for value in VALUES]
    outcomes = landed(upsert(by_field, (second_destination,)), values, KEYS)
    assert [row for row in CHANGED if row[0] == "upsert"] == ops_of(outcomes)
    assert [code for _, code, _ in letters(outcomes)] == ["UNROUTED"]


def test_batch_without_tombstones_has_the_same_rows() -> None:
    """What other records become does not depend on whether one deletes a row beside them."""
    alone = landed(upsert(), [VALUES[0]], [KEYS[0]]).rows[TABLE]
    merged_rows = landed(upsert(), VALUES, KEYS).rows[TABLE]
    assert alone.schema.equals(merged_rows.schema)
    assert alone.equals(merged_rows.slice(0, 1))
    assert merged_rows.column(OP).to_pylist() == [op for op, *_ in CHANGED]


def test_record_above_the_size_limit_deletes_nothing() -> None:
    """A record above `limits.max_record_bytes` has no value here either: it is a letter, and its key keeps its row."""
    two_tables = upsert(
        destinations=({"table": SECOND_TABLE, "write": "upsert", "identifier": ["id"], "columns": COLUMNS},)
    )
    for declared in (upsert(), two_tables):
        columns = {destination.table: declared_columns(destination) for destination in declared.destinations}
        batch = batch_of(VALUES, KEYS)
        sizes = pa.array([None, None, 10**9, None], pa.int64())
        fan_out = Decoder(record_specs(declared, columns), route_of(declared, columns), 7)
        outcomes = fan_out.decode(batch.append_column(UNREAD_BYTES, sizes))
        assert [code for _, code, _ in letters(outcomes)] == ["RECORD_TOO_LARGE"]
        assert ops_of(outcomes) == [CHANGED[0], CHANGED[1], CHANGED[3]]
