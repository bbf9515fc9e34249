"""Mends how PyIceberg 0.12 reads and writes files: requests and retries of S3, Azure's locations, nulls in lists and maps, how rows are
split by partition, and dictionaries of Parquet columns.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.io.pyarrow as pyiceberg_arrow
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem
from pyiceberg.io import (
    PY_IO_IMPL,
    S3_CONNECT_TIMEOUT,
    S3_REQUEST_TIMEOUT,
    S3_RETRY_STRATEGY_IMPL,
    FileIO,
    load_file_io,
)
from pyiceberg.io.pyarrow import (
    ArrowProjectionVisitor,
    ParquetFormatWriter,
    PyArrowFileIO,
    _get_field_from_arrow_table,
    _TablePartition,
    parquet_path_to_id_mapping,
)
from pyiceberg.partitioning import (
    PartitionField,
    PartitionFieldValue,
    PartitionKey,
    PartitionSpec,
    partition_record_value,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import ListType, MapType

# Rests on private names of PyIceberg 0.12, and on how PyArrow pickles the options of file systems; a contract test pins them.

S3_ATTEMPTS: Final = 6
"""Attempts of a request to S3, as many as Iceberg's Java library makes (`s3.retry.num-retries`: 5). PyArrow's three are over within a
second, and S3 may answer SlowDown for longer while a prefix grows."""

CONNECT_SECONDS: Final = 10.0
"""Default of `s3.connect-timeout`: how long a connection to S3 may take to open. PyArrow's is 1 s."""

ANSWER_SECONDS: Final = 60.0
"""Default of `s3.request-timeout`: how long each next part of an answer may take. PyArrow's 3 s are too short for a busy store."""

_LOADED: Final = "Loaded FileIO: %s"
logging.getLogger("pyiceberg.io").addFilter(
    lambda record: record.msg != _LOADED
)  # one line per table in the log of each task

_LENT_UNTIL: Final = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at")

_AZURE: Final = ("abfs", "abfss", "wasb", "wasbs")
_ACCOUNT: Final = "adls.account-name"


class StorageFileIO(PyArrowFileIO):
    """The file-io of every catalog, unless its settings name another with `py-io-impl`."""

    @staticmethod
    def parse_location(location: str, properties: Mapping[str, str] | None = None) -> tuple[str, str, str]:
        """Scheme, host and path of a location. For Azure's form `container@account…/path` the path begins with the container.

        That is the only form that Spark knows, and PyArrow would take `container@account…` for the container's name.
        """
        scheme, netloc, path = PyArrowFileIO.parse_location(location, dict(properties or {}))
        if scheme in _AZURE and "@" in netloc:
            container, _, host = netloc.partition("@")
            return scheme, host, f"{container}{path.removeprefix(netloc)}"
        return scheme, netloc, path

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if scheme in _AZURE and netloc and "." in netloc and _ACCOUNT not in self.properties:
            named = StorageFileIO({**self.properties, _ACCOUNT: netloc.partition(".")[0]})
            return named._initialize_azure_fs()
        return super()._initialize_fs(scheme, netloc)

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        limits = {S3_CONNECT_TIMEOUT: str(CONNECT_SECONDS), S3_REQUEST_TIMEOUT: str(ANSWER_SECONDS)}
        patient = PyArrowFileIO({**limits, **self.properties})
        files = patient._initialize_s3_fs(netloc)
        if S3_RETRY_STRATEGY_IMPL in self.properties:
            return files  # the pickled options lack a custom strategy, so the file system can't be built again with it
        _, (options,) = files.__reduce__()
        strategy = AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS)
        # Small files, which is all but some data files, are uploaded in one request instead of three.
        return type(files)(**{**options, "retry_strategy": strategy, "allow_delayed_open": True})


def with_storage(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties of a catalog or of its file-io, with `StorageFileIO` as the file-io unless they name another one."""
    return {PY_IO_IMPL: f"{StorageFileIO.__module__}.{StorageFileIO.__name__}", **properties}


def opened_storage(properties: Mapping[str, str], location: str | None = None) -> FileIO:
    """The file-io that the properties select."""
    return load_file_io(with_storage(properties), location)


def credentials_expire_ms(properties: Mapping[str, str]) -> int | None:
    """When the vended credentials of a table's storage expire, in milliseconds since 1970; None if never, or if unknown."""
    ends = [str(properties.get(name, "")) for name in _LENT_UNTIL]
    return min((int(end) for end in ends if end.isdecimal()), default=None)


# Nested values. PyIceberg's projection rebuilds some arrays from offsets and values alone, so that a null list of structs becomes an
# empty one. It casts others from the types in the file, so that a field within lists of lists becomes null if the file has another
# name for it (`order-id`). `tests/unit/iceberg/patches/test_files_nested_nulls.py` fails once a newer PyIceberg makes this needless.


class _WholeProjection(ArrowProjectionVisitor):
    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        if not isinstance(list_array, pa.ListArray | pa.LargeListArray) or value_array is None:
            return super().list(list_type, list_array, value_array)
        values = self._cast_if_needed(list_type.element_field, value_array)
        kind = pa.large_list if isinstance(list_array, pa.LargeListArray) else pa.list_
        return _with_values(list_array, kind(self._construct_field(list_type.element_field, values.type)), values)

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        if not isinstance(map_array, pa.MapArray) or key_result is None or value_result is None:
            return None
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        key = self._construct_field(map_type.key_field, keys.type)
        value = self._construct_field(map_type.value_field, values.type)
        entries = pa.StructArray.from_arrays([keys, values], fields=[key, value])
        return _with_values(map_array, pa.map_(key, value), entries)


def _with_values(source: pa.Array, arrow_type: pa.DataType, values: pa.Array) -> pa.Array:
    """The array with other values, and with a type that has the ids of its fields; nulls and offsets stay."""
    return pa.Array.from_buffers(
        arrow_type, len(source), source.buffers()[:2], source.null_count, source.offset, [values]
    )


pyiceberg_arrow.ArrowProjectionVisitor = _WholeProjection  # type: ignore[misc]


# Splitting rows by partition, other than PyIceberg does it:
# - Rows are sorted by partition once and sliced. PyIceberg filters all rows for each partition.
# - Times beyond year 9999 have partitions, too. PyIceberg fails to write them as text, which only names a folder.
# - The name of a folder has bounded length. Nothing reads it: manifests have the values.
# - Several fields may have the same column, such as `bucket(16, id)` and `truncate(100, id)`. PyIceberg looks up a value's field by
#   its column, and fails if there are two.
#
# `tests/unit/iceberg/schema/test_schema_layout.py` fails once a newer PyIceberg makes the last one needless.

_NAME_BYTES: Final = 100
"""Most bytes of the name of a partition's folder: file systems take 255, keys of objects 1,024 in all."""


def _partition(key: PartitionKey) -> Record:
    return Record(*(partition_record_value(value.field, value.value, key.schema) for value in key.field_values))


def _path(self: PartitionKey) -> str:
    try:
        names = self.partition_spec.partition_to_path(self.partition, self.schema).split("/")
    except OverflowError:
        fields = enumerate(self.partition_spec.fields)
        names = [f"{quote_plus(field.name)}={quote_plus(str(self.partition[index]))}" for index, field in fields]
    return "/".join(map(_bounded, names))


def _bounded(name: str) -> str:
    if len(name) <= _NAME_BYTES:
        return name
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{name[: _NAME_BYTES - len(digest) - 1]}-{digest}"


def _parts(spec: PartitionSpec, schema: Schema, arrow_table: pa.Table) -> Iterable[_TablePartition]:
    """Rows of each partition, in their original order."""
    keys = [partition_key(field, schema, arrow_table) for field in spec.fields]
    numbers = partition_numbers(keys)
    order = pc.sort_indices(numbers)  # a stable sort
    ends = pc.run_end_encode(numbers.take(order)).run_ends.to_pylist()
    starts = [0, *ends[:-1]] if ends else []
    firsts = order.take(pa.array(starts, pa.int64()))
    values = zip(*(key.take(firsts).to_pylist() for key in keys), strict=True)
    sorted_rows = arrow_table.take(order).combine_chunks()
    for start, end, partition_values in zip(starts, ends, values, strict=True):
        fields = [PartitionFieldValue(field, value) for field, value in zip(spec.fields, partition_values, strict=True)]
        yield _TablePartition(PartitionKey(fields, spec, schema), sorted_rows.slice(start, end - start))


def partition_numbers(keys: Sequence[pa.Array]) -> pa.Int64Array:
    """Number the partitions of rows from 0, in the order in which they first appear.

    `keys` has an array of partition values for each field, at least one.
    """
    numbers = pa.nulls(0, pa.int64())
    for index, key in enumerate(keys):
        coded = pc.dictionary_encode(key, null_encoding="encode")
        own = coded.indices.cast(pa.int64())
        # Dictionary-encoded again, so that the product of several fields' numbers never overflows.
        combined = own if not index else pc.add(pc.multiply(numbers, len(coded.dictionary)), own)
        numbers = pc.dictionary_encode(combined).indices.cast(pa.int64())
    return numbers


def partition_key(field: PartitionField, schema: Schema, rows: pa.Table) -> pa.Array:
    """The partition values of a field, row by row; dates and timestamps as the numbers that are stored."""
    name = schema.find_column_name(field.source_id) or ""
    column = _get_field_from_arrow_table(rows, name)
    key = field.transform.pyarrow_transform(schema.find_field(field.source_id).field_type)(column).combine_chunks()
    if isinstance(key.type, pa.BaseExtensionType):
        key = key.storage
    if pa.types.is_date32(key.type):
        return key.cast(pa.int32())
    return key.cast(pa.int64()) if pa.types.is_timestamp(key.type) else key


PartitionKey.partition = property(_partition)  # type: ignore[assignment]
PartitionKey.to_path = _path  # type: ignore[method-assign]
pyiceberg_arrow._determine_partitions = _parts

# Dictionaries. PyIceberg 0.12 lets PyArrow build a dictionary for each column of a Parquet file. For a column whose values hardly
# repeat, such as an id, an offset or an instant, PyArrow puts 262,144 values into a hash table of many megabytes before it gives up.
# That takes an eighth of the CPU time of writing a file, and makes it larger. Such columns are written without a dictionary.

_SLICES: Final = 4
_SLICE_ROWS: Final = 5_000
"""Rows of each slice of the sample. Slices are spread over the table: repeated values may be adjacent, or far apart."""

_FEWEST_VALUES: Final = 10_000
"""With fewer values a dictionary costs little."""

_MOST_REPEATS: Final = 0.02
"""Share of repeated values in the sample up to which a dictionary of all values would be larger than PyArrow lets it become."""

_WIDE_BITS: Final = 64
_write: Final = ParquetFormatWriter.write


def _write_sparingly(self: ParquetFormatWriter, table: pa.Table) -> None:
    if self._writer is None:
        unique = unique_columns(table)
        paths = parquet_path_to_id_mapping(self._file_schema)
        self._parquet_writer_kwargs["use_dictionary"] = [path for path in paths if path not in unique]
    _write(self, table)


ParquetFormatWriter.write = _write_sparingly  # type: ignore[method-assign]


def unique_columns(table: pa.Table) -> set[str]:
    """Columns at the top level, of wide numbers and instants, whose values hardly repeat in a sample."""
    step = max(table.num_rows // _SLICES, _SLICE_ROWS)
    starts = range(0, max(table.num_rows, 1), step)
    sample = pa.concat_tables([table.slice(start, _SLICE_ROWS) for start in starts])
    return {field.name for field, column in zip(sample.schema, sample.columns, strict=True) if _is_unique(column)}


def _is_unique(column: pa.ChunkedArray) -> bool:
    count = len(column) - column.null_count
    if not pa.types.is_primitive(column.type) or column.type.bit_width < _WIDE_BITS or count < _FEWEST_VALUES:
        return False
    distinct = pc.count_distinct(column).as_py()
    # Partitions share offsets: zstd compresses ascending values better than a dictionary, even if they repeat. Values that repeat soon,
    # such as ids of devices that are read in turn, are a tenth of the size with a dictionary.
    rises = pc.sum(pc.greater(column[1:], column[:-1])).as_py() if distinct >= _SLICE_ROWS * (1 - _MOST_REPEATS) else 0
    return bool(count - max(rises, distinct) <= count * _MOST_REPEATS)
