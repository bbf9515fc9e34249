"""The key of a merged table's rows, where the pipeline file leaves it to the table."""

from __future__ import annotations

from pyiceberg.table import Table

from frazil.errors import Terminal
from frazil.pipeline.model import Pipeline


def with_key(pipeline: Pipeline, name: str, table: Table) -> Pipeline:
    """The pipeline with the key of one destination; what its file is known by stays the same.

    Raises:
        Terminal: Rows are merged, and neither the file nor the table says by what.
    """
    destination = pipeline.destination(name)
    if destination.identifier or not destination.is_merged:
        return pipeline
    found = tuple(sorted(table.schema().identifier_field_names()))
    if not found:
        raise Terminal(
            f"table {name} has no identifier fields, and the pipeline file names no identifier: nothing says which rows are one",
            next_step="name the columns under identifier",
        )
    keyed = [of.keyed(found) if of.table == name else of for of in pipeline.destinations]
    return pipeline.model_copy(update={"destinations": tuple(keyed)})
