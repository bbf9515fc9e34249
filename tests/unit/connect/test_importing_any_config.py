"""Whatever stands in a configuration: nothing raises, no key is lost, no secret is written."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from frazil.connect.config import Connector, read_connectors
from frazil.connect.findings import APACHE, CANONICAL, LEGACY, TABULAR
from frazil.connect.importing import ImportContext, ImportedConnector, import_all, pipeline_text, settings_text
from frazil.pipeline.files.files import UnreadableProperties, read

_SECRET = "hunter2-hunter2"

_NAMES = st.sampled_from(
    [
        *CANONICAL,
        *LEGACY,
        "iceberg.table.a.b.route-regex",
        "iceberg.table.a.b.partition-by",
        "iceberg.table.a.b.idColumns",
        "iceberg.tables.write-props.format-version",
        "transforms.t.type",
        "transforms.t.field",
        "transforms.t.predicate",
        "transforms.t.negate",
        "predicates.p.type",
        "predicates.p.pattern",
        "value.converter.schema.registry.url",
        "value.converter.decimal.format",
        "consumer.override.ssl.endpoint.identification.algorithm",
        "iceberg.catalog.jdbc.schema-version",
    ]
)
_VALUES = st.sampled_from(
    [
        "",
        "true",
        "false",
        "all",
        "t",
        "p",
        "a.b",
        "a.b, c.d",
        "a.*",
        "(",
        "bucket(id, 4)",
        "60000",
        "rest",
        "jdbc",
        "hive",
        "https://x",
        "jdbc:postgresql://h/db",
        "${file:/a:b}",
        "${env:A}",
        "org.apache.kafka.connect.json.JsonConverter",
        "org.apache.kafka.connect.storage.StringConverter",
        "io.confluent.connect.avro.AvroConverter",
        "org.apache.kafka.connect.transforms.ExtractField$Key",
        "org.apache.kafka.connect.transforms.Filter",
        "org.apache.iceberg.connect.transforms.JsonToMapTransform",
        "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    ]
)
_CONFIGS = st.dictionaries(_NAMES | st.text(max_size=12), _VALUES | st.text(max_size=12), max_size=12)
_BASE = {
    "name": "s",
    "topics": "a",
    "iceberg.tables": "a.b",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://x",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


def _import(config: dict[str, str], worker: dict[str, str]) -> tuple[ImportedConnector, dict[str, Any]]:
    (connector,), settings = import_all([Connector("x.json", config)], ImportContext(worker=worker))
    return connector, settings


@given(given_keys=_CONFIGS, worker=_CONFIGS, connector=st.sampled_from([APACHE, TABULAR, "x.Sink"]), base=st.booleans())
def test_every_key_is_in_exactly_one_class(
    given_keys: dict[str, str], worker: dict[str, str], connector: str, base: bool
) -> None:
    """Nothing is dropped silently, whatever a connector and its worker say."""
    config = {**(_BASE if base else {}), **given_keys, "connector.class": connector}

    sink, settings = _import(config, worker)

    reported = [finding.key for finding in sink.findings]
    assert len(reported) == len(set(reported))
    assert set(config) <= set(reported)
    if connector != "x.Sink":
        assert {f"worker: {key}" for key in worker} <= set(reported)
    assert sink.is_refused == (not sink.pipeline)
    if sink.pipeline:
        assert yaml.safe_load(pipeline_text(sink)) == json.loads(json.dumps(sink.pipeline, default=list))
        assert yaml.safe_load(settings_text(settings, [sink])) == json.loads(json.dumps(settings))


_SECRETS = st.sampled_from(
    [
        ("iceberg.catalog.credential", "{}"),
        ("iceberg.catalog.token", "{}"),
        ("iceberg.catalog.s3.secret-access-key", "{}"),
        ("iceberg.catalog.s3.access-key-id", "{}"),
        ("iceberg.catalog.header.Authorization", "Bearer {}"),
        ("iceberg.catalog.header.X-Api-Key", "{}"),
        ("iceberg.catalog.adls.connection-string.a", "{}"),
        ("iceberg.catalog.uri", "https://user:{}@catalog.example.org"),
        ("iceberg.catalog.jdbc.password", "{}"),
        ("iceberg.kafka.sasl.jaas.config", "x required username='a' password='{}';"),
        ("iceberg.hadoop.fs.s3a.secret.key", "{}"),
        ("consumer.override.sasl.jaas.config", 'x.Y required username="a" password="{}";'),
        ("consumer.override.sasl.jaas.config", "x.Y required password={};"),
        ("consumer.override.ssl.keystore.password", "{}"),
        ("consumer.override.ssl.keystore.key", "-----BEGIN PRIVATE KEY----- {}"),
        ("consumer.override.ssl.key.password", "{}"),
        ("value.converter.basic.auth.user.info", "user:{}"),
        ("value.converter.schema.registry.basic.auth.user.info", "user:{}"),
        ("value.converter.schema.registry.url", "https://user:{}@registry.example.org"),
        ("value.converter.bearer.auth.token", "{}"),
        ("value.converter.bearer.auth.client.secret", "{}"),
        ("value.converter.schema.registry.ssl.keystore.password", "{}"),
        ("some.unknown.option", "{}"),
        ("iceberg.tables.unknown", "{}"),
    ]
)


@given(
    secret=_SECRETS,
    converter=st.sampled_from(
        ["io.confluent.connect.avro.AvroConverter", "org.apache.kafka.connect.json.JsonConverter"]
    ),
    kind=st.sampled_from(["rest", "jdbc", "hive"]),
    mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]),
    in_worker=st.booleans(),
)
def test_no_secret_is_written(
    secret: tuple[str, str], converter: str, kind: str, mechanism: str, in_worker: bool
) -> None:
    """What opens a door is in no file and no report, only the name of a variable."""
    key, text = secret
    value = text.format(_SECRET)
    config = {**_BASE, "connector.class": APACHE, "value.converter": converter, "iceberg.catalog.type": kind}
    config |= {"consumer.override.sasl.mechanism": mechanism, key: value}
    worker = {key.replace("consumer.override.", "consumer."): value} if in_worker else {}

    connector, settings = _import(config, worker)

    shown = [pipeline_text(connector), settings_text(settings, [connector]), repr(connector), *connector.notes]
    shown += [f"{finding.key} {finding.message} {finding.by_hand}" for finding in connector.findings]
    assert _SECRET not in "\n".join(shown)


@given(
    text=st.text() | st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text()).map(json.dumps)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    """A broken file ends with one line."""
    for read_text in (read, lambda given_text: read_connectors(given_text, "x.json")):
        try:
            read_text(text)
        except UnreadableProperties:
            continue


def test_connectors_of_one_cluster_share_its_entry() -> None:
    """Two connectors with the same brokers and secrets don't double the settings; another password is another entry."""
    secrets = [_SECRET, _SECRET, "other"]
    connectors = [
        Connector("x", {**_BASE, "name": f"s{number}", "connector.class": APACHE, "iceberg.catalog.token": secret})
        for number, secret in enumerate(secrets)
    ]

    connectors_imported, settings = import_all(connectors, ImportContext())

    assert list(settings["clusters"]) == ["kafka"]
    assert [one.pipeline["catalog"] for one in connectors_imported] == ["iceberg", "iceberg", "iceberg_2"]
    assert settings["catalogs"]["iceberg_2"]["properties"]["token"] == "${env:ICEBERG_2_TOKEN}"


def test_two_connectors_of_one_name_are_not_one_pipeline() -> None:
    """The second file would replace the first one's."""
    connector = Connector("x", {**_BASE, "connector.class": APACHE})

    first, second = import_all([connector, connector], ImportContext())[0]

    assert not first.is_refused
    assert second.is_refused


def test_key_with_a_line_break_stays_in_a_comment() -> None:
    """The settings file describes its variables in comments, with names of keys."""
    config = {**_BASE, "connector.class": APACHE, "iceberg.catalog.a\nother: 1 #token": "x"}

    connector, settings = _import(config, {})

    assert yaml.safe_load(settings_text(settings, [connector])) == settings
