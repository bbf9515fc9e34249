"""Writes rows into plain Parquet files, for tables that PyIceberg can't write: an engine reads them and lands their rows."""

from __future__ import annotations

import uuid
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table.metadata import TableMetadata

from frazil.batch.changes import OP
from frazil.batch.facts import StagedFile
from frazil.iceberg.data_files import DataFileWriter
from frazil.iceberg.orc_limits import ORC, refuse_altered

FOLDER: Final = "frazil-staged"
"""Below the table's location, so that an orphan removal takes what is not needed any more."""


class RowFileWriter(DataFileWriter):
    """Writes rows of one table into Parquet files of bounded size, in their Arrow types. No snapshot may name them."""

    def _written(self, table: pa.Table, metadata: TableMetadata) -> list[StagedFile]:
        if metadata.properties.get("write.format.default", "").lower() == ORC:
            refuse_altered(table, self.name)
        path = f"{metadata.location.rstrip('/')}/{FOLDER}/{uuid.uuid4()}.parquet"
        file = self._io.new_output(path)
        with file.create() as stream:
            pq.write_table(table, stream)
        return [StagedFile(path, table.num_rows, len(file), "", _ops(table))]


def _ops(table: pa.Table) -> dict[str, int]:
    """Rows by what happens to them, of changes."""
    if OP not in table.schema.names:
        return {}
    return {of["values"]: of["counts"] for of in pc.value_counts(table.column(OP).combine_chunks()).to_pylist()}
