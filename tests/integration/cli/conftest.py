"""The command as a user starts it: a process of its own, in a project of its own, on a real broker."""

from __future__ import annotations

import json
import os
import pty
import shlex
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from frazil.runtime.home import Home, project_root
from frazil.runtime.jars import fetch
from tests.fork_server import run_frazil
from tests.warm_spark import WarmSpark

_SECONDS = 280
"""Bounds one command; a job of Spark takes 20 s on an idle machine."""


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
            "PYTHONFAULTHANDLER": "1",  # a process that dies of a signal says where
        }
        return os.environ | own

    def frazil(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end; what it writes is piped."""
        return run_frazil(arguments, self.environment | env, _SECONDS)

    def succeed(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command that must end with 0; if it does not, the failure shows what it said."""
        ended = self.frazil(*arguments, **env)
        assert ended.returncode == 0, _transcript(ended)
        return ended

    def json(self, *arguments: str, **env: str) -> Any:
        """Run a command that must succeed, with `--json`; what it tells a program."""
        ended = self.succeed(*arguments, "--json", **env)
        assert ended.stdout.strip(), _transcript(ended)
        return json.loads(ended.stdout)

    def answer(self, text: str, *arguments: str) -> tuple[int, str]:
        """Run a command at a terminal and answer its question; its exit code and all that it wrote."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "frazil.cli", *arguments],
            env=self.environment,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as request:
            os.close(theirs)
            os.write(ours, f"{text}\n".encode())
            written, _ = request.communicate(timeout=_SECONDS)
        os.close(ours)
        return request.returncode, written


def _transcript(ended: subprocess.CompletedProcess[str]) -> str:
    """The command, its exit code and all that it wrote."""
    command = shlex.join(ended.args)
    return f"{command}: exit code {ended.returncode}\nstdout: {ended.stdout}\nstderr: {ended.stderr}"


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
        place.succeed(*command)
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


@pytest.fixture(params=["submit", pytest.param("connect", marks=pytest.mark.full)])
def engine(request: pytest.FixtureRequest, place: Place) -> str:
    """Name of an engine of each type, which the place's settings know: jobs must do the same on both."""
    if request.param == "submit":
        fetch(Home.resolve(), "spark")
        return "spark"
    warm: WarmSpark = request.getfixturevalue("warm_spark")
    warm.start()
    settings = place.root / "settings.yaml"
    settings.write_text(f"{settings.read_text()}\nengines: {json.dumps(warm.engines())}\n", encoding="utf-8")
    return "warm"
