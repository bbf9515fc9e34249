"""Deeds at the named points of a run, in this process; and a shop with tables in two catalogs."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from frazil import failpoints
from frazil.failpoints import VARIABLE
from frazil.project import SETTINGS_VARIABLE, Project
from tests.integration.conftest import environment
from tests.integration.run.staying import Clock
from tests.operations import Killed
from tests.rest_catalog import RestServer

AtFailpoint = Callable[..., Any]

FILE = """
name: orders
source: {{topics: [{topic}]}}
engine: inline
dead_letters: {{tolerance: all}}
destinations:
  - table: shop.orders
    columns: {{id: {{type: long, required: true}}, name: string}}
  - table: mirror.night.orders
    catalog: cloud
    columns: {{id: {{type: long, required: true}}}}
    {branch}
"""

COPY = "mirror.night.orders"


@pytest.fixture
def at_failpoint(monkeypatch: pytest.MonkeyPatch) -> AtFailpoint:
    """Do something, once, when a run gets to a point; without a deed it is killed there: `at_failpoint("follow.committing")`."""

    def arrange(point: str, deed: Callable[[], object] | None = None, nth: int = 1) -> None:
        def hit(*_: int) -> None:
            monkeypatch.delenv(VARIABLE)
            if deed is None:
                raise Killed
            deed()

        monkeypatch.setenv(VARIABLE, f"{point}:{nth}=kill")
        monkeypatch.setattr(failpoints, "_reached", Counter())
        monkeypatch.setattr(failpoints, "os", SimpleNamespace(environ=os.environ, getpid=os.getpid, kill=hit))

    return arrange


@pytest.fixture
def spread(shop: Callable[..., Any], rest_server: RestServer, tmp_path: Path) -> Callable[..., Any]:
    """Make a shop with one destination in each catalog: `spread(branch="night")`."""
    rest_server.empty()

    def make(branch: str | None = None, partitions: int = 1) -> Any:
        new_shop = shop(partitions=partitions)
        lake = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
        catalogs = {"lake": lake, "cloud": {"type": "rest", "uri": rest_server.uri}}
        settings = tmp_path / "settings.yaml"
        clusters = {"local": {"bootstrap_servers": "${local:kafka}"}}
        settings.write_text(json.dumps({"clusters": clusters, "catalogs": catalogs}))
        project = Project.load(environment(new_shop.project) | {SETTINGS_VARIABLE: str(settings)})
        text = FILE.format(topic=new_shop.topic, branch=f"branch: {branch}" if branch else "")
        return replace(new_shop, project=project).with_pipeline(text)

    return make


@pytest.fixture
def clock() -> Clock:
    """The clock of the test's sessions."""
    return Clock()
