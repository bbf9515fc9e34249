"""Writes rows of many tables at once, in memory that does not grow with their number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from frazil.batch.facts import StagedFile
from frazil.iceberg.data_files import FLUSH_BYTES, DataFileWriter, StagingTable
from frazil.iceberg.row_files import RowFileWriter

HELD_BYTES: Final = 2 * FLUSH_BYTES
"""Decoded rows a task holds in memory for all tables together before it writes the largest part."""


def writer_of(target: StagingTable) -> DataFileWriter:
    """The writer of a table's staged files, whoever brings them in."""
    return RowFileWriter(target) if target.by_engine else DataFileWriter(target)


class TableWriters:
    """One writer of data files per table, made when its first rows come.

    Args:
        tables: By name.
        held_bytes: Arrow bytes held before the table that holds most of them is written.
    """

    def __init__(self, tables: Mapping[str, StagingTable], held_bytes: int = HELD_BYTES) -> None:
        self._tables: Final = tables
        self._held_bytes: Final = held_bytes
        self._writers: Final[dict[str, DataFileWriter]] = {}

    def write(self, table: str, rows: pa.RecordBatch) -> None:
        """Take rows of a table; columns are matched to the table's by name.

        Raises:
            Retryable: The storage can't be written now.
            Terminal: It refuses.
        """
        if rows.num_rows == 0:
            return
        if table not in self._writers:
            self._writers[table] = writer_of(self._tables[table])
        self._writers[table].write(rows)
        while sum(writer.held_bytes for writer in self._writers.values()) >= self._held_bytes:
            max(self._writers.values(), key=lambda writer: writer.held_bytes).flush()

    def abandon(self) -> dict[str, tuple[StagedFile, ...]]:
        """Tell the files that are written already, and forget what is held: nobody will want it."""
        return {table: writer.abandon() for table, writer in self._writers.items()}

    def close(self) -> dict[str, tuple[StagedFile, ...]]:
        """Write what is held and tell the files of all tables."""
        found = {table: writer.close() for table, writer in self._writers.items()}
        return {table: found.get(table, ()) for table in self._tables}
