"""The job of `frazil doctor --spark`: tasks on an engine's executors report their packages and connections."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import cloudpickle

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.spark.errors import fetch_rows
from frazil.spark.jobs import executor_facts
from frazil.spark.jobs.driver import carry_out, session
from frazil.spark.jobs.workers import WORK
from frazil.spark.submit.configuration import cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TASKS: Final = 2
"""Tasks per configured core, so that each executor gets one even while others are busy."""

_LEAST_TASKS: Final = 4


def main(argv: list[str]) -> int:
    """Collect facts from the executors."""
    return carry_out("probe", argv, _run)


def _run(project: Project, _name: str, order: str) -> str:
    pipelines = [project.pipeline(pipeline) for pipeline in json.loads(order)]
    with session(project) as spark:
        return json.dumps(_probe_executors(spark, project, pipelines))


def _probe_executors(spark: SparkSession, project: Project, pipelines: Iterable[Pipeline]) -> dict[str, Any]:
    from pyspark.sql.functions import udf

    clusters, storages = _clusters(project, pipelines), _storages(project, pipelines)
    cloudpickle.register_pickle_by_value(executor_facts)  # type: ignore[no-untyped-call]
    facts, module = executor_facts.facts, WORK
    # As a plain function of Spark: one over Arrow needs PyArrow, which may be missing there.
    report = udf(lambda _: facts(module, clusters, storages), "string", useArrow=False)
    count = max(_LEAST_TASKS, _TASKS * cores(lambda key: spark.conf.get(key, "") or ""))
    began = time.time()
    answers: pa.Table = fetch_rows(spark.range(0, count, 1, count).select(report("id").alias("told")), "executors")
    ended = time.time()
    return {
        "began": began,
        "ended": ended,
        "told": [json.loads(answer) for answer in answers.column("told").to_pylist()],
    }


def _clusters(project: Project, pipelines: Iterable[Pipeline]) -> list[tuple[str, Any, Any]]:
    topics: dict[str, set[str]] = {}
    for pipeline in pipelines:
        topics.setdefault(pipeline.source.cluster, set()).update(pipeline.source.topics)
    return [(name, dict(project.cluster(name).properties), sorted(names)) for name, names in topics.items()]


def _storages(project: Project, pipelines: Iterable[Pipeline]) -> list[tuple[str, Any, Any]]:
    storages = {}
    for pipeline in pipelines:
        for name in pipeline.catalogs:
            place = project.lake(name).storage((*pipeline.tables, pipeline.ledger_table))
            if place is not None:
                storages[name] = (name, place.location, dict(place.properties))
    return list(storages.values())
