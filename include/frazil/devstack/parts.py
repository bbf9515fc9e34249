"""The parts of a stack, in the order they start, for each profile of `frazil up`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from frazil.devstack import (
    airflow,
    broker,
    object_store,
    postgres,
    production_start,
    rest_catalog,
    schema_registry,
    spark_cluster,
)
from frazil.devstack.production import WORKERS
from frazil.runtime.home import Home, Profile, bootstrap_servers
from frazil.runtime.process import Processes

PartName = Literal["postgres", "s3", "catalog", "registry", "kafka", "cluster", "airflow"]


@dataclass(frozen=True, slots=True)
class Launch:
    """What a part is started with.

    Attributes:
        home: The stack.
        processes: Its processes.
        report: Receives progress lines.
        dags_paused: Whether a DAG seen for the first time waits to be unpaused.
    """

    home: Home
    processes: Processes
    report: Callable[[str], None]
    dags_paused: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """One server of a stack, of one or several processes.

    Attributes:
        name: What `frazil up --only` calls it.
        processes: Names of its processes, in the order they start.
        url: Where it answers.
        port: Name of its port in `Ports`. The first process of the part listens there.
        start: Starts what does not run of it, and waits until it answers.
        stop: Stops what runs of it.
    """

    name: PartName
    processes: tuple[str, ...]
    url: Callable[[Home], str]
    port: str
    start: Callable[[Launch], None]
    stop: Callable[[Processes], None]


def _airflow_url(home: Home) -> str:
    return home.airflow_url


def _cluster_url(home: Home) -> str:
    return spark_cluster.url(home.ports.spark_master)


_AIRFLOW = Part(
    "airflow",
    airflow.NAMES,
    _airflow_url,
    "airflow",
    lambda target: airflow.start(target.home, target.processes, target.report, dags_paused=target.dags_paused),
    airflow.stop,
)

PARTS: Mapping[Profile, tuple[Part, ...]] = {
    "embedded": (
        Part(
            "kafka",
            (broker.NAME,),
            bootstrap_servers,
            "kafka",
            lambda target: broker.start(target.home, target.processes, target.report),
            broker.stop,
        ),
        _AIRFLOW,
    ),
    "production": (
        Part(
            "postgres",
            (postgres.NAME,),
            postgres.address,
            "postgres",
            lambda target: production_start.start_postgres(target.home, target.processes, target.report),
            postgres.stop,
        ),
        Part(
            "s3",
            (object_store.NAME,),
            object_store.url,
            "s3",
            lambda target: production_start.start_s3(target.home, target.processes, target.report),
            object_store.stop,
        ),
        Part(
            "catalog",
            (rest_catalog.NAME,),
            rest_catalog.url,
            "catalog",
            lambda target: production_start.start_catalog(target.home, target.processes, target.report),
            rest_catalog.stop,
        ),
        Part(
            "registry",
            (schema_registry.NAME,),
            schema_registry.url,
            "registry",
            lambda target: production_start.start_registry(target.home, target.processes, target.report),
            schema_registry.stop,
        ),
        Part(
            "kafka",
            (broker.NAME,),
            bootstrap_servers,
            "kafka_sasl",
            lambda target: production_start.start_kafka(target.home, target.processes, target.report),
            broker.stop,
        ),
        Part(
            "cluster",
            (spark_cluster.MASTER, *map(spark_cluster.worker, range(WORKERS))),
            _cluster_url,
            "spark_master",
            lambda target: production_start.start_cluster(target.home, target.processes, target.report),
            lambda processes: spark_cluster.stop(processes, WORKERS),
        ),
        Part(
            "airflow",
            airflow.NAMES,
            _airflow_url,
            "airflow",
            lambda target: production_start.start_airflow(
                target.home, target.processes, target.report, dags_paused=target.dags_paused
            ),
            airflow.stop,
        ),
    ),
}
"""What `up` starts, in this order; `down` stops it from the last to the first."""


def names(profile: Profile) -> tuple[PartName, ...]:
    """Names of the parts of a profile, in the order they start."""
    return tuple(part.name for part in PARTS[profile])
