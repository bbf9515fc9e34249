"""Which pipelines a DAG can be made of, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frazil.error_codes import PIPELINE_FILE_INVALID
from frazil.pipeline.files.files import stated_owner
from frazil.pipeline.files.load import writable
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import unknown_in_capture
from frazil.pipeline.settings.settings import unknown_names
from frazil.project import Project

REPORT_PREFIX = "dead_letters__"
"""Begins the id of a DAG that reports a pipeline's dead letters."""

REPLAY_PREFIX = "replay_dead_letters__"
"""Begins the id of a DAG that lands a pipeline's dead letters. Each pipeline has its own, because Airflow grants rights per DAG."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A pipeline that no DAG is made of.

    Attributes:
        complaint: What is wrong.
        owner: Whose it is; None if nobody can tell.
    """

    complaint: str
    owner: str | None


def sound_pipelines(project: Project) -> list[Pipeline]:
    """Return the pipelines whose file can be read and whose names the settings know, by name."""
    return [pipeline for _, pipeline in sorted(project.pipelines.usable.items()) if not problems(project, pipeline)]


def wanted_pipelines(project: Project, dag_id: Callable[[str], str], only: str | None) -> list[Pipeline]:
    """Return the pipelines that one can be made of, or the one of a single DAG: then no other file is read.

    Args:
        project: Settings and pipelines.
        dag_id: Gives the id of a pipeline's DAG, which ends with its name.
        only: Id of the one DAG that is wanted; None for all.
    """
    if only is None:
        return sound_pipelines(project)
    name = only.removeprefix(dag_id(""))
    pipeline = project.pipelines.find(name) if only == dag_id(name) else None
    return [] if pipeline is None or problems(project, pipeline) else [pipeline]


def refuse_broken(project: Project) -> None:
    """Complain about every pipeline and capture that no DAG is made of.

    Raises:
        Terminal: There is one; the message has all of them, each with its key paths.
    """
    complaints = [str(error) for error in project.pipelines.broken]
    for name, pipeline in sorted(project.pipelines.usable.items()):
        where = f"pipeline {name} in {project.pipelines_folder}"
        complaints += [f"{where}: {problem}" for problem in problems(project, pipeline)]
    complaints += [str(error) for error in project.captures.broken]
    for name, capture in sorted(project.captures.usable.items()):
        complaints += [f"capture {name}: {problem}" for problem in unknown_in_capture(capture, project.settings)]
    if complaints:
        raise PIPELINE_FILE_INVALID.terminal("no DAG is made of these files\n" + "\n".join(complaints))


def broken_pipelines(project: Project) -> dict[str, Broken]:
    """Return the pipelines that no DAG is made of, by name. One whose file can't be read goes by the file's name, which is its
    own by custom.
    """
    by_name: dict[str, list[Broken]] = {}
    for error in project.pipelines.broken:
        by_name.setdefault(writable(error.file.stem), []).append(Broken(str(error), stated_owner(error.file)))
    for name, pipeline in project.pipelines.usable.items():
        if wrong := problems(project, pipeline):
            by_name.setdefault(name, []).append(Broken("\n".join(wrong), pipeline.owner))
    return {
        name: Broken(
            "\n".join(file.complaint for file in files), next((file.owner for file in files if file.owner), None)
        )
        for name, files in sorted(by_name.items())
    }


def problems(project: Project, pipeline: Pipeline) -> list[str]:
    """Return what keeps a readable pipeline from becoming a DAG, one line per key."""
    return [project.pipelines.hidden(problem) for problem in unknown_names(pipeline, project.settings)]
