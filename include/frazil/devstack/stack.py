"""The embedded stack as a whole: start it, stop it, report its status."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from frazil.devstack import production, rest_catalog
from frazil.devstack.parts import PARTS, Launch, PartName
from frazil.error_codes import STACK_FAILED
from frazil.runtime import spark_server
from frazil.runtime.files import exclusive
from frazil.runtime.home import HOME_VARIABLE, PORT_VARIABLES, PROJECT_VARIABLE, Home, bootstrap_servers
from frazil.runtime.process import Processes

CATALOG = "lake"
"""Name of the embedded catalog; part of its rows' keys, so Spark and PyIceberg must use the
same."""


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """One process of the stack.

    Attributes:
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

    def is_running(self, part: PartName) -> bool:
        """Return whether every process of a part runs."""
        needed = next(candidate.processes for candidate in PARTS[self.home.profile] if candidate.name == part)
        return all(component.state == "running" for component in self.components if component.name in needed)

    def to_json(self) -> dict[str, Any]:
        """Return what other programs need to use the stack, as JSON values. No secret is in it."""
        return {
            "home": str(self.home.root),
            "profile": self.home.profile,
            "bootstrap_servers": bootstrap_servers(self.home),
            "catalog": {"name": CATALOG, **_catalog(self.home)},
            "addresses": {part.name: part.url(self.home) for part in PARTS[self.home.profile]},
            "airflow": {"url": self.home.airflow_url, "user": self.home.airflow_user},
            "components": [
                asdict(component) | {"since": component.since.isoformat() if component.since else None}
                for component in self.components
            ],
        }


def processes_of(home: Home) -> Processes:
    """Return the process records and logs of a home."""
    return Processes(home.run, home.logs, home.root)


def up(
    home: Home,
    only: Collection[PartName] | None = None,
    report: Callable[[str], None] = lambda _: None,
    *,
    dags_paused: bool = True,
) -> None:
    """Start the stopped parts of the stack and wait until they answer. Returns at once if all run.

    Calls on one home wait for each other. What was started before a failure keeps running; `down`
    ends it.

    Raises:
        Terminal: A port is taken or was moved under a running component, another profile runs, or something must be
            installed.
        Retryable: A download failed, or a component did not start; its log is quoted.
    """
    processes = processes_of(home)
    launch = Launch(home, processes, report, dags_paused)
    with _alone(home, report):
        _refuse_other_profile(home, processes)
        _refuse_moved_ports(home, processes)
        parts = [part for part in PARTS[home.profile] if only is None or part.name in only]
        for part in parts:  # before the home is noted: else it would change its profile, and then lack something
            part.require(home)
        if home.profile == "production":
            production.write_settings(home)
        home.record()
        home.warehouse.mkdir(parents=True, exist_ok=True)
        for part in parts:
            began = time.monotonic()
            part.start(launch)
            report(f"{part.name}: ready at {part.url(home)} ({time.monotonic() - began:.1f} s)")


def down(home: Home, report: Callable[[str], None] = lambda _: None, only: Collection[str] | None = None) -> None:
    """Stop every process of the stack in reverse start order, including those of a crashed `up`.

    Whatever the profile of the home was. `only` names parts, and `spark` for a managed spark connect server; None: all.

    Raises:
        Retryable: A process could not be ended.
    """
    processes = processes_of(home)
    if not home.run.is_dir():
        return
    with _alone(home, report):
        for part in reversed(PARTS["production"]):  # it has every part that there is
            if only is None or part.name in only:
                part.stop(processes)
            if part.name == "airflow" and (only is None or "spark" in only):
                spark_server.stop(processes)
    report("stopped")


def status(home: Home) -> Status:
    """Return how the stack is, from its process records."""
    processes = processes_of(home)
    components = [name for part in PARTS[home.profile] for name in part.processes]
    if processes.record(spark_server.NAME) is not None:  # only where the settings ask for it
        components.append(spark_server.NAME)
    return Status(home, tuple(_component(processes, name) for name in components))


def _alone(home: Home, report: Callable[[str], None]) -> AbstractContextManager[None]:
    return exclusive(home.run / "stack.lock", lambda: report("waiting for another `frazil up` or `frazil down`"))


def _refuse_other_profile(home: Home, processes: Processes) -> None:
    before = Home.resolve({PROJECT_VARIABLE: str(home.project), HOME_VARIABLE: str(home.root)}).profile
    if before == home.profile:
        return
    running = [name for part in PARTS[before] for name in part.processes if processes.running(name) is not None]
    if running:
        raise STACK_FAILED.terminal(
            f"{', '.join(running)} run in profile {before} of {home.root}, asked for is {home.profile}",
            next_step="`frazil down` first, or let FRAZIL_HOME name another folder",
        )


def _refuse_moved_ports(home: Home, processes: Processes) -> None:
    for part in PARTS[home.profile]:
        first, url = part.processes[0], part.url(home)
        record = processes.running(first)
        if record is not None and record.url != url:
            raise STACK_FAILED.terminal(
                f"{first} runs at {record.url}, but {PORT_VARIABLES[part.port]} asks for {url}",
                next_step="`frazil down` first, or unset the variable",
            )


def _catalog(home: Home) -> dict[str, str]:
    if home.profile == "production":
        return {"uri": rest_catalog.url(home), "warehouse": production.WAREHOUSE}
    return {"uri": f"sqlite:///{home.catalog}", "warehouse": f"file://{home.warehouse}"}


def _component(processes: Processes, name: str) -> ComponentStatus:
    record = processes.running(name)
    if record is not None:
        return ComponentStatus(name, "running", record.pid, record.url or None, record.since)
    return ComponentStatus(name, "dead" if processes.record(name) else "stopped")
