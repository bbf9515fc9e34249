"""Names of keys: those of the Iceberg sink and of Kafka Connect's framework, and their older spellings.

Sources: docs/kafka-connect.md of Apache Iceberg; README and IcebergSinkConfig of the Tabular (Databricks) repository up to
0.6.19, whose early releases wrote camel case; Kafka Connect's configuration reference.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from types import MappingProxyType
from typing import Final

APACHE: Final = "org.apache.iceberg.connect.IcebergSinkConnector"
TABULAR: Final = "io.tabular.iceberg.connect.IcebergSinkConnector"

LEGACY: Final = MappingProxyType(
    {
        "iceberg.tables.dynamic.enabled": "iceberg.tables.dynamic-enabled",
        "iceberg.tables.routeField": "iceberg.tables.route-field",
        "iceberg.tables.defaultCommitBranch": "iceberg.tables.default-commit-branch",
        "iceberg.tables.cdcField": "iceberg.tables.cdc-field",
        "iceberg.tables.upsertModeEnabled": "iceberg.tables.upsert-mode-enabled",
        "iceberg.tables.autoCreateEnabled": "iceberg.tables.auto-create-enabled",
        "iceberg.tables.evolveSchemaEnabled": "iceberg.tables.evolve-schema-enabled",
        "iceberg.control.group.id": "iceberg.control.group-id",
        "iceberg.control.commitIntervalMs": "iceberg.control.commit.interval-ms",
        "iceberg.control.commitTimeoutMs": "iceberg.control.commit.timeout-ms",
        "iceberg.control.commitThreads": "iceberg.control.commit.threads",
    }
)
"""Old spellings of Tabular's early releases, and what they are called now."""

_LEGACY_OF_TABLES: Final = MappingProxyType(
    {
        "routeRegex": "route-regex",
        "routeValues": "route-regex",
        "idColumns": "id-columns",
        "commitBranch": "commit-branch",
    }
)

TABLE_OPTIONS: Final = ("route-regex", "partition-by", "id-columns", "commit-branch")
"""What `iceberg.table.<table>.` ends in."""

_PER_TABLE: Final = re.compile(
    rf"iceberg\.table\.(?P<table>.+)\.(?P<option>{'|'.join([*TABLE_OPTIONS, *_LEGACY_OF_TABLES])})"
)

CANONICAL: Final = (
    "iceberg.tables",
    "iceberg.tables.dynamic-enabled",
    "iceberg.tables.route-field",
    "iceberg.tables.default-commit-branch",
    "iceberg.tables.default-id-columns",
    "iceberg.tables.default-partition-by",
    "iceberg.tables.cdc-field",
    "iceberg.tables.upsert-mode-enabled",
    "iceberg.tables.auto-create-enabled",
    "iceberg.tables.evolve-schema-enabled",
    "iceberg.tables.schema-force-optional",
    "iceberg.tables.schema-case-insensitive",
    "iceberg.tables.replace-null-with-default",
    "iceberg.control.topic",
    "iceberg.control.group-id",
    "iceberg.control.group-id-prefix",
    "iceberg.connect.group-id",
    "iceberg.control.commit.interval-ms",
    "iceberg.control.commit.timeout-ms",
    "iceberg.control.commit.threads",
    "iceberg.control.commit.max-consecutive-failures",
    "iceberg.coordinator.transactional.prefix",
    "iceberg.coordinator.transactional.suffix",
    "iceberg.coordinator-executor-keep-alive-timeout-ms",
    "iceberg.catalog",
    "iceberg.catalog.type",
    "iceberg.catalog.catalog-impl",
    "iceberg.catalog.uri",
    "iceberg.catalog.warehouse",
    "iceberg.hadoop-conf-dir",
    "name",
    "connector.class",
    "tasks.max",
    "tasks.max.enforce",
    "topics",
    "topics.regex",
    "key.converter",
    "value.converter",
    "header.converter",
    "transforms",
    "predicates",
    "config.action.reload",
    "errors.tolerance",
    "errors.retry.timeout",
    "errors.retry.delay.max.ms",
    "errors.log.enable",
    "errors.log.include.messages",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.topic.replication.factor",
    "errors.deadletterqueue.context.headers.enable",
    "consumer.override.auto.offset.reset",
    "consumer.override.isolation.level",
)
"""Keys with a name of their own."""

_FAMILIES: Final = (
    "iceberg.tables.auto-create-props.",
    "iceberg.tables.write-props.",
    "iceberg.table.write-props.",
    "iceberg.catalog.",
    "iceberg.hadoop.",
    "iceberg.kafka.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "transforms.",
    "predicates.",
    "consumer.override.",
    "producer.override.",
    "admin.override.",
)
"""Prefixes of keys that something else reads."""


def current(key: str) -> str:
    """The present name of a key: its own, unless it is an old spelling."""
    if key in LEGACY:
        return LEGACY[key]
    table = per_table(key)
    return f"iceberg.table.{table[0]}.{table[1]}" if table else key


def per_table(key: str) -> tuple[str, str] | None:
    """Table and option of a key that is about one table, by the option's present name."""
    match = _PER_TABLE.fullmatch(key)
    return (match["table"], _LEGACY_OF_TABLES.get(match["option"], match["option"])) if match else None


def is_known(name: str) -> bool:
    """Whether a present name is one of the sink or of the framework."""
    return name in CANONICAL or name.startswith(_FAMILIES)


def suggestions(tables: Collection[str]) -> list[str]:
    """Names per table, for slips in them."""
    return [f"iceberg.table.{table}.{option}" for table in tables for option in TABLE_OPTIONS]
