"""What the author of a capture file may have read: files of the folders, and tables of the databases, that the settings list."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from frazil.capture.contents import find_files
from frazil.capture.files import FileMark
from frazil.capture.run import capture_context
from frazil.cli.files.verdict import judge
from frazil.errors import Terminal
from frazil.pipeline.settings.capture import FileCapture, JdbcCapture, beyond_reach
from frazil.pipeline.settings.settings import Settings
from frazil.project import Project

LOGS = {"capture": "file", "name": "logs", "topic": "logs"}
ROWS = {"capture": "jdbc", "name": "rows", "topic": "rows", "database": "shop", "mode": "bulk"}


def settings_of(**more: Any) -> dict[str, Any]:
    """Settings with one database."""
    database = {"url": "jdbc:sqlite:/nowhere.db", "driver": "org.sqlite.JDBC", **more.pop("database", {})}
    return {
        "clusters": {"local": {"bootstrap_servers": "127.0.0.1:1"}},
        "catalogs": {"lake": {"uri": "sqlite:////nowhere/c.db", "warehouse": "file:///nowhere"}},
        "databases": {"shop": database},
        **more,
    }


def beyond(settings: dict[str, Any], **capture: Any) -> list[str]:
    """What of a capture the settings don't let it read."""
    kind = FileCapture if "paths" in capture else JdbcCapture
    base = LOGS if "paths" in capture else ROWS
    return list(beyond_reach(kind.model_validate({**base, **capture}), Settings.model_validate(settings)))


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/proc/self/environ",
        "/log",
        "/logs/../etc/passwd",
        "/logs/x/../../etc/*",
        "/logs2/a",
        "/**/a",
        "/lo*/a",
    ],
)
def test_files_outside_of_the_listed_folders_are_refused(path: str) -> None:
    """Each by its key, and with what is listed; without a list it is every file."""
    (problem,) = beyond(settings_of(captures={"folders": ["/logs", "/var/log/shop"]}), paths=["/logs/a.log", path])

    assert problem.startswith(f"paths.1: {path} is in no folder that the settings list under captures.folders")
    assert problem.endswith("listed: /logs, /var/log/shop")
    assert beyond(settings_of(), paths=["/logs/a.log"])[0].endswith("listed: none")


@pytest.mark.parametrize("path", ["/logs/a.log", "/logs/**/*.gz", "/logs/shop-[0-9]/a?", "/var/log/shop/access.log*"])
def test_files_below_a_listed_folder_are_read(path: str) -> None:
    """Whatever its wildcards."""
    assert beyond(settings_of(captures={"folders": ["/logs", "/var/log/shop"]}), paths=[path]) == []


def test_query_is_refused_unless_the_settings_let_captures_ask_them() -> None:
    """It runs with all rights of the database's user; tables and views do without."""
    (problem,) = beyond(settings_of(), query="SELECT pg_read_file('/etc/passwd')")

    assert problem.startswith("query: the settings let captures of shop read tables and views")
    assert "databases.shop.queries: true" in problem
    assert beyond(settings_of(database={"queries": True}), query="SELECT 1") == []
    assert beyond(settings_of(), table='public."Order lines"') == []


@pytest.mark.parametrize(
    ("settings", "capture", "key"),
    [(settings_of(), {**LOGS, "paths": ["/etc/passwd"]}, "paths.0"), (settings_of(), {**ROWS, "query": "S"}, "query")],
)
def test_capture_beyond_its_reach_is_refused_by_validate_and_by_each_run(
    tmp_path: Path, settings: dict[str, Any], capture: dict[str, Any], key: str
) -> None:
    """Also one that nobody validated: before a broker, a file or a database is asked."""
    for folder in ("pipelines", "captures"):
        (tmp_path / folder).mkdir()
    (tmp_path / "settings.yaml").write_text(json.dumps(settings))
    (tmp_path / "captures/one.yaml").write_text(json.dumps(capture))
    places = {"HOME": "home", "PIPELINES": "pipelines", "SETTINGS": "settings.yaml"}
    env = {f"FRAZIL_{name}": str(tmp_path / folder) for name, folder in places.items()}

    verdict = next(judgement for judgement in judge([], env) if judgement.kind == "capture")
    assert [problem.split(":")[0] for problem in verdict.problems] == [key]

    project = Project.load(env)
    with pytest.raises(Terminal, match=f"{key}: "):
        capture_context(project, project.capture(str(capture["name"])))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of logs with links that lead out of it."""
    logs = tmp_path / "logs"
    (logs / "shop").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key.log").write_text("secret\n")
    (logs / "shop/app.log").write_text("line\n")
    (logs / "app.log").symlink_to("shop/app.log")
    return tmp_path


def test_links_within_a_listed_folder_are_followed(site: Path) -> None:
    """As rotation sets them; the folder itself may be a link."""
    (site / "shown").symlink_to("logs")

    for folder in ("logs", "shown"):
        (file,) = find_files([f"{site}/{folder}/app.log"], (), [f"{site}/{folder}"])
        assert file.path == f"{site}/{folder}/app.log"


@pytest.mark.parametrize("link", ["file", "folder", "device"])
def test_link_out_of_the_listed_folders_is_not_followed(site: Path, link: str) -> None:
    """Whoever may write logs there sets links; they stop nobody's capture, and show nothing."""
    if link == "file":
        (site / "logs/out.log").symlink_to(site / "secret/key.log")
    elif link == "folder":
        (site / "logs/out").symlink_to(site / "secret")
    else:
        (site / "logs/zero.log").symlink_to("/dev/zero")
        os.mkfifo(site / "logs/pipe.log")

    files = find_files([f"{site}/logs/**/*.log"], (), [f"{site}/logs"])

    assert [file.path for file in files] == [f"{site}/logs/shop/app.log"]


def test_position_that_names_another_folder_shows_nothing_of_it(site: Path) -> None:
    """Known files are looked for where they were, if that may be read still."""
    (file,) = find_files([f"{site}/secret/key.log"], (), [f"{site}/secret"])

    files = find_files([f"{site}/logs/app.log"], [FileMark.initial(file)], [f"{site}/logs"])

    assert [file.path for file in files] == [f"{site}/logs/app.log"]
