"""The merge key of a table: from the pipeline file, or else the table; and the key that its rows were merged by so far."""

from __future__ import annotations

import json
from collections.abc import Iterator

from frazil.batch.manifest import TablePart
from frazil.error_codes import FILE_CONTRADICTS, ROW_KEY_UNKNOWN
from frazil.errors import Terminal
from frazil.iceberg.catalog.table import Table, TableMetadata
from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog
from frazil.iceberg.commit.summary_state import IDENTIFIER_KEY
from frazil.iceberg.schema.schema import identifier_columns
from frazil.pipeline.models.changes import merge_problems
from frazil.pipeline.models.pipeline_file import Destination, Pipeline


def with_merge_keys(lake: PipelineCatalog, pipeline: Pipeline) -> Pipeline:
    """The pipeline, with the merge keys that its file does not name: the table's identifier fields, or else the last used key.

    A key that is found nowhere stays empty, so that a decided batch can still be finished: see `refuse_no_key`.
    """
    if not any(map(lacks_key, pipeline.destinations)):
        return pipeline
    destinations = [
        _with_key(lake, pipeline, destination) if lacks_key(destination) else destination
        for destination in pipeline.destinations
    ]
    return pipeline.model_copy(update={"destinations": tuple(destinations)})


def lacks_key(destination: Destination) -> bool:
    """Whether rows are merged and the key is not known."""
    return destination.is_merged and not destination.identifier


def key_of(destination: Destination) -> tuple[str, ...]:
    """The key of a merged destination's rows.

    Raises:
        Terminal: It is not known.
    """
    if lacks_key(destination):
        raise missing_key_error(destination, is_there=True)
    return destination.identifier


def _with_key(lake: PipelineCatalog, pipeline: Pipeline, destination: Destination) -> Destination:
    candidates = (destination.keyed(key) for key in _possible_keys(lake, pipeline, destination.table) if key)
    return next((candidate for candidate in candidates if not any(merge_problems(candidate))), destination)


def _possible_keys(lake: PipelineCatalog, pipeline: Pipeline, name: str) -> Iterator[tuple[str, ...]]:
    """Possible keys, the likeliest first. The branch does not matter: a table has one key for all of them."""
    table = lake.catalog_of(name).find_table(name)
    if table is not None:
        yield identifier_columns(table)
        yield tuple(json.loads(table.metadata.properties.get(IDENTIFIER_KEY.format(pipeline.name), "[]")))


def refuse_no_key(pipeline: Pipeline, name: str, table: Table | None) -> None:
    """Refuse a destination whose merge key is neither in the pipeline file nor in the table.

    Raises:
        Terminal: There is no such table, it has no identifier fields, or they can't be the key of a merge.
        Retryable: They are others than a moment ago.
    """
    destination = pipeline.destination(name)
    if not destination.is_merged or (destination.identifier and "identifier" in destination.model_fields_set):
        return
    key_columns = () if table is None else identifier_columns(table)
    if not key_columns:
        raise missing_key_error(destination, is_there=table is not None)
    keyed = destination.keyed(key_columns)
    for problem in merge_problems(keyed):
        raise ROW_KEY_UNKNOWN.terminal(
            f"table {name}: its identifier fields are {', '.join(key_columns)}, and the pipeline file contradicts them: {problem}",
            next_step="change the pipeline file, or the identifier fields of the table",
        )
    if sorted(key_columns) != sorted(destination.identifier):
        raise ROW_KEY_UNKNOWN.retryable(
            f"table {name}: its identifier fields were changed to {', '.join(key_columns)} at this moment",
            next_step="run again: the next run uses them",
        )


def missing_key_error(destination: Destination, *, is_there: bool) -> Terminal:
    """Why rows can't be merged into a table, there or not."""
    name = destination.table
    return ROW_KEY_UNKNOWN.terminal(
        f"table {name}: write: {destination.write} needs the key of its rows. The pipeline file names no identifier, and"
        + (" the table has no identifier fields" if is_there else " there is no such table yet"),
        next_step=f"name the columns under identifier, or: ALTER TABLE {name} SET IDENTIFIER FIELDS …",
    )


def identifier_property(pipeline: str, part: TablePart) -> dict[str, str]:
    """The table property with the key by which a pipeline merges rows; it is set with each commit to a destination."""
    if part.role != "destination":
        return {}
    merge = None if part.operation is None else part.operation.merge
    return {IDENTIFIER_KEY.format(pipeline): json.dumps([] if merge is None else merge.keys)}


def refuse_other_key(pipeline: Pipeline, table: str, metadata: TableMetadata) -> None:
    """Refuse a table whose rows this pipeline landed by another merge key, or by none: a key may have several rows.

    Raises:
        Terminal: It has such rows.
    """
    property_ = IDENTIFIER_KEY.format(pipeline.name)
    recorded_key, declared_key = metadata.properties.get(property_), pipeline.destination(table).identifier
    if recorded_key is None or not _has_rows(metadata):
        return
    past_key, current_key = json.loads(recorded_key), declared_key if pipeline.destination(table).is_merged else ()
    if sorted(past_key) == sorted(current_key):
        return
    past_write, declared_write = _write_description(past_key), _write_description(current_key)
    new_table_step = "give the rows a table of their own: another name under destinations"
    if not current_key:
        raise FILE_CONTRADICTS.terminal(
            f"pipeline {pipeline.name} {past_write} in table {table}, the pipeline file now says that it {declared_write}: the table"
            " would no longer have one row per key",
            next_step=f"declare write and identifier as they were, or {new_table_step}",
        )
    raise FILE_CONTRADICTS.terminal(
        f"pipeline {pipeline.name} {past_write} in table {table}, the pipeline file now says that it {declared_write}: the table"
        " may have several rows of one key, and the older ones would stay",
        next_step=f"{new_table_step}; or, if no key has two rows (GROUP BY {', '.join(current_key)} HAVING count(*) > 1), declare that: ALTER TABLE"
        f" {table} SET TBLPROPERTIES ('{property_}' = '{json.dumps(list(current_key))}')",
    )


def _write_description(key: list[str] | tuple[str, ...]) -> str:
    return f"merges rows by {', '.join(key)}" if key else "adds rows"


def _has_rows(metadata: TableMetadata) -> bool:
    head = metadata.current_snapshot()
    return head is not None and (head.summary is None or head.summary.additional_properties.get("total-records") != "0")
