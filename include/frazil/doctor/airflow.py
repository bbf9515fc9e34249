"""Checks of Airflow: its components, and the pools and connections that the DAGs need."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from frazil.devstack.airflow import POOLS
from frazil.doctor.finding import Finding, error_finding
from frazil.doctor.services import clock
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, Pipeline
from frazil.pipeline.settings.capture import Capture, JdbcCapture
from frazil.pipeline.settings.settings import EngineSettings
from frazil.project import Project
from frazil.runtime.airflow_login import any_api, remote_url

if TYPE_CHECKING:
    from frazil.runtime.airflow_api import AirflowApi

_API: Final = "frazil_api"
"""The Airflow connection with which tasks call Airflow's own API."""

_ADD_API: Final = (
    f"airflow connections add {_API} --conn-type http --conn-host URL --conn-login USER --conn-password PASSWORD"
)


@dataclass(frozen=True, slots=True)
class Tasks:
    """The engines of Airflow's tasks: those of ingestion and JDBC captures, and those of scheduled maintenance."""

    ingest: Sequence[EngineSettings]
    maintenance: Sequence[EngineSettings] = ()

    @classmethod
    def from_project(cls, project: Project, pipelines: Sequence[Pipeline], captures: Iterable[Capture] = ()) -> Tasks:
        """The engines of these pipelines and captures, except those that the settings lack."""
        ingest = [pipeline.engine for pipeline in pipelines]
        ingest += [capture.engine for capture in captures if isinstance(capture, JdbcCapture)]
        maintenance = [pipeline.maintenance_engine for pipeline in pipelines if pipeline.maintenance.schedule]

        def entries(names: Iterable[str]) -> list[EngineSettings]:
            named = {project.settings.auto.engine if name == AUTO_ENGINE else name for name in names}
            return [project.engine_entry(name) for name in sorted(named & project.settings.engines.keys())]

        return cls(entries(ingest), entries(maintenance))

    @property
    def pools(self) -> frozenset[str]:
        """Names of the pools in which the tasks wait."""
        return frozenset(
            [engine.pool for engine in self.ingest] + [engine.maintenance_pool for engine in self.maintenance]
        )


def airflow(project: Project, tasks: Tasks) -> Iterator[Finding]:
    """Whether the configured Airflow answers, is healthy, and has what these tasks need. No finding if there is no Airflow."""
    if find_spec("httpx") is None:  # then Airflow's packages are not installed
        return
    is_embedded = remote_url() is None
    try:
        with any_api(project.home) as api:
            yield from _components(api, is_embedded=is_embedded)
            yield from pools(api, tasks.pools, is_embedded=is_embedded)
            if not is_embedded:  # the embedded one has its connections in environment variables
                yield from connections(api, [*tasks.ingest, *tasks.maintenance])
    except Terminal as refusal:
        if not is_embedded:  # the embedded one was never started in this home
            yield error_finding("airflow", refusal)
        return
    except Retryable as problem:
        yield error_finding("airflow", problem, "warning" if is_embedded else "failed")
        return
    yield from clock("airflow", remote_url() or project.home.airflow_url)


def _components(api: AirflowApi, *, is_embedded: bool) -> Iterator[Finding]:
    states = api.health()
    unhealthy = sorted(name for name, component in states.items() if not component.is_healthy)
    if unhealthy:
        step = "look at their logs" + ("; `frazil up` starts what ended" if is_embedded else "")
        yield Finding("airflow", "failed", f"not healthy: {', '.join(unhealthy)}", "all components are healthy", step)
    else:
        yield Finding("airflow", "ok", f"answers, with {', '.join(sorted(states)) or 'no component yet'}")


def pools(api: AirflowApi, needed: frozenset[str], *, is_embedded: bool) -> Iterator[Finding]:
    """Whether Airflow has the needed pools: a task waits forever for a missing one."""
    check = "airflow pools"
    try:
        missing = sorted(needed - api.pools().keys())
    except FrazilError as refusal:
        yield error_finding(check, refusal, "warning")
        return
    for name in missing:
        step = f'airflow pools set {shlex.quote(name)} 1 "Spark jobs that may run at once"'
        if is_embedded:  # in a terminal, the command `airflow` would change another Airflow
            step = "frazil up" if name in POOLS else f"add pool {name} in Airflow's UI: Admin, Pools"
        yield Finding(check, "failed", f"there is no pool {name}, so its tasks wait forever", f"a pool {name}", step)
    if needed and not missing:
        yield Finding(check, "ok", ", ".join(sorted(needed)))


def connections(api: AirflowApi, engines: Sequence[EngineSettings]) -> Iterator[Finding]:
    """Whether Airflow's database has the connections that tasks use. Workers may have them elsewhere, which the API does not show."""
    check, commands = "airflow connections", {_API: _ADD_API}
    for engine in engines:
        if engine.has_connection:
            commands[engine.connection] = (
                f"airflow connections add {shlex.quote(engine.connection)} --conn-type spark --conn-host"
                f" {shlex.quote(engine.master)}"
            )
    try:
        missing = sorted(commands.keys() - api.connection_ids())
    except Terminal:
        yield Finding(check, "ok", f"this login may not see them; needed: {', '.join(sorted(commands))}")
        return
    for name in missing:
        expected = f"one there, or in AIRFLOW_CONN_{name.upper()} or a secrets backend of the workers"
        yield Finding(check, "warning", f"Airflow's database has no connection {name}", expected, commands[name])
    if not missing:
        yield Finding(check, "ok", ", ".join(sorted(commands)))
