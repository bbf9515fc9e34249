"""Runs all checks, several at the same time, because most of them wait for servers; and checks an engine's executors by a
Spark job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from platform import python_version
from typing import Any, Final

from frazil.doctor.airflow import Tasks, airflow
from frazil.doctor.finding import TOLERATED, Check, Finding, clock_finding, error_finding
from frazil.doctor.machine import machine_checks
from frazil.doctor.services import cluster_check, pipeline_checks, service_checks
from frazil.errors import FrazilError
from frazil.extras import installed_version
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, INLINE_ENGINE, Pipeline
from frazil.project import Project
from frazil.spark.submit.configuration import digest
from frazil.spark.submit.submission import run_probe

_ENVIRONMENT: Final = "give the executors the driver's environment: the image, a packed archive, or the same packages"
"""Next step if executors differ from the driver; see docs/spark-on-a-cluster.md."""

_CAUSES: Final = (
    (
        re.compile(r"Cannot run program \"([^\"]+)\""),
        "no Python at {0} on an executor",
        "set spark.pyspark.python of the engine to the executors' own, or " + _ENVIRONMENT,
    ),
    (
        re.compile(r"different minor versions?.*?(\d\.\d+).*?(\d\.\d+)", re.DOTALL),
        "an executor has Python {0}, the driver {1}",
        _ENVIRONMENT,
    ),
    (re.compile(r"No module named '?([\w.]+)"), "an executor lacks the module {0}", _ENVIRONMENT),
    (
        re.compile(r"(Initial job has not accepted any resources)"),
        "no executor started: {0}",
        "is the cluster up, and does it have the cores and the memory that the engine asks for?",
    ),
)
"""Errors of Spark if no task could answer: pattern of the message, cause, next step."""


def executor_checks(project: Project, pipelines: Sequence[Pipeline], engines: Iterable[str]) -> list[Check]:
    """A check for each engine, with the pipelines that use it."""
    return [partial(executors, project, name, _users(project, pipelines, name)) for name in engines]


def _users(project: Project, pipelines: Sequence[Pipeline], engine: str) -> list[str]:
    auto = project.settings.auto.engine
    used = {
        pipeline.name: {auto if pipeline.engine == AUTO_ENGINE else pipeline.engine, pipeline.maintenance_engine}
        for pipeline in pipelines
    }
    return [name for name, engines in used.items() if engine in engines]


def executors(project: Project, engine: str, pipelines: list[str]) -> Iterator[Finding]:
    """Whether the executors of an engine have what tasks need, and can reach brokers and storage."""
    check = f"executors of {engine}"
    try:
        answer = run_probe(project, engine, pipelines, lambda _: None)
    except FrazilError as error:
        yield failure_finding(check, error)
        return
    if answer is not None:
        driver = {name: installed_version(name) for name in ("pyspark", "pyarrow", "confluent-kafka", "pyiceberg")}
        yield from executor_findings(check, json.loads(answer), driver, digest())


def failure_finding(check: str, error: FrazilError) -> Finding:
    """The finding for a failed job, with cause and next step if Spark's message is a known one."""
    for pattern, problem, step in _CAUSES:
        if (match := pattern.search(error.message)) is not None:
            return Finding(check, "failed", problem.format(*match.groups()), "a task on each executor", step)
    return error_finding(check, error, expected="a job that succeeds")


def executor_findings(
    check: str, answer: Mapping[str, Any], driver: Mapping[str, str | None], sources: str
) -> Iterator[Finding]:
    """Compare the executors' answers (of `frazil.spark.jobs.probe`) with the driver's versions and code digest."""
    by_executor = {facts["executor"]: facts for facts in answer["told"]}
    has_mismatch = False
    for name, facts in by_executor.items():
        for problem, expected, step in _mismatches(facts, driver, sources):
            has_mismatch = True
            yield Finding(check, "failed", f"{name}: {problem}", expected, step)
        if (ahead := _ahead(facts["time"], answer)) != 0:
            yield clock_finding(name, ahead)
    if not has_mismatch:
        python = next(iter(by_executor.values()))["python"] if by_executor else python_version()
        yield Finding(check, "ok", f"{len(by_executor)} answered, with Python {python} and the driver's packages")


def _mismatches(
    facts: Mapping[str, Any], driver: Mapping[str, str | None], sources: str
) -> Iterator[tuple[str, str, str | None]]:
    if facts["lacks"] is not None:
        yield f"it can't import what tasks need: {facts['lacks']}", "Frazil and its packages", _ENVIRONMENT
    for name, version in facts["versions"].items():
        if name in driver and version not in (None, driver[name]):
            yield f"{name} is {version}", f"{driver[name]}, as the driver's", _ENVIRONMENT
    if facts["sources"] not in (None, sources):
        yield "its Frazil is another one", "the driver's, file by file", _ENVIRONMENT
    for server, message, step in facts["problems"]:
        yield f"{server}: {message}", f"an executor reaches {server}", step


def _ahead(instant: float, answer: Mapping[str, Any]) -> float:
    """Seconds that an executor's clock is ahead of the driver's, at least: it was read between the job's start and end."""
    difference = instant - answer["ended"] if instant > answer["ended"] else min(0.0, instant - answer["began"])
    return difference if abs(difference) > TOLERATED else 0.0


_THREADS: Final = 8
"""Checks that run at the same time: a cluster that is down costs 8 s, and there may be several."""


def examine(project: Project, pipelines: Sequence[Pipeline], *, is_all: bool, with_spark: bool) -> list[Finding]:
    """Check this machine, the services and the pipelines.

    Args:
        project: The project.
        pipelines: The pipelines to check, with the services that they use.
        is_all: Whether these are all pipelines of the project: then all services of the settings are checked, and captures.
        with_spark: Whether a Spark job checks the executors, which takes seconds.
    """
    engines = {
        name
        for pipeline in pipelines
        for name in (pipeline.engine, pipeline.maintenance_engine)
        if name != INLINE_ENGINE
    }
    spark_engines = {project.settings.auto.engine if name == AUTO_ENGINE else name for name in engines}
    spark_engines &= project.settings.engines.keys()  # unknown names are findings of the files' check
    needs_spark = any(engine.type == "submit" or engine.managed for engine in map(project.engine_entry, spark_engines))
    checks = machine_checks(project.home, needs_spark=needs_spark)
    checks += service_checks(project, pipelines, is_all=is_all)
    captures = project.captures.usable.values() if is_all else ()
    checks.append(partial(airflow, project, Tasks.from_project(project, pipelines, captures)))
    findings = run_checks(checks)
    failed_checks = {finding.check for finding in findings if finding.state == "failed"}
    findings += run_checks(
        check
        for pipeline in pipelines
        for check in pipeline_checks(project, pipeline, has_cluster=cluster_check(pipeline) not in failed_checks)
    )
    if with_spark:  # one after the other: each job uses all cores
        findings += run_checks(executor_checks(project, pipelines, sorted(spark_engines)), threads=1)
    return findings


def run_checks(checks: Iterable[Check], threads: int = _THREADS) -> list[Finding]:
    """The findings of all checks, in the order of the checks; equal ones only once."""
    with ThreadPoolExecutor(threads, "doctor") as pool:
        findings = [finding for results in pool.map(lambda check: list(check()), checks) for finding in results]
    return list(dict.fromkeys(findings))  # pipelines of one cluster have equal findings about its clock
