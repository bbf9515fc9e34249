"""Ledger and dead-letter tables of any age: brought to the columns of this Frazil, and left alone where a newer one needs them otherwise."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from frazil.batch.position import check_version
from frazil.error_codes import BAD_TABLE_PROPERTY
from frazil.iceberg.errors import translated

FORMAT_KEY = "frazil.format"
"""Property of a ledger or dead-letter table that a newer Frazil uses otherwise: its version. Without it the first one."""

FORMAT = 1
"""The version that this Frazil reads and writes. Further optional columns don't change it."""


def with_all_columns(table: Table, name: str, newest_schema: Schema) -> Table:
    """A ledger or dead-letter table, with the columns that an older Frazil did not have.

    Raises:
        Terminal: A newer Frazil uses the table otherwise.
        Retryable: The catalog can't be reached, or others change the table at the same moment.
    """
    _check_format(table, name)
    if {field.name for field in newest_schema.fields} <= {field.name for field in table.schema().fields}:
        return table
    with translated(f"adding columns to table {name}"), table.update_schema() as update:
        update.union_by_name(newest_schema)
    return table


def _check_format(table: Table, name: str) -> None:
    version = table.properties.get(FORMAT_KEY, str(FORMAT))
    try:
        check_version(f"table {name}", int(version), FORMAT)
    except ValueError as error:
        raise BAD_TABLE_PROPERTY.terminal(
            f"table {name}: property {FORMAT_KEY} is {version!r}, expected a number",
            next_step=f"was it edited by hand? Remove it, or set it to {FORMAT}",
        ) from error
