"""A Protobuf schema of every kind of field, and messages of it by the reference runtime."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from frazil.records.formats.protobuf.protobuf import MessageCodec, ProtobufFormat, message_codec
from frazil.records.formats.protobuf.schema import Schema
from frazil.records.model.format import Decoded, Format, WriterSchema

SOURCE = """
syntax = "proto3";
package acme;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/decimal.proto";
import "google/type/timeofday.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message First { string s = 1; }
message All {
  int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; sint64 s64 = 6;
  fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 sf32 = 9; sfixed64 sf64 = 10;
  float f = 11; double d = 12; bool b = 13; string s = 14; bytes y = 15;
  enum Color { RED = 0; BLUE = 1; }
  Color e = 16;
  optional int32 o = 17;
  Inner m = 18;
  message Inner { int32 x = 1; message Deep { int32 z = 1; } }
  repeated int32 r = 19;
  repeated Inner rm = 20;
  map<string, int64> mp = 21;
  map<int32, Inner> mm = 22;
  oneof one { int32 oi = 23; string os = 24; }
  google.protobuf.Timestamp ts = 25;
  google.protobuf.Duration du = 26;
  google.protobuf.Struct st = 27;
  google.protobuf.Any any = 28;
  google.protobuf.Int64Value w = 29;
  google.type.Date gd = 30;
  google.type.TimeOfDay gt = 31;
  google.type.Decimal gdec = 32;
  confluent.type.Decimal cd = 33
    [(confluent.field_meta) = { params: [{ key: "precision", value: "6" }, { key: "scale", value: "2" }] }];
  confluent.type.Decimal free = 34;
  All self = 35;
  Empty nothing = 36;
  map<bool, string> mb = 37;
  google.protobuf.StringValue ws = 38;
}
message Empty {}
"""
UNSET: dict[str, object] = {
    **dict.fromkeys(["i32", "i64", "s32", "s64", "sf32", "sf64", "u32", "f32"], 0),
    "u64": Decimal(0),
    "f64": Decimal(0),
    "f": 0.0,
    "d": 0.0,
    "b": False,
    "s": "",
    "y": b"",
    "e": "RED",
    "r": [],
    "rm": [],
    "mp": [],
    "mm": [],
    "mb": [],
}


@cache
def schema(text: str = SOURCE) -> Schema:
    """The schema, compiled once."""
    return Schema(WriterSchema("PROTOBUF", text))


@cache
def decoder() -> Format:
    """Decodes bare messages of `All`."""
    return ProtobufFormat.of_schema(SOURCE, "All")


def message(name: str = "All", text: str = SOURCE, **fields: object) -> Any:
    """A message of the reference runtime."""
    return GetMessageClass(schema(text).named(name))(**fields)


@cache
def codec(name: str = "All", text: str = SOURCE) -> MessageCodec:
    """The codec of a type."""
    return message_codec(schema(text).named(name), schema(text))


def outcomes(decoded: Decoded) -> dict[int, object]:
    """What became of each value: its columns and their types, or the reason of its death; and its unknown fields."""
    results: dict[int, object] = {}
    for group in decoded.groups:
        group.columns.validate(full=True)
        types = group.columns.schema.to_string(show_field_metadata=True)
        for position, row in zip(group.positions.to_pylist(), group.columns.to_pylist(), strict=True):
            assert position not in results
            results[position] = (types, repr(row), [])
    for position, reason in decoded.dead.items():
        assert position not in results
        results[position] = reason
    unknown_pairs = decoded.unknown_fields
    for position, name in zip(unknown_pairs.positions.to_pylist(), unknown_pairs.names.to_pylist(), strict=True):
        results[position][2].append(name)  # type: ignore[index]
    return results
