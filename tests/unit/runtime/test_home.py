"""Which folder and which ports a stack has."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import Terminal
from frazil.runtime.home import Home, Ports, bootstrap_servers, inherited_environment, project_root, write_atomically
from tests.servers import with_ports


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"FRAZIL_HOME": str(tmp_path / "home")}


def test_defaults_lie_beside_the_usual_ports(environ: dict[str, str]) -> None:
    """A Kafka or Airflow that runs on its usual port is not in the way."""
    home = Home.resolve(environ)

    assert home.ports == Ports(kafka=19092, controller=19093, airflow=18080)
    assert bootstrap_servers(home) == "127.0.0.1:19092"


def test_another_shell_finds_the_ports_of_the_last_up(environ: dict[str, str]) -> None:
    """A command in a shell without the variables reaches the stack that was started with them."""
    with_ports(Home.resolve(environ), kafka=25001, airflow=25002).record()

    assert Home.resolve(environ).ports == Ports(kafka=25001, controller=19093, airflow=25002)


def test_a_variable_wins_over_the_recorded_port(environ: dict[str, str]) -> None:
    """What the caller says now counts more than what the last `up` used."""
    with_ports(Home.resolve(environ), kafka=25001).record()

    home = Home.resolve({**environ, "FRAZIL_KAFKA_PORT": "26001"})

    assert home.ports.kafka == 26001


def test_the_login_name_is_recorded_too(environ: dict[str, str]) -> None:
    """A login name chosen at `up` is the one later commands log in with."""
    Home.resolve({**environ, "FRAZIL_AIRFLOW_USER": "ops"}).record()

    assert Home.resolve(environ).airflow_user == "ops"


@pytest.mark.parametrize("text", ["0", "65536", "-1", "abc", "1 2", "٣"])
def test_a_variable_that_is_no_port_is_named(environ: dict[str, str], text: str) -> None:
    """A typing error must not end as an unreadable failure of the broker."""
    with pytest.raises(Terminal, match="FRAZIL_AIRFLOW_PORT"):
        Home.resolve({**environ, "FRAZIL_AIRFLOW_PORT": text})


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_a_damaged_state_file_is_named(environ: dict[str, str], content: str) -> None:
    """Guessing ports from a damaged record would start a second stack."""
    home = Home.resolve(environ)
    home.root.mkdir()
    home.stack.write_text(content, encoding="utf-8")

    with pytest.raises(Terminal, match=r"stack\.json"):
        Home.resolve(environ)


def test_a_relative_home_does_not_move_with_the_working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Processes of the stack run in other folders and must mean the same home."""
    monkeypatch.chdir(tmp_path)

    home = Home.resolve({"FRAZIL_HOME": "state"})

    assert home.root == tmp_path / "state"


def test_jars_can_be_shared_by_homes(environ: dict[str, str], tmp_path: Path) -> None:
    """A second home must not download the jars again: they belong to the project, not to the home."""
    assert Home.resolve(environ).root == tmp_path / "home"
    assert Home.resolve(environ).jars == project_root() / ".frazil" / "jars"
    assert Home.resolve({**environ, "FRAZIL_JARS": "/elsewhere"}).jars == Path("/elsewhere")


def test_another_airflow_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata database of a production Airflow in the shell must not be migrated by a demo."""
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://production/airflow")
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", "{}")

    env = inherited_environment()

    assert "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" not in env
    assert env["AIRFLOW_CONN_LAKE"] == "{}"


def test_damaged_ports_are_named(environ: dict[str, str], tmp_path: Path) -> None:
    """Recorded ports that are no numbers are named, with the file to remove."""
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "stack.json").write_text('{"ports": {"kafka": "19092"}}', encoding="utf-8")

    with pytest.raises(Terminal, match="expected numbers under ports"):
        Home.resolve(environ)


def test_write_that_fails_leaves_no_copy_behind(tmp_path: Path) -> None:
    """A text may be a secret, so that no half of it stays under another name."""
    (tmp_path / "taken").mkdir()

    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "taken", "secret")

    assert [file.name for file in tmp_path.iterdir()] == ["taken"]
