"""Configurations as clients of Kafka Connect send them: a pipeline by its own keys, and a sink."""

from __future__ import annotations

from typing import Any

OWN: dict[str, Any] = {
    "connector.class": "frazil.Pipeline",
    "engine": "inline",
    "source": {"topics": ["orders"]},
    "destinations": [{"table": "shop.orders", "columns": {"id": "long", "token": "string"}}],
}
"""A pipeline by its own keys. A column may be called as secrets are."""

PIZZAS = {
    "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector",
    "tasks.max": "6",
    "topics": "completed-pizzas",
    "iceberg.tables": "rpc.pizzas",
    "iceberg.catalog": "demo",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://rest:8181",
    "iceberg.catalog.client.region": "us-east-1",
    "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "iceberg.catalog.warehouse": "s3://warehouse",
    "iceberg.catalog.s3.endpoint": "http://minio:9000",
    "iceberg.catalog.s3.path-style-access": "true",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.evolve-schema-enabled": "true",
    "iceberg.control.commit.interval-ms": "180000",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "frazil.catalog": "lake",
}
"""The sink of a well-known demo. Where its catalog is not one of the settings, a key says which one is meant."""
