"""Airflow as separate processes: API server first, then scheduler, DAG processor and triggerer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.devstack.airflow_database import (
    API_BUSY_SECONDS,
    SQLITE,
    AirflowDatabase,
    airflow_database,
    require_answer,
    sqlite_url,
)
from frazil.devstack.airflow_settings import environment
from frazil.error_codes import PROGRAM_MISSING, STACK_FAILED
from frazil.errors import Retryable
from frazil.runtime import airflow_login, port
from frazil.runtime.airflow_login import ensure_secrets
from frazil.runtime.files import write_atomically
from frazil.runtime.home import DATABASE_VARIABLE, PORT_VARIABLES, Home, interpreter_bin
from frazil.runtime.java import ensure_java
from frazil.runtime.process import Processes, Spec
from frazil.runtime.waiting import until

if TYPE_CHECKING:
    from frazil.runtime.airflow_api import AirflowApi

_ADDRESS = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
API_SERVER = "airflow-api-server"
MIGRATE = "airflow-migrate"
WORKERS: Mapping[str, tuple[str, ...]] = {
    # Their log servers would listen on every interface; with one disk nobody needs them.
    "airflow-scheduler": ("scheduler", "--skip-serve-logs"),
    "airflow-dag-processor": ("dag-processor",),
    "airflow-triggerer": ("triggerer", "--skip-serve-logs"),
}
"""The processes that need the API server, with their `airflow` arguments."""

NAMES = (API_SERVER, *WORKERS)
"""The components in the order they start."""

POOLS: Mapping[str, int] = {"frazil_spark": 1, "frazil_maintenance": 1}
"""Pools and their slots. One ingest job at a time is what the demo's two cores carry; maintenance never keeps it waiting."""

GRACE_SECONDS = 10.0
"""7 s were measured for the API server. The scheduler would wait for its running tasks, however
long: they are ended with their session after this time, and the next run carries on."""

_START_SECONDS = 120.0
"""Bounds the wait for health: 20 s were measured with two idle cores."""

_MIGRATE_SECONDS = 180.0
"""Bounds `airflow db migrate`, 6 s with two idle cores."""

_EVERY_SECONDS = 0.25


def start(home: Home, processes: Processes, report: Callable[[str], None], *, dags_paused: bool = True) -> None:
    """Start the stopped components of Airflow, in order, and wait until all are healthy.

    Components that start now take whether a DAG that is seen for the first time waits to be unpaused (`dags_paused`).

    Raises:
        Terminal: Airflow is not installed, its port is taken, its database is another one than that of the components
            that run or can't be used, or there is no fitting Java.
        Retryable: A component ended or did not become healthy; the end of its log is quoted,
            without secrets. Or the database does not answer.
    """
    if find_spec("airflow") is None:
        raise PROGRAM_MISSING.terminal("Airflow is not installed", next_step="pip install 'frazil[airflow]'")
    secrets, database = ensure_secrets(home), airflow_database(home)
    _refuse_moved_database(home, processes, database)
    hidden = (*secrets.values(), *database.hidden)
    if any(processes.running(name) is None for name in NAMES):
        env = environment(home, ensure_java(report), secrets, database, dags_paused=dags_paused)
        _start_missing(home, processes, database, env, hidden, report)
    with airflow_login.api(home) as client:
        _wait(lambda: _are_healthy(client, processes), processes, NAMES, hidden)
        for name, slots in POOLS.items():
            client.ensure_pool(name, slots)


def stop(processes: Processes) -> None:
    """Stop Airflow's running components, the API server last."""
    processes.stop(*((name, GRACE_SECONDS) for name in (MIGRATE, *WORKERS)))
    processes.stop((API_SERVER, GRACE_SECONDS))


def _refuse_moved_database(home: Home, processes: Processes, database: AirflowDatabase) -> None:
    """Refuse to start components of one Airflow on different databases."""
    last_database = _database_note(home)
    before = last_database.read_text(encoding="utf-8") if last_database.is_file() else SQLITE
    if before != database.name and any(processes.running(name) is not None for name in NAMES):
        raise STACK_FAILED.terminal(
            f"Airflow runs with its metadata in {before}, but {DATABASE_VARIABLE} asks for {database.name}",
            next_step=f"`frazil down` first, or set {DATABASE_VARIABLE} as it was; unset means SQLite",
        )


def _database_note(home: Home) -> Path:
    return home.airflow / "database"


def _start_missing(
    home: Home,
    processes: Processes,
    database: AirflowDatabase,
    env: Mapping[str, str],
    hidden: tuple[str, ...],
    report: Callable[[str], None],
) -> None:
    if processes.running(API_SERVER) is None:
        processes.stop((API_SERVER, GRACE_SECONDS))  # what a crash may have left of its session
        port.require_free(home.ports.airflow, PORT_VARIABLES["airflow"], "Airflow")
        require_answer(database, report)
        _migrate(home, processes, database, env, hidden, report)
        write_atomically(_database_note(home), database.name)
        report("airflow: starting the API server")
        own = {_ADDRESS: sqlite_url(home, busy_seconds=API_BUSY_SECONDS)} if database.is_file else {}
        processes.start(_spec(API_SERVER, ("api-server",), {**env, **own}, home.airflow_url))
    with airflow_login.api(home) as client:
        # A scheduler that is up before the API server answers fails the tasks it starts.
        _wait(client.answers, processes, (API_SERVER,), hidden)
    for name, arguments in WORKERS.items():
        if processes.running(name) is None:
            processes.stop((name, GRACE_SECONDS))
            report(f"airflow: starting the {arguments[0]}")
            processes.start(_spec(name, arguments, env))


def _spec(name: str, arguments: tuple[str, ...], env: Mapping[str, str], url: str = "") -> Spec:
    return Spec(name, [str(interpreter_bin() / "airflow"), *arguments], env, url, GRACE_SECONDS)


def _migrate(
    home: Home,
    processes: Processes,
    database: AirflowDatabase,
    env: Mapping[str, str],
    hidden: tuple[str, ...],
    report: Callable[[str], None],
) -> None:
    """Migrate the metadata database to this Airflow's version.

    A new SQLite file is made under another name: a kill half-way would leave one that can't be
    migrated. PostgreSQL takes back what was not finished, and only it knows what it holds.
    """
    preparing = "airflow: preparing the metadata database"
    if not database.is_file:
        report(preparing)
        _run_migration(processes, env, hidden)
        return
    file, marker = home.airflow / "airflow.db", home.airflow / "migrated"
    installed = version("apache-airflow-core")
    if marker.is_file() and file.is_file() and marker.read_text(encoding="utf-8") == installed:
        return
    report(preparing)
    target = file if marker.is_file() else file.with_name("airflow.db.new")
    if target != file:
        target.unlink(missing_ok=True)
    _run_migration(processes, {**env, _ADDRESS: sqlite_url(home, target.name)}, hidden)
    shutil.move(target, file)
    marker.write_text(installed, encoding="utf-8")


def _run_migration(processes: Processes, env: Mapping[str, str], hidden: tuple[str, ...]) -> None:
    status = processes.finish(_spec(MIGRATE, ("db", "migrate"), env), _MIGRATE_SECONDS)
    if status != 0:
        quoted = processes.last_lines(MIGRATE, hidden)
        raise STACK_FAILED.retryable(f"airflow: `airflow db migrate` ended with {status}:\n{quoted}")


def _are_healthy(client: AirflowApi, processes: Processes) -> bool:
    """Return whether every component reports health by a heartbeat of its present process."""
    try:
        health = client.health()
    except Retryable:
        return False
    for name in WORKERS:
        component, record = (
            health.get(name.removeprefix("airflow-").replace("-", "_")),
            processes.record(name),
        )
        if component is None or record is None or not component.is_healthy or component.heartbeat is None:
            return False
        if component.heartbeat < record.since:
            return False
    return True


def _wait(condition: Callable[[], bool], processes: Processes, names: tuple[str, ...], hidden: tuple[str, ...]) -> None:
    def ended() -> list[str]:
        return [name for name in names if processes.running(name) is None]

    if until(lambda: bool(ended()) or condition(), _START_SECONDS, _EVERY_SECONDS) and not ended():
        return
    for name in ended():
        raise STACK_FAILED.retryable(
            f"{name} ended while starting; its log ends with\n{processes.last_lines(name, hidden)}",
            next_step=f"read {processes.log(name)}, then `frazil up`",
        )
    logs = ", ".join(str(processes.log(name)) for name in names)
    raise STACK_FAILED.retryable(f"Airflow is not healthy after {_START_SECONDS:.0f} s", next_step=f"read {logs}")
