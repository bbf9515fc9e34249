"""The settings file as a model: named Kafka clusters, catalogs and engines. Pipelines only name them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Literal, Self

from pydantic import Field, model_validator

from frazil.pipeline.model import Pipeline
from frazil.pipeline.strict import Model


class ClusterSettings(Model):
    """A Kafka cluster, in the properties of librdkafka."""

    bootstrap_servers: str = Field(description="host:port, several with commas.")
    properties: dict[str, str] = Field(
        default_factory=dict, description="Further librdkafka properties, such as security.protocol.", repr=False
    )


class CatalogSettings(Model):
    """An Iceberg catalog that Spark and PyIceberg share. Its name here is its name in both."""

    type: Literal["jdbc", "rest"] = Field(
        "jdbc",
        description="`jdbc`: the tables of a SQL database (SQLite on one machine). `rest`: a server that speaks Iceberg's REST"
        " protocol (Polaris, Lakekeeper, Gravitino, S3 Tables and others).",
    )
    uri: str = Field(
        description="`jdbc`: the database, such as sqlite:////var/lib/frazil/catalog.db; `rest`: the root of the server's API,"
        " such as https://catalog.example.org/api/catalog",
        repr=False,
    )
    warehouse: str | None = Field(
        None,
        description="`jdbc`: where table data is stored, such as file:///var/lib/frazil/warehouse; `rest`: name or place of"
        " the warehouse, for servers that have several.",
    )
    properties: dict[str, str] = Field(
        default_factory=dict,
        description="Further catalog and file-io properties; for `rest` such as credential, token, oauth2-server-uri,"
        " header.NAME or rest.client.socket-timeout-ms.",
        repr=False,
    )

    @model_validator(mode="after")
    def _has_a_place_for_data(self) -> Self:
        if self.type == "jdbc" and self.warehouse is None:
            raise ValueError("warehouse is required by type jdbc: where table data is stored")
        return self


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
