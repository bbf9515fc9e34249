"""The command as a user starts it: a process of its own, in a project of its own, on a real broker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from frazil.local.home import Home, project_root

_SECONDS = 120
"""Bounds one command; the slowest here takes 5 s on an idle machine."""


@dataclass(frozen=True)
class Place:
    """A project with one pipeline `orders`, from a topic that does not exist yet to table `shop.orders`."""

    root: Path
    topic: str

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process see this project."""
        own = {
            "PYTHONPATH": str(project_root() / "include"),
            "FRAZIL_HOME": str(self.root / "home"),
            "FRAZIL_JARS": str(Home.resolve().jars),
            "FRAZIL_SETTINGS": str(self.root / "settings.yaml"),
            "FRAZIL_PIPELINES": str(self.root / "pipelines"),
        }
        return os.environ | own

    def frazil(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end; what it writes is piped."""
        return subprocess.run(
            [sys.executable, "-m", "frazil.cli", *arguments],
            env=self.environment | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )


def make_place(root: Path, bootstrap_servers: str) -> Place:
    topic = f"orders-{uuid4().hex}"
    (root / "pipelines").mkdir()
    settings = f"""
        clusters: {{local: {{bootstrap_servers: "{bootstrap_servers}"}}}}
        catalogs: {{lake: {{uri: "sqlite:///${{local:home}}/catalog.db", warehouse: "file://${{local:home}}/warehouse"}}}}
    """
    orders = f"""
        name: orders
        engine: inline
        source: {{topics: [{topic}]}}
        destinations:
          - table: shop.orders
            columns:
              id: {{type: string, required: true}}
              type: string
              created_at: timestamptz
              document: string
              payer: string
              amount: int
        dead_letters: {{tolerance: {{max_rate: 1}}}}
    """
    (root / "settings.yaml").write_text(textwrap.dedent(settings), encoding="utf-8")
    (root / "pipelines" / "orders.yaml").write_text(textwrap.dedent(orders), encoding="utf-8")
    return Place(root, topic)


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory, broker: str) -> Place:
    """A place with 990 payments landed and 10 dead letters. For tests that only read."""
    place = make_place(tmp_path_factory.mktemp("landed"), broker)
    generated = ("--generate", "payments", "--count", "1000", "--broken-per-thousand", "10", "--seed", "7")
    for command in (("produce", place.topic, *generated), ("run", "orders")):
        assert place.frazil(*command).returncode == 0
    return place


@pytest.fixture
def place(tmp_path: Path, broker: str) -> Place:
    return make_place(tmp_path, broker)


@pytest.fixture
def lonely_place(tmp_path: Path) -> Iterator[Place]:
    """Its broker's port is taken, so that nobody else may get it, and nobody answers there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield make_place(tmp_path, f"127.0.0.1:{bound.getsockname()[1]}")
