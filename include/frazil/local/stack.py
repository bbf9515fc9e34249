"""The embedded stack as a whole: bring it up, take it down, say how it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from frazil.errors import Terminal
from frazil.local import airflow, broker, spark_server
from frazil.local.files import exclusive
from frazil.local.home import PORT_VARIABLES, Home, bootstrap_servers
from frazil.local.process import Processes

Part = Literal["kafka", "airflow"]
PARTS: tuple[Part, ...] = ("kafka", "airflow")
"""What `up` starts, in this order."""

CATALOG = "lake"
"""Name of the embedded catalog; part of its rows' keys, so Spark and PyIceberg must use the
same."""

_COMPONENTS = (broker.NAME, *airflow.NAMES)
_PORTS = {broker.NAME: "kafka", airflow.API_SERVER: "airflow"}


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One process of the stack.

    Attributes:
        name: Component.
        state: `running`; `stopped` when it was never started or stopped in order; `dead` when it
            ended otherwise.
        pid: Process id while running.
        url: Where it answers, for those that do.
        since: Start time in UTC while running.
    """

    name: str
    state: Literal["running", "stopped", "dead"]
    pid: int | None = None
    url: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The stack of one home."""

    home: Home
    components: tuple[ComponentStatus, ...]

    def is_running(self, part: Part) -> bool:
        """Return whether every process of a part runs."""
        names = (broker.NAME,) if part == "kafka" else airflow.NAMES
        return all(c.state == "running" for c in self.components if c.name in names)

    def to_json(self) -> dict[str, Any]:
        """Return what other programs need to use the stack, as JSON values. No secret is in it."""
        return {
            "home": str(self.home.root),
            "bootstrap_servers": bootstrap_servers(self.home),
            "catalog": {
                "name": CATALOG,
                "uri": f"sqlite:///{self.home.catalog}",
                "warehouse": f"file://{self.home.warehouse}",
            },
            "airflow": {"url": self.home.airflow_url, "user": self.home.airflow_user},
            "components": [_component_json(component) for component in self.components],
        }


def processes_of(home: Home) -> Processes:
    """Return the process records and logs of a home."""
    return Processes(home.run, home.logs, home.root)


def up(
    home: Home,
    only: Collection[Part] | None = None,
    report: Callable[[str], None] = lambda _: None,
    *,
    dags_paused: bool = True,
) -> None:
    """Start what does not run of the stack and wait until it answers; at once when all runs.

    Calls on one home wait for each other. What was started before a failure keeps running; `down`
    ends it.

    Args:
        home: The stack.
        only: Parts to start; all when None.
        report: Receives progress lines.
        dags_paused: Whether a DAG seen for the first time waits to be unpaused.

    Raises:
        Terminal: A port is taken or was moved under a running component, or something must be
            installed.
        Retryable: A download failed, or a component did not start; its log is quoted.
    """
    processes = processes_of(home)
    parts = [part for part in PARTS if only is None or part in only]
    with _alone(home, report):
        _refuse_moved_ports(home, processes)
        home.record()
        home.warehouse.mkdir(parents=True, exist_ok=True)
        for part in parts:
            began = time.monotonic()
            if part == "kafka":
                broker.start(home, processes, report)
                report(f"kafka: ready at {bootstrap_servers(home)} ({time.monotonic() - began:.1f} s)")
            else:
                airflow.start(home, processes, report, dags_paused=dags_paused)
                report(f"airflow: ready at {home.airflow_url} ({time.monotonic() - began:.1f} s)")


def down(home: Home, report: Callable[[str], None] = lambda _: None) -> None:
    """Stop every process of the stack, last started first, also what a crashed `up` left.

    Raises:
        Retryable: A process could not be ended.
    """
    processes = processes_of(home)
    if not home.run.is_dir():
        return
    with _alone(home, report):
        airflow.stop(processes)
        spark_server.stop(processes)
        broker.stop(processes)
    report("stopped")


def status(home: Home) -> Status:
    """Return how the stack is, from its process records."""
    processes = processes_of(home)
    there = processes.record(spark_server.NAME) is not None  # only where the settings ask for it
    names = (*_COMPONENTS, spark_server.NAME) if there else _COMPONENTS
    return Status(home, tuple(_component(processes, name) for name in names))


def _alone(home: Home, report: Callable[[str], None]) -> AbstractContextManager[None]:
    return exclusive(home.run / "stack.lock", lambda: report("waiting for another `frazil up` or `frazil down`"))


def _refuse_moved_ports(home: Home, processes: Processes) -> None:
    wanted = {broker.NAME: bootstrap_servers(home), airflow.API_SERVER: home.airflow_url}
    for name, url in wanted.items():
        found = processes.running(name)
        if found is not None and found.url != url:
            raise Terminal(
                f"{name} runs at {found.url}, but {PORT_VARIABLES[_PORTS[name]]} asks for {url}",
                next_step="`frazil down` first, or unset the variable",
            )


def _component(processes: Processes, name: str) -> ComponentStatus:
    found = processes.running(name)
    if found is not None:
        return ComponentStatus(name, "running", found.pid, found.url or None, found.since)
    return ComponentStatus(name, "dead" if processes.record(name) else "stopped")


def _component_json(component: ComponentStatus) -> dict[str, Any]:
    return {
        "name": component.name,
        "state": component.state,
        "pid": component.pid,
        "url": component.url,
        "since": component.since.isoformat() if component.since else None,
    }
