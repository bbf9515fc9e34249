"""All checks, several at once, since most of them wait for others; and those of an engine's executors, by a Spark job
that runs on them.
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
"""Next step where an executor lacks something; see docs/spark-on-a-cluster.md."""

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
        "no executor came: {0}",
        "is the cluster up, and does it have the cores and the memory that the engine asks for?",
    ),
)
"""Lines of Spark's log where no task could report: the pattern, what it means, what to do."""


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
    """Whether the executors of an engine have what tasks need, and reach brokers and storage."""
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
            return Finding(check, "failed", problem.format(*match.groups()), "a task on each", step)
    return error_finding(check, error, expected="a job that ends well")


def executor_findings(
    check: str, answer: Mapping[str, Any], driver: Mapping[str, str | None], sources: str
) -> Iterator[Finding]:
    """Compare the executors' answers (of `frazil.spark.jobs.probe`) with the driver's versions and code digest."""
    by_executor = {facts["executor"]: facts for facts in answer["told"]}
    wrong = 0
    for name, facts in by_executor.items():
        for problem, expected, step in _mismatches(facts, driver, sources):
            wrong += 1
            yield Finding(check, "failed", f"{name}: {problem}", expected, step)
        if (ahead := _ahead(facts["time"], answer)) != 0:
            yield clock_finding(name, ahead)
    if not wrong:
        python = next(iter(by_executor.values()))["python"] if by_executor else python_version()
        yield Finding(check, "ok", f"{len(by_executor)} answered, with Python {python} and the driver's packages")


def _mismatches(
    facts: Mapping[str, Any], driver: Mapping[str, str | None], sources: str
) -> Iterator[tuple[str, str, str | None]]:
    if facts["lacks"] is not None:
        yield f"it can't import what tasks need: {facts['lacks']}", "Frazil and its packages", _ENVIRONMENT
    other_versions = {
        name: has for name, has in facts["versions"].items() if name in driver and has not in (None, driver[name])
    }
    for name, has in other_versions.items():
        yield f"{name} is {has}", f"{driver[name]}, as the driver's", _ENVIRONMENT
    if facts["sources"] not in (None, sources):
        yield "its Frazil is another one", "the driver's, file by file", _ENVIRONMENT
    for what, message, step in facts["problems"]:
        yield f"{what}: {message}", f"an executor reaches {what}", step


def _ahead(instant: float, answer: Mapping[str, Any]) -> float:
    """Least number of seconds that a clock is ahead of the driver's: the answer came between the job's start and end."""
    off = instant - answer["ended"] if instant > answer["ended"] else min(0.0, instant - answer["began"])
    return off if abs(off) > TOLERATED else 0.0


_AT_ONCE: Final = 8
"""Checks at work together: a cluster that is away is waited for 8 s, and there may be several."""


def examine(project: Project, pipelines: Sequence[Pipeline], *, is_all: bool, with_spark: bool) -> list[Finding]:
    """Look at this machine, the services and the pipelines. If the pipelines are all of the project (`is_all`), all that the
    settings name is looked at. `with_spark` runs a task per executor, which takes seconds.
    """
    engines = {
        name
        for pipeline in pipelines
        for name in (pipeline.engine, pipeline.maintenance_engine)
        if name != INLINE_ENGINE
    }
    named = {project.settings.auto.engine if name == AUTO_ENGINE else name for name in engines}
    named &= project.settings.engines.keys()  # what is unknown, the files' check says
    starts = any(engine.type == "submit" or engine.managed for engine in map(project.engine_entry, named))
    checks = machine_checks(project.home, needs_spark=starts)
    checks += service_checks(project, pipelines, is_all=is_all)
    captures = project.captures.usable.values() if is_all else ()
    checks.append(partial(airflow, project, Tasks.from_project(project, pipelines, captures)))
    findings = run_checks(checks)
    failed_checks = {finding.check for finding in findings if finding.state == "failed"}
    of_pipelines = (
        pipeline_checks(project, pipeline, has_cluster=cluster_check(pipeline) not in failed_checks)
        for pipeline in pipelines
    )
    findings += run_checks(check for checks in of_pipelines for check in checks)
    if with_spark:  # alone: it uses all cores
        findings += run_checks(executor_checks(project, pipelines, sorted(named)), at_once=1)
    return findings


def run_checks(checks: Iterable[Check], at_once: int = _AT_ONCE) -> list[Finding]:
    """The findings of all checks, in order."""
    with ThreadPoolExecutor(at_once, "doctor") as pool:
        findings_of_all = [
            finding for findings in pool.map(lambda check: list(check()), checks) for finding in findings
        ]
    return list(dict.fromkeys(findings_of_all))  # pipelines of one cluster say the same of its clock
