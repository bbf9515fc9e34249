"""Keys from the broker to the table, and ids of schemas in headers, as confluent-kafka's serialisers write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.common.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from frazil.kafka.client.cluster import Header, OutgoingRecord
from tests.letters import run_dead_letter_replay
from tests.operations import assert_clean
from tests.registry_server import RegistryServer

MakeStore = Callable[..., Any]

KEY = {"type": "record", "name": "CustomerKey", "fields": [{"name": "id", "type": "long"}]}
VALUE = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "int"}]}
AVRO = {"format": "avro", "registry": "main"}
COLUMNS = {"total": "int", "customer_id": {"type": "long", "from": "id", "part": "key"}}


@pytest.fixture
def confluent(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    """Who writes: the client that producers use."""
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        yield client


def in_header(payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId) -> bytes:
    """What `header_schema_id_serializer` does, with the id for registries that give no GUIDs."""
    assert ctx is not None
    assert isinstance(ctx.headers, list)
    ctx.headers.append((f"__{ctx.field}_schema_id", schema_id.id_to_bytes()))
    return payload


class Producer:
    """Serialises records of avro keys and avro values, with their ids in front or in headers."""

    def __init__(self, client: SchemaRegistryClient, conf: dict[str, Any] | None = None) -> None:
        self._topic = f"t-{uuid4().hex}"
        self._key, self._value = (AvroSerializer(client, json.dumps(schema), conf=conf) for schema in (KEY, VALUE))

    def record(self, customer: int | None, total: int | None) -> OutgoingRecord:
        """Return a record; None is no key, or no value."""
        headers: list[Header] = [("trace", b"\0\0\0\0\1")]
        key = None if customer is None else self._key({"id": customer}, self._context(MessageField.KEY, headers))
        value = None if total is None else self._value({"total": total}, self._context(MessageField.VALUE, headers))
        return OutgoingRecord(key, value, tuple(headers))

    def _context(self, field: str, headers: list[Header]) -> SerializationContext:
        return SerializationContext(self._topic, field, headers)


def test_key_and_value_are_read_with_their_own_schemas(store: MakeStore, confluent: SchemaRegistryClient) -> None:
    """Each half is read with its own schema, from in front of it or from its header; a broken key is a letter."""
    plain, headed = Producer(confluent), Producer(confluent, {"schema.id.serializer": in_header})
    bad = plain.record(1, 10)
    records = [
        plain.record(1, 10),
        headed.record(2, 20),
        plain.record(None, 30),
        OutgoingRecord(b"plain text", bad.value),
        OutgoingRecord(b"\0\x7f\xff\xff\xff\x02", bad.value),
        OutgoingRecord(b"\x02", b"\x04", (("__key_schema_id", b"\0\0"), ("__value_schema_id", b"\0\0"))),
        plain.record(3, None),
        headed.record(4, 40),
    ]
    format_store = store(AVRO, COLUMNS, key=AVRO)

    rows, letters = format_store.lands_records(records)

    assert [(row["customer_id"], row["total"]) for row in rows] == [(1, 10), (2, 20), (None, 30), (4, 40)]
    assert letters == [(3, "INVALID_KEY"), (4, "INVALID_KEY"), (5, "INVALID_KEY")]
    assert b"\0" not in {(records[1].value or b"\0")[:1], (records[1].key or b"\0")[:1]}
    assert_clean(format_store.shop)


def test_guid_unknown_to_registry_does_not_stop_other_records(
    store: MakeStore, confluent: SchemaRegistryClient
) -> None:
    """Confluent's own header serialiser writes GUIDs; the registry of these tests gives none, and knows none."""
    guids = Producer(confluent, {"schema.id.serializer": header_schema_id_serializer})
    with pytest.raises(SerializationError, match="GUID is not set"):
        guids.record(1, 10)
    headers: list[Header] = []
    guid = SchemaId("AVRO", guid=str(uuid4()))
    header_bytes = header_schema_id_serializer(b"\x14", SerializationContext("t", MessageField.VALUE, headers), guid)

    rows, letters = store(AVRO, {"total": "int"}).lands_records(
        [OutgoingRecord(None, header_bytes, tuple(headers)), Producer(confluent).record(None, 20)]
    )

    assert (rows, letters) == ([{"total": 20}], [(0, "UNKNOWN_SCHEMA")])


def test_dead_letter_with_broken_key_lands_once_file_fits(store: MakeStore) -> None:
    """A letter of a key that the file did not fit is decoded again, key and all, when the file is mended."""
    columns = {"total": "int", "no": {"type": "long", "part": "key", "required": True}}
    format_store = store({"format": "json"}, columns, key={"fields": {"no": "int"}})
    records = [OutgoingRecord(b'{"no": %d}' % number, b'{"total": 1}') for number in (5, 2**40)]

    rows, letters = format_store.lands_records(records)
    path = format_store.shop.project.pipelines_folder / "orders.yaml"
    format_store.shop = format_store.shop.with_pipeline(path.read_text().replace('"no": "int"', '"no": "long"'))
    home = run_dead_letter_replay(format_store.shop)

    assert (rows, letters) == ([{"total": 1, "no": 5}], [(1, "INVALID_KEY")])
    assert (home.tried, home.landed) == (1, 1)
    assert [(row["total"], row["no"]) for row in format_store.in_order()] == [(1, 5), (1, 2**40)]
    assert_clean(format_store.shop)
