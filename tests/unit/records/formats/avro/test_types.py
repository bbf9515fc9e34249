"""Avro: every type of the specification, and those that Kafka Connect and Debezium name."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.records.formats.avro.avro import AvroFormat
from tests.unit.records.formats.avro_values import ENUM, FIXED, RECORD, SECOND_RECORD, connect, logical, raw, written

DAY = date(2024, 2, 29)
NOON = datetime(2024, 2, 29, 12, 0, 0, 123000)
UID = UUID("89791762-2336-4186-9674-299b90a802e2")
DBZ = "io.debezium.time."
CONNECT = "org.apache.kafka.connect.data."
INSTANT, WALL = pa.timestamp("us", "UTC"), pa.timestamp("us")
MICROS = 1_709_208_000_123_000

TYPES: list[tuple[str, Any, Any, pa.DataType, object]] = [
    ("null", "null", None, pa.string(), None),
    ("boolean", "boolean", True, pa.bool_(), True),
    ("int", "int", -(2**31), pa.int32(), -(2**31)),
    ("long", "long", 2**63 - 1, pa.int64(), 2**63 - 1),
    ("smallest long", "long", -(2**63), pa.int64(), -(2**63)),
    ("float", "float", 1.5, pa.float32(), 1.5),
    ("double", "double", 0.1, pa.float64(), 0.1),
    ("infinite", "double", float("inf"), pa.float64(), float("inf")),
    ("bytes", "bytes", b"\0\xff", pa.binary(), b"\0\xff"),
    ("string", "string", "a\0🧊", pa.string(), "a\0🧊"),
    ("enum", ENUM, "B", pa.string(), "B"),
    ("fixed", FIXED, b"ab", pa.binary(2), b"ab"),
    ("record", RECORD, {"x": 1}, pa.struct([("x", pa.int32())]), {"x": 1}),
    ("empty record", {"type": "record", "name": "X", "fields": []}, {}, pa.string(), "{}"),
    ("array", {"type": "array", "items": "int"}, [1, 2], pa.list_(pa.int32()), [1, 2]),
    ("empty array", {"type": "array", "items": "int"}, [], pa.list_(pa.int32()), []),
    ("map", {"type": "map", "values": "int"}, {"k": 1}, pa.map_(pa.string(), pa.int32()), [("k", 1)]),
    ("map of null", {"type": "map", "values": "null"}, {"k": None}, pa.map_(pa.string(), pa.string()), [("k", None)]),
    ("optional", ["null", "int"], 5, pa.int32(), 5),
    ("optional null", ["null", "int"], None, pa.int32(), None),
    ("null last", ["int", "null"], None, pa.int32(), None),
    ("one branch", ["int"], 5, pa.int32(), 5),
    (
        "branches",
        ["null", "long", "string", RECORD, {"type": "array", "items": "int"}],
        "q",
        pa.struct(
            [
                ("long", pa.int64()),
                ("string", pa.string()),
                ("R", pa.struct([("x", pa.int32())])),
                ("array", pa.list_(pa.int32())),
            ]
        ),
        {"long": None, "string": "q", "R": None, "array": None},
    ),
    (
        "branches null",
        ["null", "long", "string"],
        None,
        pa.struct([("long", pa.int64()), ("string", pa.string())]),
        None,
    ),
    (
        "branches of one short name",
        [RECORD, SECOND_RECORD],
        ("m.R", {"x": 3}),
        pa.struct([("n.R", pa.struct([("x", pa.int32())])), ("m.R", pa.struct([("x", pa.int32())]))]),
        {"n.R": None, "m.R": {"x": 3}},
    ),
    ("date", logical("int", "date"), 19782, pa.date32(), DAY),
    ("time millis", logical("int", "time-millis"), 1, pa.time64("us"), time(0, 0, 0, 1000)),
    ("time micros", logical("long", "time-micros"), 86_399_999_999, pa.time64("us"), time(23, 59, 59, 999999)),
    ("timestamp millis", logical("long", "timestamp-millis"), MICROS // 1000, INSTANT, NOON.replace(tzinfo=UTC)),
    ("timestamp micros", logical("long", "timestamp-micros"), MICROS, INSTANT, NOON.replace(tzinfo=UTC)),
    ("timestamp nanos", logical("long", "timestamp-nanos"), MICROS * 1000, INSTANT, NOON.replace(tzinfo=UTC)),
    ("local millis", logical("long", "local-timestamp-millis"), MICROS // 1000, WALL, NOON),
    ("local micros", logical("long", "local-timestamp-micros"), MICROS, WALL, NOON),
    ("local nanos", logical("long", "local-timestamp-nanos"), MICROS * 1000, WALL, NOON),
    ("uuid text", logical("string", "uuid"), str(UID), pa.uuid(), UID),
    ("uuid fixed", logical("fixed", "uuid", name="U", size=16), UID.bytes, pa.uuid(), UID),
    ("duration", logical("fixed", "duration", name="D", size=12), b"d" * 12, pa.binary(12), b"d" * 12),
    ("decimal", logical("bytes", "decimal", precision=4, scale=2), b"\xff\x85", pa.decimal128(4, 2), Decimal("-1.23")),
    (
        "decimal fixed",
        logical("fixed", "decimal", name="D", size=2, precision=4, scale=2),
        b"\0\x7b",
        pa.decimal128(4, 2),
        Decimal("1.23"),
    ),
    (
        "wide decimal",
        logical("bytes", "decimal", precision=64, scale=2),
        b"\x7b",
        pa.decimal256(64, 2),
        Decimal("1.23"),
    ),
    ("annotation on another type", logical("string", "timestamp-millis"), "x", pa.string(), "x"),
    ("connect date", connect("int", f"{CONNECT}Date"), 19782, pa.date32(), DAY),
    ("connect timestamp", connect("long", f"{CONNECT}Timestamp"), MICROS // 1000, INSTANT, NOON.replace(tzinfo=UTC)),
    (
        "connect decimal",
        connect("bytes", f"{CONNECT}Decimal", **{"connect.parameters": {"scale": "2"}}),
        b"\x7b",
        pa.decimal256(64, 2),
        Decimal("1.23"),
    ),
    ("debezium date", connect("int", f"{DBZ}Date"), 19782, pa.date32(), DAY),
    ("debezium time", connect("int", f"{DBZ}Time"), 1, pa.time64("us"), time(0, 0, 0, 1000)),
    ("debezium micro time", connect("long", f"{DBZ}MicroTime"), 1, pa.time64("us"), time(0, 0, 0, 1)),
    ("debezium nano time", connect("long", f"{DBZ}NanoTime"), 1000, pa.time64("us"), time(0, 0, 0, 1)),
    ("debezium timestamp", connect("long", f"{DBZ}Timestamp"), MICROS // 1000, WALL, NOON),
    ("debezium micro timestamp", connect("long", f"{DBZ}MicroTimestamp"), MICROS, WALL, NOON),
    ("debezium nano timestamp", connect("long", f"{DBZ}NanoTimestamp"), MICROS * 1000, WALL, NOON),
    (
        "debezium zoned timestamp",
        connect("string", f"{DBZ}ZonedTimestamp"),
        "2024-02-29T12:00:00Z",
        pa.string(),
        "2024-02-29T12:00:00Z",
    ),
]


@pytest.mark.parametrize(
    ("schema", "value", "expected_type", "expected"), [c[1:] for c in TYPES], ids=[c[0] for c in TYPES]
)
def test_each_type_lands_as_what_it_means(
    schema: Any, value: Any, expected_type: pa.DataType, expected: object
) -> None:
    """The column has the type, the value is exact, and reading goes on behind it."""
    datum = written(raw(schema) if isinstance(schema, dict) else schema, value)
    fields = [{"name": "f", "type": schema}, {"name": "end", "type": "int"}]
    decoder = AvroFormat.of_schema(json.dumps({"type": "record", "name": "Top", "fields": fields}))
    (shaped,) = decoder.decode(pa.array([datum + b"\2"], pa.binary())).groups

    assert shaped.columns.schema == pa.schema([("f", expected_type), ("end", pa.int32())])
    assert shaped.columns.to_pylist() == [{"f": expected, "end": 1}]
