"""The key of a table's rows, as the table says it: its identifier fields, whoever set them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema

from frazil.iceberg.promotion import takes_table_columns
from frazil.iceberg.table import Table
from frazil.pipeline.model import Destination

IDENTIFIES: Final = b"frazil.identifies"
"""Metadata of an Arrow field: the table has it among its identifier fields."""


def marked(field: pa.Field, schema: Schema) -> pa.Field:
    """A column that says whether it identifies rows of a table with this schema, or has a field that does."""
    keys = (schema.find_column_name(of) or "" for of in schema.identifier_field_ids)
    is_key = any(key == field.name or key.startswith(f"{field.name}.") for key in keys)
    return field.with_metadata({**(field.metadata or {}), IDENTIFIES: b""}) if is_key else field


def identifier_columns(table: Table) -> tuple[str, ...]:
    """Names of a table's identifier fields, in the order of its columns; of one within a struct the path."""
    schema = table.schema()
    names = {number: schema.find_column_name(number) or "" for number in schema.identifier_field_ids}
    return tuple(names[number] for number in sorted(names, key=lambda of: list(schema.field_ids).index(of)))


def identifier_problems(table: Table, destination: Destination) -> Iterator[str]:
    """Two keys that say different things, and columns that a row known by its key alone can't fill.

    A table without a key is fine: an engine need not know it.
    """
    found = identifier_columns(table)
    if found and destination.is_history:
        yield f"identifier: the table has {', '.join(found)}, of which write: history adds several rows with one value"
    elif found and destination.identifier and sorted(found) != sorted(destination.identifier):
        yield f"identifier: declared {', '.join(destination.identifier)}, the table has {', '.join(found)}"
    if destination.deleted_column is not None and takes_table_columns(destination):
        filled = {*destination.identifier, destination.order_by, *found}
        for field in table.schema().fields:
            if field.required and field.name not in filled:
                yield f"column {field.name}: the table requires a value, which a row has not that was deleted before it was known"
