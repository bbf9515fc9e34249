"""Where the embedded Airflow keeps its metadata: an SQLite file of the home, or a PostgreSQL database that a variable names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from frazil.error_codes import BAD_SETTING, PROGRAM_MISSING, STACK_FAILED
from frazil.runtime.home import DATABASE_VARIABLE, Home

if TYPE_CHECKING:
    from sqlalchemy import URL

SQLITE = "SQLite"
"""Name of the database in the home."""

_DRIVER = "postgresql+psycopg2"
_ACCEPTED = ("postgresql", _DRIVER)
_FORM = f"{_DRIVER}://USER:PASSWORD@HOST:5432/DATABASE"

_BUSY_SECONDS = 30
"""How long a writer of the SQLite file waits for the others: on two busy cores, longer than SQLite's 5."""

API_BUSY_SECONDS = 10
"""The same for the API server. Airflow 3.3 writes its audit log in the server's event loop, so such a write may wait for a request whose
commit needs that very loop: only the end of the wait frees both. Tasks that start meanwhile ask again for 25 s, then they are lost."""

_CONNECT_SECONDS = 10
"""Bounds the first connection to PostgreSQL, so that an address behind a firewall is named soon."""


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
    """Return the database that the home asks for.

    Raises:
        Terminal: Its address can't be used; it is not quoted, since it may hold a password. Or a driver is missing.
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
    """Return the SQLAlchemy address of an SQLite file, whose writers wait for each other instead of failing after 5 s."""
    return f"sqlite:///{home.airflow / name}?timeout={busy_seconds}"


def require_answer(database: AirflowDatabase, report: Callable[[str], None]) -> None:
    """Connect once to a PostgreSQL database: Airflow's own words for what can be wrong come late, and are long.

    Raises:
        Retryable: It does not answer, does not know the login, or has no such database; its own words are quoted.
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
            next_step=f"start the server, or set {DATABASE_VARIABLE} to a database that is there",
        ) from None  # the cause knows the address
    finally:
        engine.dispose()


def _postgresql(text: str) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # the second: a port that is no number
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
