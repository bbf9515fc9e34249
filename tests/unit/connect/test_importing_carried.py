"""Configurations as people have them become what they mean, key by key."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.connect.findings import TABULAR
from frazil.connect.importing import ImportContext
from tests.unit.connect.connectors import COLUMNS, imported, outcome, value_at


@pytest.mark.parametrize(
    ("config", "path", "expected"),
    [
        ({"topics": " a , b ,"}, "source/topics", ["a", "b"]),
        ({"topics": None, "topics.regex": r"events\.\d{8}"}, "source/topics_pattern", r"events\.\d{8}"),
        ({}, "interval", "5m"),
        ({"iceberg.control.commit.interval-ms": "60000"}, "interval", "1m"),
        ({"iceberg.control.commitIntervalMs": "90000"}, "interval", "90s"),
        ({"iceberg.control.commit.interval-ms": "1000"}, "interval", "1s"),
        ({"iceberg.control.commit.interval-ms": "59999"}, "session_for", "10m"),
        ({"iceberg.control.commit.interval-ms": "60000"}, "session_for", None),
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
        (
            {"iceberg.tables.auto-create-props.format-version": "3"},
            "destinations/0/properties",
            {"format-version": "3"},
        ),
        ({"iceberg.tables.auto-create-props.format-version": "4"}, "destinations/0/properties", None),
        ({"iceberg.tables.default-commit-branch": "audit"}, "destinations/0/branch", "audit"),
        (
            {"iceberg.tables.default-commit-branch": "a", "iceberg.table.shop.orders.commit-branch": "b"},
            "destinations/0/branch",
            "b",
        ),
        ({"iceberg.tables.default-commit-branch": "main"}, "destinations/0/branch", None),
        ({"iceberg.tables.default-id-columns": "id"}, "destinations/0/identifier", None),
        ({}, "destinations/0/columns", {}),
        ({}, "destinations/0/evolve", None),
        ({"iceberg.tables.auto-create-enabled": "true"}, "destinations/0/columns", None),
        ({"iceberg.tables.auto-create-enabled": "true"}, "destinations/0/evolve", None),
        ({"iceberg.tables.evolve-schema-enabled": "true"}, "destinations/0/columns", None),
        ({"iceberg.tables.evolve-schema-enabled": "true"}, "destinations/0/evolve", "full"),
        ({}, "dead_letters", {"tolerance": "none"}),
        ({"errors.tolerance": "all", "errors.log.enable": "true"}, "dead_letters", {"tolerance": "all", "log": True}),
        (
            {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"},
            "dead_letters",
            {"tolerance": "all", "topic": "dead"},
        ),
        ({"errors.deadletterqueue.topic.name": "dead"}, "dead_letters", {"tolerance": "none"}),
        (
            {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "orders"},
            "dead_letters",
            {"tolerance": "all"},
        ),
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
            "thrift://h:9083",
        ),
    ],
)
def test_a_key_goes_where_its_meaning_is(config: dict[str, str | None], path: str, expected: Any) -> None:
    """A connector's options arrive in the pipeline or the settings, in Frazil's spelling."""
    assert value_at(imported(config), path) == expected


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
        {"field": {"name": "table", "allow": [r"shop\.orders"], "deny": [], "lower_case": True}, "otherwise": "filter"},
    ),
    "dynamic and created": (
        {
            "iceberg.tables": None,
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": "table",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.evolve-schema-enabled": "true",
            "iceberg.tables.default-partition-by": "bucket(id, 4)",
            "iceberg.tables.auto-create-props.write.target-file-size-bytes": "1000",
        },
        (),
        {
            "field": {"name": "table", "allow": [], "deny": [], "lower_case": True},
            "otherwise": "filter",
            "create": {
                "namespace": "",
                "evolve": "full",
                "partition_by": ["bucket(4, id)"],
                "properties": {"write.target-file-size-bytes": "1000"},
            },
        },
    ),
    "dynamic beside an empty list": (
        {"iceberg.tables": "", "iceberg.tables.dynamic.enabled": "true", "iceberg.tables.routeField": "t"},
        (),
        {"field": {"name": "t", "allow": [], "deny": [], "lower_case": True}, "otherwise": "filter"},
    ),
}


@pytest.mark.parametrize("case", ROUTES)
def test_records_go_where_the_sink_sends_them(case: str) -> None:
    """Broadcast, whole-value matches and dynamic names are told apart as the sink does, and it skips what has no table."""
    config, tables, route = ROUTES[case]

    connector = imported(config)

    assert tuple(destination["table"] for destination in connector.pipeline["destinations"]) == tables
    assert connector.pipeline.get("route") == route


def test_known_columns_evolve_as_well() -> None:
    """A table that is there keeps its columns, with what the file says of them, and gets more."""
    connector = imported({"iceberg.tables.evolve-schema-enabled": "true"}, ImportContext(columns=COLUMNS))

    assert value_at(connector, "destinations/0/columns") == {"id": "long", "at": {"type": "timestamptz", "unit": "ms"}}
    assert value_at(connector, "destinations/0/evolve") == "full"


def test_numbers_in_columns_of_times_are_milliseconds() -> None:
    """The sink reads every number for a time as milliseconds."""
    connector = imported({}, ImportContext(columns=COLUMNS))

    assert value_at(connector, "destinations/0/columns") == {"id": "long", "at": {"type": "timestamptz", "unit": "ms"}}


def test_a_partition_of_a_column_that_is_not_there_is_reported() -> None:
    """The file would not load; the sink would have made a table without partitions."""
    connector = imported({"iceberg.tables.default-partition-by": "days(ts)"}, ImportContext(columns=COLUMNS))

    assert "partition_by" not in connector.pipeline["destinations"][0]
    assert outcome(connector, "iceberg.tables.default-partition-by") == "not_supported"


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


def test_settings_of_the_worker_fill_what_the_connector_leaves_out() -> None:
    """Brokers, security and converters mostly stand in the worker's file."""
    connector = imported(
        {"value.converter": None, "value.converter.schemas.enable": None}, ImportContext(worker=WORKER)
    )

    assert connector.pipeline["value"] == {"format": "avro", "registry": "registry", "casts": "text"}
    assert connector.pipeline["start"] == "latest"
    assert connector.settings["clusters"]["kafka"]["bootstrap_servers"] == "a:9092"
    assert connector.settings["clusters"]["kafka"]["properties"]["ssl.ca.location"] == "${env:KAFKA_SSL_CA_LOCATION}"
    assert outcome(connector, "worker: bootstap.servers") == "unknown"
    assert outcome(connector, "worker: offset.storage.topic") == "changed"


def test_a_connector_with_a_converter_does_not_take_the_workers_options() -> None:
    """Kafka Connect gives a connector's own converter only the connector's options."""
    connector = imported(
        {"value.converter.schemas.enable": None}, ImportContext(worker={"value.converter.schemas.enable": "false"})
    )

    assert connector.pipeline["value"]["format"] == "json-envelope"


def test_names_with_capitals_become_lower_case() -> None:
    """The sink makes the names of records small: the table gets its rows, and a key by another spelling has no effect."""
    dynamic = {"iceberg.tables": None, "iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "t"}
    keys = {"iceberg.table.Shop.Orders.partition-by": "id", "iceberg.table.shop.lines.partition-by": "id"}
    columns = {"Shop.Orders": {"id": {"type": "long"}}, "shop.lines": {"id": {"type": "long"}}}

    connector = imported({**dynamic, **keys}, ImportContext(tables=("Shop.Orders",), columns=columns))

    assert [
        (destination["table"], destination["columns"], destination.get("partition_by"))
        for destination in connector.pipeline["destinations"]
    ] == [
        ("shop.orders", {"id": "long"}, None),
        ("shop.lines", {"id": "long"}, ["id"]),
    ]
    assert value_at(connector, "route/field/allow") == [r"shop\.orders", r"shop\.lines"]
    assert [outcome(connector, key) for key in keys] == ["changed", "carried"]


def test_reference_in_a_landed_transform_is_reported() -> None:
    """A pipeline file takes nothing from elsewhere: what a config provider filled in is written by hand, or allowed."""
    config = {
        "transforms": "t",
        "transforms.t.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.t.static.field": "region",
        "transforms.t.static.value": "${file:/etc/worker.properties:region}",
    }

    connector = imported(config)

    (note,) = (note for note in connector.notes if "references.allow" in note)
    assert note.startswith("${file:/etc/worker.properties:region}")


def test_kerberos_login_becomes_properties_of_librdkafka() -> None:
    """Principal, key and service go where librdkafka looks for them; that its wheel has no Kerberos is said."""
    name = "consumer.override.sasl"
    jaas = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/me.keytab" principal="me@EXAMPLE.ORG" serviceName=broker;'
    connector = imported(
        {f"{name}.mechanism": "GSSAPI", f"{name}.jaas.config": jaas, f"{name}.kerberos.kinit.cmd": "/bin/kinit"}
    )

    assert connector.settings["clusters"]["kafka"]["properties"] == {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.principal": "me@EXAMPLE.ORG",
        "sasl.kerberos.keytab": "/etc/me.keytab",
        "sasl.kerberos.service.name": "broker",
    }
    assert outcome(connector, f"{name}.jaas.config") == "carried"
    assert outcome(connector, f"{name}.kerberos.kinit.cmd") == "changed"
    assert any("docs/logins.md" in (finding.by_hand or "") for finding in connector.findings)


@pytest.mark.parametrize(
    "text", ["me@X; touch /tmp/x", "me@X$(id)", "me@X`id`", "me@X|id", "me@X\nid", "me@X&id", "me X"]
)
def test_kerberos_login_brings_no_command_for_a_shell(text: str) -> None:
    """Librdkafka calls `kinit` by a shell, with the principal as it is."""
    name = "consumer.override.sasl"
    jaas = f'com.sun.security.auth.module.Krb5LoginModule required keyTab="/etc/{text}" principal="{text}";'

    connector = imported({f"{name}.mechanism": "GSSAPI", f"{name}.jaas.config": jaas})

    properties = connector.settings["clusters"]["kafka"]["properties"]
    assert not {"sasl.kerberos.principal", "sasl.kerberos.keytab"} & properties.keys()
    assert outcome(connector, f"{name}.jaas.config") == "not_supported"


@pytest.mark.parametrize(
    ("servers", "jaas", "config"),
    [
        ("b-1.shop.c2.kafka.eu-central-1.amazonaws.com:9098", "required;", "region=eu-central-1"),
        (
            "boot-x.c2.kafka-serverless.us-east-1.amazonaws.com:9098",
            'required awsProfileName="ingest";',
            "region=us-east-1 profile=ingest",
        ),
        ("kafka.example.org:9098", "required;", None),
    ],
)
def test_msk_login_becomes_a_token_provider(servers: str, jaas: str, config: str | None) -> None:
    """Region from the brokers' address, profile from the login; without a region the notes say where it goes."""
    name = "consumer.override.sasl"
    connector = imported(
        {
            "consumer.override.bootstrap.servers": servers,
            "consumer.override.security.protocol": "SASL_SSL",
            f"{name}.mechanism": "AWS_MSK_IAM",
            f"{name}.jaas.config": f"software.amazon.msk.auth.iam.IAMLoginModule {jaas}",
            f"{name}.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        }
    )

    entry = connector.settings["clusters"]["kafka"]
    assert entry["token_provider"] == "msk-iam"
    assert entry["properties"]["sasl.mechanism"] == "OAUTHBEARER"
    assert entry["properties"].get("sasl.oauthbearer.config") == config
    assert {
        outcome(connector, f"{name}.{key}") for key in ("mechanism", "jaas.config", "client.callback.handler.class")
    } == {"changed"}
    assert any("AWS_REGION" in note for note in connector.notes) == (config is None)


def test_assumed_role_and_foreign_login_class_are_left_to_hand() -> None:
    """What no client here can do is said with its replacement."""
    name = "consumer.override.sasl"
    role = imported(
        {f"{name}.mechanism": "AWS_MSK_IAM", f"{name}.jaas.config": 'x required awsRoleArn="arn:aws:iam::1:role/r";'}
    )
    own = imported({f"{name}.mechanism": "OAUTHBEARER", f"{name}.login.callback.handler.class": "org.example.Login"})

    assert outcome(role, f"{name}.jaas.config") == "not_supported"
    assert outcome(own, f"{name}.login.callback.handler.class") == "not_supported"
    assert any("token provider" in (finding.by_hand or "") for finding in own.findings)


@pytest.mark.parametrize(("value", "expected"), [("true", "carried"), ("false", "changed"), ("yes", "refused")])
def test_log_of_errors_is_reported_as_it_is_set(value: str, expected: str) -> None:
    """A log that the pipeline file switches on is carried over."""
    connector = imported({"errors.log.enable": value})

    assert outcome(connector, "errors.log.enable") == expected
    assert connector.pipeline.get("dead_letters", {}).get("log", False) == (value == "true")
