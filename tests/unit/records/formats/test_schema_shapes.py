"""Schemas with parts of any JSON shape: registering them stops no pipeline."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Iterator
from typing import Any, Final

import pytest

from frazil.records.formats.avro.avro import AvroFormat
from frazil.records.formats.connect_json.envelope import EnvelopeFormat
from frazil.records.formats.json_schema.types import JsonSchemaFormat
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import Format, NamedSchema, SchemaKind

pytestmark = pytest.mark.timeout(60)

SHAPES: Final = (None, True, 5, 10**400, "x", "\ud800", "http://[", [], [1], {}, {"type": 5})
"""What stands in the place of each part of a good schema."""

AVRO: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "aliases": ["Old"],
    "fields": [
        {"name": "id", "type": "long", "aliases": ["key"], "default": 1},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"], "default": "NEW"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 16, "logicalType": "uuid"}},
        {"name": "lines", "type": {"type": "array", "items": ["null", "shop.State", {"type": "map", "values": "int"}]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {
            "name": "cost",
            "type": {
                "type": "bytes",
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"},
            },
        },
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}

ENUM: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW"]}}],
}
"""Without a default, which the parser looks up among the symbols."""

JSON_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "http://shop/order",
    "title": "Order",
    "type": "object",
    "definitions": {"state": {"$id": "#state", "enum": ["new", 5, {}]}},
    "properties": {
        "id": {"type": ["integer", "null"], "minimum": 1, "multipleOf": 0.5, "connect.type": "int32"},
        "at": {"format": "date-time", "pattern": "^2"},
        "state": {"$ref": "#/definitions/state"},
        "other": {"$ref": "other.json"},
        "lines": {"type": "array", "items": {"oneOf": [{"type": "null"}, {"const": 1}]}, "contains": {}, "minItems": 0},
        "tags": {"type": "object", "additionalProperties": {"anyOf": [{"type": "string"}, {"not": {}}]}},
        "cost": {
            "type": "string",
            "connect.type": "bytes",
            "title": "org.apache.kafka.connect.data.Decimal",
            "connect.parameters": {"scale": "2"},
        },
        "all": {"allOf": [{"properties": {"a": {}}}, {"if": {}, "then": {}, "dependencies": {"a": ["b"]}}]},
        "map": {
            "type": "array",
            "connect.type": "map",
            "items": {"properties": {"key": {"type": "string"}, "value": {"type": "number"}}},
        },
    },
    "patternProperties": {"^x": {"type": "integer"}},
    "required": ["id"],
}
NEWER: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$dynamicAnchor": "node",
    "$defs": {"part": {"$anchor": "part", "type": "integer"}},
    "properties": {
        "a": {"$ref": "#part"},
        "b": {"$dynamicRef": "#node"},
        "c": {"prefixItems": [{"type": "string"}], "items": False, "unevaluatedItems": False},
        "d": {"dependentSchemas": {"a": {}}, "dependentRequired": {"a": ["b"]}, "unevaluatedProperties": False},
    },
}

CONNECT: Final[dict[str, Any]] = {
    "type": "struct",
    "name": "shop.Order",
    "optional": False,
    "version": 1,
    "fields": [
        {"field": "id", "type": "int64", "optional": True, "default": 1},
        {"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date", "default": 5},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "9"},
        },
        {"field": "lines", "type": "array", "items": {"type": "string", "name": "io.debezium.data.Uuid"}},
        {"field": "tags", "type": "map", "keys": {"type": "int32"}, "values": {"type": "double"}, "default": []},
        {"field": "in", "type": "struct", "fields": [{"field": "a", "type": "boolean"}], "default": {"a": True}},
    ],
}


def spoiled(schema: Any) -> Iterator[str]:
    """Yield a schema as text with each part of it replaced by each shape, and with each part left out."""
    yield json.dumps(schema)
    yield from map(json.dumps, SHAPES)
    for *way, last in [way for way in _ways(schema) if way]:
        for shape in SHAPES:
            schema_copy = copy.deepcopy(schema)
            _part_at(schema_copy, way)[last] = shape
            yield json.dumps(schema_copy)
        schema_copy = copy.deepcopy(schema)
        del _part_at(schema_copy, way)[last]
        yield json.dumps(schema_copy)


def _ways(part: Any, *way: Any) -> Iterator[tuple[Any, ...]]:
    yield way
    parts = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for step, inner in parts:
        yield from _ways(inner, *way, step)


def _part_at(part: Any, way: list[Any]) -> Any:
    for step in way:
        part = part[step]
    return part


def framed(schema_id: int, value: bytes) -> bytes:
    """A value behind the id of its schema."""
    return b"\0" + struct.pack(">i", schema_id) + value


REGISTERED: Final = [
    ("AVRO", AVRO, (b"", b"\2" * 40)),
    ("AVRO", ENUM, (b"\0",)),
    ("JSON", JSON_SCHEMA, (b"{}", b'{"id":5,"at":"2026-01-01T00:00:00Z","lines":[1],"cost":"AQ==","x":1}')),
    ("JSON", NEWER, (b"{}", b'{"a":1,"b":{"a":2},"c":["x"],"d":{"a":1}}')),
]


def _format(kind: SchemaKind, source: Any) -> Format:
    return AvroFormat(source) if kind == "AVRO" else JsonSchemaFormat(source)


@pytest.mark.parametrize(("kind", "schema", "values"), REGISTERED, ids=["avro", "avro-enum", "json", "json-2020"])
def test_schema_with_any_malformed_part_has_outcomes(
    kind: SchemaKind, schema: Any, values: tuple[bytes, ...], schemas: Any, decode: Any
) -> None:
    """Its records are rows or dead letters; a record of a good schema beside them lands."""
    texts = list(dict.fromkeys(spoiled(schema)))
    plain, good = ('"string"', b"\2a") if kind == "AVRO" else ('{"type":"string"}', b'"a"')
    for number, text in enumerate(texts):
        schemas.add(number, kind, text, NamedSchema("other.json", plain))
    schemas.add(1 << 30, kind, plain)
    records = [framed(number, value) for number in range(len(texts)) for value in values]

    outcomes = decode(_format(kind, schemas), [*records, framed(1 << 30, good)])
    assert DeadCode.UNUSABLE_SCHEMA in outcomes
    assert outcomes[-1] == {"value": "a"}


@pytest.mark.parametrize(("kind", "schema"), [("AVRO", AVRO), ("JSON", NEWER)])
def test_reference_with_any_malformed_part_has_outcomes(
    kind: SchemaKind, schema: Any, schemas: Any, decode: Any
) -> None:
    """What a schema refers to is as strange as a schema may be."""
    user = (
        '["null","shop.Order"]' if kind == "AVRO" else '{"properties":{"a":{"$ref":"r"},"b":{"$ref":"r#/$defs/part"}}}'
    )
    texts = list(dict.fromkeys(spoiled(schema)))
    for number, text in enumerate(texts):
        schemas.add(number, kind, user, NamedSchema("r", text))

    value = b"\0" if kind == "AVRO" else b'{"a":{"a":1},"b":2}'
    outcomes = decode(_format(kind, schemas), [framed(number, value) for number in range(len(texts))])
    assert DeadCode.UNUSABLE_SCHEMA in outcomes
    assert any(isinstance(outcome, dict) for outcome in outcomes)


def test_schema_in_a_record_with_any_malformed_part_has_outcomes(decode: Any) -> None:
    """The same for the schemas that Kafka Connect's records bring along."""
    payload = '{"id":null,"day":3,"price":"AQ==","lines":["7b5c1e0a-3f52-4a53-9d5e-0d7a3c1b2f44"],"tags":[[1,2.5]],"in":{"a":true}}'
    texts = list(dict.fromkeys(spoiled(CONNECT)))
    values = [f'{{"schema":{text},"payload":{payload}}}'.encode() for text in texts]

    outcomes = decode(EnvelopeFormat(), values)
    assert isinstance(outcomes[0], dict)
    assert DeadCode.UNUSABLE_SCHEMA in outcomes
