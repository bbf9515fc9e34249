"""Corrects how PyIceberg 0.12 splits rows by partition, since records decide about the partition values.

- Rows are sorted by partition once and cut. PyIceberg looks through all rows for each partition.
- Times beyond year 9999 have partitions too. PyIceberg's text of them, which only names a folder, fails.
- A folder's name has bounded length. Nothing reads it: manifests have the values.
- Several fields may be of one column, such as `bucket(16, id)` and `truncate(100, id)`. PyIceberg looks a value's field up by
  its column and gives up if there are two.

`tests/unit/iceberg/schema/test_schema_layout.py` says when a newer PyIceberg makes the last one needless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import pyarrow as pyiceberg_arrow
from pyiceberg.io.pyarrow import _get_field_from_arrow_table, _TablePartition
from pyiceberg.partitioning import (
    PartitionField,
    PartitionFieldValue,
    PartitionKey,
    PartitionSpec,
    partition_record_value,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

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
    """Rows of each partition, in the order in which they came."""
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
    """Number the partitions of rows from 0, in the order in which they first come.

    There is one array of partition values per field, and one field at least.
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
    """The partition values of a field, row by row; dates and timestamps as the numbers that they are stored as."""
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
pyiceberg_arrow._determine_partitions = _parts  # noqa: SLF001
