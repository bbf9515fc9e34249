"""The outcome of a batch in one table: rows, rows to delete (a tombstone deletes the row of its key), and the reasons of records that do
not fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, OP, UPSERT
from frazil.batch.facts import TableCounts
from frazil.records.casting.fitter import Dead, Fitted
from frazil.records.formats.keys_and_headers import KeyColumns, PayloadDecoder, decode_keys
from frazil.records.model.changes import merge_columns
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.format import Frame, Transform
from frazil.records.model.rows import (
    NOTHING_UNKNOWN,
    Block,
    UnknownFieldPairs,
    distinct_positions,
    drop_dead_rows,
    header_entries,
    in_order,
    no_rows,
    take_records,
)
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.chain import chain
from frazil.records.transforms.fields import batch_of
from frazil.records.transforms.kinds.conditions import Filter, When, WithKey
from frazil.records.transforms.kinds.field_sets import ValueToKey
from frazil.records.transforms.kinds.topics_and_headers import RegexRouter, TimestampRouter

_TOO_LONG = Reason(
    DeadCode.PARTITION_TOO_LONG,
    "expected a partition value that a folder of 255 bytes can be named by, found a longer one:"
    " set write.object-storage.enabled=true and write.object-storage.partitioned-paths=false on the table,"
    " or partition by truncate(N, column)",
)


class PartitionBound(Protocol):
    """Bounds the partition values of one table. `frazil.iceberg` implements it, since partition transforms are Iceberg's."""

    @property
    def limit(self) -> int:
        """The most partition values that one task may write to the table."""

    def too_long(self, rows: pa.RecordBatch) -> pa.Int64Array:
        """Return which rows have a partition value that is too long for a folder's name, ascending."""

    def beyond(self, rows: pa.RecordBatch) -> pa.Int64Array:
        """Return which rows have a new partition value beyond the limit, ascending; count the values of the other rows."""


def refused_by_partition(
    bound: PartitionBound | None, rows: pa.RecordBatch, positions: pa.Int64Array
) -> dict[int, Reason]:
    """Return the reasons, by position, of records that have a row with a partition value beyond the limit, or too long for a folder."""
    if bound is None or not rows.num_rows:
        return {}
    long = positions.take(bound.too_long(rows))
    refused = dict.fromkeys(long.to_pylist(), _TOO_LONG)
    if refused:  # a value that is too long does not count towards the limit
        takes = pc.invert(pc.is_in(positions, value_set=long))
        rows, positions = rows.filter(takes), positions.filter(takes)
    reason = Reason(
        DeadCode.TOO_MANY_PARTITIONS,
        f"expected one of the first {bound.limit:,} partition values of its task (limits.max_partitions), found a further one",
    )
    return refused | dict.fromkeys(positions.take(bound.beyond(rows)).to_pylist(), reason)


_LEAVE_OUT: Final = "; leave tombstones out with value.null_value: filter"
_NO_FORMAT: Final = (
    "expected a key that tells which row goes, and the pipeline file does not say how keys are decoded (key)"
)
_NO_KEY: Final = "expected a key that tells which row goes, found a record with neither value nor key"
_MADE_KEY: Final = "expected a key that tells which row goes, and ValueToKey makes the keys of rows from their values"
_NO_IDENTIFIER: Final = "expected identifier columns that tell which row goes, and the table has none"
_NO_ORDER: Final = (
    "expected a value for order_by to tell whether the row is older: a record without value has none; take"
)
"""Messages about a tombstone that can't delete a row."""


def _tombstone_reason(message: str) -> Reason:
    return Reason(DeadCode.NULL_VALUE, message + _LEAVE_OUT)


class TombstoneDecoder:
    """Decodes the keys of tombstones (records without value), and applies the transforms of keys and topics to them."""

    def __init__(self, spec: RecordSpec, keys: PayloadDecoder | None) -> None:
        self._keys: Final = keys
        self._transforms: Final = tuple(transform for transform in spec.transforms if _applies_without_value(transform))
        self._makes_keys: Final = any(isinstance(_unwrapped(transform), ValueToKey) for transform in spec.transforms)

    def frames(self, records: pa.RecordBatch, positions: pa.Int64Array) -> tuple[list[Frame], Dead, list[int]]:
        """Return tombstones by the schema of their keys, the reasons of dead ones, and the positions of those that are filtered out."""
        if self._keys is None or self._makes_keys:
            reason = _tombstone_reason(_MADE_KEY if self._makes_keys else _NO_FORMAT)
            return [], dict.fromkeys(positions.to_pylist(), reason), []
        decoded = decode_keys(self._keys, records, positions)
        dead, filtered, frames = dict(decoded.dead), list[int](), list[Frame]()
        for group in decoded.groups:
            if group.columns is None:
                dead |= dict.fromkeys(group.positions.to_pylist(), _tombstone_reason(_NO_KEY))
                continue
            no_fields = batch_of([], len(group.positions))
            transformed = chain(
                self._transforms,
                Frame.from_records(take_records(records, group.positions), group.positions, no_fields, group.columns),
            )
            dead |= transformed.dead
            filtered += transformed.filtered
            frames += [frame for frame in transformed.frames if len(frame)]
        return frames, dead, filtered


class DeletedRowFitter:
    """Fits the keys of tombstones to the identifier columns of a table."""

    def __init__(self, spec: RecordSpec) -> None:
        merge = spec.merge
        self._schema: Final = spec.change_schema
        self._refusal_reason: Final = _refusal_reason(spec)
        self._columns: KeyColumns | None = None
        if merge is None or self._refusal_reason is not None:
            return
        # A tombstone has no value: the record's key fills all identifier columns, under the names of their sources.
        names = {*merge.keys, *spec.of_key}
        self._columns = KeyColumns(replace(spec.only(names), of_key=frozenset(names)))

    def fit(self, frame: Frame) -> Fitted:
        """Return the rows to delete: they have their key, and null in all other columns."""
        size = len(frame)
        if self._columns is None or frame.key is None:
            dead = dict.fromkeys(range(size), self._refusal_reason or _tombstone_reason(_NO_KEY))
            return Fitted(no_rows(self._schema), pa.array([], pa.int64()), dead, NOTHING_UNKNOWN)
        fitted = self._columns.fit(frame.key, size)
        key_columns, count = fitted.rows.schema.names, fitted.rows.num_rows
        *names, op = self._schema.names
        arrays = [
            fitted.rows.column(name) if name in key_columns else pa.nulls(count, self._schema.field(name).type)
            for name in names
        ]
        arrays.append(pa.repeat(pa.scalar(DELETE, self._schema.field(op).type), count))
        return replace(fitted, rows=pa.RecordBatch.from_arrays(arrays, schema=self._schema), ignored=NOTHING_UNKNOWN)


def with_deleted(spec: RecordSpec, block: Block, deleted: Sequence[Block]) -> Block:
    """Merge the rows of a block, as upserts, with rows to delete, in the order of their records."""
    filled = [deleted_block for deleted_block in deleted if len(deleted_block.positions)]
    if not filled:
        return block
    schema = spec.change_schema
    ops = pa.repeat(pa.scalar(UPSERT, schema.field(schema.names[-1]).type), block.rows.num_rows)
    rows = pa.RecordBatch.from_arrays([*block.rows.columns, ops], schema=schema)
    return in_order([replace(block, rows=rows), *filled], schema)


def _refusal_reason(spec: RecordSpec) -> Reason | None:
    """Return why no tombstone can delete a row of a table; None if one can."""
    merge = spec.merge
    if merge is None or not merge.keys:
        return _tombstone_reason(_NO_IDENTIFIER)
    if merge.order_by is not None and merge.order_by not in {*merge.keys, *spec.of_key}:
        return _tombstone_reason(f"{_NO_ORDER} column {merge.order_by} from the key")
    return None


def _unwrapped(transform: Transform) -> Transform:
    while isinstance(transform, When | WithKey):
        transform = transform.transform
    return transform


def _applies_without_value(transform: Transform) -> bool:
    """Return whether a transform applies to tombstones, too: it changes keys or topics, or filters records."""
    while isinstance(transform, When):
        transform = transform.transform
    return isinstance(transform, WithKey | RegexRouter | TimestampRouter | Filter)


_SECOND: Final = 1_000_000
_FAR: Final = 2**63 // 1000 - 1
"""Microseconds before and after 1970 that 64 bits of nanoseconds can count."""

_ALTERED_TIME: Final = (
    "a time within the second before 1970, or before 1677 or after 2262: ORC files would give back another one;"
    " fix the producer, declare the column as string, or land into a table of Parquet files"
)


def without_altered_times(spec: RecordSpec, block: Block, records: pa.RecordBatch) -> tuple[Block, dict[int, Reason]]:
    """Return the rows that come back from ORC files unchanged, and the reasons of the other records.

    This was measured with ORC of Iceberg 1.12 (Java) and Arrow's reader. ORC stores seconds and nanoseconds apart, and no sign for the
    second before 1970: Java's writer and reader differ about it, so most instants in it come back a second late. Arrow's reader, which
    verify, reset and replay use, counts nanoseconds, which end in 1677 and 2262. No option of either reader changes that.
    """
    if spec.file_format != "orc":
        return block, {}
    dead: dict[int, Reason] = {}
    columns = dict(zip(block.rows.schema.names, block.rows.columns, strict=True))
    if spec.kafka_columns is not None:
        columns[spec.kafka_columns.timestamp] = records.column("timestamp").take(block.positions)
    for name, column in columns.items():
        altered = block.positions.filter(_altered(column))
        dead |= dict.fromkeys(altered.to_pylist(), Reason(DeadCode.OUT_OF_RANGE, _ALTERED_TIME, name))
    return drop_dead_rows(block, dead), dead


def _altered(array: pa.Array) -> pa.BooleanArray:
    """Return which values hold, at any depth, a time that ORC files would alter."""
    data_type = array.type
    is_altered = pa.repeat(pa.scalar(value=False), len(array))
    if pa.types.is_timestamp(data_type):
        return pc.fill_null(_altered_times(array), fill_value=False)
    if pa.types.is_struct(data_type):
        for part in array.flatten():
            is_altered = pc.or_(is_altered, _altered(part))
    elif pa.types.is_map(data_type):
        return _altered(array.cast(pa.list_(pa.struct([data_type.key_field, data_type.item_field]))))
    elif pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        rows, items = header_entries(array)
        return pc.is_in(pa.arange(0, len(array)), value_set=rows.filter(_altered(items)))
    return is_altered


def _altered_times(times: pa.Array) -> pa.BooleanArray:
    micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    before_1970 = pc.and_(pc.greater(micros, -_SECOND), pc.less(micros, 0))
    return pc.or_(before_1970, pc.or_(pc.greater(micros, _FAR), pc.less(micros, -_FAR)))


_ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
"""Columns of a record that its rows have, too."""


class TableRows:
    """The rows of one table in one batch. Fitted rows are added group by group, then landed once.

    Attributes:
        dead: Reasons of records that do not fit the table, by position.
        positions: int64, per landed row the position of its record, ascending.
        unknown_fields: Fields of the landed records that no column takes.
    """

    def __init__(self, spec: RecordSpec, format_unknown: UnknownFieldPairs) -> None:
        self._spec: Final = spec
        self._blocks: Final[list[Block]] = []
        self._deleted: Final[list[Block]] = []
        self._routed: Final[list[pa.Int64Array]] = []
        self._left_out: Final[list[pa.Int64Array]] = []
        self.dead: Final[dict[int, Reason]] = {}
        self.positions: pa.Int64Array = pa.array([], pa.int64())
        # A change event's envelope may have unknown fields, too: only those of its rows count.
        self._format_unknown: Final = [] if spec.tells_changes else [format_unknown]
        self.unknown_fields = NOTHING_UNKNOWN

    def add(self, fitted: Fitted, positions: pa.Int64Array, *, deletes: bool) -> None:
        """Add rows.

        Args:
            fitted: The rows, and the reasons of those that do not fit.
            positions: The record of each row that was routed to the table, fitting or not.
            deletes: Whether these are rows to delete.
        """
        self._routed.append(positions)
        blocks = self._deleted if deletes else self._blocks
        row_positions = positions.take(fitted.input_rows)
        blocks.append(Block(fitted.rows, row_positions, fitted.ignored.map_positions(positions)))
        for row, reason in fitted.dead.items():
            self.dead.setdefault(positions[row].as_py(), reason)
        # Change events and tombstones may leave out rows. Any other row that is neither fitted nor dead must show in the counts.
        if deletes or self._spec.tells_changes:
            is_left_out = np.ones(len(positions), np.bool_)
            is_left_out[fitted.input_rows] = False
            is_left_out[list(fitted.dead)] = False
            self._left_out.append(positions.filter(pa.array(is_left_out)))

    def land(self, records: pa.RecordBatch, batch_number: int, bound: PartitionBound | None) -> pa.RecordBatch:
        """Return the rows in the order of their records. Records with a partition value beyond the bound become dead letters."""
        spec = self._spec
        # A record of several rows lands whole or not at all.
        may_explode = spec.transforms or spec.tells_changes
        block = drop_dead_rows(in_order(self._blocks, spec.block_schema), self.dead if may_explode else {})
        deleted = [drop_dead_rows(deleted_block, self.dead) for deleted_block in self._deleted]
        block, altered = without_altered_times(spec, with_deleted(spec, block, deleted), records)
        self.dead.update(altered)
        rows = self._with_kafka_columns(block, records, batch_number)
        if partition_dead := refused_by_partition(bound, rows, block.positions):
            self.dead.update(partition_dead)
            block = drop_dead_rows(block, partition_dead)
            rows = self._with_kafka_columns(block, records, batch_number)
        self.positions = block.positions
        unknown_fields = UnknownFieldPairs.concat([*self._format_unknown, block.unknown_fields])
        self.unknown_fields = unknown_fields.at_positions(block.positions)
        return rows

    def _with_kafka_columns(self, block: Block, records: pa.RecordBatch, batch_number: int) -> pa.RecordBatch:
        """Return rows with their Kafka columns, the batch number, and the columns that a merge needs."""
        names = [name for name in block.rows.schema.names if name != OP]
        columns = [block.rows.column(name) for name in names]
        if self._spec.kafka_columns is not None:
            columns += take_records(records.select(_ORIGIN), block.positions).columns
            columns.append(pa.repeat(pa.scalar(batch_number, pa.int64()), len(block.positions)))
        if self._spec.merge is not None:
            columns += merge_columns(self._spec.merge, block.rows, block.positions)
        return pa.RecordBatch.from_arrays(columns, schema=self._spec.row_schema)

    def without_row(self) -> set[int]:
        """Return the positions of the records that the table leaves out on purpose: they have no row, and no reason."""
        if not self._left_out:
            return set()
        left_out = pc.unique(pa.chunked_array(self._left_out, pa.int64()))
        without_row = left_out.filter(pc.invert(pc.is_in(left_out, value_set=self.positions)))
        return set(without_row.to_pylist()) - self.dead.keys()

    def routed(self, positions: Iterable[int]) -> set[int]:
        """Return which of these records were routed to the table."""
        candidates = pa.array(positions, pa.int64())
        return set(candidates.filter(pc.is_in(candidates, value_set=self._all_routed)).to_pylist())

    def counts(self, whole_dead: Collection[int]) -> TableCounts:
        """Count the records of the table, without those that are dead as a whole."""
        elsewhere = pa.array({*whole_dead, *self.without_row()}, pa.int64())
        routed = pc.invert(pc.is_in(self._all_routed, value_set=elsewhere)).true_count
        written = len(distinct_positions(self.positions))
        return TableCounts(routed, written, len(self.dead), len(self.positions), self.unknown_fields.count())

    @cached_property
    def _all_routed(self) -> pa.Int64Array:
        return pc.unique(pa.chunked_array(self._routed, pa.int64()))
