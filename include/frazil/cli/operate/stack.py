"""`frazil up` and `down` start and stop the embedded stack. `frazil pause` and `resume` switch a pipeline's DAG, `frazil
stop` ends its present runs.
"""

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from frazil.cli.output import console
from frazil.cli.output.console import Json, PipelineName, Progress
from frazil.error_codes import BAD_SETTING, NAME_UNKNOWN, RUN_FAILED
from frazil.runtime.home import Home

if TYPE_CHECKING:
    from frazil.errors import FrazilError, Retryable
    from frazil.runtime.airflow_api import AirflowApi, DagRun
    from frazil.runtime.drivers import Driver


_STATE_STYLES = {"running": "green", "dead": "bold red", "stopped": "dim"}


def up(
    *,
    only: Annotated[
        Literal["kafka", "airflow", "spark", "postgres", "s3", "catalog", "registry", "cluster"] | None,
        typer.Option(
            help="Start only this part and the parts that it needs. [cyan]spark[/cyan]: the managed server of an engine."
        ),
    ] = None,
    profile: Annotated[
        Literal["embedded", "production"] | None,
        typer.Option(
            help="[cyan]production[/cyan]: Kafka with TLS and passwords, a Schema Registry, an S3 server, a REST catalog,"
            " PostgreSQL and a Spark cluster of two workers, without Docker.",
            show_default="the last one of this FRAZIL_HOME, at first embedded",
        ),
    ] = None,
) -> None:
    """Start the stack on this machine: a Kafka broker, Airflow, and the server of a managed Spark engine.

    Servers listen on the loopback interface only. Servers that run already stay as they are. State, logs and jars are in
    FRAZIL_HOME, by default [cyan].frazil[/cyan]. New DAGs are paused in Airflow until you unpause them.
    """
    from frazil.devstack import stack
    from frazil.devstack.stack import names

    present = Home.resolve()
    home = replace(present, profile=profile or present.profile)
    if only not in (None, "spark", *names(home.profile)):
        raise NAME_UNKNOWN.terminal(
            f"profile {home.profile} has no part {only}",
            next_step=f"its parts: {', '.join(names(home.profile))}; or --profile production",
        )
    # A home that changes its profile gets the settings of the new one only when the stack starts.
    starts_server = only in (None, "spark") and home.profile == present.profile
    start_server = server_start(is_required=only == "spark") if starts_server else None
    with Progress() as progress:
        if only != "spark":
            stack.up(home, None if only is None else [only], progress.done)
            if only in (None, "airflow"):
                progress.done(f"airflow: log in as {home.airflow_user}, with the password in {home.airflow_passwords}")
        if start_server is not None:
            start_server(progress.done)


def server_start(*, is_required: bool) -> Callable[[Callable[[str], None]], None] | None:
    """A function that starts the managed server of the settings, None if they have none.

    Raises:
        Terminal: The settings are broken, or have no managed server although one is required.
    """
    from frazil.project import Project
    from frazil.spark.submit.server import managed_engine, start_server

    project = Project.load()
    engine = managed_engine(project)
    if engine is not None:
        return partial(start_server, project, engine)
    if is_required:
        raise BAD_SETTING.terminal(
            f"{project.settings_file}: no engine has a server that Frazil manages",
            next_step="give one `type: connect` and `managed: true`, see docs/engines.md",
        )
    return None


def down() -> None:
    """Stop every process of the embedded stack. Topics and tables stay."""
    from frazil.devstack import stack

    with Progress() as progress:
        stack.down(Home.resolve(), progress.done)


def show_stack(home: Home) -> None:
    """Print the processes of the embedded stack and its addresses; nothing if it was never started."""
    from rich.text import Text

    from frazil.devstack import stack

    if not home.stack.is_file():
        return
    stack_status = stack.status(home)
    facts = stack_status.to_json()
    table = console.new_table("component", "state", "pid", "since (UTC)")
    for component in stack_status.components:
        since = f"{component.since:%Y-%m-%d %H:%M:%S}" if component.since else ""
        state = Text(component.state, style=_STATE_STYLES[component.state])
        table.add_row(component.name, state, str(component.pid or ""), since)
    console.show_table(table)
    console.say()
    for part, address in facts["addresses"].items():
        if part != "catalog":
            console.say(f"{part:<9}{address}")
    console.say(
        f"catalog  {facts['catalog']['name']}: {facts['catalog']['uri']}, tables in {facts['catalog']['warehouse']}"
    )
    console.say()


_WAIT_SECONDS: Final = 35.0
"""How long `stop` waits: a run may take 30 s to end, and a loaded machine needs a little longer."""

_HEARTBEAT_SECONDS: Final = 8.0
"""How long a run that is marked failed may still start a process: until Airflow's heartbeat, every 5 s, has ended its task."""

_READ_SECONDS: Final = 90.0
"""How long a DAG may take to appear in an Airflow that was just started; the embedded one looks at its files every 5 s."""

_REPLAYS: Final = "replay_dead_letters__"
"""The id of the DAG that replays a pipeline's dead letters begins with this."""


def pause(pipeline: PipelineName) -> None:
    """Pause a pipeline's DAG, so that Airflow starts no new run. A present run continues. The position stays.

    FRAZIL_AIRFLOW_URL, FRAZIL_AIRFLOW_USER and FRAZIL_AIRFLOW_PASSWORD name another Airflow than the embedded one.
    """
    _set_paused(pipeline, paused=True)


def resume(pipeline: PipelineName) -> None:
    """Unpause a pipeline's DAG. The next run continues where the last one ended: no record is skipped.

    FRAZIL_AIRFLOW_URL, FRAZIL_AIRFLOW_USER and FRAZIL_AIRFLOW_PASSWORD name another Airflow than the embedded one.
    """
    _set_paused(pipeline, paused=False)


def stop(pipeline: PipelineName, *, as_json: Json = False) -> None:
    """Stop the present runs of a pipeline, also replays of its dead letters. A batch that is decided is finished first.

    A batch that is not decided is discarded; the next run lands its records. Airflow's runs are marked failed and not tried
    again; processes on this machine get SIGTERM. The command waits until the processes that share FRAZIL_HOME have ended, at
    most about 30 s. The next run starts on schedule, unless you pause the pipeline first.

    FRAZIL_AIRFLOW_URL, FRAZIL_AIRFLOW_USER and FRAZIL_AIRFLOW_PASSWORD name another Airflow than the embedded one.
    """
    from frazil.project import Project
    from frazil.runtime.drivers import drivers
    from frazil.runtime.process import until

    project = Project.load()
    name, home = project.pipeline(pipeline).name, project.home
    began = time.monotonic()
    at_work = drivers(home, name)  # before runs are marked failed: Airflow ends some processes at once
    failed, airflow_error = _fail_runs(home, name)
    recipients = _ask_to_stop(home, name, at_work, {_run_name(run) for run in failed if run.state == "running"})
    until(lambda: not drivers(home, name), _WAIT_SECONDS)
    if remaining := drivers(home, name):
        raise _still_at_work(name, remaining) from airflow_error
    seconds = time.monotonic() - began
    result = _StopResult([_run_name(run) for run in failed], recipients, seconds, sees_airflow=airflow_error is None)
    if as_json:
        console.print_json({"pipeline": name} | result.facts)
    else:
        for line in result.lines:
            console.say(f"{name}: {line}")
    if airflow_error is not None:
        raise airflow_error


@dataclass(frozen=True)
class _StopResult:
    """The result of `frazil stop`: runs that were marked failed, and processes that were asked to stop and ended."""

    failed: list[str]
    recipients: "Sequence[Driver]"
    seconds: float
    sees_airflow: bool

    @property
    def unseen(self) -> list[str]:
        """Runs that were marked failed, but have no process that is seen from here."""
        return [run for run in self.failed if run not in {driver.run for driver in self.recipients}]

    @property
    def facts(self) -> dict[str, object]:
        """The result as JSON, for programs."""
        return {
            "failed_runs": self.failed,
            "stopped": [driver.run for driver in self.recipients],
            "unseen": self.unseen,
            "seconds": round(self.seconds, 1),
        }

    @property
    def lines(self) -> "Iterator[str]":
        """The result as text, for people."""
        from frazil.runtime.airflow_login import remote_url

        for run in self.failed:
            yield f"Airflow's run {run} is marked failed"
        for driver in self.recipients:
            yield f"run {driver.run} ({_process_name(driver)}) ended in {self.seconds:.1f} s"
        if self.unseen and remote_url():
            yield f"no process of {', '.join(self.unseen)} is seen from here; those of Airflow's machines end within 30 s"
        if not self.failed and not self.recipients:
            yield "no run is at work" + (
                "" if self.sees_airflow and not remote_url() else ", as far as is seen from here"
            )


def _ask_to_stop(home: "Home", pipeline: str, at_work: "Sequence[Driver]", running: set[str]) -> "list[Driver]":
    """Ask every process that runs batches to stop.

    Args:
        home: The home of the processes.
        pipeline: Name of the pipeline.
        at_work: Processes that were seen before the runs were marked failed.
        running: Airflow runs that were running. Spark takes seconds to start, and a task learns at its next heartbeat that
            its run was marked failed: until then a new process may appear and decide a batch.

    Returns:
        The processes that were asked to stop.
    """
    from frazil.runtime.drivers import drivers
    from frazil.runtime.process import until

    recipients: list[Driver] = []

    def all_seen() -> bool:
        for driver in (*at_work, *drivers(home, pipeline)):
            if driver not in recipients:
                driver.ask_to_stop()
                recipients.append(driver)
        return running <= {driver.run for driver in recipients}

    until(all_seen, _HEARTBEAT_SECONDS)
    return recipients


def _set_paused(pipeline: str, *, paused: bool) -> None:
    from frazil.project import Project
    from frazil.runtime import airflow_login
    from frazil.runtime.process import until

    project = Project.load()
    dag = _dag(project.pipeline(pipeline).name)
    with airflow_login.any_api(project.home) as api:
        until(lambda: dag in api.paused(dag), _READ_SECONDS, 0.5)
        # If the DAG did not appear, Airflow refuses this request, with its own message.
        if paused:
            api.pause(dag)
        else:
            api.unpause(dag)
    console.say(f"{pipeline}: DAG {dag} {'is paused' if paused else 'runs on its schedule'}")


def _fail_runs(home: "Home", pipeline: str) -> "tuple[list[DagRun], FrazilError | None]":
    """Mark unfinished Airflow runs as failed, if the environment names an Airflow or the embedded one is up.

    Returns:
        The marked runs; and the error if Airflow's API failed, because processes on this machine are stopped all the same.
    """
    from frazil.devstack import stack
    from frazil.errors import FrazilError
    from frazil.runtime import airflow_login

    failed: list[DagRun] = []
    try:
        if airflow_login.remote_url() is None and not stack.status(home).is_running("airflow"):
            return failed, None
        with airflow_login.any_api(home) as api:
            for run in _unfinished(api, pipeline):
                api.fail(run.dag_id, run.run_id)
                failed.append(run)
    except FrazilError as error:
        return failed, error
    return failed, None


def _unfinished(api: "AirflowApi", pipeline: str) -> "Iterator[DagRun]":
    """Unfinished runs of the ingest DAG and of the DAG that replays dead letters."""
    states = ("running", "queued")
    yield from api.runs(_dag(pipeline), states)
    replays = f"{_REPLAYS}{pipeline}"
    if replays in api.paused(replays):  # Airflow may not have read its file yet
        yield from api.runs(replays, states)


def _run_name(run: "DagRun") -> str:
    """The name under which a process registers a run: run ids are unique only within their DAG."""
    return f"{run.dag_id}:{run.run_id}" if run.dag_id.startswith(_REPLAYS) else run.run_id


def _still_at_work(pipeline: str, remaining: "Sequence[Driver]") -> "Retryable":
    pids = " ".join(str(driver.pid) for driver in remaining)
    elsewhere = "" if all(driver.is_here for driver in remaining) else " there, if `frazil stop` there does not help"
    return RUN_FAILED.retryable(
        f"pipeline {pipeline}: {', '.join(map(_process_name, remaining))} did not end within {_WAIT_SECONDS:.0f} s",
        next_step=f"end it by force, which loses nothing: kill -9 {pids}{elsewhere}",
    )


def _process_name(driver: "Driver") -> str:
    return f"process {driver.pid}" + ("" if driver.host == platform.node() else f" on {driver.host}")


def _dag(pipeline: str) -> str:
    return f"ingest__{pipeline}"
