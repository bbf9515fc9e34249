"""Impossible parts of pipeline files, and the beginning of the one error about each."""

from __future__ import annotations

from typing import Any

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "address",
            "type": {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]},
        },
    ],
}
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; }'
OF_AVRO: dict[str, Any] = {"format": "avro", "schema_file": "order.avsc"}
OF_PROTO: dict[str, Any] = {"format": "protobuf", "schema_file": "order.proto", "message": "Order"}
LINE: dict[str, Any] = {"format": "delimited", "fields": ["id", "kind"]}
OBJECT: dict[str, Any] = {"fields": {"id": "long", "kind": "string", "data": "struct<kind: string, size: double>"}}
MASK = [{"type": "MaskField", "fields": "id"}]
TWO = [{"table": "a.b", "columns": {"id": "long"}}, {"table": "a.c", "columns": {"id": "long"}}]


def column(**options: Any) -> dict[str, Any]:
    """Two columns, the second one with options."""
    return {"columns": {"id": "long", "c": options}}


def static(field: str) -> dict[str, Any]:
    """Two destinations with a route by the value of a field."""
    return {"destinations": TWO, "route": {"static": {"field": field, "tables": {"a.b": "x", "a.c": "y"}}}}


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    # formats and their schemas
    ({"value": {"format": "avro"}}, "value: format avro needs one of registry, schema or schema_file"),
    ({"value": {**OF_AVRO, "registry": "main"}}, "value: format avro needs one of registry, schema or schema_file"),
    ({"value": {**OF_AVRO, "schema": "{}"}}, "value: format avro needs one of registry, schema or schema_file"),
    ({"value": {"format": "avro", "schema": "{"}}, "value: Avro schema: "),
    ({"value": {"format": "avro", "schema_file": "none.avsc"}}, "value.schema_file: "),
    ({"value": {"format": "json-schema"}}, "value: format json-schema needs one of registry"),
    ({"value": {**OF_PROTO, "message": None}}, "value.message: is needed with a schema"),
    (
        {"value": {**OF_PROTO, "message": "Ordr"}},
        "value: Protobuf schema: expected a schema that columns can be made of",
    ),
    (
        {"value": {"format": "protobuf", "schema": "x", "message": "X"}},
        "value: Protobuf schema: expected a schema that columns can be made of, found: 1:1: Expected",
    ),
    ({"value": {"format": "protobuf", "registry": "main", "message": "X"}}, "value.message: is needed with a schema"),
    ({"value": {"format": "delimited"}}, "value.fields: format delimited needs the names"),
    ({"value": {"format": "delimited", "fields": {"id": "long"}}}, "value.fields: format delimited needs the names"),
    (
        {"value": {**LINE, "fields": ["id", "id"]}},
        "value: delimited format: expected one or more fields, each name once",
    ),
    ({"value": {**LINE, "delimiter": ";;"}}, "value: delimited format: expected delimiter as one character"),
    (
        {"value": {**LINE, "delimiter": '"'}},
        "value: delimited format: expected a delimiter other than quote and escape",
    ),
    ({"value": {**LINE, "null_text": "a,b"}}, "value.null_text: 'a,b' has a delimiter"),
    ({"value": {"fields": {"id": "lng"}}}, "value.fields: unknown type 'lng', did you mean 'long'?"),
    ({"value": {"format": "bytes", "casts": "text"}}, "value.casts: text is for numbers and booleans"),
    (
        {"value": {"format": "bytes", "sub_micros": "truncate"}},
        "value.sub_micros: is for format json, avro, protobuf or delimited; the format is bytes",
    ),
    ({"value": {"rescued_column": "rest"}}, "value.rescued_column: is for unknown_fields: rescue; it is ignore"),
    (
        {"value": {"unknown_fields": "rescue"}},
        "destinations.0.columns: unknown fields are rescued into an optional string",
    ),
    (
        {"value": {"field_names": "case_insensitive"}, "columns": {"id": "long", "ID": "long"}},
        "destinations.0.columns: columns take fields that differ in case only: ID, id",
    ),
    # keys
    ({"key": {"format": "json"}}, "key.fields: a key of format json needs its fields"),
    ({"key": {"format": "json", "fields": ["id"]}}, "key.fields: fields of format json have types"),
    ({"key": {"format": "long", "null_value": "filter"}}, "key.null_value: unknown key"),
    (column(type="long", part="key"), "destinations.0.columns.c.part: keys are not decoded"),
    (
        {"key": {"format": "long"}, "columns": {"value": {"type": "long", "part": "key"}}},
        "destinations.0.columns: all are of the key",
    ),
    (
        {"key": {"fields": {"number": "long"}}, **column(type="long", part="key", required=True, **{"from": "numbr"})},
        "destinations.0.columns.c: no key has the field 'numbr', did you mean 'number'?",
    ),
    (
        {"key": {"fields": {"c": "long"}}, **column(type="date", part="key")},
        "destinations.0.columns.c: expected date, found long",
    ),
    # columns and their options
    (column(type="strng"), "destinations.0.columns.c.type: unknown type 'strng', did you mean 'string'?"),
    (column(type="timestamptz_ns"), "destinations.0.columns.c.type: type timestamptz_ns can't be written: tables that"),
    (column(type="list<geometry>"), "destinations.0.columns.c.type: type geometry can't be written: tables that"),
    (column(type="geography(OGC:CRS84)"), "destinations.0.columns.c.type: type geography can't be written: tables"),
    (column(type="string", unit="ms"), "destinations.0.columns.c.unit: is for time, timestamp and timestamptz"),
    (column(type="timestamp", unit="min"), "destinations.0.columns.c.unit: "),
    (column(type="timestamptz", local_time="dead_letter"), "destinations.0.columns.c.local_time: is for timestamp;"),
    (column(type="long", **{"from": []}), "destinations.0.columns.c.from: [] takes the whole value as JSON"),
    (column(type="long", **{"from": 5}), "destinations.0.columns.c.from: expected a name or a list of names, found 5"),
    (column(type="variant"), "destinations.0.columns.c.from: type variant takes the whole value"),
    (column(type="list<variant>"), "destinations.0.columns.c.type: list<variant>: a variant is a column of its own"),
    (column(type="string", default="", **{"from": []}), "destinations.0.columns.c.default: from: [] takes the whole"),
    (column(type="long", default="x"), "destinations.0.columns.c.default: does not fit its type: expected long"),
    (column(type="int", default=1.5), "destinations.0.columns.c.default: does not fit its type: "),
    (column(type="date", default="2020-13-01"), "destinations.0.columns.c.default: does not fit its type: "),
    (column(type="timestamp", default=5), "destinations.0.columns.c.default: does not fit its type: "),
    (column(type="list<long>", default=[1, "x"]), "destinations.0.columns.c.default: does not fit its type: "),
    (column(type="long", default=None, required=True), "destinations.0.columns.c.default: does not fit its type: "),
    ({"columns": {"_kafka_offset": "long"}}, "destinations.0.columns._kafka_offset: is the name of a Kafka column"),
    (
        {"columns": {"_frazil_op": "string"}},
        "destinations.0: a column has the name _frazil_op, which marks the rows of a history table",
    ),
    ({"table": {"kafka_columns": {"topic": "x", "offset": "x"}}}, "destinations.0.kafka_columns: expected five names"),
    (
        {"table": {"partition_by": ["idd"]}},
        "destinations.0.partition_by.0: 'idd' is not a column of a.b, did you mean 'id'?",
    ),
    ({"table": {"partition_by": ["days(id)"]}}, "destinations.0.partition_by.0: 'days(id)' is no partition field"),
    ({"table": {"partition_by": ["id", "id"]}}, "destinations.0.partition_by: names a field twice: id"),
    (
        {"columns": {"at": "timestamp", "at_day": "long"}, "table": {"partition_by": ["day(at)"]}},
        "destinations.0.partition_by: makes a field at_day, and a.b has a column of that name",
    ),
    # columns beside the fields that all values have
    (
        {"value": {"format": "string"}, "columns": {"value": "long"}},
        "destinations.0.columns.value: expected long, found str",
    ),
    (
        {"value": {"format": "bytes"}, "columns": {"value": "string"}},
        "destinations.0.columns.value: expected string, found",
    ),
    (
        {"value": {"format": "bytes"}, "columns": {"value": {"type": "timestamp", "unit": "ms"}}},
        "destinations.0.columns.value: expected timestamp, found binary",
    ),
    (
        {"value": {"format": "long"}, "columns": {"value": "timestamp"}},
        "destinations.0.columns.value: expected timestamp,",
    ),
    (
        {"value": {"format": "long"}, "columns": {"value": "list<long>"}},
        "destinations.0.columns.value: expected list<long>,",
    ),
    ({"value": LINE, "columns": {"id": "list<long>"}}, "destinations.0.columns.id: expected list<long>, found string"),
    (
        {"value": LINE, "columns": {"knd": "string"}},
        "destinations.0.columns.knd: no value has the field 'knd', did you mean",
    ),
    (
        {"value": OF_AVRO, **column(type="string")},
        "destinations.0.columns.c: no value has the field 'c', there are id, add",
    ),
    (
        {"value": OF_AVRO, **column(type="string", **{"from": ["address", "ctiy"]})},
        "destinations.0.columns.c: no value has the field 'address.ctiy', did you mean 'address.city'?",
    ),
    (
        {"value": OF_AVRO, **column(type="string", **{"from": ["id", "city"]})},
        "destinations.0.columns.c: expected an object on the way, found long in the field 'id.city'",
    ),
    ({"value": OF_AVRO, "columns": {"id": "list<long>"}}, "destinations.0.columns.id: expected list<long>, found long"),
    (
        {"value": OF_PROTO, "columns": {"nte": "string"}},
        "destinations.0.columns.nte: no value has the field 'nte', did you",
    ),
    (
        {"value": OBJECT, "transforms": MASK, "columns": {"knd": "string"}},
        "destinations.0.columns.knd: no value has the field 'knd', did you mean 'kind'?",
    ),
    (
        {"value": OF_AVRO, "transforms": [{"type": "ExtractField", "field": "address"}], "columns": {"ctiy": "string"}},
        "destinations.0.columns.ctiy: no value has the field 'ctiy', did you mean 'city'?",
    ),
    (
        {"transforms": MASK, **column(type="string", **{"from": "other"})},
        "destinations.0.columns.c: no value has the field 'other', there are id, c",
    ),
    # transforms
    ({"transforms": [{"type": "Mask"}]}, "transforms.0.type: 'Mask' is no transform, did you mean 'MaskField'?"),
    (
        {"transforms": [{"type": "MaskField", "fields": ["a"], "spreadd": 3}]},
        "transforms.0.spreadd: unknown key; known keys: ",
    ),
    (
        {"transforms": [{"type": "MaskField", "fields": ["a"], "source.field": "b"}]},
        "transforms.0.source.field: unknown key; known keys: ",
    ),
    ({"transforms": [{"type": "Cast$Key", "spec": "int64"}]}, "transforms: number 1, Cast: keys are not decoded"),
    (
        {"value": OF_PROTO, "transforms": [{"type": "MaskField", "fields": "nte"}]},
        "transforms.0.fields: MaskField: no field 'nte' here; did you mean note?",
    ),
    # routes
    ({"value": LINE, **static("knd")}, "route.static.field: no value has the field 'knd', did you mean 'kind'?"),
    (
        {"value": LINE, "destinations": TWO, "route": {"field": {"name": "knd"}}},
        "route.field.name: no value has the field 'knd', did you mean 'kind'?",
    ),
    (
        {"value": OBJECT, "transforms": MASK, **static("data.knd")},
        "route.static.field: no value has the field 'data.knd', did you mean 'data.kind'?",
    ),
    (
        {"value": OF_AVRO, **static("address")},
        "route.static.field: a text, number or boolean decides; 'address' is struct<city: string>",
    ),
    (
        {"value": OF_AVRO, **static("id.kind")},
        "route.static.field: a text, number or boolean decides; 'id.kind' is not in",
    ),
    (
        {"value": OBJECT, "transforms": MASK, **static("data.size")},
        "route.static.field: a text, number or boolean decides; 'data.size' is double",
    ),
    ({"transforms": MASK, **static("kind")}, "destinations: the pipeline has several destinations, transforms or keys"),
    (
        {"key": {"format": "long"}, **static("kind")},
        "destinations: the pipeline has several destinations, transforms or keys",
    ),
    (
        {"destinations": TWO, "route": {"static": {"field": "kind", "tables": {"a.x": "x"}}}},
        "route: names a.x: not among the destinations a.b, a.c",
    ),
    # tables and letters
    (
        {"columns": {"doc": {"type": "variant", "from": []}}, "engine": "inline"},
        "engine: inline can't write a.b, of format version 3",
    ),
    (
        {"columns": {"doc": {"type": "variant", "from": []}, "id": "time"}},
        "destinations.0.columns.id: Spark has no type time",
    ),
    ({"dead_letters": {"payload": "none", "topic": "x"}}, "dead_letters: topic gets records as they came"),
]
"""Parts of a file, and how the one complaint begins."""
