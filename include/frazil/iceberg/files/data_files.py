"""Writes Iceberg data files that no snapshot names yet, and converts their facts to text and back; plain Parquet files
for tables that PyIceberg can't write.

Rests on private names of PyIceberg 0.12 (`_dataframe_to_data_files`, the layout of `DataFile`); a contract test pins
them.
"""

from __future__ import annotations

import base64
import itertools
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, FixedType, IcebergType, NestedField, TimeType

from frazil.batch.changes import OP
from frazil.batch.facts import StagedFile
from frazil.iceberg.errors import translated
from frazil.iceberg.patches import metadata as _metadata  # noqa: F401  # so that tasks can read metadata with variants
from frazil.iceberg.patches.files import credentials_expire_ms, opened_storage

_COMPUTED = (BucketTransform, TimeTransform, TruncateTransform)


def sorted_rows(rows: pa.Table, metadata: TableMetadata) -> pa.Table:
    """Rows in the table's sort order. Equal ones keep their order."""
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    if order is None or order.is_unsorted:
        return rows
    columns: list[pa.ChunkedArray] = []
    keys: list[tuple[str, str, str]] = []
    for column, field in _sort_keys(rows, metadata, order.fields):
        direction = "descending" if field.direction == SortDirection.DESC else "ascending"
        nulls = "at_start" if field.null_order == NullOrder.NULLS_FIRST else "at_end"
        keys.append((str(len(keys)), direction, nulls))
        columns.append(column)
    if not keys:
        return rows
    return rows.take(pc.sort_indices(pa.table(columns, [name for name, *_ in keys]), sort_keys=keys))


def _sort_keys(
    rows: pa.Table, metadata: TableMetadata, fields: list[SortField]
) -> Iterator[tuple[pa.ChunkedArray, SortField]]:
    """The values by which rows are sorted, field by field, up to the first that can't be computed."""
    top = {field.field_id: field for field in metadata.schema().fields}
    for field in fields:
        source = top.get(field.source_id)
        if source is None or source.name not in rows.column_names or not _is_computable(source, field):
            return
        column = rows.column(source.name)
        if not isinstance(field.transform, IdentityTransform):
            column = field.transform.pyarrow_transform(source.field_type)(column)
        if isinstance(column.type, pa.BaseExtensionType):  # Arrow does not compare UUIDs
            return
        yield column, field


def _is_computable(source: NestedField, field: SortField) -> bool:
    if isinstance(field.transform, IdentityTransform):
        return bool(source.field_type.is_primitive)
    return isinstance(field.transform, _COMPUTED) and not isinstance(
        source.field_type, BinaryType | FixedType | TimeType
    )


FLUSH_BYTES = 128 * 2**20
"""Arrow bytes of rows that a task buffers for a table before it writes a file."""

_METRICS = "write.metadata.metrics."
"""Prefix of the table properties that choose which statistics a data file carries."""

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


@dataclass(frozen=True)
class StagingTable:
    """A table as a task needs it to write files: its metadata, and access to its storage.

    With `by_engine` the files are no data files: an engine reads their rows and writes them itself.
    """

    name: str
    metadata: str
    io: Mapping[str, str]
    by_engine: bool = False

    def __repr__(self) -> str:
        return f"StagingTable({self.name!r})"


class DataFileWriter:
    """Writes rows of one table into data files of bounded size. `buffered_bytes` are not written yet."""

    def __init__(self, target: StagingTable, flush_bytes: int = FLUSH_BYTES) -> None:
        self.name = target.name
        self._metadata = TableMetadataUtil.parse_raw(target.metadata)
        self._io = opened_storage(target.io, self._metadata.location)
        self._flush_bytes = flush_bytes
        self._counter = itertools.count()
        self._uuid = uuid.uuid4()
        self._buffered: list[pa.RecordBatch] = []
        self.buffered_bytes = 0
        self._files: list[StagedFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows; columns are matched to the table's by name."""
        if rows.num_rows == 0:
            return
        self._buffered.append(rows)
        self.buffered_bytes += rows.nbytes
        if self.buffered_bytes >= self._flush_bytes:
            self.flush()

    def close(self) -> tuple[StagedFile, ...]:
        """Write the buffered rows and return all files."""
        self.flush()
        return tuple(self._files)

    def abandon(self) -> tuple[StagedFile, ...]:
        """Return the files written so far, and drop the buffered rows."""
        self._buffered, self.buffered_bytes = [], 0
        return tuple(self._files)

    def flush(self) -> None:
        """Write the buffered rows."""
        if not self._buffered:
            return
        table = pa.Table.from_batches(self._buffered)
        self._buffered, self.buffered_bytes = [], 0
        with translated(f"writing data files of table {self.name}", credentials_expire_ms(self._io.properties)):
            try:
                self._files += self._written(table, self._metadata)
            except (UnicodeEncodeError, OverflowError):
                # PyIceberg can't truncate some texts to a bound (U+D7FF at the cut), nor read times beyond year 9999. Bounds
                # only help readers skip files, so such rows are written without them. The first file becomes an orphan.
                self._files += self._written(table, _without_bounds(self._metadata))

    def _written(self, table: pa.Table, metadata: TableMetadata) -> list[StagedFile]:
        files = _dataframe_to_data_files(metadata, sorted_rows(table, metadata), self._io, self._uuid, self._counter)
        return [staged_file(file, metadata) for file in files]


def _without_bounds(metadata: TableMetadata) -> TableMetadata:
    properties = {key: value for key, value in metadata.properties.items() if not key.startswith(_METRICS)}
    return metadata.model_copy(update={"properties": properties | {f"{_METRICS}default": "counts"}})


def staged_file(file: DataFile, metadata: TableMetadata) -> StagedFile:
    """The facts of a data file as text.

    Bounds and partition values are encoded as single values in binary (table specification, appendix D), in base64. So
    `data_file` restores exactly what manifests contain, a day as its number.
    """
    spec = metadata.spec()  # files are always written under the current spec
    types = _partition_types(spec, metadata)
    values = ((partition_type, file.partition[index]) for index, partition_type in enumerate(types))
    partition = [None if value is None else _text(to_bytes(partition_type, value)) for partition_type, value in values]
    body: dict[str, Any] = {
        "path": file.file_path,
        "format": file.file_format.value,
        "spec": spec.spec_id,
        "partition": partition,
        "records": file.record_count,
        "bytes": file.file_size_in_bytes,
        "split_offsets": file.split_offsets,
        "sort_order": file.sort_order_id,
    }
    body |= {name: _items(getattr(file, name)) for name in _COUNTS}
    body |= {name: _items(getattr(file, name), _text) for name in _BOUNDS}
    return StagedFile(
        file.file_path, file.record_count, file.file_size_in_bytes, json.dumps(body, separators=(",", ":"))
    )


def _partition_types(spec: PartitionSpec, metadata: TableMetadata) -> list[Any]:
    return [field.field_type for field in spec.partition_type(metadata.schema()).fields]


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _items(values: Mapping[int, Any] | None, encode: Any = lambda value: value) -> list[list[Any]] | None:
    return None if values is None else [[key, encode(value)] for key, value in values.items()]


def data_file(staged: StagedFile, metadata: TableMetadata) -> DataFile:
    """The Iceberg entry of a staged file."""
    body = json.loads(staged.facts)
    spec = metadata.specs()[body["spec"]]
    types = _partition_types(spec, metadata)
    partition = [
        None if text is None else from_bytes(partition_type, base64.b64decode(text))
        for partition_type, text in zip(types, body["partition"], strict=True)
    ]
    maps: dict[str, Any] = {name: _map(body[name]) for name in _COUNTS}
    maps |= {name: _map(body[name], base64.b64decode) for name in _BOUNDS}
    entry = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=body["path"],
        file_format=FileFormat(body["format"]),
        partition=Record(*partition),
        record_count=body["records"],
        file_size_in_bytes=body["bytes"],
        split_offsets=body["split_offsets"],
        sort_order_id=body["sort_order"],
        equality_ids=None,
        key_metadata=None,
        **maps,
    )
    entry.spec_id = body["spec"]
    return entry


def _map(items: list[list[Any]] | None, decode: Any = lambda value: value) -> dict[int, Any] | None:
    return None if items is None else {int(key): decode(value) for key, value in items}


def field_types(metadata: TableMetadata) -> dict[int, str]:
    """Field id -> type of every field, nested ones too, to compare with later schemas."""
    schema = metadata.schema()
    return {number: _type_name(schema.find_field(number).field_type) for number in sorted(schema.field_ids)}


def _type_name(field_type: IcebergType) -> str:
    return str(field_type).partition("<")[0]


def write_rows(target: StagingTable, rows: pa.Table) -> tuple[StagedFile, ...]:
    """Write rows into data files of a table."""
    writer = DataFileWriter(target)
    for batch in rows.to_batches():
        writer.write(batch)
    return writer.close()


FOLDER: Final = "data/frazil-staged"
"""Folder below the table's location, where orphan removal deletes files that are not needed any more, and any store takes files."""

_UUID_BYTES: Final = 16
_UUID_CHARACTERS: Final = 36
_DIGITS: Final = [index for index in range(_UUID_CHARACTERS) if index not in {8, 13, 18, 23}]
"""Places of the digits in a UUID's text."""


class RowFileWriter(DataFileWriter):
    """Writes rows of one table into Parquet files of bounded size, with their Arrow types. No snapshot may name them."""

    def _written(self, table: pa.Table, metadata: TableMetadata) -> list[StagedFile]:
        path = f"{metadata.location.rstrip('/')}/{FOLDER}/{uuid.uuid4()}.parquet"
        file = self._io.new_output(path)
        with file.create() as stream:
            pq.write_table(_with_uuid_texts(table), stream)
        return [StagedFile(path, table.num_rows, len(file), "", _ops(table))]


def _with_uuid_texts(table: pa.Table) -> pa.Table:
    """Rows with UUIDs as texts: Spark can read only these, and writes them into columns of type uuid."""
    for number, column in enumerate(table.schema):
        kind = _uuid_text_type(column.type)
        if kind != column.type:
            chunks = [_uuid_text_array(chunk, kind) for chunk in table.column(number).chunks]
            table = table.set_column(number, column.with_type(kind), pa.chunked_array(chunks, kind))
    return table


def _uuid_text_type(arrow_type: pa.DataType) -> pa.DataType:
    if arrow_type == pa.uuid():
        return pa.string()
    if pa.types.is_struct(arrow_type):
        return pa.struct([field.with_type(_uuid_text_type(field.type)) for field in arrow_type])
    if pa.types.is_list(arrow_type):
        return pa.list_(arrow_type.value_field.with_type(_uuid_text_type(arrow_type.value_type)))
    if pa.types.is_map(arrow_type):
        item = arrow_type.item_field.with_type(_uuid_text_type(arrow_type.item_type))
        return pa.map_(arrow_type.key_field.with_type(_uuid_text_type(arrow_type.key_type)), item)
    return arrow_type


def _uuid_text_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if array.type == pa.uuid():
        return _uuid_texts(array.storage)
    if pa.types.is_struct(kind):
        columns = [_uuid_text_array(column, field.type) for column, field in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = _uuid_text_array(array.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(array), values, type=kind, mask=array.is_null())
    lists = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    keys, items = lists.flatten().flatten()
    keys, items = _uuid_text_array(keys, kind.key_type), _uuid_text_array(items, kind.item_type)
    return pa.MapArray.from_arrays(_offsets(lists), keys, items, type=kind, mask=array.is_null())


def _offsets(array: pa.Array) -> pa.Array:
    """Offsets of lists or maps into their flattened values, without what was sliced off."""
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


BUFFER_BYTES: Final = 2 * FLUSH_BYTES
"""Arrow bytes of rows that a task buffers for all tables together, before it writes those of the largest one."""


class TableWriters:
    """One writer per table, created with its first rows. Beyond `most_bytes` of buffered Arrow, the largest buffer is written."""

    def __init__(self, tables: Mapping[str, StagingTable], most_bytes: int = BUFFER_BYTES) -> None:
        self._tables: Final = tables
        self._most_bytes: Final = most_bytes
        self._writers: Final[dict[str, DataFileWriter]] = {}

    def write(self, table: str, rows: pa.RecordBatch) -> None:
        """Add rows of a table; columns are matched to the table's by name."""
        if rows.num_rows == 0:
            return
        if table not in self._writers:
            target = self._tables[table]
            self._writers[table] = RowFileWriter(target) if target.by_engine else DataFileWriter(target)
        self._writers[table].write(rows)
        while sum(writer.buffered_bytes for writer in self._writers.values()) >= self._most_bytes:
            max(self._writers.values(), key=lambda writer: writer.buffered_bytes).flush()

    def abandon(self) -> dict[str, tuple[StagedFile, ...]]:
        """Return the files written so far, and drop the buffered rows."""
        return {table: writer.abandon() for table, writer in self._writers.items()}

    def close(self) -> dict[str, tuple[StagedFile, ...]]:
        """Write the buffered rows and return the files of all tables."""
        written = {table: writer.close() for table, writer in self._writers.items()}
        return {table: written.get(table, ()) for table in self._tables}
