"""Connectors and transforms as documents have them: what is imported validates, and what can't be is refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.connect.importing import ImportContext
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.transforms.catalogue import TRANSFORMS
from frazil.run.staging.record_problems import record_problems
from tests.connectors import DOCUMENTED, DocumentedConnector
from tests.unit.connect.connectors import COLUMNS, imported

CONVERTERS: dict[str, dict[str, str | None]] = {
    "json": {},
    "json with schemas": {"value.converter.schemas.enable": "true"},
    "avro": {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schemas.enable": None,
        "value.converter.schema.registry.url": "https://registry.example.org",
    },
}

OPTIONS: dict[str, dict[str, str]] = {
    "Cast": {"spec": "id:string"},
    "CopyValue": {"source.field": "id", "target.field": "copy"},
    "DebeziumTransform": {"cdc.target.pattern": "{db}.{table}"},
    "DmsTransform": {},
    "DropHeaders": {"headers": "a,b"},
    "ExtractField": {"field": "after"},
    "ExtractNewRecordState": {
        "delete.tombstone.handling.mode": "REWRITE-WITH-TOMBSTONE",
        "add.fields": "op,lsn:place,source.ts_ms",
        "add.fields.prefix": "_",
        "add.headers": "db",
        "add.headers.prefix": "h_",
    },
    "Filter": {"predicate": "p"},
    "Flatten": {"delimiter": "_"},
    "HeaderFrom": {"fields": "id", "headers": "id", "operation": "copy"},
    "HoistField": {"field": "line"},
    "InsertField": {"topic.field": "topic", "static.field": "region", "static.value": "eu"},
    "InsertHeader": {"header": "h", "value.literal": "x"},
    "JsonToMap": {"json.root": "false"},
    "KafkaMetadata": {"field_name": "_m", "nested": "true", "external_field": "region,eu"},
    "MaskField": {"fields": "id", "replacement": "0"},
    "MongoDebezium": {"array_handling_mode": "document"},
    "RegexRouter": {"regex": "(.*)-v1", "replacement": "$1"},
    "ReplaceField": {"whitelist": "id,at", "renames": "id:id"},
    "SetSchemaMetadata": {"schema.name": "order"},
    "TimestampConverter": {"field": "at", "target.type": "Timestamp"},
    "TimestampRouter": {"topic.format": "${topic}-${timestamp}"},
    "ValueToKey": {"fields": "id"},
}
"""Options of every transform that stands for one of Kafka Connect's, the sink's or Debezium's."""


def problems(pipeline: dict[str, Any]) -> tuple[str, ...]:
    return record_problems(Pipeline.model_validate(pipeline))


@pytest.mark.parametrize("connector", DOCUMENTED, ids=str)
def test_documented_connector_becomes_a_valid_pipeline(connector: DocumentedConnector) -> None:
    """Nothing is left to fill in, and rows are merged where the sink changes them."""
    done = connector.imported()

    assert not done.is_refused, done.findings
    assert problems(done.pipeline) == ()
    writes = {destination.get("write", "append") for destination in done.pipeline["destinations"]}
    assert (writes <= {"upsert", "cdc"}) is connector.is_merged


def test_every_transform_with_a_class_there_has_options_here() -> None:
    """A transform that comes is tried with each converter, too."""
    assert OPTIONS.keys() == {name for name, kind in TRANSFORMS.items() if kind.connect_class is not None}


@pytest.mark.parametrize("converter", CONVERTERS)
@pytest.mark.parametrize("name", OPTIONS)
def test_transform_becomes_a_step_that_validates(name: str, converter: str) -> None:
    """Whatever the values are, also JSON of which nobody says what it holds."""
    connect_class = TRANSFORMS[name].connect_class
    assert connect_class is not None
    chain: dict[str, str | None] = {"transforms": "t", "transforms.t.type": connect_class.name}
    chain |= {f"transforms.t.{option}": value for option, value in OPTIONS[name].items()}
    if name == "Filter":
        kind = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
        chain |= {"predicates": "p", "predicates.p.type": kind, "predicates.p.pattern": "a.*"}

    done = imported(CONVERTERS[converter] | chain, ImportContext(columns=COLUMNS))

    assert [step["type"] for step in done.pipeline["transforms"]] == [name]
    assert problems(done.pipeline) == ()


MERGING: dict[str, tuple[dict[str, str | None], str]] = {
    "no columns": ({"iceberg.tables.default-id-columns": "id"}, "the types of its columns are unknown"),
    "a key that is no column": ({"iceberg.tables.default-id-columns": "nr"}, "nr: shop.orders has no such column"),
    "no key of a table that is not there": ({}, "neither id-columns nor an existing table"),
    "tables that only records name": (
        {"iceberg.tables": None, "iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "t"},
        "only records name the tables",
    ),
}


@pytest.mark.parametrize("case", MERGING)
def test_merge_whose_key_nobody_knows_is_refused_for_that_reason(case: str) -> None:
    """No such connector becomes a pipeline that adds a row per change."""
    keys, reason = MERGING[case]
    columns = {} if case == "no columns" else COLUMNS

    done = imported(
        {"iceberg.tables.upsert-mode-enabled": "true"} | keys, ImportContext(columns=columns, absent=("shop.orders",))
    )

    assert [finding.message for finding in done.findings if finding.outcome == "refused" and reason in finding.message]
    assert not done.pipeline


def test_merged_table_that_is_there_is_told_its_kafka_columns() -> None:
    """The statement that adds them is in the report, and the key is the table's own where no id-columns say it."""
    done = imported({"iceberg.tables.upsert-mode-enabled": "true"}, ImportContext(columns=COLUMNS))

    (destination,) = done.pipeline["destinations"]
    assert (destination["write"], destination.get("identifier")) == ("upsert", None)
    assert "kafka_columns" not in destination
    assert any("ALTER TABLE shop.orders ADD COLUMNS (_kafka_topic STRING" in note for note in done.notes)
    assert problems(done.pipeline) == ()


def test_columns_that_the_catalog_is_asked_for_are_no_reason_to_refuse() -> None:
    """Only when the catalog has answered it is told what is missing."""
    context = ImportContext(is_preview=True)

    done = imported({"iceberg.tables.upsert-mode-enabled": "true"}, context)

    assert [destination["table"] for destination in done.pipeline["destinations"]] == ["shop.orders"]


def test_short_commit_interval_becomes_a_session() -> None:
    """The sink of the deck's demo commits each second."""
    pipeline = imported({"iceberg.control.commit.interval-ms": "400"}, ImportContext(columns=COLUMNS)).pipeline

    assert (pipeline["interval"], pipeline["session_for"]) == ("1s", "10m")
    assert Pipeline.model_validate(pipeline).session is not None
