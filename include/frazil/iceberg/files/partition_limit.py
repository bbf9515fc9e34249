"""Bounds the partition values that one task gives a table: each makes a data file, and an entry in a manifest.

If Spark writes the files, Iceberg's Java library may name a folder by each value, and file systems refuse long names.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from sys import maxsize
from typing import Final
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from frazil.iceberg.patches.files import partition_key, partition_numbers

_DIGEST_BYTES: Final = 16

FOLDER_BYTES: Final = 255
"""Most bytes of a folder's name in file systems and in HDFS."""


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """The schema and the partition spec of a table as JSON: plain data that travels to executors.

    Attributes:
        folder_bytes: The most bytes of a folder's name, if folders are named by partition values.
    """

    schema: str
    spec: str
    folder_bytes: int | None = None


def layout_of(schema: Schema, spec: PartitionSpec, folder_bytes: int | None = None) -> PartitionLayout | None:
    """Return how a table partitions its rows; None if it is unpartitioned."""
    if spec.is_unpartitioned():
        return None
    return PartitionLayout(schema.model_dump_json(), spec.model_dump_json(), folder_bytes)


def folder_bytes(properties: Mapping[str, str], *, by_engine: bool) -> int | None:
    """Return the most bytes of a folder's name; None if partition values name no folders, or Frazil shortens the names."""
    is_hashed = properties.get("write.object-storage.enabled", "false").lower() == "true"
    has_values = properties.get("write.object-storage.partitioned-paths", "true").lower() == "true"
    return FOLDER_BYTES if by_engine and (has_values or not is_hashed) else None


@dataclass(frozen=True, slots=True)
class PartitionLimit:
    """How many partition values one task may give each table.

    Attributes:
        layouts: Partitioned table -> its partitioning; other tables are left out.
        unlimited: Tables without a limit: with `deletes: hard`, a change that became a dead letter could never land.
    """

    limit: int = 0
    layouts: Mapping[str, PartitionLayout] = field(default_factory=dict)
    unlimited: frozenset[str] = frozenset()

    @classmethod
    def of_tables(
        cls,
        limit: int,
        tables: Mapping[str, TableMetadata],
        by_engine: Collection[str] = (),
        unlimited: Collection[str] = (),
    ) -> PartitionLimit:
        """Return the limit for existing tables; Spark writes those of `by_engine`."""
        layouts = {
            name: layout_of(
                metadata.schema(), metadata.spec(), folder_bytes(metadata.properties, by_engine=name in by_engine)
            )
            for name, metadata in tables.items()
        }
        partitioned = {name: layout for name, layout in layouts.items() if layout is not None}
        return cls(limit, partitioned, frozenset(unlimited))

    def counters(self) -> dict[str, PartitionCounter]:
        """Return a new counter for each partitioned table."""
        return {
            name: PartitionCounter(layout, maxsize if name in self.unlimited else self.limit)
            for name, layout in self.layouts.items()
        }


class PartitionCounter:
    """Remembers the partition values that a task gives a table, up to a limit: a `frazil.records.decoder.table_rows.PartitionBound`.

    The limit `sys.maxsize` stands for no limit.
    """

    def __init__(self, layout: PartitionLayout, limit: int) -> None:
        self.limit: Final = limit
        self._schema: Final = Schema.model_validate_json(layout.schema)
        self._fields: Final = PartitionSpec.model_validate_json(layout.spec).fields
        self._folder_bytes: Final = layout.folder_bytes
        self._value_hashes: Final[set[bytes]] = set()

    def too_long(self, rows: pa.RecordBatch) -> pa.Int64Array:
        """Return the indices, ascending, of rows whose partition value makes the name of a folder too long."""
        if self._folder_bytes is None or not len(rows):
            return pa.array([], pa.int64())
        refused, table = np.zeros(len(rows), np.bool_), pa.Table.from_batches([rows])
        for partition_field in self._fields:
            if not self._can_count(partition_field, table):
                continue
            key = partition_key(partition_field, self._schema, table)
            if _is_text_or_binary(key.type):
                coded = key.dictionary_encode(null_encoding="encode")
                long = [
                    _folder_length(partition_field.name, value) > self._folder_bytes
                    for value in coded.dictionary.to_pylist()
                ]
                refused |= np.array(long, np.bool_)[coded.indices.to_numpy()]
        return pa.array(np.flatnonzero(refused), pa.int64())

    def beyond(self, rows: pa.RecordBatch) -> pa.Int64Array:
        """Return the indices, ascending, of rows with a partition value beyond the limit. Other values are remembered."""
        if self.limit == maxsize:
            return pa.array([], pa.int64())
        table = pa.Table.from_batches([rows])
        keys = [
            partition_key(partition_field, self._schema, table)
            for partition_field in self._fields
            if self._can_count(partition_field, table)
        ]
        if not keys or not len(table):
            return pa.array([], pa.int64())
        numbers = partition_numbers(keys).to_numpy()
        firsts = np.empty(numbers.max() + 1, np.int64)
        firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]  # the last assignment wins: each value's first row
        values = zip(*(key.take(pa.array(firsts)).to_pylist() for key in keys), strict=True)
        refused = np.array([not self._takes(combination) for combination in values], np.bool_)
        return pa.array(np.flatnonzero(refused[numbers]), pa.int64())

    def _takes(self, values: tuple[object, ...]) -> bool:
        # A hash is remembered, since a text may be as long as a record.
        key = blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
        if key not in self._value_hashes and len(self._value_hashes) < self.limit:
            self._value_hashes.add(key)
        return key in self._value_hashes

    def _can_count(self, partition_field: PartitionField, rows: pa.Table) -> bool:
        """Whether PyIceberg can compute a field's partition values: tables that Spark writes may have columns that it can't partition."""
        try:
            partition_key(partition_field, self._schema, rows.slice(0, 0))
        except (KeyError, NotImplementedError, TypeError, ValueError):
            return False
        return True


def _is_text_or_binary(arrow_type: pa.DataType) -> bool:
    is_binary = (
        pa.types.is_binary(arrow_type)
        or pa.types.is_large_binary(arrow_type)
        or pa.types.is_fixed_size_binary(arrow_type)
    )
    return bool(is_binary or pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))


def _folder_length(name: str, value: str | bytes | None) -> int:
    """Bytes of the folder's name as `PartitionSpec.partitionToPath` of Iceberg 1.12 has it."""
    text = b64encode(value).decode() if isinstance(value, bytes) else value or ""
    return len(_java_escaped(name)) + 1 + len(_java_escaped(text))


def _java_escaped(text: str) -> str:
    """As `java.net.URLEncoder` writes it: Python keeps `~` and escapes `*`."""
    return quote_plus(text, safe="*").replace("~", "%7E")
