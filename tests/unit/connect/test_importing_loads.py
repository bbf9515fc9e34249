"""What is written can be loaded: by the models that every other command uses."""

from __future__ import annotations

import pytest
import yaml

from frazil.connect.importing import ImportContext, ImportedConnector, pipeline_text, settings_text
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.settings import Settings, unknown_names
from tests.unit.connect.connectors import COLUMNS, SMT, imported

_SASL = {
    "consumer.override.security.protocol": "SASL_SSL",
    "consumer.override.sasl.mechanism": "SCRAM-SHA-512",
    "consumer.override.sasl.jaas.config": 'x.Login required username="u" password="p\\"q";',
    "consumer.override.ssl.truststore.location": "/ca.jks",
    "consumer.override.ssl.keystore.location": "/me.p12",
}
_AVRO = {
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schemas.enable": None,
    "value.converter.schema.registry.url": "https://registry.example.org",
    "value.converter.basic.auth.credentials.source": "USER_INFO",
    "value.converter.basic.auth.user.info": "a:b",
}
CONFIGS: dict[str, dict[str, str | None]] = {
    "small": {},
    "envelope": {"value.converter.schemas.enable": "true"},
    "secured": _SASL,
    "kerberos": {
        "consumer.override.security.protocol": "SASL_SSL",
        "consumer.override.sasl.mechanism": "GSSAPI",
        "consumer.override.sasl.jaas.config": 'x.Krb5LoginModule required keyTab="/etc/me.keytab" principal="me@EXAMPLE.ORG";',
    },
    "msk": {
        "consumer.override.bootstrap.servers": "b-1.shop.c2.kafka.eu-central-1.amazonaws.com:9098",
        "consumer.override.sasl.mechanism": "AWS_MSK_IAM",
    },
    "avro": _AVRO,
    "partitions": {"iceberg.tables.default-partition-by": "bucket(id, 4),month(at),id"},
    "dead letters": {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"},
    "transforms": {
        **_AVRO,
        "transforms": "a,b,c,d",
        "transforms.a.type": f"{SMT}InsertField$Value",
        "transforms.a.topic.field": "topic",
        "transforms.b.type": "org.apache.iceberg.connect.transforms.DebeziumTransform",
        "transforms.b.cdc.target.pattern": "{db}.{table}",
        "transforms.c.type": f"{SMT}TimestampConverter$Value",
        "transforms.c.field": "at",
        "transforms.c.target.type": "Timestamp",
        "transforms.d.type": f"{SMT}RegexRouter",
        "transforms.d.regex": "(.*)-v1",
        "transforms.d.replacement": "$1",
    },
    "a transform of keys": {
        "transforms": "k",
        "transforms.k.type": f"{SMT}HoistField$Key",
        "transforms.k.field": "id",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter.schemas.enable": "true",
    },
    "jdbc": {
        "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "iceberg.catalog.uri": "jdbc:postgresql://db.example.org:5432/iceberg",
        "iceberg.catalog.jdbc.user": "u",
        "iceberg.catalog.jdbc.password": "p",
        "iceberg.catalog.type": None,
    },
    "glue": {
        "iceberg.catalog.catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
        "iceberg.catalog.warehouse": "s3://bucket/warehouse",
        "iceberg.catalog.uri": None,
        "iceberg.catalog.type": None,
    },
    "a pattern of topics": {"topics": None, "topics.regex": "events-(?<day>[0-9]+)"},
    "odd name": {"name": "Überweisungen 2.0 (prod)"},
}


def load(connector: ImportedConnector) -> tuple[Pipeline, Settings]:
    """Both files, from their texts. References to variables stand as they are."""
    settings = Settings.model_validate(yaml.safe_load(settings_text(connector.settings, [connector])))
    return Pipeline.model_validate(yaml.safe_load(pipeline_text(connector))), settings


@pytest.mark.parametrize("case", CONFIGS)
def test_an_imported_connector_loads(case: str) -> None:
    """Nothing but what is called a hole has to be written by hand."""
    connector = imported(CONFIGS[case], ImportContext(columns=COLUMNS))

    pipeline, settings = load(connector)

    assert list(unknown_names(pipeline, settings)) == []


def test_taken_over_positions_load_from_yaml() -> None:
    """Offsets are numbers by partition numbers in YAML, too."""
    connector = imported({}, ImportContext(columns=COLUMNS))
    connector.pipeline["start"] = {"offsets": {"orders": {0: 5, 1: 9}}}

    assert load(connector)[0].model_dump()["start"]["offsets"] == {"orders": {0: 5, 1: 9}}
