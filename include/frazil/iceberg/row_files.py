"""Writes rows into plain Parquet files, for tables that PyIceberg can't write: an engine reads them and lands their rows."""

from __future__ import annotations

import uuid
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.metadata import TableMetadataUtil

from frazil.batch.facts import StagedFile
from frazil.iceberg.data_files import FLUSH_BYTES, StagingTable
from frazil.iceberg.faults import translated

FOLDER: Final = "frazil-staged"
"""Below the table's location, so that an orphan removal takes what is not needed any more."""


class RowFileWriter:
    """Writes rows of one table into Parquet files of bounded size, in their Arrow types.

    Args:
        target: The table.
        flush_bytes: Arrow bytes held before they are written.
    """

    def __init__(self, target: StagingTable, flush_bytes: int = FLUSH_BYTES) -> None:
        self._name: Final = target.name
        self._place: Final = f"{TableMetadataUtil.parse_raw(target.metadata).location.rstrip('/')}/{FOLDER}"
        self._io: Final = PyArrowFileIO(dict(target.io))
        self._flush_bytes: Final = flush_bytes
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._files: Final[list[StagedFile]] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows.

        Raises:
            Retryable: The storage can't be written now.
            Terminal: It refuses.
        """
        if rows.num_rows == 0:
            return
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self._flush_bytes:
            self.flush()

    @property
    def held_bytes(self) -> int:
        """Arrow bytes that are not written yet."""
        return self._held_bytes

    def close(self) -> tuple[StagedFile, ...]:
        """Write what is held and tell all files."""
        self.flush()
        return tuple(self._files)

    def flush(self) -> None:
        """Write what is held."""
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held)
        self._held, self._held_bytes = [], 0
        path = f"{self._place}/{uuid.uuid4()}.parquet"
        with translated(f"writing staged rows of table {self._name}"):
            file = self._io.new_output(path)
            with file.create() as stream:
                pq.write_table(rows, stream)
            self._files.append(StagedFile(path, rows.num_rows, len(file), ""))
