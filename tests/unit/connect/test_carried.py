"""Configurations as people have them become what they mean, key by key."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.connect.config import Connector
from frazil.connect.importing import Imported, Known, import_connector
from frazil.connect.names import APACHE, TABULAR

BASE = {
    "name": "orders-sink",
    "connector.class": APACHE,
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://catalog.example.org",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
"""The smallest connector that can run."""

_SMT = "org.apache.kafka.connect.transforms."
_COLUMNS = {"shop.orders": {"id": {"type": "long"}, "at": {"type": "timestamptz"}}}


def imported(config: dict[str, str | None], known: Known | None = None) -> Imported:
    whole = {key: value for key, value in (BASE | config).items() if value is not None}
    return import_connector(Connector("x.json", whole), known or Known())


def outcome(of: Imported, key: str) -> str:
    (found,) = [finding.outcome for finding in of.findings if finding.key == key]
    return found


def at(of: Imported, path: str) -> Any:
    found: Any = {**of.pipeline, "settings": of.settings}
    for part in path.split("/"):
        found = found[int(part)] if part.isdigit() else found.get(part)
    return found


@pytest.mark.parametrize(
    ("config", "path", "expected"),
    [
        ({"topics": " a , b ,"}, "source/topics", ["a", "b"]),
        ({"topics": None, "topics.regex": r"events\.\d{8}"}, "source/topics_pattern", r"events\.\d{8}"),
        ({}, "interval", "5m"),
        ({"iceberg.control.commit.interval-ms": "60000"}, "interval", "1m"),
        ({"iceberg.control.commitIntervalMs": "90000"}, "interval", "90s"),
        ({"iceberg.control.commit.interval-ms": "1000"}, "interval", "1m"),
        ({}, "start", "earliest"),
        ({"consumer.override.auto.offset.reset": "latest"}, "start", "latest"),
        ({}, "value", {"format": "json", "casts": "text"}),
        ({"value.converter.schemas.enable": None}, "value/format", "json-envelope"),
        ({"value.converter.schemas.enable": "true"}, "value/format", "json-envelope"),
        ({"value.converter.schemas.enable": ""}, "value/format", "json-envelope"),
        ({"value.converter": "org.apache.kafka.connect.converters.LongConverter"}, "value/format", "long"),
        ({"value.converter": "io.confluent.connect.protobuf.ProtobufConverter"}, "value/format", "protobuf"),
        ({"iceberg.tables.schema-case-insensitive": "true"}, "value/field_names", "case_insensitive"),
        (
            {"iceberg.tables.default-partition-by": "bucket(id, 4), hours(at)"},
            "destinations/0/partition_by",
            ["bucket(4, id)", "hour(at)"],
        ),
        (
            {"iceberg.table.shop.orders.partition-by": "truncate(id,10)"},
            "destinations/0/partition_by",
            ["truncate(10, id)"],
        ),
        ({"iceberg.tables.default-partition-by": "bucket(4, id)"}, "destinations/0/partition_by", None),
        (
            {"iceberg.tables.auto-create-props.write.parquet.compression-codec": "zstd"},
            "destinations/0/properties",
            {"write.parquet.compression-codec": "zstd"},
        ),
        (
            {"iceberg.table.write-props.write.target-file-size-bytes": "1"},
            "destinations/0/properties",
            {"write.target-file-size-bytes": "1"},
        ),
        ({"iceberg.tables.auto-create-props.format-version": "3"}, "destinations/0/properties", None),
        ({}, "dead_letters", {"tolerance": "none"}),
        ({"errors.tolerance": "all", "errors.log.enable": "true"}, "dead_letters", {"tolerance": "all", "log": True}),
        ({"iceberg.catalog": "prod"}, "catalog", "prod"),
        (
            {"iceberg.catalog": "org.apache.iceberg.rest.RESTCatalog", "iceberg.catalog.type": None},
            "settings/catalogs/iceberg/type",
            "rest",
        ),
        (
            {
                "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
                "iceberg.catalog.uri": "jdbc:sqlite:/var/c.db",
            },
            "settings/catalogs/iceberg/uri",
            "sqlite:////var/c.db",
        ),
        (
            {"iceberg.catalog.type": "hive", "iceberg.catalog.uri": "thrift://h:9083"},
            "settings/catalogs/iceberg/uri",
            "${env:CATALOG_URI}",
        ),
    ],
)
def test_a_key_goes_where_its_meaning_is(config: dict[str, str | None], path: str, expected: Any) -> None:
    """A connector's options arrive in the pipeline or the settings, in Frazil's spelling."""
    assert at(imported(config), path) == expected


ROUTES = {
    "one table": ({}, ("shop.orders",), None),
    "every table": ({"iceberg.tables": "shop.orders, shop.audit"}, ("shop.orders", "shop.audit"), None),
    "by a field": (
        {
            "iceberg.tables": "shop.orders,shop.audit,shop.none",
            "iceberg.tables.route-field": "data.kind",
            "iceberg.table.shop.orders.route-regex": "order|refund",
            "iceberg.table.shop.audit.route-regex": "(?<any>.*)",
        },
        ("shop.orders", "shop.audit"),
        {
            "static": {"field": "data.kind", "tables": {"shop.orders": "order|refund", "shop.audit": "(?P<any>.*)"}},
            "otherwise": "filter",
        },
    ),
    "by the oldest names": (
        {
            "connector.class": TABULAR,
            "iceberg.tables.routeField": "type",
            "iceberg.table.shop.orders.routeValues": "a",
        },
        ("shop.orders",),
        {"static": {"field": "type", "tables": {"shop.orders": "a"}}, "otherwise": "filter"},
    ),
    "a regex without a field": ({"iceberg.table.shop.orders.route-regex": "a"}, ("shop.orders",), None),
    "dynamic": (
        {
            "iceberg.tables": None,
            "iceberg.tables.dynamic-enabled": "TRUE",
            "iceberg.tables.route-field": "table",
            "iceberg.table.shop.orders.partition-by": "id",
        },
        ("shop.orders",),
        {"field": {"name": "table", "allow": [r"shop\.orders"], "deny": []}, "otherwise": "filter"},
    ),
    "dynamic beside an empty list": (
        {"iceberg.tables": "", "iceberg.tables.dynamic.enabled": "true", "iceberg.tables.routeField": "t"},
        (),
        {"field": {"name": "t", "allow": [], "deny": []}, "otherwise": "filter"},
    ),
}


@pytest.mark.parametrize("case", ROUTES)
def test_records_go_where_the_sink_sends_them(case: str) -> None:
    """Broadcast, whole-value matches and dynamic names are told apart as the sink does, and it skips what has no table."""
    config, tables, route = ROUTES[case]

    made = imported(config)

    assert tuple(of["table"] for of in made.pipeline["destinations"]) == tables
    assert made.pipeline.get("route") == route


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
    "a transform that lacks an option": {"transforms": "a", "transforms.a.type": f"{_SMT}HoistField$Value"},
    "a filter without predicate": {"transforms": "a", "transforms.a.type": f"{_SMT}Filter"},
    "a predicate that isn't there": {
        "transforms": "a",
        "transforms.a.type": f"{_SMT}Filter",
        "transforms.a.predicate": "p",
    },
    "types guessed per record": {
        "transforms": "a",
        "transforms.a.type": "io.tabular.iceberg.connect.transforms.JsonToMapTransform",
    },
    "text that is not UTF-8": {
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter.encoding": "ISO-8859-1",
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_land_something_else_is_refused(case: str) -> None:
    """Nothing is written for a connector whose records would go elsewhere, or be decoded otherwise."""
    made = imported(REFUSED[case])

    assert made.is_refused
    assert not made.pipeline
    assert not made.settings


CLASSES = {
    "iceberg.tables.evolve-schema-enabled=true": "not_supported",
    "iceberg.tables.evolve-schema-enabled=false": "carried",
    "iceberg.tables.schema-force-optional=true": "not_supported",
    "iceberg.tables.auto-create-enabled=true": "not_supported",
    "iceberg.tables.upsert-mode-enabled=true": "not_supported",
    "iceberg.tables.cdcField=_op": "not_supported",
    "iceberg.tables.default-commit-branch=b": "not_supported",
    "iceberg.tables.default-commit-branch=": "changed",
    "iceberg.table.shop.orders.id-columns=id": "not_supported",
    "iceberg.table.shop.order.id-columns=id": "unknown",
    "iceberg.tables.default-partition-by=bucket(4, id)": "not_supported",
    "iceberg.tables.default-partition-by=bucket(id, 4)": "carried",
    "iceberg.tables.auto-create-props.write.format.default=orc": "not_supported",
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
def test_a_key_is_in_the_class_of_what_becomes_of_it(written: str) -> None:
    """Whoever reads the report knows what is left to do."""
    key, _, value = written.partition("=")

    assert outcome(imported({key: value}), key) == CLASSES[written]


def test_a_slip_in_a_key_is_told_with_the_nearest_one() -> None:
    """The sink ignores unknown keys without a word; here the slip shows."""
    made = imported({"iceberg.tables.route-fild": "x"})

    (hint,) = [of.by_hand for of in made.findings if of.outcome == "unknown"]
    assert hint == "did you mean iceberg.tables.route-field?"


@pytest.mark.parametrize(
    "of",
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
def test_another_connector_is_refused_with_the_class_that_is_known(of: str | None) -> None:
    """Nobody waits for a pipeline out of a connector that does something else."""
    made = imported({"connector.class": of})

    (refused,) = [finding for finding in made.findings if finding.outcome == "refused"]
    assert refused.key == "connector.class"
    assert refused.by_hand is not None
    assert APACHE in refused.by_hand
    assert of is None or of in refused.message


STEPS = {
    "Kafka Connect's": (
        {"transforms": "c", "transforms.c.type": f"{_SMT}Cast$Value", "transforms.c.spec": "id:int64"},
        [{"type": "Cast", "spec": "id:int64"}],
    ),
    "old names": (
        {"transforms": "r", "transforms.r.type": f"{_SMT}ReplaceField$Value", "transforms.r.blacklist": "a"},
        [{"type": "ReplaceField", "exclude": "a"}],
    ),
    "paths are off there": (
        {"transforms": "e", "transforms.e.type": f"{_SMT}ExtractField$Value", "transforms.e.field": "a.b"},
        [{"type": "ExtractField", "field": "a.b", "field.syntax.version": "V1"}],
    ),
    "a predicate": (
        {
            "transforms": "f",
            "transforms.f.type": f"{_SMT}Filter",
            "transforms.f.predicate": "p",
            "transforms.f.negate": "true",
            "predicates": "p",
            "predicates.p.type": f"{_SMT}predicates.TopicNameMatches",
            "predicates.p.pattern": "a.*",
        },
        [{"type": "Filter", "when": {"predicate": "TopicNameMatches", "pattern": "a.*", "negate": True}}],
    ),
    "the sink's own": (
        {"transforms": "k", "transforms.k.type": "io.tabular.iceberg.connect.transforms.KafkaMetadataTransform"},
        [{"type": "KafkaMetadata"}],
    ),
    "Debezium's": (
        {"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"},
        [{"type": "DebeziumTransform", "delete.handling": "drop"}],
    ),
    "a key that nobody decodes": (
        {"transforms": "k", "transforms.k.type": f"{_SMT}ExtractField$Key", "transforms.k.field": "id"},
        None,
    ),
    "text that is JSON": (
        {
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "transforms": "j",
            "transforms.j.type": "org.apache.iceberg.connect.transforms.JsonToMapTransform",
        },
        None,
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_chain_of_transforms_keeps_its_meaning(case: str) -> None:
    """Defaults that differ are written out, and nothing of a chain is left out without a word."""
    config, steps = STEPS[case]

    assert imported(config).pipeline.get("transforms") == steps


def test_json_before_transforms_has_to_be_declared() -> None:
    """A pipeline that would read nothing but nulls is refused by validation until its fields are named."""
    chain = {"transforms": "c", "transforms.c.type": f"{_SMT}Cast$Value", "transforms.c.spec": "id:int64"}

    assert imported(chain).pipeline["value"]["fields"] == []
    assert "fields" not in imported({}).pipeline["value"]


def test_numbers_in_columns_of_times_are_milliseconds() -> None:
    """The sink reads every number for a time as milliseconds."""
    made = imported({}, Known(columns=_COLUMNS))

    assert at(made, "destinations/0/columns") == {"id": "long", "at": {"type": "timestamptz", "unit": "ms"}}


def test_a_partition_of_a_column_that_is_not_there_is_reported() -> None:
    """The file would not load; the sink would have made a table without partitions."""
    made = imported({"iceberg.tables.default-partition-by": "days(ts)"}, Known(columns=_COLUMNS))

    assert "partition_by" not in made.pipeline["destinations"][0]
    assert outcome(made, "iceberg.tables.default-partition-by") == "not_supported"


WORKER = {
    "bootstrap.servers": "a:9092",
    "group.id": "connect",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://registry:8081",
    "consumer.auto.offset.reset": "latest",
    "security.protocol": "SSL",
    "ssl.truststore.location": "/ca.jks",
    "offset.storage.topic": "o",
    "bootstap.servers": "x",
}


def test_a_worker_gives_what_the_connector_leaves_open() -> None:
    """Brokers, security and converters mostly stand in the worker's file."""
    made = imported({"value.converter": None, "value.converter.schemas.enable": None}, Known(worker=WORKER))

    assert made.pipeline["value"] == {"format": "avro", "registry": "registry", "casts": "text"}
    assert made.pipeline["start"] == "latest"
    assert made.settings["clusters"]["kafka"]["bootstrap_servers"] == "a:9092"
    assert made.settings["clusters"]["kafka"]["properties"]["ssl.ca.location"] == "${env:KAFKA_SSL_CA_LOCATION}"
    assert outcome(made, "worker: bootstap.servers") == "unknown"
    assert outcome(made, "worker: offset.storage.topic") == "changed"


def test_a_connector_with_a_converter_does_not_take_the_workers_options() -> None:
    """Kafka Connect gives a connector's own converter only the connector's options."""
    made = imported({"value.converter.schemas.enable": None}, Known(worker={"value.converter.schemas.enable": "false"}))

    assert made.pipeline["value"]["format"] == "json-envelope"
