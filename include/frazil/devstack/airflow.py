"""The processes of Airflow: first the API server, then scheduler, DAG processor and triggerer, with their metadata database
and environment.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frazil.error_codes import BAD_SETTING, PROGRAM_MISSING, STACK_FAILED
from frazil.errors import Retryable
from frazil.runtime import airflow_login
from frazil.runtime.airflow_login import Secrets, ensure_secrets
from frazil.runtime.home import (
    DATABASE_VARIABLE,
    LOOPBACK,
    PORT_VARIABLES,
    Home,
    inherited_environment,
    interpreter_bin,
    require_free,
    write_atomically,
)
from frazil.runtime.java import Java, ensure_java
from frazil.runtime.process import Processes, Spec, until

if TYPE_CHECKING:
    from sqlalchemy import URL

    from frazil.runtime.airflow_api import AirflowApi


SQLITE = "SQLite"
"""Name of the database in the home."""

_DRIVER = "postgresql+psycopg2"
_ACCEPTED = ("postgresql", _DRIVER)
_FORM = f"{_DRIVER}://USER:PASSWORD@HOST:5432/DATABASE"

_BUSY_SECONDS = 30
"""How long a writer of the SQLite file waits for other writers. SQLite's default of 5 s is too short on two busy cores."""

API_BUSY_SECONDS = 10
"""The same for the API server. Airflow 3.3 writes its audit log in the server's event loop, so such a write may wait for a request whose
commit needs that very loop: only the end of the wait frees both. Tasks that start meanwhile repeat their request for 25 s, then they fail."""

_CONNECT_SECONDS = 10
"""Bounds the first connection to PostgreSQL, so that an address behind a firewall is reported soon."""


@dataclass(frozen=True, slots=True)
class AirflowDatabase:
    """The database of one embedded Airflow.

    Attributes:
        url: Its SQLAlchemy address, password included.
        name: The address without secrets.
        hidden: Texts to mask in quoted logs: the password, and its form within an address.
        is_file: Whether it is the home's SQLite file.
    """

    url: str = field(repr=False)
    name: str
    hidden: tuple[str, ...] = field(default=(), repr=False)
    is_file: bool = False


def airflow_database(home: Home) -> AirflowDatabase:
    """Return the database of the home's Airflow.

    Raises:
        Terminal: The address of the database can't be used (it is not quoted, since it may contain a password), or a driver is
            missing.
    """
    if home.airflow_database is None:
        return AirflowDatabase(sqlite_url(home), SQLITE, is_file=True)
    url = _postgresql(home.airflow_database)
    missing = [module for module in ("psycopg2", "asyncpg") if find_spec(module) is None]
    if missing:
        raise PROGRAM_MISSING.terminal(
            f"{DATABASE_VARIABLE} asks for PostgreSQL, and {' and '.join(missing)} can't be imported",
            next_step="pip install 'frazil[airflow,postgres]'",
        )
    name = f"PostgreSQL {url.host}:{url.port or 5432}/{url.database}"
    address = url.render_as_string(hide_password=False)
    encoded = address.rpartition("@")[0].rpartition(":")[2]
    return AirflowDatabase(address, name, (url.password, encoded) if url.password else ())


def sqlite_url(home: Home, name: str = "airflow.db", busy_seconds: int = _BUSY_SECONDS) -> str:
    """Return the SQLAlchemy address of an SQLite file, with the time that a writer waits for others."""
    return f"sqlite:///{home.airflow / name}?timeout={busy_seconds}"


def _require_answer(database: AirflowDatabase, report: Callable[[str], None]) -> None:
    """Check that a PostgreSQL database can be reached, because Airflow's own errors come late and are long.

    Raises:
        Retryable: The server does not answer, does not know the login or has no such database; its message is quoted.
    """
    from sqlalchemy import create_engine
    from sqlalchemy.exc import OperationalError

    if database.is_file:
        return
    report(f"airflow: metadata in {database.name}")
    engine = create_engine(database.url, connect_args={"connect_timeout": _CONNECT_SECONDS})
    try:
        engine.connect().close()
    except OperationalError as error:
        raise STACK_FAILED.retryable(
            f"Airflow's database, {database.name}, can't be used: {str(error.orig).strip()}",
            next_step=f"start the server, or set {DATABASE_VARIABLE} to an existing database",
        ) from None  # the cause has the address with the password
    finally:
        engine.dispose()


def _postgresql(text: str) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        url = None
    if url is not None and url.query:
        raise BAD_SETTING.terminal(
            f"{DATABASE_VARIABLE}: options after ? are not supported, since Airflow's two drivers spell them differently",
            next_step="give them in libpq's variables, which both read, such as PGSSLMODE=require",
        )
    if url is None or url.drivername not in _ACCEPTED or not url.host or not url.database:
        raise BAD_SETTING.terminal(
            f"{DATABASE_VARIABLE} is not the address of a PostgreSQL database",
            next_step=f"set it to {_FORM}, special characters of the password as %XX; or unset it: SQLite",
        )
    return url.set(drivername=_DRIVER)


SPARK_CONNECTION = {
    "conn_type": "spark",
    "host": "local[2]",
    "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"},
}
"""Airflow connection `frazil_spark`: jobs run in one local JVM with two task threads. The production profile has a cluster."""

REFRESH_SECONDS = 5
"""Seconds between two readings of the DAG files. Airflow's defaults (300 and 30) are too long for a person who waits."""

HEARTBEAT_TIMEOUT_SECONDS = 60
"""Time after which a task without heartbeat counts as lost. Airflow's default of 300 is several commit intervals."""


def environment(
    home: Home, java: Java, secrets_of_home: Secrets, database: AirflowDatabase, *, dags_paused: bool
) -> dict[str, str]:
    """Return the environment of the Airflow processes. They need Java for Spark jobs."""
    inherited = inherited_environment()
    variables = {
        **home.environment,
        "AIRFLOW_HOME": str(home.airflow),
        "AIRFLOW_CONN_FRAZIL_SPARK": json.dumps(_spark_connection(home)),
        "AIRFLOW_CONN_FRAZIL_API": json.dumps(_api_connection(home, secrets_of_home)),
        "JAVA_HOME": str(java.home),
        "PATH": _joined(interpreter_bin(), inherited.get("PATH", os.defpath)),
        "PYTHONPATH": _joined(home.project / "include", home.project / "plugins", inherited.get("PYTHONPATH", "")),
        # Requests to the loopback interface must not go to a proxy.
        "NO_PROXY": ",".join(filter(None, [LOOPBACK, "localhost", inherited.get("NO_PROXY", "")])),
    }
    return {
        **inherited,
        **variables,
        **_configuration(home, dags_paused=dags_paused),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets_of_home.jwt,
        "AIRFLOW__CORE__FERNET_KEY": secrets_of_home.fernet,
        "AIRFLOW__API__SECRET_KEY": secrets_of_home.api,
        _ADDRESS: database.url,
    }


def _spark_connection(home: Home) -> Mapping[str, Any]:
    if home.profile == "embedded":
        return SPARK_CONNECTION
    return {**SPARK_CONNECTION, "host": f"spark://{LOOPBACK}", "port": home.ports.spark_master}


def _api_connection(home: Home, secrets_of_home: Secrets) -> Mapping[str, str]:
    """The Airflow connection with which tasks call Airflow's REST API, to write the notes of their runs."""
    return {
        "conn_type": "http",
        "host": home.airflow_url,
        "login": home.airflow_user,
        "password": secrets_of_home.password,
    }


def _configuration(home: Home, *, dags_paused: bool) -> Mapping[str, str]:
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(home.project / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(home.project / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": str(dags_paused),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{home.airflow_user}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home.airflow_passwords),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{home.airflow_url}/execution/",
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": str(home.ports.airflow),
        "AIRFLOW__API__BASE_URL": home.airflow_url,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": str(REFRESH_SECONDS),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": str(REFRESH_SECONDS),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT_SECONDS),
        "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def _joined(*parts: Path | str) -> str:
    return os.pathsep.join(str(part) for part in parts if str(part))


_ADDRESS = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
API_SERVER = "airflow-api-server"
MIGRATE = "airflow-migrate"
WORKERS: Mapping[str, tuple[str, ...]] = {
    # Without --skip-serve-logs, log servers would listen on every interface; on one disk nobody needs them.
    "airflow-scheduler": ("scheduler", "--skip-serve-logs"),
    "airflow-dag-processor": ("dag-processor",),
    "airflow-triggerer": ("triggerer", "--skip-serve-logs"),
}
"""The processes that need the API server, with their arguments of `airflow`."""

NAMES = (API_SERVER, *WORKERS)
"""The components in the order in which they start."""

POOLS: Mapping[str, int] = {"frazil_spark": 1, "frazil_maintenance": 1}
"""Pools and their slots. The demo's two cores can run one ingest job at a time; maintenance has its own pool, so no ingest job
waits for it."""

GRACE_SECONDS = 10.0
"""Time that a component gets to end. The API server needs 7 s. The scheduler would wait for its running tasks, however long: after
this time they are killed, and the next run continues."""

_START_SECONDS = 120.0
"""Bounds the wait for health: 20 s were measured with two idle cores."""

_MIGRATE_SECONDS = 180.0
"""Bounds `airflow db migrate`, 6 s with two idle cores."""

_EVERY_SECONDS = 0.25


def start(home: Home, processes: Processes, report: Callable[[str], None], *, dags_paused: bool = True) -> None:
    """Start the stopped components of Airflow, in order, and wait until all are healthy.

    `dags_paused` says whether new DAGs are paused. Components that run already keep their setting.

    Raises:
        Terminal: Airflow is not installed, its port is taken, its database can't be used or is not that of the running
            components, or there is no fitting Java.
        Retryable: A component ended or did not become healthy (the end of its log is quoted, without secrets), or the
            database does not answer.
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
    file = _database_file(home)
    last_name = file.read_text(encoding="utf-8") if file.is_file() else SQLITE
    if last_name != database.name and any(processes.running(name) is not None for name in NAMES):
        raise STACK_FAILED.terminal(
            f"Airflow runs with its metadata in {last_name}, but {DATABASE_VARIABLE} asks for {database.name}",
            next_step=f"`frazil down` first, or set {DATABASE_VARIABLE} as it was; unset means SQLite",
        )


def _database_file(home: Home) -> Path:
    """The file with the name of the database that Airflow was started with."""
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
        processes.stop((API_SERVER, GRACE_SECONDS))  # processes that a crash may have left
        require_free(home.ports.airflow, PORT_VARIABLES["airflow"], "Airflow")
        _require_answer(database, report)
        _migrate(home, processes, database, env, hidden, report)
        write_atomically(_database_file(home), database.name)
        report("airflow: starting the API server")
        address = {_ADDRESS: sqlite_url(home, busy_seconds=API_BUSY_SECONDS)} if database.is_file else {}
        processes.start(_spec(API_SERVER, ("api-server",), {**env, **address}, home.airflow_url))
    with airflow_login.api(home) as client:
        # Tasks fail if a scheduler starts them before the API server answers.
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

    A new SQLite file gets its name only when it is complete, because a killed migration leaves a file that can't be migrated.
    PostgreSQL rolls back an unfinished migration, and is migrated at each start, because nothing else tells its version.
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
    """Return whether every component is healthy, by a heartbeat of its present process."""
    try:
        health = client.health()
    except Retryable:
        return False
    for name in WORKERS:
        component, record = health.get(name.removeprefix("airflow-").replace("-", "_")), processes.record(name)
        if component is None or record is None or not component.is_healthy:
            return False
        if component.heartbeat is None or component.heartbeat < record.since:
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
