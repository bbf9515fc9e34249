"""Homes of their own for stacks that really start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.devstack import stack
from frazil.runtime.home import Home, Ports
from frazil.runtime.jars import fetch
from frazil.runtime.process import Processes


@pytest.fixture(scope="session")
def shared_jars() -> Path:
    """Fetch the broker's jars once, into the developer's own home."""
    home = Home.resolve()
    fetch(home, "broker")
    return home.jars


@pytest.fixture
def home(tmp_path: Path, shared_jars: Path, free_ports: Callable[[int], list[int]]) -> Iterator[Home]:
    """Return an empty home on free ports; whatever the test started there is stopped."""
    production = replace(
        Home.resolve({"FRAZIL_HOME": str(tmp_path / "home")}),
        jars=shared_jars,
        project=tmp_path / "project",
        ports=Ports(*free_ports(3)),
    )
    for folder in ("dags", "plugins"):
        (production.project / folder).mkdir(parents=True)
    yield production
    stack.down(production)


@pytest.fixture
def processes(home: Home) -> Processes:
    """Return the process records of the home."""
    return stack.processes_of(home)


def processes_naming(path: Path) -> list[str]:
    """Return the command lines of live processes with a path in their command or environment."""
    ports = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or entry.name == str(_own_pid()):
            continue
        try:
            command, env = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:  # it ended meanwhile, or belongs to somebody else
            continue
        if str(path).encode() in command + env:
            ports.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return ports


def _own_pid() -> int:
    return int(Path("/proc/self").readlink().name)


@pytest.fixture
def survivors(home: Home) -> object:
    """Return a function that lists the processes which still belong to the home."""
    return lambda: processes_naming(home.root)
