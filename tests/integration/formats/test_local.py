"""Values that need no registry: each format from the broker to the table, and transforms on the way."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from frazil.report.history import history
from tests.operations import assert_clean

MakeStore = Callable[..., Any]

AVRO = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "double"}]}
ENVELOPE = {
    "type": "struct",
    "optional": False,
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {
            "field": "price",
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
    ],
}


def datum(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), value)
    return out.getvalue()


@pytest.mark.parametrize(
    ("value", "columns", "payload", "row", "bad", "code"),
    [
        pytest.param(
            {"format": "avro", "schema": json.dumps(AVRO)},
            {"x": "long", "y": "double"},
            datum({"x": 1, "y": 0.5}),
            {"x": 1, "y": 0.5},
            b"\x02",
            "INVALID_AVRO",
            id="avro",
        ),
        pytest.param(
            {
                "format": "protobuf",
                "schema": 'syntax = "proto3"; message P { int32 x = 1; string s = 2; }',
                "message": "P",
            },
            {"x": "long", "s": "string"},
            b"\x08\x07\x12\x02ab",
            {"x": 7, "s": "ab"},
            b"\x08",
            "INVALID_PROTOBUF",
            id="protobuf",
        ),
        pytest.param(
            {"format": "json-envelope"},
            {"id": "long", "price": "decimal(10,2)"},
            json.dumps({"schema": ENVELOPE, "payload": {"id": 1, "price": "BOM="}}).encode(),
            {"id": 1, "price": Decimal("12.51")},
            b'{"payload": 1}',
            "INVALID_ENVELOPE",
            id="envelope",
        ),
        pytest.param(
            {"format": "delimited", "fields": ["id", "name"], "delimiter": ";"},
            {"id": "int", "name": "string"},
            b'5;"a;b"',
            {"id": 5, "name": "a;b"},
            b"5",
            "INVALID_DELIMITED",
            id="delimited",
        ),
        pytest.param(
            {"format": "long"}, {"value": "long"}, b"\0" * 7 + b"\x09", {"value": 9}, b"9", "INVALID_SCALAR", id="long"
        ),
        pytest.param(
            {"format": "string"},
            {"value": "string"},
            "ü".encode(),
            {"value": "ü"},
            b"\xff",
            "INVALID_UTF8",
            id="string",
        ),
    ],
)
def test_value_is_read_in_declared_format(  # noqa: PLR0913, PLR0917 - a row of the table
    store: MakeStore,
    value: dict[str, Any],
    columns: dict[str, str],
    payload: bytes,
    row: dict[str, Any],
    bad: bytes,
    code: str,
) -> None:
    """What was sent is the row, what is broken is a letter, a tombstone is left out; the counts are right."""
    format_store = store(value, columns)

    rows, letters = format_store.lands([payload, bad, None, payload])

    assert rows == [row, row]
    assert letters == [(1, code)]
    assert format_store.shop.run().read == 0
    assert_clean(format_store.shop)


def test_transforms_run_in_their_order(store: MakeStore) -> None:
    """In their order, each for the records it is meant for; what fails inside is a letter of stage `transform`."""
    format_store = store(
        {"format": "json", "fields": {"id": "long", "who": "struct<name: string, age: string>"}},
        {"id": "long", "who_name": "string", "who_age": "int", "source": "string"},
        [
            {"type": "Flatten", "delimiter": "_"},
            {"type": "Cast", "spec": {"who_age": "int32"}},
            {"type": "InsertField", "topic.field": "source"},
        ],
    )
    values = [{"id": 1, "who": {"name": "a", "age": "30"}}, {"id": 2, "who": {"name": "b", "age": "old"}}, {"id": 3}]

    rows, letters = format_store.lands([json.dumps(value).encode() for value in values])

    topic = format_store.shop.topic
    assert rows == [
        {"id": 1, "who_name": "a", "who_age": 30, "source": topic},
        {"id": 3, "who_name": None, "who_age": None, "source": topic},
    ]
    assert letters == [(1, "TRANSFORM_FAILED")]
    assert_clean(format_store.shop)


def test_exploded_records_are_counted_correctly(store: MakeStore) -> None:
    """More rows than records, told apart in the ledger; filtered ones are counted; verify agrees."""
    format_store = store(
        {"format": "json", "fields": {"id": "long", "items": "list<struct<sku: string, n: int>>"}},
        {"id": "long", "sku": "string", "n": "int"},
        [{"type": "Explode", "field": "items", "outer": False, "spread": True}, {"type": "Sql", "where": "n > 0"}],
    )
    values = [
        {"id": 1, "items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}, {"sku": "c", "n": 0}]},
        {"id": 2, "items": []},
        {"id": 3, "items": [{"sku": "d", "n": 0}]},
    ]

    rows, letters = format_store.lands([json.dumps(value).encode() for value in values])

    assert rows == [{"id": 1, "sku": "a", "n": 1}, {"id": 1, "sku": "b", "n": 2}]
    assert letters == []
    (batch,) = [of for of in history(format_store.shop.project, format_store.shop.pipeline) if of.kind == "ingest"]
    assert (batch.read, batch.written, batch.filtered) == (3, 1, 2)
    assert_clean(format_store.shop)
