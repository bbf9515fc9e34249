"""JSON with a registered schema: the columns that it declares, the values that it forbids, and unusable schemas."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.records.formats.json_schema.types import JsonSchemaFormat
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import NamedSchema, WriterSchema

HEAD = b"\0\0\0\0\1"
CONNECT = "org.apache.kafka.connect.data."
DAY = date(2024, 2, 29)
UID = "89791762-2336-4186-9674-299b90a802e2"
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}
STRUCT = pa.struct([("x", pa.int64())])
ENTRIES = {
    "type": "array",
    "connect.type": "map",
    "items": {"type": "object", "properties": {"key": {"type": "integer"}, "value": {"type": "string"}}},
}

TYPES: list[tuple[str, Any, str, pa.DataType, object]] = [
    ("string", {"type": "string"}, '"a\\u0000🧊"', pa.string(), "a\0🧊"),
    ("integer", {"type": "integer"}, str(2**63 - 1), pa.int64(), 2**63 - 1),
    ("integer as 1.0", {"type": "integer"}, "1.0", pa.int64(), 1),
    ("number", {"type": "number"}, "0.1", pa.float64(), 0.1),
    ("boolean", {"type": "boolean"}, "true", pa.bool_(), True),
    ("null", {"type": "null"}, "null", pa.string(), None),
    ("int8", {"type": "integer", "connect.type": "int8"}, "127", pa.int32(), 127),
    ("int32", {"type": "integer", "connect.type": "int32"}, "-5", pa.int32(), -5),
    ("float32", {"type": "number", "connect.type": "float32"}, "1.5", pa.float32(), 1.5),
    ("bytes", {"type": "string", "connect.type": "bytes"}, '"AP8="', pa.binary(), b"\0\xff"),
    ("content encoding", {"type": "string", "contentEncoding": "base64"}, '"AP8="', pa.binary(), b"\0\xff"),
    ("date", {"type": "string", "format": "date"}, '"2024-02-29"', pa.date32(), DAY),
    ("time", {"type": "string", "format": "time"}, '"12:00:00Z"', pa.time64("us"), time(12)),
    (
        "date-time",
        {"type": "string", "format": "date-time"},
        '"2024-02-29T12:00:00+02:00"',
        pa.timestamp("us", "UTC"),
        datetime(2024, 2, 29, 10, tzinfo=UTC),
    ),
    ("uuid", {"type": "string", "format": "uuid"}, f'"{UID}"', pa.uuid(), UUID(UID)),
    ("other format", {"type": "string", "format": "email"}, '"x"', pa.string(), "x"),
    (
        "connect date",
        {"type": "integer", "connect.type": "int32", "title": f"{CONNECT}Date"},
        "19782",
        pa.date32(),
        DAY,
    ),
    (
        "connect timestamp",
        {"type": "integer", "connect.type": "int64", "title": f"{CONNECT}Timestamp"},
        "1",
        pa.timestamp("us", "UTC"),
        datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
    ),
    (
        "debezium nano timestamp",
        {"type": "integer", "connect.type": "int64", "title": "io.debezium.time.NanoTimestamp"},
        "1000",
        pa.timestamp("us"),
        datetime(1970, 1, 1, 0, 0, 0, 1),
    ),
    (
        "decimal as number",
        {"type": "number", "connect.type": "bytes", "title": f"{CONNECT}Decimal", "connect.parameters": {"scale": "2"}},
        "12345678901234567890123456789012345678.90",
        pa.decimal256(64, 2),
        Decimal("12345678901234567890123456789012345678.90"),
    ),
    (
        "decimal as base64",
        {
            "type": "string",
            "connect.type": "bytes",
            "title": f"{CONNECT}Decimal",
            "connect.parameters": {"scale": "2", "connect.decimal.precision": "5"},
        },
        '"/4U="',
        pa.decimal128(5, 2),
        Decimal("-1.23"),
    ),
    ("object", POINT, '{"x": 1, "more": 2}', STRUCT, {"x": 1}),
    ("missing field", POINT, "{}", STRUCT, {"x": None}),
    (
        "map",
        {"type": "object", "additionalProperties": {"type": "integer"}},
        '{"k": 1}',
        pa.map_(pa.string(), pa.int64()),
        [("k", 1)],
    ),
    ("entries", ENTRIES, '[{"key": 1, "value": "v"}]', pa.map_(pa.int64(), pa.string()), [(1, "v")]),
    ("array", {"type": "array", "items": {"type": "integer"}}, "[1, 2]", pa.list_(pa.int64()), [1, 2]),
    ("array of anything", {"type": "array"}, '[1, {"a": 1e5}]', pa.list_(pa.string()), ["1", '{"a":1e5}']),
    ("tuple", {"type": "array", "items": [{}, {}]}, "[1, 2]", pa.string(), "[1,2]"),
    ("or null", {"oneOf": [{"type": "null"}, POINT]}, '{"x": 1}', STRUCT, {"x": 1}),
    ("null or", {"anyOf": [POINT, {"type": "null"}]}, "null", STRUCT, None),
    ("type or null", {"type": ["integer", "null"]}, "null", pa.int64(), None),
    ("several types", {"type": ["integer", "string"]}, "1.0", pa.string(), "1.0"),
    ("several shapes", {"oneOf": [POINT, {"type": "string"}]}, '"q"', pa.string(), '"q"'),
    ("nothing said", {}, '{"a": [1E+37]}', pa.string(), '{"a":[1E+37]}'),
    ("anything", True, "12", pa.string(), "12"),
    ("enum", {"enum": ["A", "B"]}, '"A"', pa.string(), "A"),
    ("reference", {"$ref": "#/definitions/point"}, '{"x": 1}', STRUCT, {"x": 1}),
    ("within itself", {"$ref": "#"}, '{"f": {"f": {}}}', pa.string(), '{"f":{"f":{}}}'),
    (
        "inherited",
        {"allOf": [{"$ref": "#/definitions/point"}, {"properties": {"y": {"type": "string"}}}]},
        '{"x": 1, "y": "q"}',
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
        {"x": 1, "y": "q"},
    ),
]


def top(schema: Any) -> str:
    """A schema of one property."""
    return json.dumps({"type": "object", "properties": {"f": schema}, "definitions": {"point": POINT}})


@pytest.mark.parametrize(("schema", "value", "kind", "expected"), [c[1:] for c in TYPES], ids=[c[0] for c in TYPES])
def test_each_schema_lands_as_what_it_means(
    schema: Any, value: str, kind: pa.DataType, expected: object, schemas: Any
) -> None:
    """The column has the type; numbers keep every digit that it holds. With validation and without."""
    schemas.add(1, "JSON", top(schema))
    raw = HEAD + f'{{"f": {value}}}'.encode()

    for decoder in (JsonSchemaFormat(schemas, validate=False), JsonSchemaFormat(schemas)):
        (shaped,) = decoder.decode(pa.array([raw])).groups
        assert shaped.columns.schema.field("f").type == kind
        assert shaped.columns.to_pylist() == [{"f": expected}]


DEAD = [
    ("text for a number", {"type": "integer"}, '"1"', DeadCode.SCHEMA_VIOLATION, DeadCode.WRONG_TYPE),
    ("1.5 for an integer", {"type": "integer"}, "1.5", DeadCode.SCHEMA_VIOLATION, DeadCode.LOSSY_CAST),
    ("integer of 65 bits", {"type": "integer"}, str(2**63), DeadCode.OUT_OF_RANGE, DeadCode.OUT_OF_RANGE),
    (
        "int8 of 9 bits",
        {"type": "integer", "connect.type": "int8"},
        "128",
        DeadCode.OUT_OF_RANGE,
        DeadCode.OUT_OF_RANGE,
    ),
    ("no date", {"type": "string", "format": "date"}, '"2023-02-29"', DeadCode.INVALID_TIME, DeadCode.INVALID_TIME),
    ("no base64", {"type": "string", "connect.type": "bytes"}, '"?"', DeadCode.INVALID_TEXT, DeadCode.INVALID_TEXT),
    ("half a character", {"type": "string"}, '"\\ud800"', DeadCode.LONE_SURROGATE, DeadCode.LONE_SURROGATE),
    ("NaN", {"type": "number"}, "NaN", DeadCode.INVALID_JSON, DeadCode.INVALID_JSON),
    ("entry without key", ENTRIES, '[{"value": "v"}]', DeadCode.WRONG_TYPE, DeadCode.WRONG_TYPE),
    ("too deep", {}, "[" * 600 + "]" * 600, DeadCode.TOO_DEEP, DeadCode.TOO_DEEP),
    ("no multiple", {"type": "number", "multipleOf": 0.01}, "0.015", DeadCode.SCHEMA_VIOLATION, None),
    (
        "too small",
        {"type": "number", "minimum": 0.1},
        "0.0999999999999999999",
        DeadCode.SCHEMA_VIOLATION,
        DeadCode.LOSSY_CAST,
    ),
    ("no pattern", {"type": "string", "pattern": "^a+$"}, '"b"', DeadCode.SCHEMA_VIOLATION, None),
    (
        "foreign pattern",
        {"type": "string", "pattern": "(?<n>b"},
        '"b"',
        DeadCode.UNUSABLE_SCHEMA,
        None,
    ),
    ("huge multiple", {"type": "number", "multipleOf": 0.01}, "1e300", None, None),
    ("limit written as a decimal", {"type": "string", "maxLength": 2.0}, '"abc"', DeadCode.SCHEMA_VIOLATION, None),
    ("many digits", {"type": "number", "minimum": 0}, "1" * 10_000, DeadCode.OUT_OF_RANGE, DeadCode.OUT_OF_RANGE),
    ("huge exponent", {"type": "number"}, "1e99999999999999999999", DeadCode.OUT_OF_RANGE, DeadCode.OUT_OF_RANGE),
]


@pytest.mark.parametrize(("schema", "value", "valid", "converted"), [c[1:] for c in DEAD], ids=[c[0] for c in DEAD])
def test_value_that_violates_its_schema_is_a_dead_letter(
    schema: Any, value: str, valid: DeadCode | None, converted: DeadCode | None, schemas: Any, decode: Any
) -> None:
    """Validation decides first; without it, the conversion does. The neighbour lands."""
    schemas.add(1, "JSON", top(schema))
    values = [HEAD + f'{{"f": {value}}}'.encode(), HEAD + b"{}"]

    for decoder, code in ((JsonSchemaFormat(schemas), valid), (JsonSchemaFormat(schemas, validate=False), converted)):
        results = decode(decoder, values)
        assert (results[0] if isinstance(results[0], DeadCode) else None) is code
        assert results[1] == ({"f": None} if code is not DeadCode.UNUSABLE_SCHEMA else code)


@pytest.mark.parametrize("draft", ["04", "06", "07"])
def test_a_whole_number_with_a_point_is_an_integer_in_each_draft(draft: str, schemas: Any, decode: Any) -> None:
    """Producers in languages of one kind of numbers write 1.0; draft 4 by its letter forbids it."""
    schema = {"$schema": f"http://json-schema.org/draft-{draft}/schema#", **json.loads(top({"type": "integer"}))}
    schemas.add(1, "JSON", json.dumps(schema))

    assert decode(JsonSchemaFormat(schemas), [HEAD + b'{"f": 1.0}', HEAD + b'{"f": 1.5}']) == [
        {"f": 1},
        DeadCode.SCHEMA_VIOLATION,
    ]


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def test_a_violation_names_the_field_before_any_list(schemas: Any) -> None:
    """A list of all fields, cut in the middle, helps nobody: what is missing or too much stands first."""
    every = {f"{letter}_field_of_a_wide_table": {"type": "string"} for letter in LETTERS}
    wide = {"type": "object", "properties": every, "required": [*every], "additionalProperties": False}
    schemas.add(1, "JSON", top({"type": "array", "items": wide}))
    whole = dict.fromkeys(every, "v")
    lacking = {name: value for name, value in whole.items() if not name.startswith("y")}
    values = [{"f": [whole, lacking]}, {"f": [{**whole, "unheard_of": 1}]}]
    dead = JsonSchemaFormat(schemas).decode(pa.array([HEAD + json.dumps(value).encode() for value in values])).dead

    assert dead[0].message == 'expected the field "y_field_of_a_wide_table", which is required, found none'
    assert dead[0].path == "f[1]"
    assert dead[1].message == 'expected no field but those of the schema, found ["unheard_of"]'
    assert dead[1].path == "f[0].unheard_of"


def test_a_violation_names_the_place_and_the_rule(schemas: Any) -> None:
    """Whoever mends the producer sees where and why."""
    schemas.add(1, "JSON", top({"type": "array", "items": {**POINT, "required": ["x"]}}))
    reason = JsonSchemaFormat(schemas).decode(pa.array([HEAD + b'{"f": [{"x": 1}, {"x": "a"}]}'])).dead[0]

    assert (reason.path, reason.message) == ("f[1].x", 'expected type: "integer", found text "a"')


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"type": 5}',
        '{"properties": {"a": {"$ref": "#/nowhere"}}}',
        '{"properties": {"a": {"$ref": "http://h/x"}}}',
        "[" * 9999,
    ],
    ids=["no json", "no schema", "dangling", "elsewhere", "too deep"],
)
def test_an_unusable_schema_kills_its_records_only(text: str, schemas: Any, decode: Any) -> None:
    """Nothing is fetched, nothing guessed; another schema's record lands."""
    schemas.add(1, "JSON", text)
    schemas.add(2, "JSON", '{"type": "integer"}')
    schemas.add(3, "AVRO", '"int"')

    assert decode(
        JsonSchemaFormat(schemas), [HEAD + b"{}", b"\0\0\0\0\x021", b"\0\0\0\0\x031", b"\0\0\0\0\x041", b"", HEAD]
    ) == [
        DeadCode.UNUSABLE_SCHEMA,
        {"value": 1},
        DeadCode.UNUSABLE_SCHEMA,
        DeadCode.UNKNOWN_SCHEMA,
        DeadCode.EMPTY_VALUE,
        DeadCode.UNUSABLE_SCHEMA,
    ]


def test_two_writer_schemas_of_the_reference_serializer_land_from_one_batch(schemas: Any, decode: Any) -> None:
    """Each value has the columns of its own schema."""
    first = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
    second = {**first, "properties": {**first["properties"], "note": {"type": "string"}}}  # type: ignore[dict-item]
    context = SerializationContext("orders", MessageField.VALUE)
    old = JSONSerializer(json.dumps(first), schemas.client)({"id": 1}, context)
    new = JSONSerializer(json.dumps(second), schemas.client)({"id": 2, "note": "x"}, context)

    assert decode(JsonSchemaFormat(schemas), [old, new, old]) == [{"id": 1}, {"id": 2, "note": "x"}, {"id": 1}]


@pytest.mark.parametrize("base", [None, "http://acme.com/order.json"])
def test_references_are_found_by_name_and_next_to_the_schema(base: str | None, schemas: Any, decode: Any) -> None:
    """A schema's own address changes what a relative reference means."""
    main = {**({"$id": base} if base else {}), "type": "object", "properties": {"at": {"$ref": "point.json"}}}
    schemas.add(1, "JSON", json.dumps(main), NamedSchema("point.json", json.dumps(POINT)))

    assert decode(JsonSchemaFormat(schemas), [HEAD + b'{"at": {"x": 1}}', HEAD + b'{"at": {"x": ""}}']) == [
        {"at": {"x": 1}},
        DeadCode.SCHEMA_VIOLATION,
    ]


class One:
    """A source of one schema."""

    def schema(self, _: object) -> WriterSchema:
        """Return it."""
        return WriterSchema("JSON", top({"type": "array", "items": {"type": ["number", "null"]}}))


def test_a_value_cut_anywhere_is_dead(decode: Any) -> None:
    """No prefix of an object is one."""
    raw = HEAD + b'{"f": [1.5, null]}'
    results = decode(JsonSchemaFormat(One()), [raw[:end] for end in range(len(raw) + 1)])

    assert all(isinstance(code, DeadCode) for code in results[:-1])
    assert results[-1] == {"f": [1.5, None]}


NOISE = st.binary(max_size=40) | st.from_regex(r'\{"f": ?[\[\]{}0-9a-z",.:-]{0,20}\}', fullmatch=True).map(str.encode)


@settings(max_examples=100, deadline=None)
@given(st.lists(NOISE, min_size=100, max_size=100))
def test_arbitrary_bytes_never_fail_and_good_neighbours_land(values: list[bytes]) -> None:
    """Ten thousand values of noise and near misses between two good ones."""
    good = HEAD + b'{"f": [1]}'
    batch = pa.array([good, *(HEAD + value for value in values), good], pa.binary())
    decoded = JsonSchemaFormat(One()).decode(batch)

    positions = [position for group in decoded.groups for position in group.positions.to_pylist()]
    assert sorted([*positions, *decoded.dead]) == list(range(len(batch)))
    assert {0, len(batch) - 1} <= set(positions)
