"""The settings file as a model: named Kafka clusters, catalogs and engines. Pipelines only name them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Literal

from pydantic import Field

from frazil.pipeline.model import Model, Pipeline


class ClusterSettings(Model):
    """A Kafka cluster, in the properties of librdkafka."""

    bootstrap_servers: str = Field(description="host:port, several with commas.")
    properties: dict[str, str] = Field(
        default_factory=dict, description="Further librdkafka properties, such as security.protocol.", repr=False
    )


class CatalogSettings(Model):
    """An Iceberg catalog that Spark and PyIceberg share. Its name here is its name in both."""

    type: Literal["jdbc"] = Field("jdbc", description="`jdbc`: the tables of a SQL database (SQLite on one machine).")
    uri: str = Field(description="Database, such as sqlite:////var/lib/frazil/catalog.db", repr=False)
    warehouse: str = Field(description="Where table data is stored, such as file:///var/lib/frazil/warehouse")
    properties: dict[str, str] = Field(
        default_factory=dict, description="Further catalog and file-io properties.", repr=False
    )


class EngineSettings(Model):
    """How Spark is started for a batch."""

    master: str = Field(
        "local[2]", description="Spark master of `frazil run`; under Airflow the connection's host decides."
    )
    connection: str = Field("frazil_spark", description="Airflow connection of the Spark master.")
    driver_memory: str = Field("1g", description="Heap of the driver.")
    pool: str = Field("frazil_spark", description="Airflow pool that bounds how many ingest tasks run at once.")
    conf: dict[str, str] = Field(default_factory=dict, description="Further Spark configuration.", repr=False)


class Settings(Model):
    """The settings file."""

    clusters: dict[str, ClusterSettings] = Field(min_length=1)
    catalogs: dict[str, CatalogSettings] = Field(min_length=1)
    engines: dict[str, EngineSettings] = Field(default_factory=lambda: {"spark": EngineSettings()})


INLINE_ENGINE = "inline"
"""The engine that needs no entry in the settings: the process that runs the plan."""


def unknown_names(pipeline: Pipeline, settings: Settings) -> Iterator[str]:
    """What a pipeline names that the settings don't know, one line per key, with the nearest known name."""
    yield from _unknown("source.cluster", pipeline.source.cluster, settings.clusters, "clusters")
    yield from _unknown("catalog", pipeline.catalog, settings.catalogs, "catalogs")
    yield from _unknown("engine", pipeline.engine, [*settings.engines, INLINE_ENGINE], "engines")


def _unknown(key: str, name: str, known: Collection[str], kind: str) -> Iterator[str]:
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
        yield f"{key}: the settings have no {name!r} under {kind}, {hint}"
