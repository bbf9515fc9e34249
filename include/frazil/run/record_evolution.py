"""What a pipeline file says of tables that follow their records, as the room of records takes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from frazil.batch.changes import OP, PLACE
from frazil.iceberg.identifier import IDENTIFIES
from frazil.iceberg.schema import partition_names
from frazil.pipeline.changes import DELETED, ENGINE_COLUMNS
from frazil.pipeline.model import Destination, Pipeline
from frazil.records.evolve.policy import Evolution
from frazil.records.formats.catalogue import JSON
from frazil.records.spec import RecordSpec


def infers(pipeline: Pipeline) -> bool:
    """Whether nothing says which fields a JSON value holds, and a table wants whichever they are."""
    follows = any(of.evolves != "none" for of in pipeline.destinations)
    # Rows of changes are looked at one by one: what is around them is known.
    tells_changes = any(of.changes is not None for of in pipeline.destinations)
    is_open = pipeline.value.format == JSON and not isinstance(pipeline.value.fields, dict)
    return follows and is_open and not tells_changes


def evolution(to: Destination, of_key: Collection[str], columns: pa.Schema, max_name_length: int) -> Evolution | None:
    """Which changes records may ask for of a destination; None: none.

    Args:
        to: The destination.
        of_key: Names of the columns that take fields of the key.
        columns: The columns of its rows, as the table has them.
        max_name_length: Characters that the name of a column made for records may have.
    """
    if to.evolves == "none":
        return None
    # Engines refuse a table with a column that is named as a partition field of another one.
    declared = (field.name for field in to.partition_fields if field.name != field.column)
    partitions = (*declared, *partition_names(columns))
    merging = (OP, PLACE, DELETED) if to.is_merged else (OP,)  # the decoder's own, in every table
    reserved = ENGINE_COLUMNS.union(of_key, to.added_columns, partitions, merging)
    keys = (of.name for of in columns if IDENTIFIES in (of.metadata or {}))
    never_null = frozenset(filter(None, (*to.identifier, *keys, to.order_by)))
    return Evolution(
        to.evolves,
        to.on_incompatible,
        to.max_columns,
        to.max_depth,
        max_name_length,
        reserved,
        never_null,
        as_text=to.absent_types,
    )


def without_fail(specs: Mapping[str, RecordSpec]) -> dict[str, RecordSpec]:
    """How letters become rows: one whose value still does not fit stays a letter, whatever the policy, and others go on."""
    return {
        table: replace(of, evolution=replace(of.evolution, on_incompatible="dead_letter"))
        if of.evolution is not None and of.evolution.on_incompatible == "fail"
        else of
        for table, of in specs.items()
    }


def without_new_columns(specs: Mapping[str, RecordSpec]) -> dict[str, RecordSpec]:
    """How records become rows of tables that get no other columns: their fields go where those beyond the last one go."""
    return {
        table: of if of.evolution is None else replace(of, evolution=replace(of.evolution, max_columns=0))
        for table, of in specs.items()
    }


def known_fields(columns: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of all destinations by their names; of one name the decimal with most digits after the point."""
    found: dict[str, pa.Field] = {}
    for schema in columns:
        for column in schema:
            known = found.setdefault(column.name, column)
            if _scale(column.type) > _scale(known.type):
                found[column.name] = column
    return pa.schema(list(found.values()))


def _scale(of: pa.DataType) -> int:
    return of.scale if pa.types.is_decimal(of) else -1
