"""All checks, several at once: most of them wait for others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from frazil.doctor.executors import executor_checks
from frazil.doctor.finding import Check, Finding
from frazil.doctor.machine import machine_checks
from frazil.doctor.pipelines import pipeline_checks
from frazil.doctor.services import cluster_check, service_checks
from frazil.pipeline.models.engines import AUTO_ENGINE, INLINE_ENGINE
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project

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
