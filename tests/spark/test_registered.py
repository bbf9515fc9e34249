"""Values that name their writer's schema, decoded where Spark's Python workers run: each asks the real registry itself."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import SparkSession

from frazil.batch.facts import Range, Staged
from frazil.errors import Retryable
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import Table, staging_table
from frazil.iceberg.ledger.ledger import DEAD_LETTER_SCHEMA, UNPARTITIONED
from frazil.iceberg.schema.schema import arrow_columns, declared_schema, declared_spec
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.pipeline.models.pipeline_file import Destination
from frazil.records.model.spec import RecordSpec
from frazil.registry.client import RegistrySchemas
from frazil.registry.registry import Registry
from frazil.run.staging.stage import StageOrder, stage_inline
from frazil.spark.jobs.stage import SparkStage
from tests.format_specs import format_spec
from tests.produce import produce
from tests.registry_server import RegistryServer

DESTINATION = Destination.model_validate({"table": "shop.orders", "columns": {"id": "long", "name": "string"}})
NOBODY_HAS_IT = b"\x00\x7f\xff\xff\xfe"
SIZE = 200

Make = Callable[..., "Topic"]


@dataclass(frozen=True)
class Topic:
    """An order to stage a topic, and the table that it is staged for."""

    order: StageOrder
    table: Table


@pytest.fixture
def confluent(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        yield client


BY_TOPIC = {"subject.name.strategy": topic_subject_name_strategy}
"""Else the client first asks for associations, which this registry has none of; now and then its 404 never arrives."""


def avro(client: SchemaRegistryClient) -> Callable[..., bytes]:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]
    return AvroSerializer(client, json.dumps({"type": "record", "name": "Order", "fields": fields}), conf=BY_TOPIC)


def json_schema(client: SchemaRegistryClient) -> Callable[..., bytes]:
    properties = {"id": {"type": "integer"}, "name": {"type": "string"}}
    return JSONSerializer(
        json.dumps({"title": "Order", "type": "object", "properties": properties}), client, conf=BY_TOPIC
    )


def protobuf(client: SchemaRegistryClient) -> Callable[..., bytes]:
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    fields = file.message_type.add(name="Order").field
    fields.add(name="id", number=1, type=3, label=1)
    fields.add(name="name", number=2, type=9, label=1)
    pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    serialise = ProtobufSerializer(order, client, {"use.deprecated.format": False, **BY_TOPIC})
    return lambda value, context: serialise(order(**value), context)


SERIALIZERS = {"avro": avro, "protobuf": protobuf, "json-schema": json_schema}


@pytest.fixture
def topic(tmp_path: Path, cluster: Cluster, confluent: SchemaRegistryClient) -> Make:
    """Make a topic of orders in a format, with one value in the middle whose schema no registry has."""

    def make(kind: str, registry: Registry) -> Topic:
        name = f"orders-{uuid.uuid4().hex[:8]}"
        create_topic(cluster, name, 1)
        serialise, context = SERIALIZERS[kind](confluent), SerializationContext(name, MessageField.VALUE)
        values = [serialise({"id": n, "name": f"n{n}"}, context) for n in range(SIZE)]
        values.insert(SIZE // 2, NOBODY_HAS_IT + values[0][5:])
        produce(cluster, name, [OutgoingRecord(key=None, value=value) for value in values])
        lake = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
        schema = declared_schema(DESTINATION)
        table = lake.create_table("shop.orders", schema, declared_spec(DESTINATION, schema), {})
        letters = lake.create_table("shop.letters", DEAD_LETTER_SCHEMA, UNPARTITIONED, {})
        new_format = format_spec(kind, source=RegistrySchemas(registry))
        order = StageOrder(
            "orders",
            1,
            cluster,
            (Range(name, 0, 0, len(values)),),
            50,
            {"shop.orders": RecordSpec(columns=arrow_columns(table, DESTINATION), format=new_format)},
            {"shop.orders": staging_table("shop.orders", table)},
            staging_table("shop.letters", letters),
        )
        return Topic(order, table)

    return make


def contents(staged: Staged, table: str) -> list[dict[str, Any]]:
    files = [pq.ParquetFile(file.path.removeprefix("file://")).read() for file in staged.files[table]]
    return sorted(pa.concat_tables(files).to_pylist(), key=str)


@pytest.mark.parametrize("kind", list(SERIALIZERS))
def test_worker_reads_same_schema_as_driver(
    spark: SparkSession, registry: RegistryServer, topic: Make, kind: str
) -> None:
    """Rows are what was sent, the value of an unknown schema is a letter with its bytes; both engines say the same."""
    order = topic(kind, registry.registry).order

    by_spark, inline = SparkStage(spark)(order), stage_inline(order)

    assert by_spark.counts == inline.counts
    assert by_spark.dead_codes == {"UNKNOWN_SCHEMA": 1}
    rows = contents(by_spark, "shop.orders")
    assert sorted((row["id"], row["name"]) for row in rows) == [(n, f"n{n}") for n in range(SIZE)]
    assert rows == contents(inline, "shop.orders")
    (letter,) = contents(by_spark, "shop.letters")
    assert (letter["offset"], letter["value"][:5]) == (SIZE // 2, NOBODY_HAS_IT)


def test_registry_that_is_down_makes_no_dead_letters(
    spark: SparkSession, registry: RegistryServer, topic: Make
) -> None:
    """No task guesses: the batch fails as one to be tried again, and the table has no snapshot; then it is tried again."""
    down = Registry("main", "http://127.0.0.1:9/apis/ccompat/v7")
    new_topic = topic("avro", down)

    with pytest.raises(Retryable, match="Schema Registry 'main'"):
        SparkStage(spark)(new_topic.order)

    assert new_topic.table.refresh().current_snapshot() is None
    up = format_spec("avro", source=RegistrySchemas(registry.registry))
    specs = {table: dataclasses.replace(spec, format=up) for table, spec in new_topic.order.specs.items()}
    again = dataclasses.replace(new_topic.order, specs=specs)
    assert SparkStage(spark)(again).total.written == SIZE
