"""Values that name the schema that they were written with, as confluent-kafka's own serialisers write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from frazil.errors import Retryable
from frazil.verify.check import verify
from tests.operations import assert_clean, lake
from tests.registry_server import RegistryServer
from tests.tampering.pipelines import EditedTable

MakeStore = Callable[..., Any]

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
COLUMNS = {"id": "long", "total": "decimal(38,2)", "at": "timestamptz", "lines": "list<string>", "note": "string"}
INSTANT = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)


@pytest.fixture
def confluent(registry: RegistryServer) -> Any:
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        yield client


def serialized(serializer: Any, *values: dict[str, Any]) -> list[bytes]:
    context = SerializationContext(f"t-{uuid4().hex}", MessageField.VALUE)
    return [serializer(value, context) for value in values]


def avro(client: SchemaRegistryClient, schema: dict[str, Any], *values: dict[str, Any]) -> list[bytes]:
    return serialized(AvroSerializer(client, json.dumps(schema)), *values)


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "total": Decimal("12.50"), "at": INSTANT, "lines": ["a", "b"], **more}


def test_two_writer_schemas_land_in_one_batch(store: MakeStore, confluent: SchemaRegistryClient) -> None:
    """Each value is read with its own schema; what one does not have is null; what is none is a letter."""
    values = [
        *avro(confluent, ORDER, order(1)),
        *avro(confluent, WIDER, order(2, note="gift")),
        b"\x00\x7f\xff\xff\xff\x02",
        b"plain text",
        *avro(confluent, ORDER, order(3)),
    ]
    shop = store({"format": "avro", "registry": "main"}, COLUMNS)

    rows, letters = shop.lands([*values, values[0][:-2], None])

    assert [(row["id"], row["note"]) for row in rows] == [(1, None), (2, "gift"), (3, None)]
    assert rows[0] == {"id": 1, "total": Decimal("12.50"), "at": INSTANT, "lines": ["a", "b"], "note": None}
    assert letters == [(2, "UNKNOWN_SCHEMA"), (3, "INVALID_WIRE"), (5, "INVALID_AVRO")]
    assert_clean(shop.shop)


def test_columns_have_docs_of_schema_that_brought_them(store: MakeStore, confluent: SchemaRegistryClient) -> None:
    """A later version with another doc makes no commit: the table keeps the doc, also one that a person wrote."""
    first = {**ORDER, "fields": [{**each, "doc": f"the {each['name']}"} for each in ORDER["fields"]]}
    later = {**ORDER, "fields": [{**each, "doc": "another"} for each in ORDER["fields"]]}
    shop = store({"format": "avro", "registry": "main"}, {})
    shop.lands(avro(confluent, first, order(1)))
    with lake(shop.shop).load_table("shop.orders").update_schema() as update:
        update.update_column("id", doc="mine")

    rows, _ = shop.lands(avro(confluent, later, order(2)))

    assert [row["id"] for row in rows] == [1, 2]
    table = lake(shop.shop).load_table("shop.orders")
    docs = {field.name: field.doc for field in table.schema().fields if not field.name.startswith("_")}
    assert docs == {"id": "mine", "total": "the total", "at": "the at", "lines": "the lines"}
    assert len(table.metadata.schemas) == 3
    assert_clean(shop.shop)


def test_values_are_validated_against_json_schema(store: MakeStore, confluent: SchemaRegistryClient) -> None:
    """A value that its schema forbids is a letter, its neighbours land."""
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 1}, "name": {"type": "string"}},
        "required": ["id"],
    }
    good = serialized(JSONSerializer(json.dumps(schema), confluent), {"id": 7, "name": "x"})
    bad = good[0][:5] + b'{"id": 0}'

    rows, letters = store({"format": "json-schema", "registry": "main"}, {"id": "long", "name": "string"}).lands(
        [*good, bad]
    )

    assert rows == [{"id": 7, "name": "x"}]
    assert letters == [(1, "SCHEMA_VIOLATION")]


def test_registry_that_is_down_makes_no_dead_letters(store: MakeStore, confluent: SchemaRegistryClient) -> None:
    """Nobody knows what the values are: nothing is published, the run may try again."""
    shop = store({"format": "avro", "registry": "main"}, COLUMNS)
    settings = shop.shop.project.settings_file
    settings_body = json.loads(settings.read_text())
    settings_body["registries"]["main"]["url"] = "http://127.0.0.1:9/apis/ccompat/v7"
    settings.write_text(json.dumps(settings_body))
    shop.shop.project = type(shop.shop.project).load(
        shop.shop.project.environment() | {"FRAZIL_KAFKA_PORT": str(shop.shop.project.home.ports.kafka)}
    )
    shop.shop.produce(avro(confluent, ORDER, order(1)))

    with pytest.raises(Retryable, match="Schema Registry 'main'"):
        shop.shop.run()

    assert shop.shop.rows() == []


def test_values_of_columns_that_avro_records_brought_are_compared(
    store: MakeStore, confluent: SchemaRegistryClient
) -> None:
    """Also where they got wider, grew inside or were renamed since: what is altered is found; unsure cells are named."""
    format_store = store({"format": "avro", "registry": "main"}, {})
    nested = {"type": "record", "name": "At", "fields": [{"name": "x", "type": "int"}]}
    more = {**nested, "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "string"}]}
    versions: list[tuple[dict[str, Any], ...]] = [
        ({"name": "n", "type": "int"}, {"name": "f", "type": "float"}, {"name": "at", "type": nested}),
        ({"name": "n", "type": "long"}, {"name": "f", "type": "double"}, {"name": "at", "type": more}),
        ({"name": "count", "type": "long", "aliases": ["n"]}, {"name": "at", "type": ["null", more]}),
    ]
    values = [{"n": 1, "f": 0.5, "at": {"x": 1}}, {"n": 2**40, "f": 0.1, "at": {"x": 2, "y": "b"}}]
    for fields, value in zip(versions, [*values, {"count": 3, "at": None}], strict=True):
        schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *fields]}
        format_store.lands(avro(confluent, schema, {"id": 7, **value}))

    verification = verify(format_store.shop.project, format_store.shop.pipeline)
    assert verification.is_clean, list(map(str, verification.differences))
    assert verification.values_compared
    assert verification.cells_not_compared == {"shop.orders": {"n": (1, "a part that is not read here")}}

    changes: list[dict[str, Any]] = [{"n": 5}, {"at": {"x": 2, "y": "c"}}, {"id": 8}]
    EditedTable(lambda: lake(format_store.shop).load_table("shop.orders")).overwrite(
        lambda row: row | changes[row["_kafka_offset"]]
    )
    assert [
        difference.offset for difference in verify(format_store.shop.project, format_store.shop.pipeline).differences
    ] == [0, 1, 2]
