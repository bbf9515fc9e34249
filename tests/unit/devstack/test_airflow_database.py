"""Where the embedded Airflow keeps its metadata, and who learns the password."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from sqlalchemy import make_url

from frazil.devstack import stack
from frazil.devstack.airflow import airflow_database, environment
from frazil.errors import Terminal
from frazil.runtime.airflow_login import ensure_secrets
from frazil.runtime.home import DATABASE_VARIABLE, Home, inherited_environment
from frazil.runtime.java import Java

ADDRESS = "postgresql+psycopg2://airflow:s3cr%24t@db.example.org:5433/airflow"


def home_on(tmp_path: Path, address: str) -> Home:
    return Home.resolve({"FRAZIL_HOME": str(tmp_path / "home"), DATABASE_VARIABLE: address})


def test_default_database_is_sqlite_in_the_home(tmp_path: Path) -> None:
    """Without the variable, or with an empty one, it is the home's SQLite file."""
    database = airflow_database(home_on(tmp_path, ""))

    assert (database.is_file, database.name) == (True, "SQLite")
    assert make_url(database.url).database == str(tmp_path / "home" / "airflow" / "airflow.db")


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg2"])
def test_address_reaches_airflow_unchanged(tmp_path: Path, scheme: str) -> None:
    """Airflow gets what was said, with the driver that is installed, and no `$` that it would take for a variable's name."""
    home = home_on(tmp_path, ADDRESS.replace("postgresql+psycopg2", scheme))
    secrets = ensure_secrets(home)

    env = environment(home, Java(Path("/jdk"), 17), secrets, airflow_database(home), dags_paused=True)

    connection = env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
    assert connection == ADDRESS
    assert make_url(connection).password == "s3cr$t"


@pytest.mark.parametrize(
    "address",
    [
        "s3cret",
        "mysql://airflow:s3cret@db/airflow",
        "postgresql+asyncpg://airflow:s3cret@db/airflow",
        "postgresql://airflow:s3cret@db",
        "postgresql://airflow:s3cret@db:port/airflow",
        "postgresql:///airflow?password=s3cret",
        "postgresql://airflow:s3cret@db/airflow?sslmode=require",
    ],
)
def test_refused_address_is_not_quoted(tmp_path: Path, address: str) -> None:
    """What can't be used is refused by the variable's name: the address has the password in it."""
    with pytest.raises(Terminal, match=DATABASE_VARIABLE) as refusal:
        airflow_database(home_on(tmp_path, address))

    assert "s3cret" not in "".join(traceback.format_exception(refusal.value, chain=True)).replace(f"'{address}'", "")


def test_password_is_not_shown(tmp_path: Path) -> None:
    """Neither in `repr`, nor in `frazil status`, nor in what an error may name."""
    home = home_on(tmp_path, ADDRESS)
    database = airflow_database(home)

    shown = f"{home!r} {database!r} {database.name} {stack.status(home).to_json()}"

    assert database.name == "PostgreSQL db.example.org:5433/airflow"
    assert not any(form in shown for form in ("s3cr%24t", "s3cr$t"))
    assert database.hidden == ("s3cr$t", "s3cr%24t")


def test_address_is_not_written_to_disk(tmp_path: Path) -> None:
    """What the next shell finds is ports and a login's name."""
    home = home_on(tmp_path, ADDRESS)

    home.record()

    assert "s3cr" not in home.stack.read_text()


def test_tasks_do_not_inherit_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow takes its own variable away from them; ours is not even passed on."""
    monkeypatch.setenv(DATABASE_VARIABLE, ADDRESS)

    assert DATABASE_VARIABLE not in inherited_environment()
