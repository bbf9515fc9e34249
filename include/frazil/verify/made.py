"""Tables that a pipeline made because records name them: what its ledger says, read for this check alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from frazil.errors import Retryable, Terminal
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.verify.catalogs import Catalogs
from frazil.verify.lake import ROUNDS

T = TypeVar("T")

NOT_MADE = "TABLE_NOT_MADE"
"""Code of a letter whose record names a table that its batch could not make; a later one may have."""

_MADE = "frazil.made."
"""What the key of their names begins with; the name of the pipeline follows."""


def steady(project: Project, pipeline: Pipeline, opened: Callable[[Pipeline], T]) -> tuple[Pipeline, T]:
    """The pipeline with the tables that it made, and these opened: again if a run made one meanwhile.

    Raises:
        Terminal: As `with_made`.
        Retryable: The catalog is not available now, or runs don't stop making tables.
    """
    told = with_made(project, pipeline)
    for _ in range(ROUNDS):
        found, now = opened(told), with_made(project, told)
        if now.made == told.made:
            return told, found
        told = now
    raise Retryable(
        f"pipeline {pipeline.name}: runs kept making tables over {ROUNDS} looks at them",
        next_step="verify between two runs",
    )


def with_made(project: Project, pipeline: Pipeline) -> Pipeline:
    """The pipeline with the tables that it made.

    Raises:
        Terminal: There is no ledger, it is not readable, or there is no table at all yet.
        Retryable: The catalog is not available now.
    """
    if pipeline.create is None or pipeline.home_catalog not in project.settings.catalogs:
        return pipeline
    ledger = Catalogs(pipeline, project.settings.catalogs).table(pipeline.ledger_table)
    text = ledger.metadata.properties.get(_MADE + pipeline.name)
    try:
        told = pipeline.with_made(json.loads(json.loads(text)["value"]) if text is not None else ())
    except (ValueError, KeyError, TypeError) as error:
        raise Terminal(
            f"table {pipeline.ledger_table}: property {_MADE}{pipeline.name} is not readable: {text!r}",
            next_step="was it edited by hand?",
        ) from error
    if not told.tables:
        raise Terminal(
            f"pipeline {pipeline.name} has no table yet: no record named one that could be made",
            next_step=f"frazil dead-letters {pipeline.name} says what became of its records",
        )
    return told
