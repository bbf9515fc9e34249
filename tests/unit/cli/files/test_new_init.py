"""`frazil init` and `frazil schema`: a project that is valid at once, and that nobody loses a file by."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.runtime.home import project_root

Frazil = Callable[..., Any]


@pytest.fixture
def project(tmp_path: Path, frazil: Frazil, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `frazil init` ran; commands work in it."""
    folder = tmp_path / "made"
    for name in ("FRAZIL_SETTINGS", "FRAZIL_PIPELINES", "FRAZIL_HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("FRAZIL_PROJECT", str(folder))
    assert frazil("init", str(folder)).code == 0
    return folder


def test_files_of_a_new_project_are_valid(frazil: Frazil, project: Path) -> None:
    """Settings, one pipeline, the DAG file, what editors read, and what Git leaves alone."""
    files = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    ended = frazil("validate")

    assert files == {
        ".gitignore",
        "dags/frazil_dags.py",
        "include/pipelines/pizzas.yaml",
        "include/schemas/pipeline.schema.json",
        "include/schemas/settings.schema.json",
        "include/settings.yaml",
    }
    assert "2 files, all usable" in ended.out
    assert "dags.load()" in ast.unparse(ast.parse((project / "dags" / "frazil_dags.py").read_text()))
    assert "/.frazil/" in (project / ".gitignore").read_text()


def test_schema_lines_lead_to_the_schemas(project: Path) -> None:
    """An editor that finds no schema completes nothing."""
    for file in (project / "include" / "settings.yaml", project / "include" / "pipelines" / "pizzas.yaml"):
        line = file.read_text().splitlines()[0]
        assert (file.parent / line.partition("$schema=")[2]).is_file()


def test_second_init_keeps_every_file(frazil: Frazil, project: Path) -> None:
    """Who runs it again, or in a project that is at work, loses nothing and gets no second pipeline."""
    settings, pipelines = project / "include" / "settings.yaml", project / "include" / "pipelines"
    settings.write_text(settings.read_text() + "# mine\n")
    (pipelines / "pizzas.yaml").rename(pipelines / "pies.yaml")

    ended = frazil("init", str(project))

    assert ended.code == 0
    assert "made" not in ended.out.replace(str(project), "")
    assert settings.read_text().endswith("# mine\n")
    assert [path.name for path in pipelines.iterdir()] == ["pies.yaml"]


def test_dag_file_of_an_earlier_project_stays_the_only_one(frazil: Frazil, project: Path) -> None:
    """Two files would make each DAG twice."""
    (project / "dags" / "frazil_dags.py").rename(project / "dags" / "frazil.py")

    assert frazil("init", str(project)).code == 0
    assert [path.name for path in (project / "dags").iterdir()] == ["frazil.py"]


def test_broker_of_ones_own_is_in_the_settings(frazil: Frazil, tmp_path: Path) -> None:
    """The example pipeline is of the embedded broker's topic: beside another broker it would only fail."""
    folder = tmp_path / "own"

    ended = frazil("init", str(folder), "--kafka", "broker1.example.org:9092")

    assert '"broker1.example.org:9092"' in (folder / "include" / "settings.yaml").read_text()
    assert not list((folder / "include" / "pipelines").iterdir())
    assert "frazil new" in ended.out


def test_next_command_can_be_pasted(frazil: Frazil, tmp_path: Path) -> None:
    """Whatever the folder is called."""
    folder = tmp_path / "my lake $(id)"

    ended = frazil("init", str(folder))

    assert f"export FRAZIL_PROJECT='{folder}'" in ended.out


def test_broker_without_a_name_is_refused(frazil: Frazil, tmp_path: Path) -> None:
    """`--kafka "$KAFKA"` where nobody set it: the embedded broker is not what was meant."""
    ended = frazil("init", str(tmp_path / "own"), "--kafka", "")

    assert (ended.code, list(tmp_path.glob("own"))) == (2, [])


def test_killed_init_leaves_no_half_file(frazil: Frazil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would keep it."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.link", die)
        frazil("init", str(tmp_path / "own"))

    assert not [path for path in (tmp_path / "own").rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", ["pipeline", "settings"])
def test_schema_is_printed_as_it_is_kept(frazil: Frazil, kind: str) -> None:
    """A project gets the schema of the installed version after an upgrade."""
    schema_file = project_root() / "include" / "schemas" / f"{kind}.schema.json"

    assert frazil("schema", kind).out == schema_file.read_text(encoding="utf-8")
