"""Change by change: the outcome for the table and for the record that brings it. Tested here and shown in the docs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import fastavro

from tests.format_specs import format_spec
from tests.unit.records.evolution.case import Case

JSON: Final = "JSON: types by values"
SCHEMA: Final = "A schema of its own (here Avro): types by the schema"


def cases() -> list[Case]:
    """Every case, in the order of the docs."""
    return [*_json(), *_avro()]


def _stamp(logical: str) -> dict[str, str]:
    return {"type": "long", "logicalType": logical}


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def _record(**fields: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "inner",
        "fields": [avro_field(name, type_name) for name, type_name in fields.items()],
    }


def avro_field(names: str, data_type: Any) -> dict[str, Any]:
    """A field: its name, and aliases behind bars."""
    name, *aliases = names.split("|")
    return {"name": name, "type": data_type, **({"aliases": aliases} if aliases else {})}


def _named(field: Mapping[str, Any]) -> str:
    """A field in a few words."""
    alias = f" (alias {', '.join(field['aliases'])})" if "aliases" in field else ""
    return f"{field['name']}{alias}: {_avro_type(field['type'])}"


def _avro_type(data_type: Any) -> str:
    """A type of Avro in a few words."""
    if isinstance(data_type, list):
        return "|".join(map(_avro_type, data_type))
    if not isinstance(data_type, dict):
        return str(data_type)
    if data_type["type"] == "record":
        return "record<" + ", ".join(map(_named, data_type["fields"])) + ">"
    digits = f"({data_type['precision']},{data_type['scale']})" if "precision" in data_type else ""
    return f"{data_type['logicalType']}{digits}"


_JSON_ROWS: Final[list[tuple[str, Mapping[str, str], str, tuple[str, ...]]]] = [
    ("a new field", {"id": "long"}, '{"id":1,"price":2}', ("left out, counted", "add price long")),
    ("a new field of a struct", {"a": "struct<b: long>"}, '{"a":{"b":1,"c":"x"}}', ("lands", "add a.c string")),
    (
        "a new field of the structs in a list",
        {"a": "list<struct<b: long>>"},
        '{"a":[{"b":1,"c":true}]}',
        ("lands", "add a.element.c boolean"),
    ),
    (
        "a new field of the structs in a map",
        {"a": "map<string, struct<b: long>>"},
        '{"a":{"k":{"b":1,"c":1.5}}}',
        ("lands", "add a.value.c double"),
    ),
    ("a new field that tells no type", {"id": "long"}, '{"id":1,"x":[]}', ("left out, counted",)),
    ("a new field of `null`", {"id": "long"}, '{"id":1,"x":null}', ("left out, counted",)),
    (
        "a new field of an empty object inside",
        {"id": "long"},
        '{"id":1,"x":{"y":[null,{}]}}',
        ("left out, counted",),
    ),
    (
        "a new field that looks like a date",
        {"id": "long"},
        '{"id":1,"at":"2026-05-01"}',
        ("left out, counted", "add at string"),
    ),
    (
        "a new field with a number beyond long",
        {"id": "long"},
        '{"id":1,"x":9223372036854775808}',
        ("left out, counted", "add x decimal(19,0)"),
    ),
    (
        "a new field of whole and broken numbers",
        {"id": "long"},
        '{"id":1,"x":[1,1.5]}',
        ("left out, counted", "add x list<double>"),
    ),
    (
        "a new field of numbers that no double holds",
        {"id": "long"},
        '{"id":1,"x":[9007199254740993,1.5]}',
        ("left out, counted", "add x list<decimal(28,9)>"),
    ),
    (
        "a new field of numbers and texts",
        {"id": "long"},
        '{"id":1,"x":[1,"a"]}',
        ("left out, counted", "add x list<string>"),
    ),
    (
        "a new field with a dot in its name",
        {"id": "long"},
        '{"id":1,"a.b":2}',
        ("left out, counted", "add _rescued string, rescued, counted"),
    ),
    (
        "a new field named like a Kafka column",
        {"id": "long"},
        '{"id":1,"_kafka_offset":2}',
        ("left out, counted", "add _rescued string, rescued, counted"),
    ),
    ("a field is missing", {"id": "long", "price": "long"}, '{"id":1}', ("lands",)),
    (
        "a required field is missing, or null",
        {"id": "long", "price": "long!"},
        '{"id":1}',
        ("MISSING_REQUIRED", "MISSING_REQUIRED", "MISSING_REQUIRED", "optional price"),
    ),
    ("a larger integer", {"a": "int"}, '{"a":2147483648}', ("OUT_OF_RANGE", "OUT_OF_RANGE", "widen a long")),
    (
        "more digits before the point",
        {"a": "decimal(5,2)"},
        '{"a":12345.67}',
        ("OUT_OF_RANGE", "OUT_OF_RANGE", "widen a decimal(7,2)"),
    ),
    ("more digits behind the point", {"a": "decimal(5,2)"}, '{"a":1.234}', ("LOSSY_CAST",)),
    ("an integer that is written with a fraction", {"a": "long"}, '{"a":1.0}', ("lands",)),
    ("a fraction for an integer", {"a": "long"}, '{"a":1.5}', ("LOSSY_CAST",)),
    ("an integer beyond long", {"a": "long"}, '{"a":9223372036854775808}', ("OUT_OF_RANGE",)),
    ("an integer that no double holds", {"a": "double"}, '{"a":9007199254740993}', ("LOSSY_CAST",)),
    ("text for a number", {"a": "long"}, '{"a":"1"}', ("WRONG_TYPE",)),
    ("a number for text", {"a": "string"}, '{"a":1}', ("WRONG_TYPE",)),
    ("a number for text that no file declares", {"a": "string?"}, '{"a":1.50}', ("WRONG_TYPE", "lands")),
    ("an object or a list for text", {"a": "string"}, '{"a":{"b":1}}', ("lands",)),
    ("text for an object", {"a": "struct<b: long>"}, '{"a":"x"}', ("WRONG_TYPE",)),
    ("a list for a single value", {"a": "long"}, '{"a":[1]}', ("WRONG_TYPE",)),
    ("text for the items of a list", {"a": "list<long>"}, '{"a":[1,"x"]}', ("WRONG_TYPE",)),
    ("text that is no date", {"a": "date"}, '{"a":"soon"}', ("INVALID_TIME",)),
]

_AVRO_ROWS: Final[list[tuple[str, Mapping[str, str], Mapping[str, Any], Any, tuple[str, ...]]]] = [
    (
        "a new field",
        {"id": "long"},
        {"id": "long", "price": "double"},
        {"id": 1, "price": 1.5},
        ("left out, counted", "add price double"),
    ),
    (
        "a new field that may be null, and is",
        {"id": "long"},
        {"id": "long", "x": ["null", "long"]},
        {"id": 1, "x": None},
        ("lands", "add x long"),
    ),
    (
        "a new field with a logical type",
        {"id": "long"},
        {"id": "long", "at": _stamp("timestamp-millis")},
        {"id": 1, "at": 0},
        ("left out, counted", "add at timestamptz"),
    ),
    (
        "a new decimal",
        {"id": "long"},
        {"id": "long", "x": _decimal(9, 2)},
        {"id": 1, "x": Decimal("1.50")},
        ("left out, counted", "add x decimal(9,2)"),
    ),
    (
        "a new record",
        {"id": "long"},
        {"id": "long", "x": _record(b="int", c="string")},
        {"id": 1, "x": {"b": 1, "c": "x"}},
        ("left out, counted", "add x struct<b: int, c: string>"),
    ),
    (
        "a new field of a record",
        {"a": "struct<b: int>"},
        {"a": _record(b="int", c="string")},
        {"a": {"b": 1, "c": "x"}},
        ("left out, counted", "add a.c string"),
    ),
    ("a renamed field", {"price": "long"}, {"cost": "long"}, {"cost": 1}, ("left out, counted", "add cost long")),
    ("a renamed field, with an alias", {"price": "long"}, {"cost|price": "long"}, {"cost": 1}, ("lands",)),
    (
        "a renamed field of a record, with an alias",
        {"a": "struct<b: int>"},
        {"a": _record(**{"c|b": "int"})},
        {"a": {"c": 1}},
        ("lands",),
    ),
    (
        "a renamed field that got wider, with an alias",
        {"price": "int"},
        {"cost|price": "long"},
        {"cost": 1},
        ("lands", "lands", "widen price long"),
    ),
    (
        "an alias that another field has as its name",
        {"price": "long"},
        {"cost|price": "long", "price": "long"},
        {"cost": 1, "price": 2},
        ("left out, counted", "add cost long"),
    ),
    ("a field is missing", {"id": "long", "price": "long"}, {"id": "long"}, {"id": 1}, ("lands",)),
    (
        "a required field is missing",
        {"id": "long", "price": "long!"},
        {"id": "long"},
        {"id": 1},
        ("MISSING_REQUIRED", "MISSING_REQUIRED", "MISSING_REQUIRED", "optional price"),
    ),
    (
        "a required field may be null, and is",
        {"a": "long!"},
        {"a": ["null", "long"]},
        {"a": None},
        ("MISSING_REQUIRED", "MISSING_REQUIRED", "MISSING_REQUIRED", "optional a"),
    ),
    ("int becomes long", {"a": "int"}, {"a": "long"}, {"a": 1}, ("lands", "lands", "widen a long")),
    ("float becomes double", {"a": "float"}, {"a": "double"}, {"a": 1.5}, ("lands", "lands", "widen a double")),
    (
        "a decimal gets more digits before the point",
        {"a": "decimal(5,2)"},
        {"a": _decimal(9, 2)},
        {"a": Decimal("12345.67")},
        ("OUT_OF_RANGE", "OUT_OF_RANGE", "widen a decimal(9,2)"),
    ),
    (
        "a decimal gets more digits behind the point",
        {"a": "decimal(5,2)"},
        {"a": _decimal(9, 3)},
        {"a": Decimal("1.234")},
        ("LOSSY_CAST",),
    ),
    ("long becomes int", {"a": "long"}, {"a": "int"}, {"a": 1}, ("lands",)),
    ("long becomes double, the value is whole", {"a": "long"}, {"a": "double"}, {"a": 1.0}, ("lands",)),
    ("long becomes double, the value is not", {"a": "long"}, {"a": "double"}, {"a": 1.5}, ("LOSSY_CAST",)),
    ("long becomes string", {"a": "long"}, {"a": "string"}, {"a": "1"}, ("WRONG_TYPE",)),
    ("string becomes long", {"a": "string"}, {"a": "long"}, {"a": 1}, ("WRONG_TYPE",)),
    ("a record becomes a text", {"a": "struct<b: long>"}, {"a": "string"}, {"a": "x"}, ("WRONG_TYPE",)),
    ("a text becomes a record", {"a": "string"}, {"a": _record(b="int")}, {"a": {"b": 1}}, ("lands",)),
    ("date becomes timestamp", {"a": "date"}, {"a": _stamp("timestamp-micros")}, {"a": 0}, ("WRONG_TYPE",)),
]


def _json() -> Iterator[Case]:
    for change, columns, row_sent, becomes in _JSON_ROWS:
        yield Case(JSON, change, columns, row_sent, becomes, row_sent.encode())


def _avro() -> Iterator[Case]:
    for change, columns, fields, value, becomes in _AVRO_ROWS:
        schema = {
            "type": "record",
            "name": "r",
            "fields": [avro_field(name, type_name) for name, type_name in fields.items()],
        }
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
        shown = ", ".join(map(_named, schema["fields"]))
        spec_ = format_spec("avro", schema=json.dumps(schema))
        yield Case(SCHEMA, change, columns, shown, becomes, buffer.getvalue(), spec_)
