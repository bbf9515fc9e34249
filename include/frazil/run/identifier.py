"""The key of a merged table's rows: what the pipeline file says, or else the table; and the one that its rows were merged by."""

from __future__ import annotations

import json

from frazil.batch.manifest import TablePart
from frazil.errors import Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.holdings import IDENTIFIER_KEY
from frazil.iceberg.identifier import identifier_columns
from frazil.iceberg.table import TableMetadata
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


def identifier_note(pipeline: str, part: TablePart) -> dict[str, str]:
    """The property that says by what a pipeline merges the rows of a destination, to be set with its commits."""
    if part.role != "destination":
        return {}
    merge = None if part.operation is None else part.operation.merge
    return {IDENTIFIER_KEY.format(pipeline): json.dumps([] if merge is None else merge.keys)}


def refuse_other_key(pipeline: Pipeline, table: str, metadata: TableMetadata) -> None:
    """Refuse a table whose rows this pipeline landed by another key, or by none: of a key there may be several rows.

    Args:
        pipeline: The pipeline.
        table: Name of the destination.
        metadata: What it is now.

    Raises:
        Terminal: It has such rows.
    """
    property_ = IDENTIFIER_KEY.format(pipeline.name)
    told, key = metadata.properties.get(property_), pipeline.destination(table).identifier
    if told is None or not _has_rows(metadata):
        return
    before, now = json.loads(told), key if pipeline.destination(table).is_merged else ()
    if sorted(before) == sorted(now):
        return
    landed, wanted = _landing(before), _landing(now)
    apart = "give the rows a table of their own: another name under destinations"
    if not now:
        raise Terminal(
            f"pipeline {pipeline.name} {landed} in table {table}, the pipeline file now says that it {wanted}: what is one row"
            " per key would be so no more",
            next_step=f"declare write and identifier as they were, or {apart}",
        )
    raise Terminal(
        f"pipeline {pipeline.name} {landed} in table {table}, the pipeline file now says that it {wanted}: of a key there may"
        " be several rows, and none of them would go",
        next_step=f"{apart}; or, if no key has two rows (GROUP BY {', '.join(now)} HAVING count(*) > 1), say so: ALTER TABLE"
        f" {table} SET TBLPROPERTIES ('{property_}' = '{json.dumps(list(now))}')",
    )


def _landing(key: list[str] | tuple[str, ...]) -> str:
    return f"merges rows by {', '.join(key)}" if key else "adds rows"


def _has_rows(metadata: TableMetadata) -> bool:
    head = metadata.current_snapshot()
    return head is not None and (head.summary is None or head.summary.additional_properties.get("total-records") != "0")
