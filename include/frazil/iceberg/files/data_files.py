"""Writes Iceberg data files that no snapshot names yet, and converts their facts to text and back.

Rests on private names of PyIceberg 0.12 (`_dataframe_to_data_files`, the layout of `DataFile`); a contract test pins
them. Others are used in `producer`, `refs` and `removal`.
"""

from __future__ import annotations

import base64
import itertools
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import BucketTransform, IdentityTransform, TimeTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, FixedType, IcebergType, NestedField, TimeType

from frazil.batch.facts import StagedFile
from frazil.iceberg.errors import translated
from frazil.iceberg.patches import nested_nulls as _nested_nulls  # noqa: F401  # mends PyIceberg's projection
from frazil.iceberg.patches import partition_keys as _partition_keys  # noqa: F401  # mends PyIceberg's partition keys
from frazil.iceberg.patches import variant as _variant  # noqa: F401  # a worker reads metadata with variants, too
from frazil.iceberg.patches.storage import opened_storage

_COMPUTED = (BucketTransform, TimeTransform, TruncateTransform)


def in_order(rows: pa.Table, metadata: TableMetadata) -> pa.Table:
    """Rows in the table's sort order; equal ones stay as they came."""
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
    """The values that rows are sorted by, field by field, up to the first that can't be computed."""
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
"""Decoded rows a task holds in memory per table before it writes a file: the bound of a task's memory."""

_METRICS = "write.metadata.metrics."
"""Prefix of the table properties that choose which statistics a data file carries."""

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


@dataclass(frozen=True)
class StagingTable:
    """A table as a task needs it to write files: a snapshot of its metadata, and access to its storage.

    With `by_engine` its files are not data files: an engine reads their rows and writes them itself.
    """

    name: str
    metadata: str
    io: Mapping[str, str]
    by_engine: bool = False

    def __repr__(self) -> str:
        return f"StagingTable({self.name!r})"


class DataFileWriter:
    """Writes rows of one table into data files of bounded size."""

    def __init__(self, target: StagingTable, flush_bytes: int = FLUSH_BYTES) -> None:
        self.name = target.name
        self._metadata = TableMetadataUtil.parse_raw(target.metadata)
        self._io = opened_storage(target.io, self._metadata.location)
        self._flush_bytes = flush_bytes
        self._counter = itertools.count()
        self._uuid = uuid.uuid4()
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._files: list[StagedFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows; columns are matched to the table's by name.

        Raises:
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
        """Write the buffered rows and return all files."""
        self.flush()
        return tuple(self._files)

    def abandon(self) -> tuple[StagedFile, ...]:
        """Return the files written so far, and drop the buffered rows."""
        self._held, self._held_bytes = [], 0
        return tuple(self._files)

    def flush(self) -> None:
        """Write the buffered rows."""
        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        self._held, self._held_bytes = [], 0
        with translated(f"writing data files of table {self.name}"):
            try:
                self._files += self._written(table, self._metadata)
            except (UnicodeEncodeError, OverflowError):
                # PyIceberg can't cut some texts to a bound (U+D7FF at the cut) nor see times beyond year 9999. Bounds
                # only help readers skip files, so such rows are written without them. The first attempt is an orphan.
                self._files += self._written(table, _without_bounds(self._metadata))

    def _written(self, table: pa.Table, metadata: TableMetadata) -> list[StagedFile]:
        ordered = in_order(table, metadata)
        files = _dataframe_to_data_files(metadata, ordered, self._io, self._uuid, self._counter)
        return [staged_file(file, metadata) for file in files]


def _without_bounds(metadata: TableMetadata) -> TableMetadata:
    properties = {key: value for key, value in metadata.properties.items() if not key.startswith(_METRICS)}
    return metadata.model_copy(update={"properties": properties | {f"{_METRICS}default": "counts"}})


def staged_file(file: DataFile, metadata: TableMetadata) -> StagedFile:
    """The facts of a data file as text.

    Bounds and partition values are spelled as the table specification's single values in binary (appendix D): the way
    back gives exactly what manifests hold, a day as its number.
    """
    spec = metadata.spec()  # files are always written under the current spec
    types = _partition_types(spec, metadata)
    partition = [
        _optional(_encoded, partition_type, file.partition[index]) for index, partition_type in enumerate(types)
    ]
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


def _optional(convert: Callable[[Any, Any], Any], partition_type: Any, value: Any) -> Any:
    return None if value is None else convert(partition_type, value)


def _encoded(partition_type: Any, value: Any) -> str:
    return _text(to_bytes(partition_type, value))


def _decoded(partition_type: Any, text: str) -> Any:
    return from_bytes(partition_type, base64.b64decode(text))


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
        _optional(_decoded, partition_type, value)
        for partition_type, value in zip(types, body["partition"], strict=True)
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
    """Field id -> type of every field, nested ones too: what the files of a moment were written for."""
    schema = metadata.schema()
    return {number: _type_name(schema.find_field(number).field_type) for number in sorted(schema.field_ids)}


def _type_name(field_type: IcebergType) -> str:
    return str(field_type).partition("<")[0]


def write_rows(target: StagingTable, rows: pa.Table) -> tuple[StagedFile, ...]:
    """Write rows into data files of a table at once."""
    writer = DataFileWriter(target)
    for batch in rows.to_batches():
        writer.write(batch)
    return writer.close()
