"""Writes rows into plain Parquet files, for tables that PyIceberg can't write: an engine reads them and lands their rows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table.metadata import TableMetadata

from frazil.batch.changes import OP
from frazil.batch.facts import StagedFile
from frazil.iceberg.files.data_files import FLUSH_BYTES, DataFileWriter, StagingTable

FOLDER: Final = "frazil-staged"
"""Below the table's location, so that an orphan removal takes what is not needed any more."""

_UUID_BYTES: Final = 16
_UUID_CHARACTERS: Final = 36
_DIGITS: Final = [index for index in range(_UUID_CHARACTERS) if index not in {8, 13, 18, 23}]
"""Places of the digits in a UUID's text."""


class RowFileWriter(DataFileWriter):
    """Writes rows of one table into Parquet files of bounded size, in their Arrow types. No snapshot may name them."""

    def _written(self, table: pa.Table, metadata: TableMetadata) -> list[StagedFile]:
        path = f"{metadata.location.rstrip('/')}/{FOLDER}/{uuid.uuid4()}.parquet"
        file = self._io.new_output(path)
        with file.create() as stream:
            pq.write_table(_spelled(table), stream)
        return [StagedFile(path, table.num_rows, len(file), "", _ops(table))]


def _spelled(table: pa.Table) -> pa.Table:
    """Rows with UUIDs as texts: Spark reads no others, and writes these into columns of the type."""
    for number, column in enumerate(table.schema):
        kind = _spelled_type(column.type)
        if kind != column.type:
            chunks = [_spelled_array(chunk, kind) for chunk in table.column(number).chunks]
            table = table.set_column(number, column.with_type(kind), pa.chunked_array(chunks, kind))
    return table


def _spelled_type(arrow_type: pa.DataType) -> pa.DataType:
    if arrow_type == pa.uuid():
        return pa.string()
    if pa.types.is_struct(arrow_type):
        return pa.struct([field.with_type(_spelled_type(field.type)) for field in arrow_type])
    if pa.types.is_list(arrow_type):
        return pa.list_(arrow_type.value_field.with_type(_spelled_type(arrow_type.value_type)))
    if pa.types.is_map(arrow_type):
        item = arrow_type.item_field.with_type(_spelled_type(arrow_type.item_type))
        return pa.map_(arrow_type.key_field.with_type(_spelled_type(arrow_type.key_type)), item)
    return arrow_type


def _spelled_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if array.type == pa.uuid():
        return _uuid_texts(array.storage)
    if pa.types.is_struct(kind):
        columns = [_spelled_array(column, field.type) for column, field in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = _spelled_array(array.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(array), values, type=kind, mask=array.is_null())
    lists = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    keys, items = lists.flatten().flatten()
    keys, items = _spelled_array(keys, kind.key_type), _spelled_array(items, kind.item_type)
    return pa.MapArray.from_arrays(_offsets(lists), keys, items, type=kind, mask=array.is_null())


def _offsets(array: pa.Array) -> pa.Array:
    """Where the values of each list, or entries of each map, begin among those that it has, whatever was sliced off."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def _uuid_texts(values: pa.Array) -> pa.Array:
    filled = values.fill_null(bytes(_UUID_BYTES))
    octets = filled.buffers()[1][filled.offset * _UUID_BYTES : (filled.offset + len(filled)) * _UUID_BYTES].to_pybytes()
    texts = np.full((len(values), _UUID_CHARACTERS), ord("-"), np.uint8)
    texts[:, _DIGITS] = np.frombuffer(octets.hex().encode(), np.uint8).reshape(len(values), 2 * _UUID_BYTES)
    whole = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(_UUID_CHARACTERS), len(values), [None, pa.py_buffer(texts.tobytes())]
    )
    return pc.if_else(values.is_valid(), whole.cast(pa.binary()).cast(pa.string()), pa.scalar(None, pa.string()))


def _ops(table: pa.Table) -> dict[str, int]:
    """Counts of staged rows by operation, for changes."""
    if OP not in table.schema.names:
        return {}
    return {
        count["values"]: count["counts"] for count in pc.value_counts(table.column(OP).combine_chunks()).to_pylist()
    }


HELD_BYTES: Final = 2 * FLUSH_BYTES
"""Decoded rows a task holds in memory for all tables together before it writes the largest part."""


def writer_of(target: StagingTable) -> DataFileWriter:
    """The writer of a table's staged files, for PyIceberg or Spark to commit."""
    return RowFileWriter(target) if target.by_engine else DataFileWriter(target)


class TableWriters:
    """One writer of data files per table, made when its first rows come.

    Beyond `held_bytes` of Arrow the table that holds most of them is written.
    """

    def __init__(self, tables: Mapping[str, StagingTable], held_bytes: int = HELD_BYTES) -> None:
        self._tables: Final = tables
        self._held_bytes: Final = held_bytes
        self._writers: Final[dict[str, DataFileWriter]] = {}

    def write(self, table: str, rows: pa.RecordBatch) -> None:
        """Add rows of a table; columns are matched to the table's by name."""
        if rows.num_rows == 0:
            return
        if table not in self._writers:
            self._writers[table] = writer_of(self._tables[table])
        self._writers[table].write(rows)
        while sum(writer.held_bytes for writer in self._writers.values()) >= self._held_bytes:
            max(self._writers.values(), key=lambda writer: writer.held_bytes).flush()

    def abandon(self) -> dict[str, tuple[StagedFile, ...]]:
        """Return the files written so far, and drop the buffered rows."""
        return {table: writer.abandon() for table, writer in self._writers.items()}

    def close(self) -> dict[str, tuple[StagedFile, ...]]:
        """Write the buffered rows and return the files of all tables."""
        written = {table: writer.close() for table, writer in self._writers.items()}
        return {table: written.get(table, ()) for table in self._tables}
