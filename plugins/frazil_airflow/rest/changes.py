"""Changes of pipelines over HTTP: checked as `frazil validate --diff` does, then written where the settings say."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import yaml
from fastapi import HTTPException

from frazil.pipeline.files.change import ChangeRefused, Commit, change_file, checked_pipeline
from frazil.pipeline.files.files import parse_yaml
from frazil.pipeline.files.folder import Impact, PipelineChange, difference
from frazil.pipeline.files.load import ConfigError
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.settings import unfit_catalogs, unknown_names
from frazil.project import Project
from frazil.run.batches.change_impact import change_impact
from frazil.run.staging.record_problems import record_problems
from frazil_airflow.rest.asking import ConnectRequest
from frazil_airflow.rest.configuration import Draft, StoredConnector, draft, refused


def put(asking: ConnectRequest, name: str, config: Mapping[str, Any], before: StoredConnector) -> None:
    """Create or change a pipeline.

    Args:
        asking: The request of a user who may change it.
        name: Name of the connector.
        config: Its configuration.
        before: The stored connector when the request began.

    Raises:
        HTTPException: 400, the configuration has errors, or the next run would refuse it; 409, the files are not to be changed, or
            somebody else was faster.
    """
    with asking.source.seat() as project:
        drafted = draft(name, config, project)
        if drafted.problems:
            raise refused(list(drafted.problems))
        pipeline, problems = check(drafted, project)
        if pipeline is None or problems:
            raise refused(problems)
        changes, impacts = _effects(pipeline, project)
    if against := [f"name: {impact.text}" for impact in impacts if impact.weight == "refused"]:
        raise refused(against)
    text = drafted.text.encode()
    if before.content is None or _is_other(before.content, text):
        lines = [f"{impact.weight}: {project.pipelines.hidden(impact.text)}" for impact in impacts]
        _write(asking, before, text, lines, [key.path for change in changes for key in change.keys])


def delete(asking: ConnectRequest, stored: StoredConnector) -> None:
    """Remove a pipeline's file. Its tables stay as they are, and the position with them.

    Raises:
        HTTPException: 409, as `put`.
    """
    _write(asking, stored, None, [], [])


def check(drafted: Draft, project: Project) -> tuple[Pipeline | None, list[str]]:
    """The pipeline that a draft would be, and what is wrong with it, each line beginning with its key."""
    references = project.pipelines.references
    try:
        pipeline = checked_pipeline(drafted.text, project.pipelines_folder, references)
    except ConfigError as error:
        return None, [references.hidden(problem) for problem in error.problems]
    settings = project.settings
    problems = [*unknown_names(pipeline, settings), *unfit_catalogs(pipeline, settings), *record_problems(pipeline)]
    return pipeline, [references.hidden(problem) for problem in problems]


def _effects(pipeline: Pipeline, project: Project) -> tuple[tuple[PipelineChange, ...], list[Impact]]:
    """What changes, and what that does, also to existing tables."""
    present = project.pipelines.usable.get(pipeline.name)
    changes = difference({} if present is None else {pipeline.name: present}, {pipeline.name: pipeline})
    return changes, [impact for change in changes for impact in change_impact(change, project)]


def _is_other(before: bytes, after: bytes) -> bool:
    """Whether a file says something else than before: remarks of a person stay as long as the values do."""
    if b"# connect: " in before + after:
        return before != after
    try:
        return parse_yaml(before.decode()) != parse_yaml(after.decode())
    except (yaml.YAMLError, ValueError):
        return True


def _write(
    asking: ConnectRequest, before: StoredConnector, text: bytes | None, effects: list[str], keys: list[str]
) -> None:
    event = "delete" if text is None else "create" if before.content is None else "change"
    project = asking.project
    changes = project.settings.rest_api.changes
    if changes == "refused":
        raise HTTPException(
            HTTPStatus.CONFLICT,
            "Pipeline files are not changed here: change them where they come from, or say rest_api: {changes: file} or"
            " {changes: commit} in the settings",
        )
    subject = f"{before.pipeline}: {event}d over HTTP"
    about = "\n".join([f"{asking.request.method} {asking.request.url.path}, by {asking.user}", "", *effects])
    commit = Commit(asking.user, f"{subject}\n\n{about}") if changes == "commit" else None
    try:
        with asking.source.seat():  # Git, its hooks and other changes may be waited for
            change_file(before.file, before.content, text, commit)
    except ChangeRefused as error:
        raise HTTPException(HTTPStatus.CONFLICT, f"{error.message}\n  next: {error.next_step}") from error
    asking.source.look_again()
    asking.note_change(f"{event}_pipeline", before.pipeline, file=before.file.name, keys=keys)
