"""What becomes of values that a schema describes: Avro, Protocol Buffers, JSON Schema, and Kafka Connect's envelopes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import fastavro
from google.protobuf.json_format import Parse
from google.protobuf.message_factory import GetMessageClass

from frazil.records.formats.protobuf.schema import Schema
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import WriterSchema
from tests.unit.records.formats.case import COLUMN, Case, column_of

_UUID = "7b5c1e0a-3f52-4a53-9d5e-0d7a3c1b2f44"
_CONNECT = "org.apache.kafka.connect.data."
_IMPORTS = ("protobuf/timestamp", "protobuf/struct", "protobuf/wrappers", "type/date", "type/timeofday")


_ENVELOPE: list[tuple[dict[str, Any], str, str, str | DeadCode]] = [
    ({"type": "int32"}, "7", "int", "7"),
    ({"type": "int32"}, "7", "long", "7"),
    ({"type": "int64"}, "7", "int", "7"),
    ({"type": "int64"}, "2147483648", "int", DeadCode.OUT_OF_RANGE),
    ({"type": "int32"}, "7", "string", DeadCode.WRONG_TYPE),
    ({"type": "int32"}, '"7"', "int", DeadCode.INVALID_ENVELOPE),
    ({"type": "boolean"}, "true", "boolean", "true"),
    ({"type": "float"}, "0.1", "float", "0.1"),
    ({"type": "double"}, "0.1", "float", DeadCode.LOSSY_CAST),
    ({"type": "double"}, '"NaN"', "double", "nan"),
    (
        {"type": "bytes", "name": f"{_CONNECT}Decimal", "parameters": {"scale": "2"}},
        '"bg=="',
        "decimal(10,2)",
        "1.10",
    ),
    ({"type": "int32", "name": f"{_CONNECT}Date"}, "20574", "date", "2026-05-01"),
    ({"type": "int32", "name": f"{_CONNECT}Time"}, "45000000", "time", "12:30:00"),
    (
        {"type": "int64", "name": f"{_CONNECT}Timestamp"},
        "1777638600123",
        "timestamptz",
        "2026-05-01T12:30:00.123000+00:00",
    ),
    (
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        "1777638600000001",
        "timestamp",
        "2026-05-01T12:30:00.000001",
    ),
    (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        '"2026-05-01T12:30:00Z"',
        "timestamptz",
        "2026-05-01T12:30:00+00:00",
    ),
    ({"type": "string", "name": "io.debezium.data.Uuid"}, f'"{_UUID}"', "uuid", _UUID),
    ({"type": "bytes"}, '"AP8="', "binary", "0x00ff"),
    ({"type": "bytes"}, '"AP8="', "fixed[2]", "0x00ff"),
    ({"type": "bytes"}, '"AP8="', "fixed[3]", DeadCode.OUT_OF_RANGE),
    (
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}},
        '{"a": 1}',
        "map<string, int>",
        '{"a": 1}',
    ),
    ({"type": "array", "items": {"type": "string"}}, '["a"]', "list<string>", '["a"]'),
    ({"type": "struct", "fields": [{"field": "a", "type": "int32"}]}, '{"a": 1}', "struct<a: int>", "{a: 1}"),
    ({"type": "struct", "fields": [{"field": "a", "type": "int32"}]}, '{"a": 1}', "string", '"{\\"a\\":1}"'),
]


def envelope() -> Iterator[Case]:
    """Kafka Connect's JSON with its schema."""
    for schema, payload, column, result in _ENVELOPE:
        whole = {"type": "struct", "fields": [{**schema, "field": COLUMN, "optional": True}]}
        data = f'{{"schema": {json.dumps(whole)}, "payload": {{"{COLUMN}": {payload}}}}}'.encode()
        label = str(schema.get("name", schema["type"])).removeprefix(_CONNECT)
        yield Case("json-envelope", f"{label}: {payload}", column_of(column), result, data, {"format": "json-envelope"})


def _logical(kind: str, name: str, *decimal: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **dict(zip(("precision", "scale"), decimal, strict=False))}


_RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
_AVRO: list[tuple[str, Any, Any, str, str | DeadCode]] = [
    ("int 7", "int", 7, "int", "7"),
    ("int 7", "int", 7, "long", "7"),
    ("int 7", "int", 7, "decimal(10,2)", "7.00"),
    ("long 2147483648", "long", 2**31, "int", DeadCode.OUT_OF_RANGE),
    ("long 7", "long", 7, "string", DeadCode.WRONG_TYPE),
    ("float 0.1", "float", 0.1, "float", "0.1"),
    ("double 0.1", "double", 0.1, "float", DeadCode.LOSSY_CAST),
    ("float 0.1", "float", 0.1, "double", "0.10000000149011612"),
    ("double NaN", "double", float("nan"), "double", "nan"),
    ("double NaN", "double", float("nan"), "decimal(10,2)", DeadCode.NOT_FINITE),
    ("boolean true", "boolean", True, "boolean", "true"),
    ('string "7"', "string", "7", "int", DeadCode.WRONG_TYPE),
    ('string "2026-05-01"', "string", "2026-05-01", "date", "2026-05-01"),
    ('enum "A"', {"type": "enum", "name": "E", "symbols": ["A"]}, "A", "string", '"A"'),
    ("bytes 00ff", "bytes", b"\0\xff", "binary", "0x00ff"),
    ("fixed(2) 00ff", {"type": "fixed", "name": "F", "size": 2}, b"\0\xff", "fixed[2]", "0x00ff"),
    ("decimal(10,2) 1.10", _logical("bytes", "decimal", 10, 2), b"\x6e", "decimal(10,2)", "1.10"),
    ("decimal(10,2) 1.10", _logical("bytes", "decimal", 10, 2), b"\x6e", "decimal(10,1)", "1.1"),
    ("date 2026-05-01", _logical("int", "date"), 20574, "date", "2026-05-01"),
    ("time-millis 12:30", _logical("int", "time-millis"), 45_000_000, "time", "12:30:00"),
    (
        "timestamp-micros",
        _logical("long", "timestamp-micros"),
        1777638600000001,
        "timestamptz",
        "2026-05-01T12:30:00.000001+00:00",
    ),
    (
        "local-timestamp-millis",
        _logical("long", "local-timestamp-millis"),
        1777638600000,
        "timestamp",
        "2026-05-01T12:30:00",
    ),
    ("long 1777638600", "long", 1777638600, "timestamptz", DeadCode.WRONG_TYPE),
    (
        "uuid",
        _logical("string", "uuid"),
        _UUID,
        "uuid",
        _UUID,
    ),
    ("record {a: 1}", _RECORD, {"a": 1}, "struct<a: long>", "{a: 1}"),
    ("record {a: 1}", _RECORD, {"a": 1}, "string", '"{\\"a\\":1}"'),
    ("array [1]", {"type": "array", "items": "int"}, [1], "list<long>", "[1]"),
    ('map {"a": 1}', {"type": "map", "values": "int"}, {"a": 1}, "map<string, int>", '{"a": 1}'),
    ("[null, int]: null", ["null", "int"], None, "int", "null"),
    (
        "[null, int, string]: 7",
        ["null", "int", "string"],
        7,
        "struct<int: int, string: string>",
        "{int: 7, string: null}",
    ),
]


def avro() -> Iterator[Case]:
    """Avro."""
    for value_sent, schema, value, column, result in _AVRO:
        whole = {"type": "record", "name": "Value", "fields": [{"name": COLUMN, "type": schema}]}
        section = {"format": "avro", "schema": json.dumps(whole)}
        yield Case("avro", value_sent, column_of(column), result, _written(whole, value), section)


def _written(whole: dict[str, Any], value: object) -> bytes:
    """Write a value with the types that carry logical ones."""
    plain = json.loads(json.dumps(whole).replace('"logicalType"', '"was"'))
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(plain), {COLUMN: value})
    return buffer.getvalue()


def protobuf() -> Iterator[Case]:
    """Protocol Buffers."""
    rows: list[tuple[str, str | None, str, str | DeadCode]] = [
        ("int32", "7", "int", "7"),
        ("int32", "7", "long", "7"),
        ("int32", None, "int", "0"),
        ("optional int32", None, "int", "null"),
        ("uint64", '"18446744073709551615"', "decimal(20,0)", "18446744073709551615"),
        ("uint64", '"18446744073709551615"', "long", DeadCode.OUT_OF_RANGE),
        ("float", "0.1", "float", "0.1"),
        ("double", "0.1", "float", DeadCode.LOSSY_CAST),
        ("double", '"NaN"', "double", "nan"),
        ("double", "0.5", "decimal(10,2)", "0.50"),
        ("bool", "true", "boolean", "true"),
        ("string", '"7"', "int", DeadCode.WRONG_TYPE),
        ("string", '"2026-05-01 12:30:00"', "timestamp", "2026-05-01T12:30:00"),
        ("string", f'"{_UUID}"', "uuid", _UUID),
        ("string", '"no uuid"', "uuid", DeadCode.INVALID_TEXT),
        ("bytes", '"AP8="', "binary", "0x00ff"),
        ("bytes", '"AP8="', "fixed[2]", "0x00ff"),
        ("bytes", '"AP8="', "fixed[3]", DeadCode.OUT_OF_RANGE),
        ("Color", '"RED"', "string", '"RED"'),
        ("Inner", '{"a": 1}', "struct<a: long>", "{a: 1}"),
        ("Inner", None, "struct<a: long>", "null"),
        ("repeated int32", "[1, 2]", "list<int>", "[1, 2]"),
        ("map<string, int32>", '{"a": 1}', "map<string, int>", '{"a": 1}'),
        ("google.protobuf.Timestamp", '"2026-05-01T12:30:00Z"', "timestamptz", "2026-05-01T12:30:00+00:00"),
        ("google.protobuf.Timestamp", '"2026-05-01T12:30:00.123456789Z"', "timestamptz", DeadCode.LOSSY_CAST),
        ("google.protobuf.Timestamp", '"2026-05-01T12:30:00Z"', "timestamp", "2026-05-01T12:30:00"),
        ("google.protobuf.Int64Value", '"7"', "long", "7"),
        ("google.protobuf.Struct", '{"a": 1}', "string", '"{\\"a\\":1.0}"'),
        ("google.type.Date", '{"year": 2026, "month": 5, "day": 1}', "date", "2026-05-01"),
        ("google.type.TimeOfDay", '{"hours": 12, "minutes": 30}', "time", "12:30:00"),
    ]
    imports = "".join(f'import "google/{name}.proto"; ' for name in _IMPORTS)
    inside = "enum Color { BLUE = 0; RED = 1; } message Inner { int32 a = 1; }"
    for declared, value_sent, column, result in rows:
        source = f'syntax = "proto3"; {imports} message Value {{ {inside} {declared} {COLUMN} = 1; }}'
        message = GetMessageClass(Schema(WriterSchema("PROTOBUF", source)).named("Value"))()
        Parse("{}" if value_sent is None else f'{{"{COLUMN}": {value_sent}}}', message)
        section = {"format": "protobuf", "schema": source, "message": "Value"}
        yield Case(
            "protobuf",
            f"{declared}: {value_sent or 'not set'}",
            column_of(column),
            result,
            message.SerializeToString(),
            section,
        )


def json_schema() -> Iterator[Case]:
    """JSON with a registered schema."""
    rows: list[tuple[dict[str, Any], str, str, str | DeadCode]] = [
        ({"type": "integer"}, "7", "long", "7"),
        ({"type": "integer"}, "7", "int", "7"),
        ({"type": "integer"}, "2147483648", "int", DeadCode.OUT_OF_RANGE),
        ({"type": "integer"}, '"7"', "long", DeadCode.SCHEMA_VIOLATION),
        ({"type": "integer", "minimum": 10}, "7", "long", DeadCode.SCHEMA_VIOLATION),
        ({"type": "number"}, "0.5", "float", "0.5"),
        ({"type": "number"}, "0.1", "float", DeadCode.LOSSY_CAST),
        ({"type": "number"}, "0.1", "double", "0.1"),
        ({"type": "number"}, "0.1", "decimal(10,2)", "0.10"),
        ({"type": "boolean"}, "true", "boolean", "true"),
        ({"type": "string"}, '"a"', "string", '"a"'),
        ({"type": "string", "format": "date"}, '"2026-05-01"', "date", "2026-05-01"),
        (
            {"type": "string", "format": "date-time"},
            '"2026-05-01T12:30:00Z"',
            "timestamptz",
            "2026-05-01T12:30:00+00:00",
        ),
        ({"type": "string", "format": "time"}, '"12:30:00Z"', "time", "12:30:00"),
        ({"type": "string"}, '"12:30:00"', "time", "12:30:00"),
        (
            {"type": "string", "format": "date-time"},
            '"2026-05-01T12:30:00+02:00"',
            "timestamp",
            "2026-05-01T10:30:00",
        ),
        ({"type": "string", "format": "uuid"}, f'"{_UUID}"', "uuid", _UUID),
        ({"type": "string", "contentEncoding": "base64"}, '"AP8="', "binary", "0x00ff"),
        ({"type": "string", "contentEncoding": "base64"}, '"AP8="', "fixed[2]", "0x00ff"),
        ({"type": "string"}, '"AP8="', "binary", DeadCode.WRONG_TYPE),
        ({"type": "array", "items": {"type": "integer"}}, "[1]", "list<long>", "[1]"),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a": 1}', "struct<a: long>", "{a: 1}"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, '{"a": 1}', "map<string, long>", '{"a": 1}'),
        ({"type": ["integer", "string"]}, "7", "string", '"7"'),
    ]
    for schema, value_sent, column, result in rows:
        whole = json.dumps({"type": "object", "properties": {COLUMN: schema}})
        data = b"\0\0\0\0\1" + f'{{"{COLUMN}": {value_sent}}}'.encode()
        label = ", ".join(f"{name}: {json.dumps(option_value)}" for name, option_value in schema.items())
        section = {"format": "json-schema", "registry": "main"}
        yield Case("json-schema", f"{{{label}}}: {value_sent}", column_of(column), result, data, section, whole)
