"""One record of ten columns in every format, as the reference serializers write it, and the writer schemas."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from io import BytesIO, StringIO
from typing import Any, Literal
from uuid import UUID

import fastavro
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from frazil.records.formats.protobuf.schema import Schema
from frazil.records.model.format import Framing, WriterSchema

PLACE = pa.struct([("city", pa.string()), ("lat", pa.float64()), ("lon", pa.float64())])
FLAT = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("name", pa.string()),
    pa.field("price", pa.decimal128(10, 2)),
    pa.field("active", pa.bool_()),
    pa.field("score", pa.float64()),
    pa.field("created", pa.timestamp("us", "UTC")),
    pa.field("day", pa.date32()),
    pa.field("count", pa.int32()),
]
NESTED = pa.schema([*FLAT, pa.field("tags", pa.list_(pa.string())), pa.field("place", PLACE)])
LINE = pa.schema([*FLAT, pa.field("city", pa.string()), pa.field("note", pa.string())])

AVRO, PROTOBUF, JSON_SCHEMA = 1, 2, 3
"""Ids of the writer schemas."""


@dataclass(frozen=True, slots=True)
class Writers:
    """A `SchemaSource` in memory."""

    schemas: Mapping[int, WriterSchema]
    framing: Framing = "confluent"

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Return a schema, or None."""
        return self.schemas.get(schema_id) if isinstance(schema_id, int) else None


def record(n: int) -> dict[str, Any]:
    """The nth record, as Python has it."""
    return {
        "id": n,
        "name": f"record number {n} \N{LATIN SMALL LETTER E WITH ACUTE}",
        "price": Decimal(n % 100_000).scaleb(-2),
        "active": n % 2 == 0,
        "score": n / 8,
        "created": datetime(2024, 3, 9, 12, tzinfo=UTC) + timedelta(microseconds=n),
        "day": date(2024, 3, 9) + timedelta(days=n % 1000),
        "count": n % 1000,
        "tags": ["a", f"tag {n % 7}"],
        "place": {"city": "Köln", "lat": 50.9375, "lon": 6.9603},
    }


def in_json(n: int) -> bytes:
    """The nth record as JSON."""
    price = record(n)["price"]
    plain = record(n) | {"price": float(price)}
    return json.dumps(plain, default=lambda value: value.isoformat(), ensure_ascii=False).encode()


def in_line(n: int, quoting: Literal[0, 1]) -> bytes:
    """The nth record as a line of fields; quoting as `csv` has it: where needed, or everywhere."""
    body = record(n)
    row = [body[column.name] for column in FLAT] + ["Köln", 'said "no", twice' if quoting else "said no"]
    row = [value.isoformat() if isinstance(value, date) else value for value in row]
    row[3] = "true" if body["active"] else "false"
    text = StringIO()
    csv.writer(text, lineterminator="", quoting=quoting).writerow(row)
    return text.getvalue().encode()


CONNECT = "org.apache.kafka.connect.data."
ENVELOPE = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64"},
        {"field": "name", "type": "string"},
        {"field": "price", "type": "bytes", "name": CONNECT + "Decimal", "parameters": {"scale": "2"}},
        {"field": "active", "type": "boolean"},
        {"field": "score", "type": "double"},
        {"field": "created", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "day", "type": "int32", "name": CONNECT + "Date"},
        {"field": "count", "type": "int32"},
        {"field": "tags", "type": "array", "items": {"type": "string"}},
        {
            "field": "place",
            "type": "struct",
            "fields": [
                {"field": name, "type": kind}
                for name, kind in zip(("city", "lat", "lon"), ("string", "double", "double"), strict=True)
            ],
        },
    ],
}


def _scaled(price: Decimal) -> bytes:
    whole = int(price.scaleb(2))
    return whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)


def _micros(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def in_envelope(n: int) -> bytes:
    """The nth record as Kafka Connect's JsonConverter writes it."""
    body = record(n)
    payload = body | {
        "price": base64.b64encode(_scaled(body["price"])).decode(),
        "created": _micros(body["created"]),
        "day": (body["day"] - date(1970, 1, 1)).days,
    }
    return json.dumps({"schema": ENVELOPE, "payload": payload}).encode()


AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "active", "type": "boolean"},
        {"name": "score", "type": "double"},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "count", "type": "int"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [
                    {"name": "city", "type": "string"},
                    {"name": "lat", "type": "double"},
                    {"name": "lon", "type": "double"},
                ],
            },
        },
        {
            "name": "node",
            "type": [
                "null",
                {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]},
            ],
        },
        {"name": "attributes", "type": {"type": "map", "values": ["null", "string", "long"]}},
    ],
}


_PARSED = fastavro.parse_schema(AVRO_SCHEMA)


def framed(schema_id: int, value: bytes) -> bytes:
    """A value behind the frame of a Schema Registry."""
    return b"\0" + schema_id.to_bytes(4, "big") + value


def in_avro(n: int) -> bytes:
    """The nth record as framed Avro."""
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, _PARSED, record(n) | {"attributes": {"a": n, "b": "x"}})
    return framed(AVRO, buffer.getvalue())


PROTO = """
syntax = "proto3";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message Sale {
  int64 id = 1; string name = 2;
  confluent.type.Decimal price = 3
    [(confluent.field_meta) = { params: [{ key: "precision", value: "10" }, { key: "scale", value: "2" }] }];
  bool active = 4; double score = 5;
  google.protobuf.Timestamp created = 6; google.type.Date day = 7;
  int32 count = 8; repeated string tags = 9; Place place = 10;
  google.protobuf.Struct more = 11;
  message Place { string city = 1; double lat = 2; double lon = 3; }
}
"""


@cache
def _message() -> Any:
    return GetMessageClass(Schema(WriterSchema("PROTOBUF", PROTO)).named("Sale"))


def in_protobuf(n: int) -> bytes:
    """The nth record as a framed Protobuf message."""
    body = record(n)
    day = body["day"]
    message = _message()(
        **body
        | {
            "price": {"value": _scaled(body["price"]), "precision": 10, "scale": 2},
            "day": {"year": day.year, "month": day.month, "day": day.day},
        }
    )
    return framed(PROTOBUF, b"\0" + message.SerializeToString())


OBJECT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string", "maxLength": 1000},
        "price": {
            "type": "number",
            "title": CONNECT + "Decimal",
            "connect.type": "bytes",
            "connect.parameters": {"scale": "2"},
        },
        "active": {"type": "boolean"},
        "score": {"type": "number"},
        "created": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "count": {"type": "integer", "connect.type": "int32", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "lat": {"type": "number"}, "lon": {"type": "number"}},
        },
    },
    "required": ["id"],
}

WRITERS = Writers(
    {
        AVRO: WriterSchema("AVRO", json.dumps(AVRO_SCHEMA)),
        PROTOBUF: WriterSchema("PROTOBUF", PROTO),
        JSON_SCHEMA: WriterSchema("JSON", json.dumps(OBJECT_SCHEMA)),
    }
)
