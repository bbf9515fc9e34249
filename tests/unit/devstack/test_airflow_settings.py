"""What the embedded Airflow is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from frazil.devstack.airflow import airflow_database, environment
from frazil.errors import Terminal
from frazil.runtime.airflow_login import credentials, ensure_secrets
from frazil.runtime.home import Home
from frazil.runtime.java import Java
from tests.servers import with_ports


@pytest.fixture
def home(tmp_path: Path) -> Home:
    ops_home = Home.resolve({"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_AIRFLOW_USER": "ops"})
    return with_ports(ops_home, airflow=25001)


def env_of(home: Home) -> dict[str, str]:
    return environment(home, Java(Path("/jdk"), 17), ensure_secrets(home), airflow_database(home), dags_paused=True)


def test_secrets_are_readable_by_their_owner_only(home: Home) -> None:
    """They open the API, and with it everything the user may do."""
    ensure_secrets(home)

    modes = {path.name: path.stat().st_mode & 0o777 for path in home.airflow.iterdir()}

    assert modes == {"secrets.json": 0o600, "passwords.json": 0o600}
    assert home.airflow.stat().st_mode & 0o777 == 0o700


def test_secrets_are_made_once(home: Home) -> None:
    """A second `up` with another key could not read the connections stored with the first."""
    assert ensure_secrets(home) == ensure_secrets(home)


def test_two_homes_have_different_secrets(home: Home, tmp_path: Path) -> None:
    """A fixed secret is no secret."""
    second_home = Home.resolve({"FRAZIL_HOME": str(tmp_path / "other")})

    assert not set(ensure_secrets(home).values()) & set(ensure_secrets(second_home).values())


def test_no_secret_is_shown_by_repr(home: Home) -> None:
    """Objects end in logs and in the messages of failed assertions."""
    secrets = ensure_secrets(home)

    shown = repr(secrets) + repr(credentials(home))

    assert not any(secret in shown for secret in secrets.values())


def test_login_is_the_one_that_airflow_gets(home: Home) -> None:
    """A password that Airflow does not know locks the user out."""
    ensure_secrets(home)

    login = credentials(home)

    written = json.loads((home.airflow / "passwords.json").read_text())
    assert written == {"ops": login.password}
    assert env_of(home)["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "ops:admin"


def test_a_home_without_airflow_says_how_to_get_one(home: Home) -> None:
    """Asking for the login before the first `up` is a user's mistake, not a crash."""
    with pytest.raises(Terminal, match="frazil up"):
        credentials(home)


def test_every_address_is_on_the_loopback_interface(home: Home) -> None:
    """Airflow binds all interfaces unless it is told otherwise."""
    env = env_of(home)

    assert env["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert env["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:25001/execution/"


def test_loopback_interface_bypasses_proxies(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks reach the API server over HTTP and would send their tokens to the proxy."""
    monkeypatch.setenv("NO_PROXY", "intranet")

    assert env_of(home)["NO_PROXY"] == "127.0.0.1,localhost,intranet"


def test_the_spark_connection_is_complete(home: Home) -> None:
    """A missing connection silently means YARN."""
    connection = json.loads(env_of(home)["AIRFLOW_CONN_FRAZIL_SPARK"])

    assert connection["host"] == "local[2]"
    assert connection["extra"] == {"deploy-mode": "client", "spark-binary": "spark-submit"}
