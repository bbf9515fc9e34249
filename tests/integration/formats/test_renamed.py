"""Fields that were renamed, as a real registry tells it: their values go on in the column that took them before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.operations import assert_clean, lake
from tests.registry_server import RegistryServer

MakeStore = Callable[..., Any]


@pytest.fixture
def confluent(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        yield client


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def avro(client: SchemaRegistryClient, topic: str, fields: Sequence[dict[str, Any]], value: dict[str, Any]) -> bytes:
    schema = json.dumps({"type": "record", "name": "Order", "fields": list(fields)})
    written = AvroSerializer(client, schema)(value, value_of(topic))
    assert isinstance(written, bytes)
    return written


def protobuf(client: SchemaRegistryClient, topic: str, fields: dict[int, str], **value: int) -> bytes:
    """A message of 64-bit numbers: number of the field -> its name."""
    package, pool = topic.replace("-", "_"), descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}/order.proto", package=package, syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, name in fields.items():
        message.field.add(name=name, number=number, type=3, label=1)
    pool.Add(file)
    message_class = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))
    return ProtobufSerializer(message_class, client, {"use.deprecated.format": False})(
        message_class(**value), value_of(topic)
    )


def columns(shop: Any) -> list[str]:
    return [field.name for field in lake(shop).load_table("shop.orders").schema().fields if field.name[0] != "_"]


ID, PRICE = {"name": "id", "type": "long"}, {"name": "price", "type": "long"}
COST = {"name": "cost", "type": "long", "aliases": ["price"]}
AMOUNT = {"name": "amount", "type": "double", "aliases": ["cost", "price"]}


@pytest.mark.parametrize("cut", [[1, 1, 1], [3]])
def test_field_renamed_with_alias_keeps_its_column(
    store: MakeStore, confluent: SchemaRegistryClient, cut: list[int]
) -> None:
    """The schema says that it is the same field: one column, whether its versions come in one batch or one by one."""
    topic = f"t-{uuid4().hex}"
    values = [
        avro(confluent, topic, [ID, PRICE], {"id": 1, "price": 10}),
        avro(confluent, topic, [ID, COST], {"id": 2, "cost": 20}),
        avro(confluent, topic, [ID, COST], {"id": 3, "cost": 30}),
    ]
    format_store = store({"format": "avro", "registry": "main"}, {})

    rows: list[dict[str, Any]] = []
    for size in cut:
        rows, letters = format_store.lands([values.pop(0) for _ in range(size)])
        assert letters == []

    assert columns(format_store.shop) == ["id", "price"]
    assert rows == [{"id": 1, "price": 10}, {"id": 2, "price": 20}, {"id": 3, "price": 30}]
    assert_clean(format_store.shop)


def test_renamed_and_wider_field_lands_in_its_column(store: MakeStore, confluent: SchemaRegistryClient) -> None:
    """The column follows the field under its new name as under the old one, through several renames."""
    topic = f"t-{uuid4().hex}"
    format_store = store({"format": "avro", "registry": "main"}, {})
    format_store.lands([avro(confluent, topic, [ID, {**PRICE, "type": "float"}], {"id": 1, "price": 0.5})])

    rows, letters = format_store.lands([avro(confluent, topic, [ID, AMOUNT], {"id": 2, "amount": 1e300})])

    assert (columns(format_store.shop), letters) == (["id", "price"], [])
    assert rows == [{"id": 1, "price": 0.5}, {"id": 2, "price": 1e300}]


@pytest.mark.parametrize("cut", [[1, 1, 1], [3]])
def test_renamed_field_of_same_number_keeps_its_column(
    store: MakeStore, confluent: SchemaRegistryClient, cut: list[int]
) -> None:
    """Protobuf knows fields by number: the versions of the subject tell what the field was called before."""
    topic = f"t-{uuid4().hex}"
    values = [
        protobuf(confluent, topic, {1: "id", 2: "price"}, id=1, price=10),
        protobuf(confluent, topic, {1: "id", 2: "cost"}, id=2, cost=20),
        protobuf(confluent, topic, {1: "id", 2: "cost", 3: "size"}, id=3, cost=30, size=5),
    ]
    format_store = store({"format": "protobuf", "registry": "main"}, {})

    rows: list[dict[str, Any]] = []
    for size in cut:
        rows, letters = format_store.lands([values.pop(0) for _ in range(size)])
        assert letters == []

    assert columns(format_store.shop) == ["id", "price", "size"]
    assert [(row["id"], row["price"], row["size"]) for row in rows] == [(1, 10, None), (2, 20, None), (3, 30, 5)]
    assert_clean(format_store.shop)


def test_declared_column_keeps_its_renamed_field(store: MakeStore, confluent: SchemaRegistryClient) -> None:
    """Declared columns and those that take a field by `from` go on as well, also where the table does not evolve."""
    topic = f"t-{uuid4().hex}"
    format_store = store(
        {"format": "protobuf", "registry": "main"}, {"id": "long", "sum": {"type": "long", "from": "price"}}
    )
    format_store.lands([protobuf(confluent, topic, {1: "id", 2: "price"}, id=1, price=10)])

    rows, _ = format_store.lands([protobuf(confluent, topic, {1: "id", 2: "cost"}, id=2, cost=20)])

    assert rows == [{"id": 1, "sum": 10}, {"id": 2, "sum": 20}]
