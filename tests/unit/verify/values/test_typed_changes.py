"""Verify and the code that writes read Debezium's envelopes in Avro independently, by the same promise."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.verify.rules import not_compared_because
from frazil.verify.values.canonical import column_values
from frazil.verify.values.column_readers import Bad
from frazil.verify.values.typed_expectation import TypedChanges, no_registry
from tests.unit.records.cdc.landing import TABLE, landed, pipeline

PLACEHOLDER = "__debezium_unavailable_value"
IMAGE = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "cost", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "raw", "type": ["null", "bytes"]},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", IMAGE]},
        {"name": "after", "type": ["null", "Value"]},
        {
            "name": "source",
            "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]},
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
COLUMNS: dict[str, Any] = {
    "id": {"type": "long", "required": True},
    "called": {"type": "string", "from": "name"},
    "cost": "decimal(9,2)",
    "at": "timestamp",
    "raw": "binary",
    "op": {"type": "string", "from": ["_cdc", "op"]},
    "happened": {"type": "timestamptz", "from": ["_cdc", "ts"]},
    "place": {"type": "string", "from": ["_cdc", "order"]},
}
ROWS = st.none() | st.fixed_dictionaries(
    {
        "id": st.integers(1, 3),
        "name": st.sampled_from(["a", PLACEHOLDER, None]),
        "cost": st.sampled_from([Decimal("1.50"), None]),
        "at": st.sampled_from([5, None]),
        "raw": st.sampled_from([b"x", PLACEHOLDER.encode(), None]),
    }
)
EVENTS = st.fixed_dictionaries(
    {
        "before": ROWS,
        "after": ROWS,
        "source": st.fixed_dictionaries({"lsn": st.sampled_from([9, None])}),
        "op": st.sampled_from(["c", "u", "d", "r", "t", "m", "x"]),
        "ts_ms": st.sampled_from([1_700_000_000_123, None, 2**62]),
    }
)


def declared(order_by: str | None = None, **value: Any) -> Pipeline:
    avro = {"format": "avro", "schema": json.dumps(ENVELOPE), **value}
    return pipeline({"value": avro}, changes={"format": "debezium"}, columns=COLUMNS, order_by=order_by)


def encoded(envelope: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ENVELOPE), envelope)
    return stream.getvalue()


def reading_of(file: Pipeline, raw: bytes) -> Any:
    destination = file.destinations[0]
    return TypedChanges(file, destination, destination.columns, no_registry).record(Message(topic="orders", value=raw))


@pytest.mark.parametrize("order_by", [None, "place"])
@given(document=EVENTS)
@settings(max_examples=60, deadline=None)
def test_two_readings_of_an_avro_change_agree(order_by: str | None, document: dict[str, Any]) -> None:
    """For any envelope both readings give the same rows, value by value, or none."""
    file = declared(order_by)
    assert not_compared_because(file) is None

    outcomes, changes = landed(file, [encoded(document)]), reading_of(file, encoded(document))

    rows = outcomes.rows[TABLE]
    if isinstance(changes, Bad):
        assert (rows.num_rows, outcomes.dead.num_rows) == (0, 1), changes
        return
    assert outcomes.dead.num_rows == 0, outcomes.dead.column("message")
    cells = [column_values(rows.column(name), column.parsed) for name, column in file.destinations[0].columns.items()]
    staged = list(zip(*cells, strict=True))
    assert [change.op for change in changes] == rows.column("_frazil_op").to_pylist()
    assert [change.key or (None,) for change in changes] == [row[:1] for row in staged]
    assert [change.row for change in changes if change.op == "upsert"] == [
        row for change, row in zip(changes, staged, strict=True) if change.op == "upsert"
    ]


def test_bytes_that_are_no_envelope_are_a_dead_letter() -> None:
    """As the staged batch says."""
    assert isinstance(reading_of(declared(), b"\xff"), Bad)


def test_changes_by_a_schema_that_is_not_read_here_are_unknown() -> None:
    """Rows are only unsure once such a record turns out to have changed one: a dead letter did not."""
    file = declared()
    destination = file.destinations[0]
    reader = TypedChanges(file, destination, destination.columns, no_registry)

    changes = reader.record(Message(topic="orders", value=b"\xc3\x01" + bytes(8)))

    assert not reader.is_unsure
    assert [isinstance(change, Bad) for change in changes] == [True]


@pytest.mark.parametrize("op", ["c", "u", "d"])
def test_part_that_is_not_read_here_may_be_why_a_record_is_a_dead_letter(op: str) -> None:
    """Nanoseconds that no column holds, in whichever image: the staged batch refuses the record, and no difference is told."""
    nanos = {"type": "long", "connect.name": "io.debezium.time.NanoTimestamp"}
    image = {
        **IMAGE,
        "fields": [field if field["name"] != "at" else {"name": "at", "type": nanos} for field in IMAGE["fields"]],
    }
    fields = [
        field if field["name"] != "before" else {"name": "before", "type": ["null", image]}
        for field in ENVELOPE["fields"]
    ]
    schema = {**ENVELOPE, "fields": fields}
    row = {"id": 1, "name": "a", "cost": None, "at": 5, "raw": None}
    file = declared(schema=json.dumps(schema))
    stream = io.BytesIO()
    before, after = (None if op == "c" else row), (None if op == "d" else row)
    document = {"before": before, "after": after, "source": {"lsn": 9}, "op": op, "ts_ms": None}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), document)

    outcomes, changes = landed(file, [stream.getvalue()]), reading_of(file, stream.getvalue())

    assert outcomes.dead.num_rows == 1
    assert any(isinstance(change, Bad) for change in changes)


UNREAD: list[dict[str, Any]] = [
    {"key": {"format": "long"}},
    {"transforms": [{"type": "InsertField", "topic.field": "t"}]},
    {"value": {"format": "avro", "schema": json.dumps(ENVELOPE), "unknown_fields": "fail"}},
]


@pytest.mark.parametrize("parts", UNREAD)
def test_what_is_not_read_is_named(parts: dict[str, Any]) -> None:
    """Keys, transforms and policies that the second reading does not have."""
    value = {"value": {"format": "avro", "schema": json.dumps(ENVELOPE)}}
    file = pipeline(value | parts, changes={"format": "debezium"}, columns=COLUMNS)

    assert "changes of records that are avro" in str(not_compared_because(file))
