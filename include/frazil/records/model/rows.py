"""The records of a batch: the Arrow schema of consumed records, decoded rows, and the one outcome that each record has."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import FLOOR_SECONDS, GROWTH, LAST, TableCounts, UnknownFields
from frazil.batch.schema_change import Demands, UntypedPaths
from frazil.error_codes import INTERNAL
from frazil.records.model.dead_letter import DeadCode, Reason

_FIRST_MICROS: Final = -62_135_596_800_000_000
_LAST_MICROS: Final = 253_402_300_799_999_999
"""The first and the last instant of Python's `datetime`, in microseconds since 1970."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

KAFKA_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""One row per consumed record. `timestamp` is in microseconds UTC, `timestamp_type` as in Kafka's protocol (0 = create time,
1 = log append time). Key, value and headers are null if the record has none."""

UNREAD_BYTES: Final = "unread_bytes"
"""Name of an optional column, not null for records that were not read whole: `NOT_UNPACKED`, `BAD_HEADERS` or, of a record that is
too large, how many bytes its key, value and headers have. A record that is too large or not unpacked has neither key nor value
here, and its headers are those of its dead letter."""

NOT_UNPACKED: Final = -1
"""The Kafka client can't unpack the batch of the record."""

BAD_HEADERS: Final = -2
"""The record has a header whose name is not UTF-8; it has no headers here."""

PAYLOAD_HEADER: Final = "frazil.payload"
"""Header of a dead letter without the record's payload, so that its null value is no tombstone. Its value is `redacted` or `none`."""

BYTES_HEADER: Final = "frazil.bytes"
"""Header of a dead letter whose record was too large to be read: how many bytes its key, value and headers have."""


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` in `KAFKA_SCHEMA`: columns selected by name, and cast if an engine's types differ.

    Raises:
        Terminal: A column is missing or can't be cast without loss.
    """
    if batch.schema.equals(KAFKA_SCHEMA):
        return batch
    try:
        return batch.select(KAFKA_SCHEMA.names).cast(KAFKA_SCHEMA)
    except (KeyError, pa.ArrowException) as e:
        raise INTERNAL.terminal(
            f"consumed records don't have the expected columns: expected {_shape(KAFKA_SCHEMA)}, "
            f"found {_shape(batch.schema)}: {e}",
            next_step="have the reader name and type its columns as in KAFKA_SCHEMA",
        ) from e


def unread_headers(size: int) -> list[dict[str, Any]]:
    """Return the headers for a record whose payload was not read, with its size if that is known."""
    sizes = [] if size == NOT_UNPACKED else [{"key": BYTES_HEADER, "value": b"%d" % size}]
    return [{"key": PAYLOAD_HEADER, "value": b"none"}, *sizes]


def with_python_times(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Return records or dead letters with null for each `timestamp` outside of the years 1 to 9999, which Python can't hold."""
    index = batch.schema.get_field_index("timestamp")
    if index < 0:
        return batch
    times = batch.column(index)
    micros = times.cast(pa.int64())
    fits = pc.and_(pc.greater_equal(micros, _FIRST_MICROS), pc.less_equal(micros, _LAST_MICROS))
    return batch.set_column(index, batch.schema.field(index), pc.if_else(fits, times, None))


def header_entries(headers: pa.ListArray) -> tuple[pa.Int64Array, pa.StructArray]:
    """Return the row of each entry of header lists, ascending, and the entries.

    After a slice or a mask, a null list may still have entries in memory. They belong to no row.
    """
    rows = pc.list_parent_indices(headers).cast(pa.int64())
    if headers.null_count:
        rows = rows.filter(headers.is_valid().take(rows))
    return rows, headers.flatten()


def last_header(headers: pa.ListArray, name: str) -> tuple[pa.Int64Array, pa.BinaryArray]:
    """Return the rows that have a header of that name, ascending, and the values, perhaps null. In a row the last one counts."""
    parents, entries = header_entries(headers)
    has_name = pc.fill_null(pc.equal(pc.struct_field(entries, 0), name), False)  # noqa: FBT003 - a value
    if not has_name.true_count:
        return pa.array([], pa.int64()), pa.array([], pa.binary())
    rows = parents.filter(has_name)
    header_values = pc.struct_field(entries, 1).filter(has_name)
    changes = pc.not_equal(rows.slice(0, len(rows) - 1), rows.slice(1))
    is_last = pa.concat_arrays([changes, pa.array([True])])
    return rows.filter(is_last), header_values.filter(is_last)


def _shape(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def mask_without(size: int, excluded: Iterable[int]) -> pa.BooleanArray:
    """Return a mask of `size` positions: false for the excluded ones, else true."""
    marks = bytearray(b"\1") * size
    for position in excluded:
        marks[position] = 0
    return pa.Array.from_buffers(pa.uint8(), size, [None, pa.py_buffer(marks)]).cast(pa.bool_())


def complement(size: int, excluded: pa.Int64Array) -> pa.Int64Array:
    """Return the positions below `size` that are not in `excluded`, which is ascending and has no duplicates."""
    if len(excluded) == size:
        return pa.array([], pa.int64())
    marks = pc.scatter(excluded, excluded, max_index=size - 1)
    return pa.arange(0, size).filter(marks.is_null())


def distinct_positions(positions: pa.Int64Array) -> pa.Int64Array:
    """Return each of ascending positions once."""
    rises = pc.greater(positions[1:], positions[:-1])
    return positions if pc.all(rises).as_py() in {True, None} else pc.unique(positions)


def take_distinct(column: pa.Array, positions: pa.Int64Array) -> pa.Array:
    """Return the values at ascending positions, none of which repeats; all of them without a copy."""
    return column if len(positions) == len(column) else column.take(positions)


def take_records(records: pa.RecordBatch, positions: pa.Int64Array) -> pa.RecordBatch:
    """Return the records at ascending positions, which may repeat; all of them, each once, without a copy."""
    is_all = len(positions) == len(records) and len(distinct_positions(positions)) == len(records)
    return records if is_all else records.take(positions)


_MICROSECONDS = 1_000_000


def record_ages(timestamps: pa.Array, instant: datetime) -> dict[int, int]:
    """Count records by the age classes of `frazil.batch.facts`: class -> records. Those without a timestamp are left out."""
    # Unsafe casts, so that no timestamp makes this fail.
    written = timestamps.cast(TIMESTAMP, safe=False).cast(pa.int64())
    written = written.filter(pc.greater_equal(written, 0))  # without a timestamp in Kafka, Spark has -1 ms
    elapsed = pc.subtract(round(instant.timestamp() * _MICROSECONDS), written).cast(pa.float64(), safe=False)
    age = pc.divide(elapsed, float(_MICROSECONDS))
    # The width of classes grows by a constant factor: a class is the logarithm of the age to that base.
    logarithm = pc.ln(pc.max_element_wise(pc.divide(age, FLOOR_SECONDS), 1.0))
    classes = pc.min_element_wise(pc.ceil(pc.divide(logarithm, math.log(GROWTH))), float(LAST)).cast(pa.int64())
    return {count["values"].as_py(): count["counts"].as_py() for count in pc.value_counts(classes)}


_MAX_NAMES = 10_000
"""The most names that are counted per batch: the most frequent ones."""


@dataclass(frozen=True, slots=True)
class UnknownFieldPairs:
    """Pairs of the position of a value, and the name of one of its fields that no column takes. A pair may repeat."""

    positions: pa.Int64Array
    names: pa.StringArray

    @classmethod
    def from_names(cls, names_by_position: Mapping[int, Iterable[str]]) -> UnknownFieldPairs:
        """Return the pairs of a mapping from position to names."""
        pairs = [
            (position, name.encode("utf-8", "replace").decode())
            for position, names in names_by_position.items()
            for name in names
        ]
        return cls(
            pa.array([position for position, _ in pairs], pa.int64()),
            pa.array([name for _, name in pairs], pa.string()),
        )

    @classmethod
    def concat(cls, parts: Iterable[UnknownFieldPairs]) -> UnknownFieldPairs:
        """Return the pairs of all parts."""
        filled = [part for part in parts if len(part)]
        if len(filled) <= 1:
            return filled[0] if filled else NOTHING_UNKNOWN
        return cls(
            pa.concat_arrays([part.positions for part in filled]), pa.concat_arrays([part.names for part in filled])
        )

    def __len__(self) -> int:
        return len(self.positions)

    def map_positions(self, positions: pa.Int64Array) -> UnknownFieldPairs:
        """Return the pairs with positions among all values. Now they are indices of a selection, whose positions are given."""
        return UnknownFieldPairs(positions.take(self.positions), self.names) if len(self) else self

    def at_positions(self, positions: pa.Int64Array) -> UnknownFieldPairs:
        """Return the pairs of the values at these positions."""
        return self.filter(pc.is_in(self.positions, value_set=positions)) if len(self) else self

    def drop_names(self, names: Collection[str]) -> UnknownFieldPairs:
        """Return the pairs whose name is not one of these."""
        if not (names and len(self)):
            return self
        return self.filter(pc.invert(pc.is_in(self.names, value_set=pa.array(sorted(names), pa.string()))))

    def filter(self, selected: pa.BooleanArray) -> UnknownFieldPairs:
        """Return the pairs that a mask selects."""
        return UnknownFieldPairs(self.positions.filter(selected), self.names.filter(selected))

    def by_position(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each position once, ascending, with the names at it."""
        pairs = sorted(zip(self.positions.to_pylist(), self.names.to_pylist(), strict=True), key=lambda pair: pair[0])
        for position, group in groupby(pairs, key=lambda pair: pair[0]):
            yield position, list(dict.fromkeys(name for _, name in group))

    def count(self) -> UnknownFields:
        """Count the values, and the values of each name."""
        if not len(self):
            return UnknownFields()
        encoded = self.names.dictionary_encode()
        names, codes = encoded.dictionary, encoded.indices.cast(pa.int64())
        # Position and name in one integer, so that repeated pairs are found by `unique`.
        pairs = pc.add(pc.multiply(self.positions, len(names)), codes)
        once = pc.unique(pairs)
        if len(once) < len(pairs):
            codes = pc.subtract(once, pc.multiply(pc.divide(once, len(names)), len(names)))
        frequencies = pc.value_counts(codes)
        if len(frequencies) > _MAX_NAMES:  # keys may be data, so there may be any number
            rows = pa.RecordBatch.from_struct_array(frequencies)
            frequencies = frequencies.take(pc.select_k_unstable(rows, _MAX_NAMES, sort_keys=[("counts", "descending")]))
        counts = {names[frequency["values"]].as_py(): frequency["counts"] for frequency in frequencies.to_pylist()}
        return UnknownFields.counted(len(pc.unique(self.positions)), counts)


NOTHING_UNKNOWN = UnknownFieldPairs.from_names({})


_NO_POSITIONS: Final = pa.array([], pa.int64())


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that were decoded together.

    Attributes:
        rows: Rows of the declared columns.
        positions: int64, per row the position of its value, ascending.
        unknown_fields: Fields of these values that no column takes. It may also name fields of values without a row here.
        fully_read: int64, positions of values all of whose fields, at any level, surely have a column.
    """

    rows: pa.RecordBatch
    positions: pa.Int64Array
    unknown_fields: UnknownFieldPairs = field(default=NOTHING_UNKNOWN)
    fully_read: pa.Int64Array = field(default_factory=lambda: _NO_POSITIONS)


def concat_blocks(blocks: list[Block], schema: pa.Schema) -> Block:
    """Return one block with the rows of `blocks`, in the same order."""
    table = pa.Table.from_batches([block.rows for block in blocks], schema).combine_chunks()
    positions = pa.chunked_array([block.positions for block in blocks], pa.int64())
    batches = table.to_batches()
    unknown_fields = UnknownFieldPairs.concat(block.unknown_fields for block in blocks)
    fully_read = pa.chunked_array([block.fully_read for block in blocks], pa.int64())
    rows = batches[0] if batches else no_rows(schema)
    return Block(rows, positions.combine_chunks(), unknown_fields, fully_read.combine_chunks())


def in_order(blocks: list[Block], schema: pa.Schema) -> Block:
    """Return one block with the rows of `blocks` by their positions; rows of one position keep their order."""
    filled = [block for block in blocks if len(block.positions)]
    if len(filled) <= 1:
        return filled[0] if filled else Block(no_rows(schema), pa.array([], pa.int64()))
    joined = concat_blocks(filled, schema)
    if pc.all(pc.less_equal(joined.positions[:-1], joined.positions[1:])).as_py():
        return joined
    order = pc.sort_indices(joined.positions)  # a stable sort
    return Block(joined.rows.take(order), joined.positions.take(order), joined.unknown_fields, joined.fully_read)


def drop_dead_rows(block: Block, dead: Collection[int]) -> Block:
    """Return the block without the rows of dead records: an exploded record loses all rows if one of them fails."""
    if not dead or not len(block.positions):
        return block
    is_dead = pc.is_in(block.positions, value_set=pa.array(list(dead), pa.int64()))
    if not is_dead.true_count:
        return block
    good = pc.invert(is_dead)
    return Block(block.rows.filter(good), block.positions.filter(good), block.unknown_fields)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


class FilterReason(StrEnum):
    """Why a record was filtered: it has no row, on purpose, and no dead letter."""

    TOMBSTONE = "tombstone"
    EMPTY_VALUE = "empty_value"
    TRANSFORM = "transform"
    ROUTE = "route"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """Records of one partition by outcome. `read` is the sum, counted independently."""

    read: int = 0
    written: int = 0
    dead: Mapping[DeadCode, int] = field(default_factory=dict)
    filtered: Mapping[FilterReason, int] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every record read has exactly one outcome."""
        return self.read == self.written + sum(self.dead.values()) + sum(self.filtered.values())


Counts = Mapping[TopicPartition, PartitionCounts]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of one Arrow batch of records.

    Attributes:
        rows: Table -> rows, in the order of the records.
        dead: Dead letters in `DEAD_SCHEMA`, in the order of the records.
        counts: Per topic partition, one outcome per record: dead if it has any dead letter, written if it has rows and none.
        tables: Per table, counts of the records that were routed to it; empty if the pipeline has one table and no route.
        whole_dead: Dead letters of records as a whole, if `tables` is not empty.
        unknown_fields: Fields of written records that are not in the rows of each of their tables.
        demands: Table -> the schema changes that its records request. If there are any, all else is void.
        new_tables: Names of missing tables that records need. If there are any, all else is void.
        untyped_paths: Table -> paths without a column whose values have no type.
    """

    rows: Mapping[str, pa.RecordBatch]
    dead: pa.RecordBatch
    counts: Counts
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    whole_dead: int = 0
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    demands: Demands = field(default_factory=dict)
    new_tables: tuple[str, ...] = ()
    untyped_paths: UntypedPaths = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether schema changes or new tables are needed first."""
        return bool(self.demands or self.new_tables)


def count_outcomes(
    read: pa.RecordBatch, written: pa.RecordBatch, dead: pa.RecordBatch, filtered: Mapping[FilterReason, pa.RecordBatch]
) -> dict[TopicPartition, PartitionCounts]:
    """Count, per partition, the records that were read, and independently those of each outcome.

    No count is a difference of others, so that a record without an outcome shows in the sum.

    Args:
        read: Topic and partition of each consumed record. The other arguments have these columns, too.
        written: The records that have rows.
        dead: The dead records, with the `code` of each.
        filtered: The filtered records, by reason.
    """
    marked = [_all_of(read, _READ), _all_of(written, _WRITTEN)]
    if dead.num_rows:
        marked.append(_marked(dead, pc.index_in(dead["code"], value_set=_NAMES)))
    marked += [_all_of(records, _OUTCOMES.index(reason)) for reason, records in filtered.items()]
    table = pa.Table.from_batches(marked, _MARKED)
    counts: dict[TopicPartition, dict[str, int]] = {}
    for group in table.group_by(_MARKED.names, use_threads=False).aggregate([([], "count_all")]).to_pylist():
        key = TopicPartition(group["topic"], group["partition"])
        counts.setdefault(key, {})[_OUTCOMES[group["outcome"]]] = group["count_all"]
    return {key: _counts(numbers) for key, numbers in counts.items()}


_OUTCOMES: Final = ("", "written", *DeadCode, *FilterReason)
"""What a record can be counted as; the empty text stands for read."""

_READ, _WRITTEN = 0, 1
_NAMES: Final = pa.array(_OUTCOMES, pa.string())
_MARKED: Final = pa.schema([KAFKA_SCHEMA.field("topic"), KAFKA_SCHEMA.field("partition"), ("outcome", pa.int32())])


def _all_of(records: pa.RecordBatch, outcome: int) -> pa.RecordBatch:
    return _marked(records, pa.repeat(pa.scalar(outcome, pa.int32()), len(records)))


def _marked(records: pa.RecordBatch, outcomes: pa.Int32Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([records["topic"], records["partition"], outcomes], schema=_MARKED)


def _counts(numbers: Mapping[str, int]) -> PartitionCounts:
    return PartitionCounts(
        numbers.get("", 0),
        numbers.get("written", 0),
        {code: numbers[code] for code in DeadCode if code in numbers},
        {reason: numbers[reason] for reason in FilterReason if reason in numbers},
    )


DEAD_SCHEMA: Final = pa.schema(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        *(KAFKA_SCHEMA.field(name) for name in ("key", "value", "headers", "topic", "partition", "offset")),
        KAFKA_SCHEMA.field("timestamp"),
        pa.field("destination", pa.string()),
    ]
)
"""One row per dead letter: the reason, the record with its original bytes, and the destination that it does not fit, null if the
record as a whole is dead. The writer adds the batch number."""


def dead_letters(records: pa.RecordBatch, reasons: list[Reason], tables: list[str | None]) -> pa.RecordBatch:
    """Return rows of `DEAD_SCHEMA` for `records` (of `KAFKA_SCHEMA`), their reasons and tables."""
    reason_columns = {
        "destination": tables,
        "code": [reason.code.value for reason in reasons],
        "stage": [reason.code.stage.value for reason in reasons],
        "message": [_storable(f"{r.path}: {r.message}" if r.path else r.message) for r in reasons],
        "path": [_storable(reason.path) or None for reason in reasons],
    }
    columns = [
        pa.array(reason_columns[field.name], field.type) if field.name in reason_columns else records.column(field.name)
        for field in DEAD_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_SCHEMA)


def _storable(text: str) -> str:
    # The text of a producer may have half a surrogate pair; a message that quotes it must still be UTF-8.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
