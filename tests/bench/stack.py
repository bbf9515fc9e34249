"""What every measurement needs: a broker of its own on free ports, and a project with one pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from frazil.devstack import broker
from frazil.project import Project
from frazil.runtime.home import Home, is_free
from frazil.runtime.process import Processes
from tests.servers import with_ports


@contextmanager
def running_broker(root: Path) -> Iterator[Home]:
    """A broker of its own, stopped at the end."""
    kafka, controller = [port for port in range(21_000, 22_000) if is_free(port)][:2]
    home = with_ports(replace(Home.resolve(), root=root), kafka=kafka, controller=controller)
    processes = Processes(home.run, home.logs, home.root)
    try:
        broker.start(home, processes, lambda _: None)
        yield home
    finally:
        broker.stop(processes)


def broker_pid(home: Home) -> int:
    """Id of the broker's process."""
    process = Processes(home.run, home.logs, home.root).running(broker.NAME)
    assert process is not None, "the broker is gone"
    return process.pid


def environment(root: Path, home: Home, name: str, pipeline: str, settings: str | None = None) -> dict[str, str]:
    """Write a project in a folder of its own, one pipeline file, and a settings file if it needs another one: what names it."""
    folder = root / f"pipelines-{name}"
    folder.mkdir()
    (folder / f"{name}.yaml").write_text(pipeline)
    env = {
        "FRAZIL_HOME": str(root / f"home-{name}"),
        "FRAZIL_PIPELINES": str(folder),
        "FRAZIL_KAFKA_PORT": str(home.ports.kafka),
        "FRAZIL_JARS": str(home.jars),
    }
    if settings is not None:
        (root / f"settings-{name}.yaml").write_text(settings)
        env["FRAZIL_SETTINGS"] = str(root / f"settings-{name}.yaml")
    return env


def project(root: Path, home: Home, name: str, pipeline: str, settings: str | None = None) -> Project:
    """A project in a folder of its own with one pipeline file, and a settings file if it needs another one."""
    return Project.load(environment(root, home, name, pipeline, settings))
