"""Values that contradict their schema, or that no table holds."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from frazil.records.model.dead_letter import DeadCode
from tests.unit.records.formats.envelopes import DATA, DEBEZIUM, DECIMAL_2, Schema, bare, fields, named, number

BAD: dict[str, tuple[Schema | None, str, DeadCode]] = {
    "int8 too great": ({"type": "int8"}, "128", DeadCode.OUT_OF_RANGE),
    "int32 of 10,000 digits": ({"type": "int32"}, "7" * 10_000, DeadCode.OUT_OF_RANGE),
    "int with fraction": ({"type": "int32"}, "1.5", DeadCode.LOSSY_CAST),
    "int as text": ({"type": "int32"}, '"1"', DeadCode.INVALID_ENVELOPE),
    "float too great": ({"type": "float"}, "1e39", DeadCode.OUT_OF_RANGE),
    "float as text": ({"type": "float"}, '"nan"', DeadCode.INVALID_ENVELOPE),
    "text as number": ({"type": "string"}, "1", DeadCode.INVALID_ENVELOPE),
    "text as object": ({"type": "string"}, "{}", DeadCode.INVALID_ENVELOPE),
    "half a surrogate": ({"type": "string"}, '"\\ud800"', DeadCode.LONE_SURROGATE),
    "truth as number": ({"type": "boolean"}, "1", DeadCode.INVALID_ENVELOPE),
    "bytes as list": ({"type": "bytes"}, "[1]", DeadCode.INVALID_ENVELOPE),
    "bytes not base64": ({"type": "bytes"}, '"a"', DeadCode.INVALID_TEXT),
    "list as object": ({"type": "array", "items": {"type": "int8"}}, "{}", DeadCode.INVALID_ENVELOPE),
    "null in a list": ({"type": "array", "items": {"type": "int8"}}, "[null]", DeadCode.INVALID_ENVELOPE),
    "map as list": (
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "int8"}},
        "[]",
        DeadCode.INVALID_ENVELOPE,
    ),
    "map of numbers as object": (
        {"type": "map", "keys": {"type": "int8"}, "values": {"type": "int8"}},
        "{}",
        DeadCode.INVALID_ENVELOPE,
    ),
    "map of triples": (
        {"type": "map", "keys": {"type": "int8"}, "values": {"type": "int8"}},
        "[[1,2,3]]",
        DeadCode.INVALID_ENVELOPE,
    ),
    "null as key": (
        {"type": "map", "keys": {"type": "int8", "optional": True}, "values": {"type": "int8"}},
        "[[null,2]]",
        DeadCode.INVALID_ENVELOPE,
    ),
    "struct as text": (fields(a={"type": "int8"}), '"x"', DeadCode.INVALID_ENVELOPE),
    "required field missing": (fields(a={"type": "int8"}), "{}", DeadCode.INVALID_ENVELOPE),
    "required payload null": ({"type": "int8"}, "null", DeadCode.INVALID_ENVELOPE),
    "optional payload null": ({"type": "int8", "optional": True}, "null", DeadCode.NULL_VALUE),
    "no schema, null": (None, "null", DeadCode.NULL_VALUE),
    "no schema, object": (None, '{"a":1}', DeadCode.UNUSABLE_SCHEMA),
    "no schema, list": (None, "[1]", DeadCode.UNUSABLE_SCHEMA),
    "no schema, integer too great": (None, "9223372036854775808", DeadCode.OUT_OF_RANGE),
    "no schema, more digits than a double": (None, "0.12345678901234567890", DeadCode.LOSSY_CAST),
    "decimal of 39 digits": (DECIMAL_2, number(10**38), DeadCode.OUT_OF_RANGE),
    "decimal as number of 39 digits": (DECIMAL_2, "9" * 37 + ".99", DeadCode.OUT_OF_RANGE),
    "decimal of a megabyte": (DECIMAL_2, json.dumps("f" * (1 << 20)), DeadCode.OUT_OF_RANGE),
    "decimal beyond its precision": (
        named(DATA + "Decimal", "bytes", scale="2", **{"connect.decimal.precision": "5"}),
        number(100_000),
        DeadCode.OUT_OF_RANGE,
    ),
    "decimal of a scale beyond reason": (
        named(DATA + "Decimal", "bytes", scale="-2147483648"),
        number(1),
        DeadCode.OUT_OF_RANGE,
    ),
    "decimal with more decimals": (DECIMAL_2, "0.001", DeadCode.LOSSY_CAST),
    "decimal of no bytes": (DECIMAL_2, '""', DeadCode.INVALID_TEXT),
    "decimal of any scale too long": (
        fields(scale={"type": "int32"}, value={"type": "bytes"}) | {"name": DEBEZIUM + "data.VariableScaleDecimal"},
        json.dumps({"scale": 1, "value": "f" * (1 << 20)}).replace("1,", "1,"),
        DeadCode.OUT_OF_RANGE,
    ),
    "date beyond 9999": (named(DATA + "Date", "int32"), "2932897", DeadCode.OUT_OF_RANGE),
    "a day has no more": (named(DATA + "Time", "int32"), "86400000", DeadCode.OUT_OF_RANGE),
    "time before midnight": (named(DEBEZIUM + "time.MicroTime", "int64"), "-1", DeadCode.OUT_OF_RANGE),
    "nanoseconds": (named(DEBEZIUM + "time.NanoTimestamp", "int64"), "1", DeadCode.LOSSY_CAST),
    "infinite of PostgreSQL": (
        named(DEBEZIUM + "time.MicroTimestamp", "int64"),
        "9223372036825200000",
        DeadCode.OUT_OF_RANGE,
    ),
    "timestamp of no calendar": (
        named(DEBEZIUM + "time.ZonedTimestamp", "string"),
        '"2024-02-30T00:00:00Z"',
        DeadCode.INVALID_TIME,
    ),
    "uuid cut": (named(DEBEZIUM + "data.Uuid", "string"), '"0000"', DeadCode.INVALID_TEXT),
    "no type": ({}, "1", DeadCode.UNUSABLE_SCHEMA),
    "unknown type": ({"type": "int128"}, "1", DeadCode.UNUSABLE_SCHEMA),
    "type as object": ({"type": {"type": "int8"}}, "1", DeadCode.UNUSABLE_SCHEMA),
    "type as list": ({"type": ["int8"]}, "1", DeadCode.UNUSABLE_SCHEMA),
    "array without items": ({"type": "array"}, "[]", DeadCode.UNUSABLE_SCHEMA),
    "map without keys": ({"type": "map", "values": {"type": "int8"}}, "{}", DeadCode.UNUSABLE_SCHEMA),
    "struct without fields": ({"type": "struct", "fields": []}, "{}", DeadCode.UNUSABLE_SCHEMA),
    "struct with no list of fields": ({"type": "struct", "fields": {}}, "{}", DeadCode.UNUSABLE_SCHEMA),
    "field without name": ({"type": "struct", "fields": [{"type": "int8"}]}, "{}", DeadCode.UNUSABLE_SCHEMA),
    "field named twice": (
        {"type": "struct", "fields": [{"type": "int8", "field": "a"}] * 2},
        "{}",
        DeadCode.UNUSABLE_SCHEMA,
    ),
    "name of half a surrogate": (fields(**{"\ud800": {"type": "int8"}}), "{}", DeadCode.UNUSABLE_SCHEMA),
    "decimal without scale": (named(DATA + "Decimal", "bytes"), number(1), DeadCode.UNUSABLE_SCHEMA),
    "decimal of scale 39": (named(DATA + "Decimal", "bytes", scale="39"), number(1), DeadCode.UNUSABLE_SCHEMA),
    "scale that is none": (named(DATA + "Decimal", "bytes", scale="²"), number(1), DeadCode.UNUSABLE_SCHEMA),
    "default of another kind": ({"type": "int8", "default": "x"}, "1", DeadCode.UNUSABLE_SCHEMA),
}


@pytest.mark.parametrize(("schema", "payload", "code"), BAD.values(), ids=BAD.keys())
def test_value_that_cannot_be_stored_is_a_dead_letter_alone(
    schema: Schema | None, payload: str, code: DeadCode
) -> None:
    """A value that contradicts its schema, or no table holds, has its reason; its neighbours are rows."""
    assert bare(schema, payload) == (pa.null(), code)
