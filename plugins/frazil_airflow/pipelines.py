"""Which pipelines a DAG can be made of, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Iterator

from croniter import croniter

from frazil.errors import Terminal
from frazil.pipeline.interval import parse_interval
from frazil.pipeline.model import Pipeline
from frazil.pipeline.settings import unknown_names
from frazil.project import Project


def sound_pipelines(project: Project) -> list[Pipeline]:
    """Return the pipelines whose file can be read and whose names the settings know, by name."""
    return [pipeline for _, pipeline in sorted(project.pipelines.usable.items()) if not problems(project, pipeline)]


def refuse_broken(project: Project) -> None:
    """Complain about every pipeline that no DAG is made of.

    Raises:
        Terminal: There is one; the message has all of them, each with its key paths.
    """
    complaints = [str(error) for error in project.pipelines.broken]
    for name, pipeline in sorted(project.pipelines.usable.items()):
        where = f"pipeline {name} in {project.pipelines_folder}"
        complaints += [f"{where}: {problem}" for problem in problems(project, pipeline)]
    if complaints:
        raise Terminal("no DAG is made of these pipelines\n" + "\n".join(complaints))


def problems(project: Project, pipeline: Pipeline) -> list[str]:
    """Return what keeps a readable pipeline from becoming a DAG, one line per key."""
    return [*unknown_names(pipeline, project.settings), *_bad_interval(pipeline)]


def _bad_interval(pipeline: Pipeline) -> Iterator[str]:
    """Airflow would find it only when it schedules the DAG."""
    schedule = pipeline.maintenance.schedule
    given = {"interval": pipeline.every, **({"maintenance.schedule": parse_interval(schedule)} if schedule else {})}
    for key, interval in given.items():
        cron = interval.cron
        if cron is not None and not cron.startswith("@") and not croniter.is_valid(cron, strict=True):
            yield f"{key}: {cron!r} is not a cron expression that can be scheduled"
