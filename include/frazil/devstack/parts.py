"""The components of a stack for each profile of `frazil up`, in start order, and how each is configured to reach the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from frazil.devstack import airflow, broker, object_store, postgres, rest_catalog, schema_registry, spark_cluster
from frazil.devstack.production import USER, WAREHOUSE, WORKERS, ensure_passwords, kafka_access
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import Home, Profile, bootstrap_servers
from frazil.runtime.process import Processes

PartName = Literal["postgres", "s3", "catalog", "registry", "kafka", "cluster", "airflow"]

_AIRFLOW, _CATALOG, _REGISTRY = "airflow", "catalog", "registry"
"""Databases of the PostgreSQL server."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The inputs for starting a part.

    Attributes:
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
        require: Raises Terminal if the machine lacks what the part needs; asked before any part is started.
    """

    name: PartName
    processes: tuple[str, ...]
    url: Callable[[Home], str]
    port: str
    start: Callable[[Launch], None]
    stop: Callable[[Processes], None]
    require: Callable[[Home], object] = lambda _: None


def _start_open_kafka(launch: Launch) -> None:
    broker.start(launch.home, launch.processes, launch.report)


def _start_secured_kafka(launch: Launch) -> None:
    """Start Kafka with certificates and passwords; the stack's only user may do everything."""
    from frazil.kafka.admin.grants import Grant, Resource, grant, set_passwords

    access = kafka_access(launch.home)
    broker.start(launch.home, launch.processes, launch.report, secured=access)
    cluster = Cluster("local", access.super_user())
    set_passwords(cluster, access.users)
    grant(cluster, USER, (Grant(kind, "*", "All") for kind in get_args(Resource)))


def _start_postgres(launch: Launch) -> None:
    """With the databases of the other parts."""
    password = ensure_passwords(launch.home).postgres
    postgres.start(launch.home, launch.processes, launch.report, password)
    for database in (_AIRFLOW, _CATALOG, _REGISTRY):
        postgres.ensure_database(launch.home, database, password)


def _start_s3(launch: Launch) -> None:
    object_store.start(launch.home, launch.processes, launch.report, ensure_passwords(launch.home).keys)


def _start_catalog(launch: Launch) -> None:
    """Its list of tables is in PostgreSQL, their metadata in S3."""
    passwords = ensure_passwords(launch.home)
    login = {"CATALOG_USER": postgres.USER, "CATALOG_PASSWORD": passwords.postgres}
    keys = {"AWS_ACCESS_KEY_ID": passwords.s3_access_key, "AWS_SECRET_ACCESS_KEY": passwords.s3_secret_key}
    database = postgres.jdbc_url(launch.home, _CATALOG)
    backing = rest_catalog.Backing.s3(WAREHOUSE, object_store.url(launch.home), database, login | keys)
    rest_catalog.start(launch.home, launch.processes, launch.report, backing)


def _start_registry(launch: Launch) -> None:
    password = ensure_passwords(launch.home).postgres
    database = schema_registry.Database(postgres.jdbc_url(launch.home, _REGISTRY), postgres.USER, password)
    schema_registry.start(launch.home, launch.processes, launch.report, database)


def _start_cluster(launch: Launch) -> None:
    secret = ensure_passwords(launch.home).spark
    spark_cluster.start(launch.home, launch.processes, launch.report, WORKERS, secret=secret)


def _start_airflow(launch: Launch) -> None:
    """Start Airflow. In the production profile, its metadata is in the stack's PostgreSQL, unless the home names another
    database.
    """
    home = launch.home
    if home.profile == "production" and home.airflow_database is None:
        home = replace(home, airflow_database=postgres.url(home, _AIRFLOW, ensure_passwords(home).postgres))
    airflow.start(home, launch.processes, launch.report, dags_paused=launch.dags_paused)


_AIRFLOW_PART = Part("airflow", airflow.NAMES, lambda home: home.airflow_url, "airflow", _start_airflow, airflow.stop)
_KAFKA_PART = Part("kafka", (broker.NAME,), bootstrap_servers, "kafka", _start_open_kafka, broker.stop)

PARTS: Mapping[Profile, tuple[Part, ...]] = {
    "embedded": (_KAFKA_PART, _AIRFLOW_PART),
    "production": (
        Part(
            "postgres",
            (postgres.NAME,),
            postgres.address,
            "postgres",
            _start_postgres,
            postgres.stop,
            postgres.require_programs,
        ),
        Part(
            "s3",
            (object_store.NAME,),
            object_store.url,
            "s3",
            _start_s3,
            object_store.stop,
            object_store.require_program,
        ),
        Part("catalog", (rest_catalog.NAME,), rest_catalog.url, "catalog", _start_catalog, rest_catalog.stop),
        Part(
            "registry",
            (schema_registry.NAME,),
            schema_registry.url,
            "registry",
            _start_registry,
            schema_registry.stop,
            lambda _: schema_registry.require_java(),
        ),
        replace(_KAFKA_PART, port="kafka_sasl", start=_start_secured_kafka),
        Part(
            "cluster",
            (spark_cluster.MASTER, *map(spark_cluster.worker, range(WORKERS))),
            lambda home: spark_cluster.url(home.ports.spark_master),
            "spark_master",
            _start_cluster,
            lambda processes: spark_cluster.stop(processes, WORKERS),
        ),
        _AIRFLOW_PART,
    ),
}
"""What `up` starts, in this order; `down` stops it from the last to the first."""


def names(profile: Profile) -> tuple[PartName, ...]:
    """Names of the parts of a profile, in the order they start."""
    return tuple(part.name for part in PARTS[profile])
