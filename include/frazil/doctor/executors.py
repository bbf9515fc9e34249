"""Checks an engine's executors with a Spark job that runs on them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from platform import python_version
from typing import Any, Final

from frazil.doctor.finding import TOLERATED, Check, Finding, clock_finding, error_finding
from frazil.errors import FrazilError
from frazil.pipeline.models.engines import AUTO_ENGINE
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.spark.submit.shipped import digest
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
        driver = {name: _version(name) for name in ("pyspark", "pyarrow", "confluent-kafka", "pyiceberg")}
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


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
