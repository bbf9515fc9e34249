"""The key of a merged table's rows: what the pipeline file says, or else the table that is there."""

from __future__ import annotations

from frazil.errors import Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.identifier import identifier_columns
from frazil.pipeline.changes import merge_problems
from frazil.pipeline.model import Destination, Pipeline


def identified(lake: Lake, pipeline: Pipeline) -> Pipeline:
    """The pipeline, with the identifier fields of the table where rows are merged and the file names no key.

    Raises:
        Terminal: There is no such table, it has no identifier fields, or they can't be the key of a merge.
        Retryable: The catalog can't be reached.
    """
    if all(of.identifier or not of.is_merged for of in pipeline.destinations):
        return pipeline
    told = [_of_table(lake, of) if of.is_merged and not of.identifier else of for of in pipeline.destinations]
    return pipeline.model_copy(update={"destinations": tuple(told)})


def _of_table(lake: Lake, destination: Destination) -> Destination:
    name, table = destination.table, lake.find_table(destination.table)
    found = () if table is None else identifier_columns(table)
    if not found:
        raise Terminal(
            f"table {name}: write: {destination.write} needs the key of its rows. The pipeline file names no identifier, and"
            + (" there is no such table yet" if table is None else " the table has no identifier fields"),
            next_step=f"name the columns under identifier, or: ALTER TABLE {name} SET IDENTIFIER FIELDS …",
        )
    keyed = destination.keyed(found)
    for problem in merge_problems(keyed):
        raise Terminal(
            f"table {name}: its identifier fields are {', '.join(found)}, and the pipeline file does not go with them: {problem}",
            next_step="change the pipeline file, or the identifier fields of the table",
        )
    return keyed
