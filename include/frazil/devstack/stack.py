"""The embedded stack as a whole: the parts of each profile of `frazil up`. Starts them, stops them, and reports their status."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal, get_args

from frazil.devstack import (
    airflow,
    broker,
    object_store,
    postgres,
    production,
    rest_catalog,
    schema_registry,
    spark_cluster,
)
from frazil.devstack.production import USER, WAREHOUSE, WORKERS, ensure_passwords, kafka_access
from frazil.error_codes import STACK_FAILED
from frazil.kafka.client.cluster import Cluster
from frazil.runtime import spark_server
from frazil.runtime.home import (
    HOME_VARIABLE,
    PORT_VARIABLES,
    PROJECT_VARIABLE,
    Home,
    Profile,
    bootstrap_servers,
    exclusive,
)
from frazil.runtime.process import Processes

PartName = Literal["postgres", "s3", "catalog", "registry", "kafka", "cluster", "airflow"]

_AIRFLOW, _CATALOG, _REGISTRY = "airflow", "catalog", "registry"
"""Databases of the PostgreSQL server."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The inputs for starting a part. `dags_paused`: whether new DAGs are paused."""

    home: Home
    processes: Processes
    report: Callable[[str], None]
    dags_paused: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """One server of a stack, of one or several processes.

    Attributes:
        name: Its name in `frazil up --only`.
        processes: Names of its processes, in the order in which they start.
        url: Its address.
        port: Name of its port in `Ports`, on which its first process listens.
        start: Starts its processes unless they run, and waits until it answers.
        stop: Stops its processes if they run.
        require: Raises Terminal if the machine lacks what the part needs. It is called before any part starts.
        needs: Parts that must run before it starts.
    """

    name: PartName
    processes: tuple[str, ...]
    url: Callable[[Home], str]
    port: str
    start: Callable[[Launch], None]
    stop: Callable[[Processes], None]
    require: Callable[[Home], object] = lambda _: None
    needs: tuple[PartName, ...] = ()


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
    """Start PostgreSQL, and create the databases of the other parts."""
    password = ensure_passwords(launch.home).postgres
    postgres.start(launch.home, launch.processes, launch.report, password)
    for database in (_AIRFLOW, _CATALOG, _REGISTRY):
        postgres.ensure_database(launch.home, database, password)


def _start_s3(launch: Launch) -> None:
    object_store.start(launch.home, launch.processes, launch.report, ensure_passwords(launch.home).keys)


def _start_catalog(launch: Launch) -> None:
    """Start the REST catalog, whose list of tables is in PostgreSQL and whose metadata files are in S3."""
    passwords = ensure_passwords(launch.home)
    login = {"CATALOG_USER": postgres.USER, "CATALOG_PASSWORD": passwords.postgres, "CATALOG_LOGIN": passwords.catalog}
    keys = {"AWS_ACCESS_KEY_ID": passwords.s3_access_key, "AWS_SECRET_ACCESS_KEY": passwords.s3_secret_key}
    database = postgres.jdbc_url(launch.home, _CATALOG)
    backing = rest_catalog.Backing.s3(WAREHOUSE, object_store.url(launch.home), database, login | keys)
    rest_catalog.start(launch.home, launch.processes, launch.report, backing)


def _start_registry(launch: Launch) -> None:
    passwords = ensure_passwords(launch.home)
    address = postgres.jdbc_url(launch.home, _REGISTRY)
    database = schema_registry.Database(address, postgres.USER, passwords.postgres)
    schema_registry.start(launch.home, launch.processes, launch.report, database, passwords.registry)


def _start_cluster(launch: Launch) -> None:
    secret = ensure_passwords(launch.home).spark
    spark_cluster.start(launch.home, launch.processes, launch.report, WORKERS, secret=secret)


def _start_airflow(launch: Launch) -> None:
    """Start Airflow. In the production profile, its metadata database is in PostgreSQL, unless the home names another one."""
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
        Part(
            "catalog",
            (rest_catalog.NAME,),
            rest_catalog.url,
            "catalog",
            _start_catalog,
            rest_catalog.stop,
            needs=("postgres", "s3"),
        ),
        Part(
            "registry",
            (schema_registry.NAME,),
            schema_registry.url,
            "registry",
            _start_registry,
            schema_registry.stop,
            lambda _: schema_registry.require_java(),
            needs=("postgres",),
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
        replace(_AIRFLOW_PART, needs=("postgres",)),
    ),
}
"""The parts of each profile, in the order in which `up` starts them; `down` stops them in reverse."""


def names(profile: Profile) -> tuple[PartName, ...]:
    """Names of the parts of a profile, in the order in which they start."""
    return tuple(part.name for part in PARTS[profile])


CATALOG = "lake"
"""Name of the embedded catalog. Keys of its rows in the database contain it, so Spark and PyIceberg must use the same."""


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One process of the stack.

    Attributes:
        name: Name of the process.
        state: `running`; `stopped` if it was never started, or was stopped in order; `dead` if it ended otherwise.
        pid: Process id of a running process.
        url: Address of a running process that has one.
        since: Start time of a running process, in UTC.
    """

    name: str
    state: Literal["running", "stopped", "dead"]
    pid: int | None = None
    url: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a home's stack."""

    home: Home
    components: tuple[ComponentStatus, ...]

    def is_running(self, part: PartName) -> bool:
        """Return whether every process of a part runs."""
        needed = next(candidate.processes for candidate in PARTS[self.home.profile] if candidate.name == part)
        return all(component.state == "running" for component in self.components if component.name in needed)

    def to_json(self) -> dict[str, Any]:
        """Return addresses and processes of the stack as a JSON object, without secrets."""
        return {
            "home": str(self.home.root),
            "profile": self.home.profile,
            "bootstrap_servers": bootstrap_servers(self.home),
            "catalog": {"name": CATALOG, **_catalog(self.home)},
            "addresses": {part.name: part.url(self.home) for part in PARTS[self.home.profile]},
            "airflow": {"url": self.home.airflow_url, "user": self.home.airflow_user},
            "components": [
                asdict(component) | {"since": component.since.isoformat() if component.since else None}
                for component in self.components
            ],
        }


def processes_of(home: Home) -> Processes:
    """Return the process records and logs of a home."""
    return Processes(home.run, home.logs, home.root)


def up(
    home: Home,
    only: Collection[PartName] | None = None,
    report: Callable[[str], None] = lambda _: None,
    *,
    dags_paused: bool = True,
) -> None:
    """Start the stopped parts of the stack, and wait until they answer.

    Calls on one home wait for each other. Parts that started before a failure keep running, until `down` stops them.

    Raises:
        Terminal: A port is taken, or a setting moved the port of a running part; another profile runs; or a program is missing.
        Retryable: A download failed, or a part did not start; its log is quoted.
    """
    processes = processes_of(home)
    launch = Launch(home, processes, report, dags_paused)
    with _exclusive(home, report):
        _refuse_other_profile(home, processes)
        _refuse_moved_ports(home, processes)
        needed = {
            name
            for part in PARTS[home.profile]
            if only is None or part.name in only
            for name in (part.name, *part.needs)
        }
        parts = [part for part in PARTS[home.profile] if part.name in needed]
        for part in parts:  # before `home.record`: a home must not change its profile if this machine lacks a program
            part.require(home)
        if home.profile == "production":
            production.write_settings(home)
        home.record()
        home.warehouse.mkdir(parents=True, exist_ok=True)
        for part in parts:
            began = time.monotonic()
            part.start(launch)
            report(f"{part.name}: ready at {part.url(home)} ({time.monotonic() - began:.1f} s)")


def down(home: Home, report: Callable[[str], None] = lambda _: None, only: Collection[str] | None = None) -> None:
    """Stop the processes of the stack, of every profile, in the reverse order of their start; also those of a crashed `up`.

    `only` names parts, and `spark` for a managed Spark Connect server; None: all.

    Raises:
        Retryable: A process did not end.
    """
    processes = processes_of(home)
    if not home.run.is_dir():
        return
    with _exclusive(home, report):
        for part in reversed(PARTS["production"]):  # this profile has all parts
            if only is None or part.name in only:
                part.stop(processes)
            if part.name == "airflow" and (only is None or "spark" in only):
                spark_server.stop(processes)
    report("stopped")


def status(home: Home) -> Status:
    """Return the status of the stack, by its process records."""
    processes = processes_of(home)
    components = [name for part in PARTS[home.profile] for name in part.processes]
    if processes.record(spark_server.NAME) is not None:  # not every project has a managed server
        components.append(spark_server.NAME)
    return Status(home, tuple(_component(processes, name) for name in components))


def _exclusive(home: Home, report: Callable[[str], None]) -> AbstractContextManager[None]:
    return exclusive(home.run / "stack.lock", lambda: report("waiting for another `frazil up` or `frazil down`"))


def _refuse_other_profile(home: Home, processes: Processes) -> None:
    recorded = Home.resolve({PROJECT_VARIABLE: str(home.project), HOME_VARIABLE: str(home.root)}).profile
    if recorded == home.profile:
        return
    running = [name for part in PARTS[recorded] for name in part.processes if processes.running(name) is not None]
    if running:
        raise STACK_FAILED.terminal(
            f"{', '.join(running)} run in profile {recorded} of {home.root}; profile {home.profile} was requested",
            next_step="`frazil down` first, or set FRAZIL_HOME to another folder",
        )


def _refuse_moved_ports(home: Home, processes: Processes) -> None:
    for part in PARTS[home.profile]:
        first, url = part.processes[0], part.url(home)
        record = processes.running(first)
        if record is not None and record.url != url:
            raise STACK_FAILED.terminal(
                f"{first} runs at {record.url}, but {PORT_VARIABLES[part.port]} asks for {url}",
                next_step="`frazil down` first, or unset the variable",
            )


def _catalog(home: Home) -> dict[str, str]:
    if home.profile == "production":
        return {"uri": rest_catalog.url(home), "warehouse": production.WAREHOUSE}
    return {"uri": f"sqlite:///{home.catalog}", "warehouse": f"file://{home.warehouse}"}


def _component(processes: Processes, name: str) -> ComponentStatus:
    record = processes.running(name)
    if record is not None:
        return ComponentStatus(name, "running", record.pid, record.url or None, record.since)
    return ComponentStatus(name, "dead" if processes.record(name) else "stopped")
