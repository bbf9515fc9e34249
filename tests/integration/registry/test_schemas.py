"""Writer schemas out of a real registry, as confluent-kafka's own serialisers put them there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from frazil.errors import Terminal
from frazil.records.formats.avro.avro import AvroFormat
from frazil.records.formats.json_schema.types import JsonSchemaFormat
from frazil.records.formats.protobuf.protobuf import ProtobufFormat
from frazil.records.model.format import Decoded
from frazil.registry.client import UNKNOWN_SECONDS, RegistrySchemas
from frazil.registry.registry import Registry
from tests.registry_server import RegistryServer

pytestmark = pytest.mark.tried("Schema Registry: Apicurio, by Confluent's API", "real")

MONEY = json.dumps({"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]})
LINE = json.dumps({"type": "record", "name": "shop.Line", "fields": [{"name": "price", "type": "shop.Money"}]})
ORDER_FIELDS = [{"name": "line", "type": "shop.Line"}, {"name": "paid", "type": "shop.Money"}]
ORDER = json.dumps({"type": "record", "name": "shop.Order", "fields": ORDER_FIELDS})
ORDERED = {"line": {"price": {"cents": 5}}, "paid": {"cents": 7}}


@pytest.fixture
def schemas(registry: RegistryServer) -> Iterator[RegistrySchemas]:
    with closing(RegistrySchemas(registry.registry)) as opened:
        yield opened


@pytest.fixture(scope="session")
def confluent(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    """Who writes: the client that producers use."""
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        yield client


def registered_order(client: SchemaRegistryClient) -> tuple[str, Schema]:
    """Register Order -> Line -> Money and Order -> Money; return a topic and Order's schema."""
    topic = f"t-{uuid4().hex}"
    client.register_schema(f"{topic}-money", Schema(MONEY, "AVRO"))
    money = SchemaReference("shop.Money", f"{topic}-money", 1)
    client.register_schema(f"{topic}-line", Schema(LINE, "AVRO", [money]))
    return topic, Schema(ORDER, "AVRO", [SchemaReference("shop.Line", f"{topic}-line", 1), money])


def new_schema() -> Schema:
    """A schema that was never registered."""
    return Schema(MONEY.replace("Money", f"M{uuid4().hex}"), "AVRO")


def schema_id(framed: bytes) -> int:
    """The id in a value's frame."""
    assert framed[0] == 0
    return int.from_bytes(framed[1:5], "big")


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def only_row(decoded: Decoded) -> dict[str, Any]:
    assert not decoded.dead
    [group] = decoded.groups
    [row] = group.columns.to_pylist()
    return row


def test_an_avro_schema_comes_with_what_it_refers_to_in_order(
    schemas: RegistrySchemas, confluent: SchemaRegistryClient
) -> None:
    """Avro is parsed front to back: a name used before it is known is an error of every record."""
    topic, order = registered_order(confluent)
    framed = AvroSerializer(confluent, order)(ORDERED, value_of(topic))

    decoded_schema = schemas.schema(schema_id(framed))

    assert decoded_schema is not None
    assert (decoded_schema.kind, json.loads(decoded_schema.text)["fields"]) == ("AVRO", ORDER_FIELDS)
    assert [reference.name for reference in decoded_schema.references] == ["shop.Money", "shop.Line"]
    assert json.loads(decoded_schema.references[0].text)["fields"] == [{"name": "cents", "type": "long"}]


def test_an_avro_value_with_references_is_read(schemas: RegistrySchemas, confluent: SchemaRegistryClient) -> None:
    """The way from a producer's serialiser to columns, with nothing made up in between."""
    topic, order = registered_order(confluent)
    framed = AvroSerializer(confluent, order)(ORDERED, value_of(topic))

    assert only_row(AvroFormat(schemas).decode(pa.array([framed], pa.binary()))) == ORDERED


def test_a_protobuf_value_with_an_import_is_read(schemas: RegistrySchemas, confluent: SchemaRegistryClient) -> None:
    """Confluent's serialiser registers each imported file as a subject of its own."""
    topic = f"t-{uuid4().hex}"
    order = order_message(f"shop_{uuid4().hex}")
    serialise = ProtobufSerializer(order, confluent, {"use.deprecated.format": False})
    framed = serialise(order(id=2**60, money={"cents": 5}), value_of(topic))

    decoded_schema = schemas.schema(schema_id(framed))
    row = only_row(ProtobufFormat(schemas).decode(pa.array([framed], pa.binary())))

    assert decoded_schema is not None
    assert (decoded_schema.kind, len(decoded_schema.references)) == ("PROTOBUF", 1)
    assert (row["id"], row["money"]) == (2**60, {"cents": 5})


def order_message(package: str) -> Any:
    """Class of a message whose file imports another, in a package of its own."""
    pool = descriptor_pool.DescriptorPool()
    money = descriptor_pb2.FileDescriptorProto(name=f"{package}/money.proto", package=package, syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    order = descriptor_pb2.FileDescriptorProto(name=f"{package}/order.proto", package=package, syntax="proto3")
    order.dependency.append(money.name)
    fields = order.message_type.add(name="Order").field
    fields.add(name="id", number=1, type=3, label=1)
    fields.add(name="money", number=2, type=11, label=1, type_name=f".{package}.Money")
    pool.Add(money)
    pool.Add(order)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))


def test_a_json_schema_comes_with_what_it_refers_to(schemas: RegistrySchemas, confluent: SchemaRegistryClient) -> None:
    """The name of a reference is the address that the schema uses for it."""
    topic = f"t-{uuid4().hex}"
    money = {"type": "object", "properties": {"cents": {"type": "integer"}}}
    confluent.register_schema(f"{topic}-money", Schema(json.dumps(money), "JSON"))
    reference = SchemaReference("money.json", f"{topic}-money", 1)
    order = {"type": "object", "title": "Order", "properties": {"paid": {"$ref": "money.json"}}}
    serialise = JSONSerializer(Schema(json.dumps(order), "JSON", [reference]), confluent)
    framed = serialise({"paid": {"cents": 5}}, value_of(topic))

    decoded_schema = schemas.schema(schema_id(framed))

    assert decoded_schema is not None
    assert (decoded_schema.kind, json.loads(decoded_schema.text)) == ("JSON", order)
    assert [(one.name, json.loads(one.text)) for one in decoded_schema.references] == [("money.json", money)]
    read = JsonSchemaFormat(schemas).decode(pa.array([framed], pa.binary()))
    assert only_row(read) == {"paid": {"cents": 5}}


def test_a_schema_that_was_deleted_is_still_found(schemas: RegistrySchemas, confluent: SchemaRegistryClient) -> None:
    """Values outlive the subject they were written under: deleting it softly must not make them unreadable."""
    subject = f"t-{uuid4().hex}-value"
    registered = confluent.register_schema(subject, new_schema())
    confluent.delete_subject(subject)

    assert schemas.schema(registered) is not None


@pytest.mark.parametrize("unknown_id", [999_999, UUID(int=7)])
def test_an_unknown_id_is_no_failure(schemas: RegistrySchemas, unknown_id: int | UUID) -> None:
    """One record with a made-up id must not stop its neighbours, also where a server knows no GUIDs."""
    assert schemas.schema(unknown_id) is None


def test_schema_registered_later_is_found(registry: RegistryServer, confluent: SchemaRegistryClient) -> None:
    """A worker lives for many batches: remembering for long that an id is unknown would bury good records."""
    seconds = [0.0]
    with closing(RegistrySchemas(registry.registry, clock=lambda: seconds[0])) as schemas:
        newest = confluent.register_schema(f"t-{uuid4().hex}", new_schema())
        before = schemas.schema(newest + 1)
        later = confluent.register_schema(f"t-{uuid4().hex}", new_schema())
        seconds[0] += UNKNOWN_SECONDS + 1

        assert (before, later) == (None, newest + 1)
        assert schemas.schema(later) is not None


def test_a_path_that_is_no_registry_is_not_an_unknown_id(registry: RegistryServer) -> None:
    """With a wrong path every id is missing: all records would become dead letters."""
    with (
        closing(RegistrySchemas(Registry("main", registry.url.replace("ccompat", "ccompact")))) as wrong,
        pytest.raises(Terminal, match="not from a Schema Registry's API") as caught,
    ):
        wrong.schema(1)

    assert "registries.main.url" in str(caught.value)
