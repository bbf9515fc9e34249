"""The key of a merged table's rows: what the pipeline file says, or else the table; and the one that its rows were merged by."""

from __future__ import annotations

import json
from collections.abc import Iterator

from frazil.batch.manifest import TablePart
from frazil.errors import Retryable, Terminal
from frazil.iceberg.holdings import IDENTIFIER_KEY
from frazil.iceberg.pipeline_lake import PipelineLake
from frazil.iceberg.schema import identifier_columns
from frazil.iceberg.table import Table, TableMetadata
from frazil.pipeline.changes import merge_problems
from frazil.pipeline.model import Destination, Pipeline


def identified(lake: PipelineLake, pipeline: Pipeline) -> Pipeline:
    """The pipeline, with keys where rows are merged and the file names none: the table's, or else what the pipeline merged by.

    What nothing tells stays unknown, so that a batch which is decided can be finished: see `refuse_no_key`.

    Raises:
        Retryable: A catalog can't be reached.
    """
    if not any(map(lacks_key, pipeline.destinations)):
        return pipeline
    told = [_keyed(lake, pipeline, of) if lacks_key(of) else of for of in pipeline.destinations]
    return pipeline.model_copy(update={"destinations": tuple(told)})


def lacks_key(destination: Destination) -> bool:
    """Whether rows are merged, and it is not known by what."""
    return destination.is_merged and not destination.identifier


def key_of(destination: Destination) -> tuple[str, ...]:
    """The key of a merged destination's rows.

    Raises:
        Terminal: It is not known.
    """
    if lacks_key(destination):
        raise no_key(destination, is_there=True)
    return destination.identifier


def _keyed(lake: PipelineLake, pipeline: Pipeline, destination: Destination) -> Destination:
    keyed = (destination.keyed(key) for key in _keys(lake, pipeline, destination.table) if key)
    return next((of for of in keyed if not any(merge_problems(of))), destination)


def _keys(lake: PipelineLake, pipeline: Pipeline, name: str) -> Iterator[tuple[str, ...]]:
    """What may be the key, the likeliest first. On whatever branch: a table has one key for all of them."""
    table = lake.catalog_of(name).find_table(name)
    if table is not None:
        yield identifier_columns(table)
        yield tuple(json.loads(table.metadata.properties.get(IDENTIFIER_KEY.format(pipeline.name), "[]")))


def refuse_no_key(pipeline: Pipeline, name: str, table: Table | None) -> None:
    """Refuse a destination whose file leaves its key to the table, if the table does not say it.

    Args:
        pipeline: The pipeline, with the keys that were found.
        name: Name of the destination.
        table: What it is now; None if it is not there.

    Raises:
        Terminal: There is no such table, it has no identifier fields, or they can't be the key of a merge.
        Retryable: They are others than a moment ago.
    """
    destination = pipeline.destination(name)
    if not destination.is_merged or (destination.identifier and "identifier" in destination.model_fields_set):
        return
    found = () if table is None else identifier_columns(table)
    if not found:
        raise no_key(destination, is_there=table is not None)
    keyed = destination.keyed(found)
    for problem in merge_problems(keyed):
        raise Terminal(
            f"table {name}: its identifier fields are {', '.join(found)}, and the pipeline file does not go with them: {problem}",
            next_step="change the pipeline file, or the identifier fields of the table",
        )
    if sorted(found) != sorted(destination.identifier):
        raise Retryable(f"table {name}: its identifier fields became {', '.join(found)} at this moment")


def no_key(destination: Destination, *, is_there: bool) -> Terminal:
    """Why rows can't be merged into a table, there or not."""
    name = destination.table
    return Terminal(
        f"table {name}: write: {destination.write} needs the key of its rows. The pipeline file names no identifier, and"
        + (" the table has no identifier fields" if is_there else " there is no such table yet"),
        next_step=f"name the columns under identifier, or: ALTER TABLE {name} SET IDENTIFIER FIELDS …",
    )


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
