"""How each part of the production profile is started: with what it is told of the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import get_args

from frazil.devstack import airflow, broker, object_store, postgres, rest_catalog, schema_registry, spark_cluster
from frazil.devstack.production import USER, WAREHOUSE, WORKERS, ensure_passwords, kafka_access
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import Home
from frazil.runtime.process import Processes

Report = Callable[[str], None]

_AIRFLOW, _CATALOG, _REGISTRY = "airflow", "catalog", "registry"
"""Databases of the PostgreSQL server."""


def require(home: Home, parts: Collection[str]) -> None:
    """Check that what the machine must bring for these parts is there, before any of them is started.

    Raises:
        Terminal: Something must be installed.
    """
    checks: Mapping[str, Callable[[], object]] = {
        "postgres": lambda: postgres.require_programs(home),
        "s3": lambda: object_store.require_program(home),
        "registry": schema_registry.require_java,
    }
    for part, ask in checks.items():
        if part in parts:
            ask()


def start_postgres(home: Home, processes: Processes, report: Report) -> None:
    """Start PostgreSQL, and make the databases of the other parts."""
    password = ensure_passwords(home).postgres
    postgres.start(home, processes, report, password)
    for database in (_AIRFLOW, _CATALOG, _REGISTRY):
        postgres.ensure_database(home, database, password)


def start_s3(home: Home, processes: Processes, report: Report) -> None:
    """Start the S3 server."""
    object_store.start(home, processes, report, ensure_passwords(home).keys)


def start_catalog(home: Home, processes: Processes, report: Report) -> None:
    """Start the REST catalog: its list of tables in PostgreSQL, their metadata in S3."""
    passwords = ensure_passwords(home)
    login = {"CATALOG_USER": postgres.USER, "CATALOG_PASSWORD": passwords.postgres}
    keys = {"AWS_ACCESS_KEY_ID": passwords.s3_access_key, "AWS_SECRET_ACCESS_KEY": passwords.s3_secret_key}
    database = postgres.jdbc_url(home, _CATALOG)
    backing = rest_catalog.Backing.s3(WAREHOUSE, object_store.url(home), database, login | keys)
    rest_catalog.start(home, processes, report, backing)


def start_registry(home: Home, processes: Processes, report: Report) -> None:
    """Start the Schema Registry over PostgreSQL."""
    password = ensure_passwords(home).postgres
    database = schema_registry.Database(postgres.jdbc_url(home, _REGISTRY), postgres.USER, password)
    schema_registry.start(home, processes, report, database)


def start_kafka(home: Home, processes: Processes, report: Report) -> None:
    """Start the broker behind certificates and passwords; the one user of the stack may do everything."""
    from frazil.kafka.admin.grants import Grant, Resource, grant, set_passwords

    access = kafka_access(home)
    broker.start(home, processes, report, secured=access)
    cluster = Cluster("local", access.super_user())
    set_passwords(cluster, access.users)
    grant(cluster, USER, (Grant(kind, "*", "All") for kind in get_args(Resource)))


def start_cluster(home: Home, processes: Processes, report: Report) -> None:
    """Start the Spark cluster."""
    spark_cluster.start(home, processes, report, WORKERS, secret=ensure_passwords(home).spark)


def start_airflow(home: Home, processes: Processes, report: Report, *, dags_paused: bool) -> None:
    """Start Airflow with its metadata in PostgreSQL: the stack's own, if the home names no other."""
    database_url = postgres.url(home, _AIRFLOW, ensure_passwords(home).postgres)
    placed = replace(home, airflow_database=home.airflow_database or database_url)
    airflow.start(placed, processes, report, dags_paused=dags_paused)
