"""How many dead letters of a pipeline are open: for metrics, since whoever looks at letters sees them themselves."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from frazil.errors import FrazilError
from frazil.iceberg.ledger import read_rewinds
from frazil.iceberg.letter_scan import letters_open
from frazil.monitor.condition import Condition
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.open_letters import letter_history

_LOG: Final = logging.getLogger(__name__)


def with_open_letters(condition: Condition, project: Project, pipeline: Pipeline) -> Condition:
    """The condition with how many letters are open; without, where the tables can't be read now.

    Manifests tell it, but for files with letters that a rollback of the closing table opened again.
    """
    if condition.n is None:
        return condition
    try:
        return replace(condition, open_letters=_open(project, pipeline))
    except FrazilError as problem:  # a gauge without a value: the next look has one
        _LOG.info("open dead letters of pipeline %s: %s", pipeline.name, problem)
        return condition


def _open(project: Project, pipeline: Pipeline) -> int:
    lake, name = project.lake_of(pipeline), pipeline.dead_letters_table
    table = lake.find_table(name)
    if table is None:
        return 0

    def undone() -> frozenset[int]:
        return letter_history(read_rewinds(lake, pipeline.ledger_table, pipeline.name)).taken_back

    return letters_open(table, name, undone)
