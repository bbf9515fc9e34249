"""The health of a pipeline's tables, from their metadata: it changes slowly, and is looked at rarely."""

from __future__ import annotations

from frazil.maintain.need import Order
from frazil.maintain.run import look
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.scope import Scope


def table_health(project: Project, pipeline: Pipeline) -> dict[str, int]:
    """Table -> its health score, 0 to 100, of those that are there and that maintenance is for.

    Raises:
        Retryable: The catalog or the storage is not available now.
        Terminal: The settings don't know a catalog, or a table can't be the pipeline's.
    """
    looked = look(Scope.of(project, pipeline), Order())
    return {of.table: of.before.score for of in looked.tables}
