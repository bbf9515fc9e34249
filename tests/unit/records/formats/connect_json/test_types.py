"""Types of Kafka Connect and Debezium: what their values mean."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from tests.unit.records.formats.envelopes import (
    DATA,
    DEBEZIUM,
    DECIMAL_2,
    Schema,
    bare,
    decode,
    envelope,
    fields,
    named,
    number,
)

CASES: dict[str, tuple[Schema | None, str, pa.DataType, object]] = {
    "int8": ({"type": "int8"}, "-128", pa.int32(), -128),
    "int16": ({"type": "int16"}, "32767", pa.int32(), 32767),
    "int32": ({"type": "int32"}, "-2147483648", pa.int32(), -(1 << 31)),
    "int64": ({"type": "int64"}, "9223372036854775807", pa.int64(), (1 << 63) - 1),
    "integer with fraction of zero": ({"type": "int64"}, "1.0e2", pa.int64(), 100),
    "float": ({"type": "float"}, "0.1", pa.float32(), 0.10000000149011612),
    "double": ({"type": "double"}, "0.1", pa.float64(), 0.1),
    "float32 by its name in Java": ({"type": "float32"}, "1", pa.float32(), 1.0),
    "double infinite": ({"type": "double"}, '"-Infinity"', pa.float64(), float("-inf")),
    "boolean": ({"type": "boolean"}, "true", pa.bool_(), True),
    "string": ({"type": "string"}, '"é\\ud83e\\uddca"', pa.string(), "é🧊"),
    "empty string": ({"type": "string"}, '""', pa.string(), ""),
    "bytes": ({"type": "bytes"}, '"/wA="', pa.binary(), b"\xff\0"),
    "array": (
        {"type": "array", "items": {"type": "int8", "optional": True}},
        "[1,null]",
        pa.list_(pa.field("item", pa.int32())),
        [1, None],
    ),
    "map": (
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "int64", "optional": True}},
        '{"a":1,"b":null,"a":2}',
        pa.map_(pa.string(), pa.int64()),
        [("a", 2), ("b", None)],
    ),
    "map of numbers": (
        {"type": "map", "keys": {"type": "int32"}, "values": {"type": "string", "optional": True}},
        '[[1,"a"],[2,null],[1,"b"]]',
        pa.map_(pa.int32(), pa.string()),
        [(1, "b"), (2, None)],
    ),
    "map of lists": (
        {
            "type": "map",
            "keys": {"type": "array", "items": {"type": "int32", "optional": True}},
            "values": {"type": "boolean", "optional": True},
        },
        "[[[1,2],true],[[],false]]",
        pa.map_(pa.list_(pa.int32()), pa.bool_()),
        [([1, 2], True), ([], False)],
    ),
    "map of uuids": (
        {"type": "map", "keys": named(DEBEZIUM + "data.Uuid", "string"), "values": {"type": "int8", "optional": True}},
        '{"00000000-0000-0000-0000-000000000001":1}',
        pa.map_(pa.uuid(), pa.int32()),
        [(UUID(int=1), 1)],
    ),
    "decimal": (DECIMAL_2, number(-12345), pa.decimal128(38, 2), Decimal("-123.45")),
    "decimal as number": (DECIMAL_2, "-123.45", pa.decimal128(38, 2), Decimal("-123.45")),
    "decimal of 38 digits": (DECIMAL_2, number(10**38 - 1), pa.decimal128(38, 2), Decimal("9" * 36 + ".99")),
    "decimal as number of 38 digits": (DECIMAL_2, "9" * 36 + ".99", pa.decimal128(38, 2), Decimal("9" * 36 + ".99")),
    "decimal with precision": (
        named(DATA + "Decimal", "bytes", scale="2", **{"connect.decimal.precision": "5"}),
        number(99999),
        pa.decimal128(5, 2),
        Decimal("999.99"),
    ),
    "decimal with more precision than there is": (
        named(DATA + "Decimal", "bytes", scale="0", **{"connect.decimal.precision": "50"}),
        number(7),
        pa.decimal128(38, 0),
        Decimal(7),
    ),
    "decimal of negative scale": (
        named(DATA + "Decimal", "bytes", scale="-3"),
        number(7),
        pa.decimal128(38, 0),
        Decimal(7000),
    ),
    "zero of a scale beyond reason": (
        named(DATA + "Decimal", "bytes", scale="-2147483648"),
        number(0),
        pa.decimal128(38, 0),
        Decimal(0),
    ),
    "date": (named(DATA + "Date", "int32"), "19723", pa.date32(), date(2024, 1, 1)),
    "time": (named(DATA + "Time", "int32"), "86399999", pa.time64("us"), time(23, 59, 59, 999000)),
    "timestamp": (
        named(DATA + "Timestamp", "int64"),
        "-1",
        pa.timestamp("us", "UTC"),
        datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
    ),
    "Debezium date": (named(DEBEZIUM + "time.Date", "int32"), "-1", pa.date32(), date(1969, 12, 31)),
    "Debezium time": (named(DEBEZIUM + "time.Time", "int32"), "1", pa.time64("us"), time(0, 0, 0, 1000)),
    "Debezium micro time": (named(DEBEZIUM + "time.MicroTime", "int64"), "1", pa.time64("us"), time(0, 0, 0, 1)),
    "Debezium nano time": (named(DEBEZIUM + "time.NanoTime", "int64"), "1000", pa.time64("us"), time(0, 0, 0, 1)),
    "Debezium timestamp": (
        named(DEBEZIUM + "time.Timestamp", "int64"),
        "1704067200001",
        pa.timestamp("us"),
        datetime(2024, 1, 1, 0, 0, 0, 1000),
    ),
    "Debezium date in ISO": (
        named(DEBEZIUM + "time.IsoDate", "string"),
        '"2024-02-29Z"',
        pa.date32(),
        date(2024, 2, 29),
    ),
    "Debezium time in ISO": (
        named(DEBEZIUM + "time.IsoTime", "string"),
        '"04:05:11.789Z"',
        pa.time64("us"),
        time(4, 5, 11, 789000),
    ),
    "Debezium timestamp in ISO": (
        named(DEBEZIUM + "time.IsoTimestamp", "string"),
        '"2024-01-01T00:00:00.001Z"',
        pa.timestamp("us"),
        datetime(2024, 1, 1, 0, 0, 0, 1000),
    ),
    "Debezium micro timestamp": (
        named(DEBEZIUM + "time.MicroTimestamp", "int64"),
        "1704067200000001",
        pa.timestamp("us"),
        datetime(2024, 1, 1, 0, 0, 0, 1),
    ),
    "Debezium nano timestamp": (
        named(DEBEZIUM + "time.NanoTimestamp", "int64"),
        "-1000",
        pa.timestamp("us"),
        datetime(1969, 12, 31, 23, 59, 59, 999999),
    ),
    "Debezium zoned timestamp": (
        named(DEBEZIUM + "time.ZonedTimestamp", "string"),
        '"2024-01-01T01:00:00.000001+01:00"',
        pa.timestamp("us", "UTC"),
        datetime(2024, 1, 1, 0, 0, 0, 1, UTC),
    ),
    "Debezium zoned time": (named(DEBEZIUM + "time.ZonedTime", "string"), '"10:00Z"', pa.string(), "10:00Z"),
    "Debezium year": (named(DEBEZIUM + "time.Year", "int32"), "2024", pa.int32(), 2024),
    "Debezium micro duration": (named(DEBEZIUM + "time.MicroDuration", "int64"), "-5", pa.int64(), -5),
    "Debezium interval": (named(DEBEZIUM + "time.Interval", "string"), '"P1Y"', pa.string(), "P1Y"),
    "uuid": (
        named(DEBEZIUM + "data.Uuid", "string"),
        '"00000000-0000-0000-0000-00000000000A"',
        pa.uuid(),
        UUID(int=10),
    ),
    "Debezium JSON": (named(DEBEZIUM + "data.Json", "string"), '"{\\"a\\": 1}"', pa.string(), '{"a": 1}'),
    "Debezium enum": (named(DEBEZIUM + "data.Enum", "string", allowed="a,b"), '"c"', pa.string(), "c"),
    "Debezium bits": (named(DEBEZIUM + "data.Bits", "bytes", length="9"), '"AQE="', pa.binary(), b"\1\1"),
    "Debezium decimal of any scale": (
        fields(scale={"type": "int32"}, value={"type": "bytes"}) | {"name": DEBEZIUM + "data.VariableScaleDecimal"},
        f'{{"scale":3,"value":{number(-(10**60))}}}',
        pa.string(),
        "-1" + "0" * 57 + ".000",
    ),
    "Debezium decimal of a scale beyond reason": (
        fields(scale={"type": "int32"}, value={"type": "bytes"}) | {"name": DEBEZIUM + "data.VariableScaleDecimal"},
        f'{{"scale":-2147483648,"value":{number(12)}}}',
        pa.string(),
        "1.2E+2147483649",
    ),
    "a name says nothing over another type": (named(DATA + "Date", "string"), '"x"', pa.string(), "x"),
    "an unknown name says nothing": (named("com.example.Age", "int32"), "7", pa.int32(), 7),
    "default for null": ({"type": "int32", "default": 7}, "null", pa.int32(), 7),
    "default for optional null": ({"type": "int32", "default": 7, "optional": True}, "null", pa.int32(), 7),
    "default of a logical type": (DECIMAL_2 | {"default": "AQ=="}, "null", pa.decimal128(38, 2), Decimal("0.01")),
    "no schema, text": (None, '"x"', pa.string(), "x"),
    "no schema, integer": (None, "-7", pa.int64(), -7),
    "no schema, number": (None, "0.1", pa.float64(), 0.1),
    "no schema, truth": (None, "false", pa.bool_(), False),
}


@pytest.mark.parametrize(("schema", "payload", "expected", "value"), CASES.values(), ids=CASES.keys())
def test_value_means_what_its_schema_says(
    schema: Schema | None, payload: str, expected: pa.DataType, value: object
) -> None:
    """Each type of Kafka Connect and Debezium lands as what it is, alone and as a field."""
    cells, read = bare(schema, payload)
    assert read == value
    assert cells.equals(expected) or pa.types.is_nested(expected)
    if schema is not None:
        nested = envelope(
            fields(x=fields(y=schema), z={"type": "array", "items": schema}),
            f'{{"x":{{"y":{payload}}},"z":[{payload}]}}',
        )
        (row,) = decode([nested]).groups[0].columns.to_pylist()
        assert row == {"x": {"y": value}, "z": [value]}
