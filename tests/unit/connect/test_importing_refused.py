"""What can't be carried is refused, or told with what to do."""

from __future__ import annotations

import pytest

from frazil.connect.findings import APACHE
from tests.unit.connect.connectors import SMT, imported, outcome

REFUSED = {
    "static and dynamic": {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "t"},
    "dynamic without field": {"iceberg.tables": None, "iceberg.tables.dynamic-enabled": "true"},
    "no table": {"iceberg.tables": ""},
    "no namespace": {"iceberg.tables": "orders"},
    "no topics": {"topics": " , "},
    "topics twice": {"topics.regex": "a"},
    "no catalog": {"iceberg.catalog.type": None, "iceberg.catalog.uri": None},
    "no converter": {"value.converter": None, "value.converter.schemas.enable": None},
    "unknown converter": {
        "value.converter": "com.amazonaws.services.schemaregistry.kafkaconnect.AWSKafkaAvroConverter"
    },
    "no table has a regex": {"iceberg.tables.route-field": "t"},
    "a regex of Java's alone": {
        "iceberg.tables.route-field": "t",
        "iceberg.table.shop.orders.route-regex": r"\p{Upper}+",
    },
    "two values of one option": {
        "iceberg.tables.route-field": "a",
        "iceberg.tables.routeField": "b",
        "iceberg.table.shop.orders.route-regex": "x",
    },
    "no number": {"iceberg.control.commit.interval-ms": "5m"},
    "a transform without class": {"transforms": "a"},
    "somebody's transform": {"transforms": "a", "transforms.a.type": "io.confluent.connect.transforms.Filter$Value"},
    "a transform that lacks an option": {"transforms": "a", "transforms.a.type": f"{SMT}HoistField$Value"},
    "a filter without predicate": {"transforms": "a", "transforms.a.type": f"{SMT}Filter"},
    "a predicate that isn't there": {
        "transforms": "a",
        "transforms.a.type": f"{SMT}Filter",
        "transforms.a.predicate": "p",
    },
    "a filter of everything but tombstones": {
        "transforms": "a",
        "transforms.a.type": f"{SMT}Filter",
        "transforms.a.predicate": "p",
        "transforms.a.negate": "true",
        "predicates": "p",
        "predicates.p.type": f"{SMT}predicates.RecordIsTombstone",
    },
    "documents whose types nobody tells": {
        "transforms": "a",
        "transforms.a.type": "org.apache.iceberg.connect.transforms.MongoDebeziumTransform",
    },
    "one option in two spellings": {
        "transforms": "a",
        "transforms.a.type": f"{SMT}ReplaceField$Value",
        "transforms.a.blacklist": "a",
        "transforms.a.exclude": "b",
    },
    "text that is not UTF-8": {
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter.encoding": "ISO-8859-1",
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_connector_that_would_land_other_rows_is_refused(case: str) -> None:
    """Nothing is written for a connector whose records would go elsewhere, or be decoded otherwise."""
    connector = imported(REFUSED[case])

    assert connector.is_refused
    assert not connector.pipeline
    assert not connector.settings


CLASSES = {
    "iceberg.tables.evolve-schema-enabled=true": "changed",
    "iceberg.tables.evolve-schema-enabled=false": "carried",
    "iceberg.tables.schema-force-optional=true": "carried",
    "iceberg.tables.auto-create-enabled=true": "changed",
    "iceberg.tables.upsert-mode-enabled=true": "refused",
    "iceberg.tables.upsert-mode-enabled=false": "carried",
    "iceberg.tables.cdcField=_op": "refused",
    "iceberg.tables.replace-null-with-default=true": "changed",
    "iceberg.tables.replace-null-with-default=false": "carried",
    "iceberg.tables.default-commit-branch=b": "carried",
    "iceberg.tables.default-commit-branch=a b": "not_supported",
    "iceberg.table.shop.orders.commit-branch=main": "carried",
    "iceberg.tables.default-commit-branch=": "changed",
    "iceberg.table.shop.orders.id-columns=id": "not_supported",
    "iceberg.table.shop.order.id-columns=id": "unknown",
    "iceberg.tables.default-partition-by=bucket(4, id)": "not_supported",
    "iceberg.tables.default-partition-by=bucket(id, 4)": "carried",
    "iceberg.tables.auto-create-props.write.format.default=orc": "changed",
    "iceberg.tables.auto-create-props.write.format.default=avro": "not_supported",
    "iceberg.tables.auto-create-props.format-version=3": "changed",
    "iceberg.tables.auto-create-props.format-version=4": "not_supported",
    "iceberg.tables.auto-create-enabled=TRUE": "changed",
    "iceberg.tables.auto-create-enabled=yes": "refused",
    "iceberg.tables.upsert-mode-enabled=1": "refused",
    "iceberg.hadoop.fs.s3a.endpoint=x": "not_supported",
    "iceberg.control.topic=c": "changed",
    "tasks.max=4": "changed",
    "errors.deadletterqueue.topic.name=dlq": "changed",
    "key.converter=x": "changed",
    "consumer.override.isolation.level=read_committed": "carried",
    "consumer.override.max.poll.records=9": "changed",
    "consumer.override.fetch.min.bytes=9": "carried",
    "iceberg.tables.route-fild=x": "unknown",
    "transforms.unused.type=x": "changed",
    "iceberg.tables.topic-to-table-mapping=a:b": "unknown",
}


@pytest.mark.parametrize("written", CLASSES)
def test_each_key_is_in_the_class_of_its_outcome(written: str) -> None:
    """Whoever reads the report knows what is left to do."""
    key, _, value = written.partition("=")

    assert outcome(imported({key: value}), key) == CLASSES[written]


def test_old_names_that_the_running_sink_ignores_are_reported() -> None:
    """Apache's sink never routed by routeField: the pipeline would do what the connector did not."""
    connector = imported({"iceberg.tables.routeField": "t", "iceberg.table.shop.orders.routeRegex": "a"})

    assert any("Apache's sink ignores the old names" in note for note in connector.notes)


def test_mistyped_key_is_reported_with_the_nearest_one() -> None:
    """The sink ignores unknown keys without a word; here the slip shows."""
    connector = imported({"iceberg.tables.route-fild": "x"})

    (hint,) = [finding.by_hand for finding in connector.findings if finding.outcome == "unknown"]
    assert hint == "did you mean iceberg.tables.route-field?"


@pytest.mark.parametrize(
    "class_name",
    [
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        "io.confluent.connect.s3.S3SinkConnector",
        "io.debezium.connector.postgresql.PostgresConnector",
        "org.apache.hudi.connect.HoodieSinkConnector",
        "io.delta.kafka.DeltaSinkConnector",
        "com.example.Own",
        None,
    ],
)
def test_another_connector_is_refused_with_the_class_that_is_known(class_name: str | None) -> None:
    """Nobody waits for a pipeline out of a connector that does something else."""
    connector = imported({"connector.class": class_name})

    (refused,) = [finding for finding in connector.findings if finding.outcome == "refused"]
    assert refused.key == "connector.class"
    assert refused.by_hand is not None
    assert APACHE in refused.by_hand
    assert class_name is None or class_name in refused.message
