"""Valid pipelines and captures, which become DAGs, and the problems of the others."""

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
"""Prefix of the id of a capture's DAG, before the capture's name."""

INGEST, MAINTAIN, REPORT, REPLAY = "ingest__", "maintain__", "dead_letters__", "replay_dead_letters__"
"""Prefixes of the ids of a pipeline's DAGs, before the pipeline's name. REPORT reports dead letters, REPLAY lands them."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Why a pipeline or capture has no DAG, and its owner, if the file states one."""

    complaint: str
    owner: str | None


def valid_pipelines(project: Project) -> list[Pipeline]:
    """Return the valid pipelines, sorted by name: their file can be read, and the settings have all entries that it names."""
    return [pipeline for _, pipeline in sorted(project.pipelines.usable.items()) if not problems(project, pipeline)]


def valid_captures(project: Project) -> list[Capture]:
    """Return the valid captures, sorted by name."""
    captures = (capture for _, capture in sorted(project.captures.usable.items()))
    return [capture for capture in captures if not any(unknown_in_capture(capture, project.settings))]


def selected_pipelines(project: Project, prefix: str, only: str | None) -> list[Pipeline]:
    """Return the valid pipelines, or only that of the DAG `only`, whose id begins with `prefix`, without reading other files."""
    if only is None:
        return valid_pipelines(project)
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
    """Return the pipelines and captures without a DAG, by unique name. If a file can't be read, the file's name stands for it."""
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
    """Return why a pipeline whose file can be read gets no DAG, one line per key."""
    return [project.pipelines.hidden(problem) for problem in unknown_names(pipeline, project.settings)]
