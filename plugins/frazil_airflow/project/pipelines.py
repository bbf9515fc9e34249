"""Pipelines that become DAGs, and the problems of the others."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.error_codes import PIPELINE_FILE_INVALID
from frazil.pipeline.files.files import stated_owner
from frazil.pipeline.files.load import storable_name
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Capture, unknown_in_capture
from frazil.pipeline.settings.settings import unknown_names
from frazil.project import Project

CAPTURE = "capture__"
"""Id of a capture's DAG, before its name."""

INGEST, MAINTAIN, REPORT, REPLAY = "ingest__", "maintain__", "dead_letters__", "replay_dead_letters__"
"""Ids of a pipeline's DAGs, each before the pipeline's name. The last one lands dead letters; it is one per pipeline because Airflow
grants rights per DAG."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A pipeline whose file is too broken for a DAG.

    Attributes:
        owner: Owner of the pipeline; None if not known.
    """

    complaint: str
    owner: str | None


def sound_pipelines(project: Project) -> list[Pipeline]:
    """Return the pipelines whose file can be read and whose names the settings know, by name."""
    return [pipeline for _, pipeline in sorted(project.pipelines.usable.items()) if not problems(project, pipeline)]


def sound_captures(project: Project) -> list[Capture]:
    """Return the captures whose file can be read and whose names the settings know, by name."""
    captures = (capture for _, capture in sorted(project.captures.usable.items()))
    return [capture for capture in captures if not any(unknown_in_capture(capture, project.settings))]


def selected_pipelines(project: Project, prefix: str, only: str | None) -> list[Pipeline]:
    """Return the valid pipelines. If `only` is the id of a single DAG, return its pipeline and read no other file."""
    if only is None:
        return sound_pipelines(project)
    pipeline = project.pipelines.find(only.removeprefix(prefix)) if only.startswith(prefix) else None
    return [] if pipeline is None or problems(project, pipeline) else [pipeline]


def refuse_broken(project: Project) -> None:
    """Raise an error that lists every pipeline and capture without a DAG.

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
        raise PIPELINE_FILE_INVALID.terminal("these files have mistakes, so they have no DAG\n" + "\n".join(complaints))


def broken_pipelines(project: Project) -> dict[str, Broken]:
    """Return the pipelines and captures that no DAG is made of, by unique name. One whose file can't be read goes by the file's name,
    which is its own by custom.
    """
    by_name: dict[str, list[Broken]] = {}
    for error in project.pipelines.broken:
        by_name.setdefault(storable_name(error.file.stem), []).append(Broken(str(error), stated_owner(error.file)))
    for name, pipeline in project.pipelines.usable.items():
        if wrong := problems(project, pipeline):
            by_name.setdefault(name, []).append(Broken("\n".join(wrong), pipeline.owner))
    for error in project.captures.broken:
        unique_name = f"capture.{storable_name(error.file.stem)}"
        by_name.setdefault(unique_name, []).append(Broken(str(error), stated_owner(error.file)))
    for capture in project.captures.usable.values():
        if wrong := list(unknown_in_capture(capture, project.settings)):
            by_name.setdefault(capture.unique_name, []).append(Broken("\n".join(wrong), capture.owner))
    return {
        name: Broken(
            "\n".join(file.complaint for file in files), next((file.owner for file in files if file.owner), None)
        )
        for name, files in sorted(by_name.items())
    }


def problems(project: Project, pipeline: Pipeline) -> list[str]:
    """Return what keeps a readable pipeline from becoming a DAG, one line per key."""
    return [project.pipelines.hidden(problem) for problem in unknown_names(pipeline, project.settings)]
