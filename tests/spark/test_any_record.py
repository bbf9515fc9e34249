"""Whatever a producer sends lands or is a dead letter, in tables that Spark writes; no record ends a run.

What is fed, and the ways to a table, are those of `tests.fuzz`; there the decoders are asked alone, millions of times.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql import SparkSession

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.run.batches.plan import RunResult, plan_run, run_result
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from frazil.verify.check import verify
from tests.fuzz.mutations import mutated
from tests.fuzz.promises import HEADERS, KEYS
from tests.fuzz.subjects import Subject
from tests.fuzz.ways import CELLS, DOCUMENTS, TABLE
from tests.fuzz.writers import WRITERS
from tests.registry_server import RegistryServer
from tests.rest_catalog import RestServer

BY_SPARK = ("orc", "evolving-orc", "v3", "variant", "merged", "evolving-merged", "cdc", "evolving-cdc")
"""Ways to tables that Spark writes."""

FEW = ("avro-merged", "protobuf-evolving-orc", "json-variant", "json-evolving-cdc")
"""Cells of the short lane."""

MANY = tuple(
    cell for cell in CELLS if cell.name.partition("-")[2].removeprefix("envelope-").removeprefix("schema-") in BY_SPARK
)

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
GOOD_EVERY = 8


@dataclass
class Place:
    """A pipeline of one cell over a fresh topic."""

    cell: Subject
    project: Project
    cluster: Cluster
    topic: str
    spark: SparkSession
    ids: Mapping[int, int]

    def send(self, rng: Random, count: int) -> None:
        """Send hostile records, good ones between them, in one batch of each compression."""
        for compression in COMPRESSIONS:
            producer = Producer({**self.cluster.properties, "compression.type": compression, "linger.ms": 500})
            for _ in range(count // len(COMPRESSIONS)):
                is_good = rng.randrange(GOOD_EVERY) == 0
                value = self.cell.good(rng.randrange(1 << 20)) if is_good else mutated(rng, self.cell)
                headers: list[Any] = [(each["key"], each["value"]) for each in rng.choice(HEADERS) or []]
                producer.produce(self.topic, self._registered(value), rng.choice(KEYS), 0, headers=headers)
            assert producer.flush(60) == 0

    def run(self) -> RunResult:
        """Land what is new."""
        pipeline = self.project.pipeline("sales")
        request = RunRequest(str(uuid.uuid4()))
        planned = plan_run(self.project, pipeline, request)
        assert planned.plan is not None
        ingest(self.project, pipeline, planned.plan, stage_inline, lambda _: None, apply=SparkApply(self.spark))
        return run_result(self.project, pipeline, request.run)

    def _registered(self, value: bytes | None) -> bytes | None:
        """The value under the id that this registry gave its schema."""
        if value is None or value[:1] != b"\0" or (written := int.from_bytes(value[1:5], "big")) not in self.ids:
            return value
        return b"\0" + self.ids[written].to_bytes(4, "big") + value[5:]


@cache
def registered(url: str) -> Mapping[int, int]:
    """Register the writers' schemas; return the id of each by the one it has in values."""
    with SchemaRegistryClient({"url": url, "timeout": 30}) as client:
        schemas = {key: Schema(schema.text, schema.kind) for key, schema in WRITERS.schemas.items()}
        return {key: client.register_schema(f"any-{key}", schema) for key, schema in schemas.items()}


@pytest.fixture
def place(
    tmp_path: Path,
    cluster: Cluster,
    spark: SparkSession,
    rest_server: RestServer,
    request: pytest.FixtureRequest,
) -> Place:
    """Format version 3 needs a catalog server; formats with schemas need a registry."""
    cell: Subject = request.param
    document: dict[str, Any] = dict(DOCUMENTS[cell.name])
    topic = f"any-{uuid.uuid4().hex[:8]}"
    create_topic(cluster, topic, 1)
    rest_server.empty()
    ids: Mapping[int, int] = {}
    settings: dict[str, Any] = {
        "clusters": {"local": {"bootstrap_servers": cluster.bootstrap_servers}},
        "catalogs": {"lake": {"type": "rest", "uri": rest_server.uri}},
    }
    if "registry" in document["value"]:
        server: RegistryServer = request.getfixturevalue("registry")
        settings["registries"] = {"main": {"url": server.url}}
        ids = registered(server.url)
    (tmp_path / "settings.yaml").write_text(json.dumps(settings))
    (tmp_path / "pipelines").mkdir()
    document |= {"source": {"topics": [topic]}, "dead_letters": {"tolerance": "all"}}
    (tmp_path / "pipelines" / "sales.yaml").write_text(json.dumps(document))
    env = {
        "FRAZIL_HOME": str(tmp_path / "home"),
        "FRAZIL_PIPELINES": str(tmp_path / "pipelines"),
        "FRAZIL_SETTINGS": str(tmp_path / "settings.yaml"),
    }
    project = Project.load(env)
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    open_catalog(session, "lake", project.settings.catalogs["lake"])
    return Place(cell, project, cluster, topic, session, ids)


def lands_every_record(place: Place, seed: int, batches: int, count: int) -> None:
    """Send and land; each record is counted once, and `frazil verify` finds nothing."""
    rng = Random(f"{place.cell.name} {seed}")
    for _ in range(batches):
        place.send(rng, count)
        result = place.run()
        assert result.read == count
        assert result.written + result.dead + result.filtered == count
        assert result.written > 0
    checked = verify(place.project, place.project.pipeline("sales"))
    assert checked.differences == ()
    assert place.spark.table(f"lake.{TABLE}").count() > 0


@pytest.mark.parametrize(
    "place", [cell for cell in CELLS if cell.name in FEW], ids=lambda cell: cell.name, indirect=True
)
def test_hostile_records_land_or_are_dead_letters_in_tables_that_spark_writes(place: Place) -> None:
    """The second batch meets the table that the first one shaped."""
    lands_every_record(place, seed=3, batches=2, count=100)


@pytest.mark.full
@pytest.mark.parametrize("place", MANY, ids=lambda cell: cell.name, indirect=True)
def test_two_thousand_hostile_records_of_each_way_land_or_are_dead_letters(place: Place) -> None:
    """Every format on every way that needs Spark."""
    lands_every_record(place, seed=5, batches=4, count=500)
