"""AWS Glue's own protocol as a catalog: PyIceberg's, whose commits name the version of the table that they replace.

Glue refuses a commit if the table has another version by now. The columns in Glue are a copy for its users: what is longer than
Glue takes is left out of it, so that no field of a record stops a table. Rests on private names of PyIceberg 0.12.
"""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.table import Table

from frazil.iceberg.catalog.sql import CachingCatalog

_LONGEST_NAME, _LONGEST_TYPE, _LONGEST_COMMENT = 255, 131_072, 255
"""Most characters of a column's name, type and comment that Glue's API takes (data type `Column`)."""

_LONGEST_PARAMETER: Final = 512_000
"""Largest number of characters of a parameter's value."""


class SharedGlueCatalog(CachingCatalog, GlueCatalog):
    """Glue's tables, with their metadata cached."""

    def _convert_glue_to_iceberg(self, glue_table: Any) -> Table:
        convert = super()._convert_glue_to_iceberg
        location = glue_table.get("Parameters", {}).get("metadata_location", "")
        return self._cached_table(
            (glue_table.get("DatabaseName"), glue_table.get("Name")), location, lambda: convert(glue_table)
        )

    def _create_glue_table(self, database_name: str, table_name: str, table_input: Any) -> None:
        super()._create_glue_table(database_name, table_name, _shortened(table_input))

    def _update_glue_table(self, database_name: str, table_name: str, table_input: Any, version_id: str) -> None:
        super()._update_glue_table(database_name, table_name, _shortened(table_input), version_id)


def _shortened(table: Any) -> Any:
    storage = table.get("StorageDescriptor", {})
    columns = [
        column | ({"Comment": column["Comment"][:_LONGEST_COMMENT]} if "Comment" in column else {})
        for column in storage.get("Columns", ())
        if len(column["Name"]) <= _LONGEST_NAME and len(column["Type"]) <= _LONGEST_TYPE
    ]
    parameters = {name: text for name, text in table["Parameters"].items() if len(text) <= _LONGEST_PARAMETER}
    return table | {"StorageDescriptor": storage | {"Columns": columns}, "Parameters": parameters}
