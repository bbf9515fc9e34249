"""Avro schemas and what the reference writer makes of values."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro

HEAD = b"\0\0\0\0\1"
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}


def written(schema: Any, value: object, named: dict[str, Any] | None = None) -> bytes:
    """What the reference writer makes of a value."""
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema, named_schemas=named or {}), value)
    return buffer.getvalue()


def logical(kind: str, name: str, /, **more: object) -> dict[str, object]:
    """A type with an annotation."""
    return {"type": kind, "logicalType": name, **more}


def connect(kind: str, name: str, /, **more: object) -> dict[str, object]:
    """A type as Kafka Connect names it."""
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


def raw(schema: dict[str, Any]) -> dict[str, Any]:
    """A type without its annotations, to write integers and bytes with."""
    return {name: part for name, part in schema.items() if name not in ("logicalType", "connect.name")}


RECORD = {"type": "record", "name": "n.R", "fields": [{"name": "x", "type": "int"}]}
SECOND_RECORD = {**RECORD, "name": "m.R"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
