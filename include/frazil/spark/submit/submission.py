"""Starts jobs by spark-submit, or as processes with a session on a Spark Connect server, and waits for them. Imports no pyspark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import uuid4

from frazil.batch.plan import RunPlan
from frazil.capture.position import CaptureOrder
from frazil.capture.run import CaptureResult
from frazil.error_codes import BAD_ARGUMENT, PROGRAM_MISSING, RUN_FAILED
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import JdbcCapture
from frazil.project import Project
from frazil.run.state.context import needs_writer
from frazil.runtime.drivers import drivers, registered
from frazil.runtime.home import LOOPBACK, Home, interpreter_bin, private_folder
from frazil.runtime.jars import fetch, jar_paths
from frazil.runtime.java import ensure_java
from frazil.spark.submit.class_archive import archive_options
from frazil.spark.submit.configuration import (
    ENGINE_VARIABLE,
    LOCAL_VARIABLE,
    SUBMITTER_VARIABLE,
    conf_arguments,
    driver_place,
    executor_python,
    is_local,
    jar_sets,
    job_conf,
    job_file,
    ui_settings,
    with_extensions,
)
from frazil.spark.submit.handover import Handover, local_storage, storage_of
from frazil.spark.submit.job_process import private_properties, watch_job
from frazil.spark.submit.server import JVM_OPTIONS, client_environment, run_on_engine
from frazil.spark.submit.yarn import driver_configuration, end_queued_application, place_of_log, sent_to_yarn

KEPT_LOGS = 50
"""Logs of a pipeline's jobs that are kept, the starting job's included: about four hours with a run every five minutes."""


def log_of(home: Home, pipeline: str, run_id: str) -> Path:
    """Path of a new job's log; older logs of the pipeline beyond `KEPT_LOGS` are removed."""
    folder = private_folder(home.logs)
    logs = sorted(folder.glob(f"spark-{pipeline}-*.log"), key=_written_at, reverse=True)
    for old in logs[KEPT_LOGS - 1 :]:
        old.unlink(missing_ok=True)
    return folder / f"spark-{pipeline}-{quote(run_id, safe=':+')}.log"


def _written_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # another run of the pipeline removed it
        return 0.0


_WRITING = "-XX:+UseParallelGC"
"""Options of a JVM that processes rows itself."""

_WAITING = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of a JVM that only schedules tasks: the second compiler would cost more than it saves."""

_EXIT = "spark.submit.callSystemExitOnMainExit"


@dataclass(frozen=True)
class Submission:
    """How to start one job, without its arguments: by spark-submit, or as a process with a session on a Spark Connect server.

    Attributes:
        application: The job's program.
        master: Spark's master; None for a session on a server. The further attributes are for spark-submit.
        jars: Jars for tables that Spark writes. Python reads, writes and commits all others.
        conf: Configuration, as arguments.
        private: Configuration of the engine's entry, in a file, since it may have secrets. It overrides `conf`.
        driver_memory: Heap of the driver, such as ``1g``.
        outlives: Whether the driver, inside a cluster, continues after the end of the submitter, the process that started it.
    """

    application: Path
    name: str
    env: Mapping[str, str]
    master: str | None = None
    jars: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    private: Mapping[str, str] = field(default_factory=dict, repr=False)
    driver_memory: str = "1g"
    outlives: bool = False

    def command(self, arguments: list[str], properties: Path | None = None) -> list[str]:
        """The command line of the job; `properties` is the file with `private`, if there is one."""
        if self.master is None:
            return [str(interpreter_bin() / "python"), str(self.application), *arguments]
        command = [str(interpreter_bin() / "spark-submit"), "--master", self.master, "--name", self.name]
        command += ["--deploy-mode", "cluster"] if self.outlives else []
        command += ["--driver-memory", self.driver_memory, "--jars", ",".join(self.jars)]
        command += conf_arguments(self.conf)
        command += ["--properties-file", str(properties)] if properties is not None else []
        return [*command, str(self.application), *arguments]


def submission(project: Project, pipeline: Pipeline, plan: RunPlan, *, on_server: bool = False) -> Submission:
    """How to start the ingest job of a pipeline, with a session on the engine's server or with a Spark of its own."""
    name = f"frazil {pipeline.name} {plan.run}"
    writes = needs_writer(pipeline, plan)
    away = plan.mode != "dry_run"  # a dry run may come before there are tables, and with them a storage for its order
    return _submission(project, pipeline.engine, "ingest.py", name, writes=writes, on_server=on_server, away=away)


def maintenance_submission(project: Project, pipeline: Pipeline, run: str, *, on_server: bool = False) -> Submission:
    """How to start the maintenance job of a pipeline."""
    name = f"frazil {pipeline.name} {run}"
    engine = pipeline.maintenance_engine
    return _submission(project, engine, "maintain.py", name, writes=True, on_server=on_server, away=True)


def _server_submission(project: Project, engine_name: str, application: str, name: str) -> Submission:
    env = project.environment() | client_environment(project, project.engine(engine_name))
    env |= {"PYTHONPATH": _sources(project), ENGINE_VARIABLE: engine_name, SUBMITTER_VARIABLE: str(os.getpid())}
    return Submission(job_file(application), name, env)


def _sources(project: Project) -> str:
    """Python path to Frazil, for drivers and workers."""
    return os.pathsep.join([str(project.root / "include"), *filter(None, [os.environ.get("PYTHONPATH")])])


def _submission(  # noqa: PLR0913 - the differences between the kinds of jobs
    project: Project,
    engine_name: str,
    application: str,
    name: str,
    *,
    writes: bool = False,
    on_server: bool = False,
    away: bool = False,
) -> Submission:
    """How to start a job. `away` says that its order is in shared storage, so that its driver may run in the cluster."""
    engine = project.engine(engine_name)
    if on_server:
        return _server_submission(project, engine_name, application, name)
    if engine.type == "operator":
        raise BAD_ARGUMENT.terminal(
            f"engine {engine_name}: its jobs are started by an operator in Airflow, not by a command",
            next_step="trigger the pipeline's DAG ingest__…, or name another engine: --engine inline",
        )
    sets = jar_sets(project.settings) if writes else ("spark",)
    fetch(project.home, *sets)
    sources = _sources(project)
    python, java = str(interpreter_bin() / "python"), ensure_java()
    outlives = away and engine.deploy_mode == "cluster"
    archive = "" if outlives else archive_options(project.home, java)  # it fits only this machine's Java
    conf = {
        **ui_settings(engine),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        **driver_place(engine.master),
        **executor_python(project.home, engine, python, sources),
        **job_conf(writes=False),
    }
    if outlives:
        conf |= driver_configuration(
            {**conf, **engine.conf}["spark.pyspark.python"], sources if engine.py_files == "shared" else None
        )
    conf = {key: setting for key, setting in conf.items() if key not in engine.conf}
    options = engine.conf.get(JVM_OPTIONS, _WRITING if writes else _WAITING)
    conf[JVM_OPTIONS] = f"{archive} {options}".strip()
    if writes:
        conf["spark.sql.extensions"] = with_extensions(engine.conf)
    env = _environment(project, sources, python) | {"JAVA_HOME": str(java.home)}
    if conf.get("spark.driver.bindAddress") == LOOPBACK:
        env["SPARK_LOCAL_IP"] = LOOPBACK  # otherwise Spark's pages listen on all addresses
    if is_local(engine.master):
        env[LOCAL_VARIABLE] = "1"
        # So that threads of listeners or plugins don't keep the JVM alive.
        if _EXIT not in engine.conf:
            conf[_EXIT] = "true"
    return Submission(
        application=job_file(application),
        name=name,
        master=engine.master,
        jars=tuple(str(path) for name in sets for path in jar_paths(project.home, name) if writes),
        conf=conf,
        private={key: setting for key, setting in engine.conf.items() if key not in conf},
        env=env,
        driver_memory=engine.driver_memory,
        outlives=outlives,
    )


def _environment(project: Project, sources: str, python: str) -> dict[str, str]:
    """Environment variables of spark-submit, and of a driver on this machine."""
    return project.environment() | {
        "PYTHONPATH": sources,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        SUBMITTER_VARIABLE: str(os.getpid()),
        "SPARK_LAUNCHER_OPTS": _WAITING,
    }


def run_spark(project: Project, pipeline: Pipeline, plan: RunPlan, report: Callable[[str], None]) -> str | None:
    """Run a plan in a Spark job, wait for it, and return the result of a dry run or a session as JSON, else None.

    `report` gets the lines that the job reports; its other output goes to its log.
    """
    make = partial(submission, project, pipeline, plan)
    # The result of a dry run has samples of records, so it stays on this machine, and so does the driver.
    location = local_storage(project.home) if plan.mode == "dry_run" else storage_of(project, pipeline)
    order = location, pipeline.name, plan.run, plan.to_json()
    return _run(project, pipeline.engine, make, order, report)


def run_maintenance(
    project: Project, pipeline: Pipeline, run: str, order: str, report: Callable[[str], None]
) -> str | None:
    """Maintain the tables of a pipeline in a Spark job, wait for it, and return its result as JSON."""
    make = partial(maintenance_submission, project, pipeline, run)
    job_order = storage_of(project, pipeline), pipeline.name, run, order
    return _run(project, pipeline.maintenance_engine, make, job_order, report)


def _run(
    project: Project,
    engine_name: str,
    make: Callable[..., Submission],
    job_order: tuple[str, str, str, str],
    report: Callable[[str], None],
) -> str | None:
    """Run a job on an engine. `make` builds the submission, with or without a session on a server."""

    def run(on_server: bool) -> str | None:  # noqa: FBT001
        return run_submission(project, make(on_server=on_server), *job_order, report)

    return run_on_engine(project, project.engine(engine_name), report, run)


def run_submission(  # noqa: PLR0913, PLR0917 - the four parts of an order
    project: Project, job: Submission, location: str, name: str, run: str, order: str, report: Callable[[str], None]
) -> str | None:
    """Start a job, wait for it, and return its result. If an earlier attempt at the order left a result, return that instead.

    `name` is the pipeline, capture or probe; files, log and drivers of the job have that name.
    """
    handover = Handover.begin(project, location, name, run)
    if (earlier := handover.collect(order)) is not None:
        report(f"{name}: an earlier attempt finished this; its result is used")
        return earlier.result
    handover.hand_over(order, outlives=job.outlives)
    log = log_of(project.home, name, run)
    with ExitStack() as stack:
        withdraw = None
        if job.outlives:
            conf = stack.enter_context(sent_to_yarn(project, {**job.conf, **job.private}, handover.attempt))
            private = {key: setting for key, setting in job.private.items() if key not in conf}
            job = replace(job, conf={**job.conf, **conf}, private=private)
            # `frazil stop` finds no driver on another machine, so it finds this process, which waits for it.
            stack.enter_context(registered(project.home, name, run, report))
            withdraw = partial(_withdraw, handover, job)
        properties = stack.enter_context(private_properties(project.home, name, run, job.private))
        at_work = partial(drivers, project.home, name, run)
        lost = watch_job(job.command(handover.arguments, properties), job.env, log, report, at_work, withdraw)
    return handover.take_result(lost, place_of_log(log) if job.outlives else str(log))


def _withdraw(handover: Handover, job: Submission) -> None:
    """End a driver in the cluster. It stops in order soon after its order is gone; one that is still queued is killed."""
    try:
        handover.withdraw()
    finally:  # even if the storage does not answer
        end_queued_application(handover.attempt, job.env)


def maintenance_run(run: str) -> str:
    """Id of a maintenance run. An ingest run may be scheduled for the same instant."""
    return f"maintain__{run}"


_UTC: Final = "-Duser.timezone=UTC"
"""Option of each JVM. JDBC drivers use its time zone for their connections, and read times without a zone in it."""

_SESSION_CLOCK: Final = "spark.sql.session.timeZone"
"""Time zone in which times are written and sorted: with summer time, an hour would sort before the hour before it."""

_EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"


def capture_submission(project: Project, capture: JdbcCapture, run: str) -> Submission:
    """How to start the job of a capture."""
    database = project.database(capture.database)
    if missing := [path for path in database.jars if not Path(path).is_file()]:
        raise PROGRAM_MISSING.terminal(
            f"databases.{capture.database}.jars of the settings: no file {missing[0]}",
            next_step="get the driver from the vendor of the database, or correct the path",
        )
    job = _submission(project, capture.engine, "capture.py", f"frazil capture {capture.name} {run}")
    jars = database.jars or tuple(str(path) for path in jar_paths(project.home, "spark"))
    private = {key: setting for key, setting in job.private.items() if key != _SESSION_CLOCK}
    conf = {**job.conf, _SESSION_CLOCK: "UTC", JVM_OPTIONS: f"{job.conf.get(JVM_OPTIONS, '')} {_UTC}".strip()}
    # The engine's options may be secret, so they stay in `private`.
    place = private if _EXECUTOR_OPTIONS in private else conf
    place[_EXECUTOR_OPTIONS] = f"{private.get(_EXECUTOR_OPTIONS, '')} {_UTC}".strip()
    return replace(job, jars=jars, conf=conf, private=private)


def capture_run(run: str) -> str:
    """Id of a capture's job. A pipeline may have the capture's name, and a run with the same id."""
    return f"capture__{run}"


def run_capture(
    project: Project, capture: JdbcCapture, order: CaptureOrder, report: Callable[[str], None]
) -> CaptureResult:
    """Capture a database in a Spark job, and wait for it."""
    job = capture_submission(project, capture, order.run)
    run = capture_run(order.run)
    location = local_storage(project.home)
    return handed_back(run_submission(project, job, location, capture.name, run, order.to_json(), report))


def handed_back(text: str | None) -> CaptureResult:
    """The result of a capture's job.

    Raises:
        Retryable: The job left no result, although it did not fail.
    """
    if text is None:
        raise RUN_FAILED.retryable(
            "the job of the capture ended without a result", next_step="look at its log, then run again"
        )
    return CaptureResult.from_json(text)


def probe_submission(project: Project, engine_name: str, *, on_server: bool = False) -> Submission:
    """The submission of the job that probes an engine's executors."""
    job = _submission(project, engine_name, "probe.py", f"frazil doctor {engine_name}", on_server=on_server)
    if job.master is None:
        return job
    # Spark's own workers. Frazil's import its modules first, and where these are missing they would end without a reason.
    return replace(job, conf={**job.conf, "spark.python.daemon.module": "pyspark.daemon"})


def run_probe(
    project: Project, engine_name: str, pipelines: Iterable[str], report: Callable[[str], None]
) -> str | None:
    """Probe an engine's executors for packages and connections in a Spark job, and return `frazil.spark.jobs.probe`'s JSON."""
    probe = f"doctor-{engine_name}", uuid4().hex, json.dumps(list(pipelines))
    make = partial(probe_submission, project, engine_name)
    return _run(project, engine_name, make, (local_storage(project.home), *probe), report)
