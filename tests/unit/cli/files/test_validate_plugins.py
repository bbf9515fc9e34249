"""`frazil plugins`, and what own formats and transforms may import in a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from frazil.report import plugins
from frazil.runtime.home import project_root
from frazil.spark.jobs.imports import _OWN_PARTS

PROGRAM = "import sys; from frazil.cli.app import main; sys.argv[0] = 'frazil'; sys.exit(main())"


def install(folder: Path, module: str, entry_points: str) -> None:
    """A package as pip leaves it: a module and its metadata."""
    (folder / "acme_parts.py").write_text(module)
    metadata = folder / "acme_parts-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-parts\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(entry_points)


def listed(folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and rows of `frazil plugins --json` in a process that finds the folder's packages."""
    path = os.pathsep.join([str(project_root() / "include"), str(folder)])
    command = [sys.executable, "-c", PROGRAM, "plugins", "--json"]
    env = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, [
        plugin for plugin in json.loads(done.stdout) if plugin["package"] != "frazil" and plugin["kind"] != "channel"
    ]


def test_commands_can_load_a_custom_transform_that_imports_pandas(tmp_path: Path) -> None:
    """Commands leave pandas out to start sooner; with own parts installed they must not."""
    install(tmp_path, "import pandas\n\nclass Trim: ...\n", "[frazil.transforms]\nacme.Trim = acme_parts:Trim\n")

    assert listed(tmp_path) == (
        0,
        [
            {
                "kind": "transform",
                "name": "acme.Trim",
                "package": "acme-parts",
                "version": "1.2",
                "place": "acme_parts:Trim",
                "problem": None,
            }
        ],
    )


def test_unusable_plugin_is_reported(tmp_path: Path) -> None:
    """A missing class, and a name that Frazil's own format keeps, are told before a pipeline runs into them."""
    points = "[frazil.formats]\nacme.Gone = acme_parts:Gone\navro = acme_parts:Reading\n"
    install(tmp_path, "class Reading: ...\n", points)

    code, rows = listed(tmp_path)

    assert code == 1
    assert {row["name"]: row["problem"] for row in rows} == {
        "acme.Gone": "AttributeError: module 'acme_parts' has no attribute 'Gone'",
        "avro": "another plugin has this name",
    }


def test_groups_of_plugins_are_the_same_everywhere() -> None:
    """The command line knows the groups without loading the rooms that define them."""
    assert set(plugins.GROUPS) == _OWN_PARTS


def test_channel_without_its_package_is_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in an environment without Airflow says so; that is no fault of an own part."""
    monkeypatch.setattr(plugins, "installed_version", lambda _: None)

    channels = [plugin for plugin in plugins.plugins() if plugin.kind == "channel"]

    assert {channel.version for channel in channels} == {None}
    assert all("not installed where this command runs" in str(channel.problem) for channel in channels)
