"""Orders in Avro: their schema, and values that name it by the id that a registry gave it, as Confluent's serializers do."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, Final

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_CUSTOMER: Final = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "id", "type": "long"}, {"name": "country", "type": "string"}],
}

_ITEM: Final = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}],
}

ORDER_SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "namespace": "bench",
    "fields": [
        {"name": "order_id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "store", "type": "int"},
        {"name": "amount", "type": "double"},
        {"name": "customer", "type": _CUSTOMER},
        {"name": "items", "type": {"type": "array", "items": _ITEM}},
        {"name": "state", "type": "string"},
        {"name": "channel", "type": "string"},
    ],
}


def registered_avro(
    registry: str, topic: str, schema: dict[str, Any], records: Sequence[dict[str, Any]]
) -> list[bytes]:
    """Register a schema for a topic's values, and write records with it: a zero byte, the id in four, the record.

    Args:
        registry: Address of the registry's API, as Confluent's clients speak it.
        topic: Whose values they are.
        schema: Of Avro.
        records: As `fastavro` takes them.
    """
    with SchemaRegistryClient({"url": registry}) as client:
        number = client.register_schema(f"{topic}-value", Schema(json.dumps(schema), "AVRO"))
    parsed = fastavro.parse_schema(schema)
    values = []
    for record in records:
        buffer = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
        buffer.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(buffer, parsed, record)
        values.append(buffer.getvalue())
    return values
