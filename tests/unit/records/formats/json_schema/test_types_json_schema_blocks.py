"""Blocks of JSON with a registered schema have the same outcomes as single values."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frazil.records.formats.json_schema.types import JsonSchemaFormat
from frazil.records.model.format import WriterSchema
from tests.fuzz.writers import Writers
from tests.unit.records.formats.json_schema.test_types_json_schema import HEAD, POINT, TYPES
from tests.unit.records.json_documents import objects, outcomes

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

NEVER_BLOCKS = {"map", "entries", "integer as 1.0"}
"""Cases that are read one by one, and whatever is in an object beside them."""

EVERY_TYPE = {name: (schema, value) for name, schema, value, _, _ in TYPES if name not in NEVER_BLOCKS}
TYPED = {
    "type": "object",
    "properties": {name: schema for name, (schema, _) in EVERY_TYPE.items()},
    "definitions": {"point": POINT},
}
TYPED_VALUES = {name: value for name, (_, value) in EVERY_TYPE.items()}
RULED: dict[str, Any] = {
    "type": "object",
    "required": ["a"],
    "properties": {
        "a": {"type": "integer", "minimum": -5, "maximum": 2**31, "not": {"enum": [3]}},
        "b": {"type": "string", "minLength": 1, "maxLength": 6, "pattern": "^[a-z]*(?<=a)$"},
        "c": {"enum": ["A", 1, None, 2.50]},
        "d": {"type": "number", "exclusiveMinimum": 0.1, "multipleOf": 0.01},
        "e": {"type": "array", "items": {"type": "number"}, "uniqueItems": True, "maxItems": 3},
        "f": {"oneOf": [{"type": "null"}, {**POINT, "required": ["x"], "additionalProperties": False}]},
        "g": {"type": ["integer", "string"], "maxLength": 3, "minimum": 0},
    },
    "patternProperties": {"^x": {"type": "boolean"}},
    "dependencies": {"d": ["a", "b"]},
    "propertyNames": {"maxLength": 7},
}
DRAFT_4 = {**RULED["properties"], "d": {"type": "number", "minimum": 0.1, "exclusiveMinimum": True}}
RULED_VALUES = {
    "a": "1",
    "b": '"xa"',
    "c": "2.5",
    "d": "0.12",
    "e": "[1, 2.0, 1e1]",
    "f": '{"x": 1}',
    "g": "7",
    "x": "true",
}
SCHEMAS: list[tuple[dict[str, Any], dict[str, str]]] = [
    (TYPED, TYPED_VALUES),
    (RULED, RULED_VALUES),
    ({**RULED, "additionalProperties": False}, RULED_VALUES),
    ({**RULED, "properties": DRAFT_4, "$schema": "http://json-schema.org/draft-04/schema#"}, RULED_VALUES),
    ({**RULED, "$schema": "https://json-schema.org/draft/2020-12/schema"}, RULED_VALUES),
]


def formats(schema: Any, *, validate: bool) -> tuple[JsonSchemaFormat, JsonSchemaFormat]:
    source = Writers({1: WriterSchema("JSON", json.dumps(schema))})
    return JsonSchemaFormat(source, validate=validate), JsonSchemaFormat(source, validate=validate, blocks=False)


PAIRS = [(*formats(schema, validate=validate), objects(good)) for schema, good in SCHEMAS for validate in (True, False)]


@relaxed
@given(st.data(), st.sampled_from(PAIRS))
def test_blocks_and_single_values_agree(
    data: st.DataObject, pair: tuple[JsonSchemaFormat, JsonSchemaFormat, st.SearchStrategy[str]]
) -> None:
    """Rows, reasons with their texts, and the names of unknown fields are the same; with validation and without."""
    fast, exact, texts = pair
    documents = data.draw(st.lists(texts, min_size=1, max_size=6))
    values = [HEAD + text.encode("utf-8", "surrogatepass") for text in documents]
    assert outcomes(fast, values) == outcomes(exact, values)


@pytest.mark.parametrize(("schema", "good"), SCHEMAS)
def test_good_values_are_read_as_a_block(schema: Any, good: dict[str, str]) -> None:
    """Equal outcomes prove nothing if blocks never decide anything: a byte order mark is left to the single values."""
    value = "{" + ",".join(f"{json.dumps(name)}: {text}" for name, text in good.items()) + "}"
    fast, _ = formats(schema, validate=True)
    values = [HEAD + value.encode()] * 100 + [HEAD + b"\xef\xbb\xbf" + value.encode()]
    decoded = fast.decode(pa.array(values, pa.binary()))
    assert [len(group.positions) for group in decoded.groups] == [100, 1]
    assert not decoded.dead
