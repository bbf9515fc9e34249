"""The production profile before anything of it is started: who finds it, what its settings show, what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.devstack import object_store, postgres, production, stack
from frazil.errors import Terminal
from frazil.project import Project
from frazil.runtime.home import Home, bootstrap_servers
from frazil.runtime.process import Processes, Spec


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home.resolve({"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_JARS": str(tmp_path / "jars")})
    return replace(home, profile="production")


@pytest.fixture
def made(home: Home) -> Home:
    """A home as `up` leaves it, without its servers."""
    production.ensure_passwords(home)
    production.write_settings(home)
    home.record()
    return home


@pytest.fixture
def processes(home: Home) -> Iterator[Processes]:
    processes = stack.processes_of(home)
    yield processes
    processes.stop(("kafka", 0.0))


def test_another_shell_uses_the_same_stack(made: Home) -> None:
    """Profile, ports and settings come from the home alone."""
    project = Project.load({"FRAZIL_HOME": str(made.root)})

    assert project.settings_file == made.production / "settings.yaml"
    assert project.cluster("local").bootstrap_servers == bootstrap_servers(made) == "127.0.0.1:19094"
    assert project.cluster("local").properties["security.protocol"] == "SASL_SSL"
    assert (project.lake("lake").kind, project.lake("lake").uri) == ("rest", "http://127.0.0.1:18181")
    assert project.engine("spark").master == "spark://127.0.0.1:17077"


def test_settings_and_status_show_no_password(made: Home) -> None:
    """The settings file refers to secrets; what is written with them only its owner can read."""
    references = production.references(made)
    secrets = [references["kafka_password"], *json.loads((made.production / "passwords.json").read_text()).values()]
    shown = production.settings_file(made).read_text() + json.dumps(stack.status(made).to_json()) + f"{made!r}"
    project = Project.load({"FRAZIL_HOME": str(made.root)})

    assert len(set(secrets)) == len(secrets) == 7
    assert [secret for secret in secrets if secret in shown + f"{project.settings!r}"] == []
    private = [
        made.production / "passwords.json",
        made.production / "references.json",
        made.production / "kafka" / "users.json",
        made.production,
    ]
    assert {path.stat().st_mode & 0o077 for path in private} == {0}


def test_passwords_stay_with_the_data(made: Home) -> None:
    """PostgreSQL keeps the first one: a later `up` must find it."""
    assert production.ensure_passwords(made) == production.ensure_passwords(made)
    assert production.references(made) == production.references(made)


def test_home_of_an_older_version_gets_the_passwords_that_it_lacks(made: Home) -> None:
    """Those that its data is behind stay."""
    file = made.production / "passwords.json"
    older = {name: entry for name, entry in json.loads(file.read_text()).items() if name not in ("catalog", "registry")}
    file.write_text(json.dumps(older))

    passwords = production.ensure_passwords(made)

    assert passwords.postgres == older["postgres"]
    assert json.loads(file.read_text()).items() > older.items()
    assert passwords == production.ensure_passwords(made)


@pytest.mark.parametrize("text", ["", "[]", '{"postgres": "x", "other": "y"}'])
def test_passwords_that_cannot_be_read_are_not_made_anew(made: Home, text: str) -> None:
    """The data would be lost behind the old ones."""
    (made.production / "passwords.json").write_text(text)

    with pytest.raises(Terminal, match="can't be read"):
        production.ensure_passwords(made)


def test_second_profile_in_one_home_is_refused(home: Home, processes: Processes) -> None:
    """Half of the one beside half of the other would be reached under the addresses of neither."""
    replace(home, profile="embedded").record()
    processes.start(Spec("kafka", ["sleep", "600"], dict(os.environ)))

    with pytest.raises(Terminal, match="kafka run in profile embedded") as error:
        stack.up(home, ["s3"])

    assert "frazil down" in error.value.next_step


def test_unknown_profile_is_refused(home: Home) -> None:
    """A newer Frazil wrote it: its topics and tables are elsewhere."""
    home.root.mkdir(parents=True)
    home.stack.write_text(json.dumps({"profile": "galactic"}))

    with pytest.raises(Terminal, match="galactic"):
        Home.resolve({"FRAZIL_HOME": str(home.root)})


def test_missing_go_is_reported_with_a_remedy(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install, and that the program may be brought instead."""
    monkeypatch.setattr(object_store, "go", lambda: None)

    with pytest.raises(Terminal, match="no suitable Go") as error:
        object_store.program(home)

    assert "go.dev/dl" in error.value.next_step
    assert str(home.jars / "tools") in error.value.next_step


def test_part_of_the_other_profile_is_refused(home: Home) -> None:
    """Asking the small stack for its S3 server names the parts that it has."""
    from typer.testing import CliRunner

    from frazil.cli.app import app

    done = CliRunner().invoke(app, ["up", "--only", "s3"], env={"FRAZIL_HOME": str(home.root)})

    assert isinstance(done.exception, Terminal)
    assert "profile embedded has no part s3" in str(done.exception)


@pytest.mark.parametrize(
    ("version", "toolchain", "fit"),
    [
        ("go1.26.8", "local", True),
        ("go1.22.1", "auto", True),
        ("go1.22.1", "local", False),
        ("go1.19.8", "", False),
        ("devel", "auto", False),
        ("", "", False),
    ],
)
def test_old_go_is_refused(version: str, toolchain: str, fit: bool) -> None:
    """Only a Go that builds the server, or fetches one that does, counts as one."""
    assert object_store.is_fit(version, toolchain) is fit


def test_home_keeps_its_profile_where_a_program_is_missing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """What must be installed is told before anything is written: the home stays what it was."""
    monkeypatch.setattr(postgres, "programs", lambda _=None: None)

    with pytest.raises(Terminal, match="no PostgreSQL"):
        stack.up(home)

    assert not home.stack.exists()
    assert not production.settings_file(home).exists()


def test_newer_postgresql_is_refused_on_older_data(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data's own version is asked for; another one alone is told as what is missing."""
    monkeypatch.setattr(postgres, "programs", lambda version=None: None if version == "15" else Path("/17/bin"))
    data = home.root / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("15\n")

    with pytest.raises(Terminal, match="are of PostgreSQL 15"):
        postgres.require_programs(home)
