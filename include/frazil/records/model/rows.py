"""Rows that were decoded together, the ascending positions of their records in the batch, and the fields that no
column takes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import FLOOR_SECONDS, GROWTH, LAST, UnknownFields
from frazil.records.model.kafka_schema import TIMESTAMP


def mask_without(size: int, left_out: Iterable[int]) -> pa.BooleanArray:
    """Return true for `size` positions, but for those left out."""
    marks = bytearray(b"\1") * size
    for position in left_out:
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
    """Count by age: class of `frazil.batch.facts` -> records. Those without a timestamp are left out."""
    # Unsafe casts: no timestamp whatever may be a reason to fail.
    written = timestamps.cast(TIMESTAMP, safe=False).cast(pa.int64())
    written = written.filter(pc.greater_equal(written, 0))  # Spark has -1 ms where Kafka has no timestamp
    elapsed = pc.subtract(round(instant.timestamp() * _MICROSECONDS), written).cast(pa.float64(), safe=False)
    age = pc.divide(elapsed, float(_MICROSECONDS))
    # Classes grow by a constant factor: the class is the logarithm of the age to that base.
    grown = pc.ln(pc.max_element_wise(pc.divide(age, FLOOR_SECONDS), 1.0))
    classes = pc.min_element_wise(pc.ceil(pc.divide(grown, math.log(GROWTH))), float(LAST)).cast(pa.int64())
    return {count["values"].as_py(): count["counts"].as_py() for count in pc.value_counts(classes)}


_MAX_NAMES = 10_000
"""At most so many names are counted per batch: the most frequent ones."""


@dataclass(frozen=True, slots=True)
class UnknownFieldPairs:
    """Pairs of a value's position and the name of one of its fields that no column takes. A pair may repeat."""

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
        """Translate positions in a selection of values into positions among all values: `positions` of the selected ones."""
        return UnknownFieldPairs(positions.take(self.positions), self.names) if len(self) else self

    def at_positions(self, positions: pa.Int64Array) -> UnknownFieldPairs:
        """Return the pairs of the values at these positions."""
        if not len(self):
            return self
        selected = pc.is_in(self.positions, value_set=positions)
        return UnknownFieldPairs(self.positions.filter(selected), self.names.filter(selected))

    def drop_names(self, names: Collection[str]) -> UnknownFieldPairs:
        """Return the pairs whose name is not one of these."""
        if not (names and len(self)):
            return self
        selected = pc.invert(pc.is_in(self.names, value_set=pa.array(sorted(names), pa.string())))
        return UnknownFieldPairs(self.positions.filter(selected), self.names.filter(selected))

    def by_position(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each position once, ascending, with its names."""
        pairs = sorted(zip(self.positions.to_pylist(), self.names.to_pylist(), strict=True), key=lambda pair: pair[0])
        for position, group in groupby(pairs, key=lambda pair: pair[0]):
            yield position, list(dict.fromkeys(name for _, name in group))

    def count(self) -> UnknownFields:
        """Count values and names, each name once per value."""
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
        if len(frequencies) > _MAX_NAMES:  # keys may be data
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
        positions: Positions of the values that the rows came from, ascending.
        unknown_fields: Fields of these values that no column takes. It may also name fields of values without a row here.
        fully_read: int64, positions of values that surely have no field, at any level, that no column takes.
    """

    rows: pa.RecordBatch
    positions: pa.Int64Array
    unknown_fields: UnknownFieldPairs = field(default=NOTHING_UNKNOWN)
    fully_read: pa.Int64Array = field(default_factory=lambda: _NO_POSITIONS)


def concat_blocks(blocks: list[Block], schema: pa.Schema) -> Block:
    """Return one block with the rows and positions of `blocks`, as they come."""
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
    """Return the block without the rows of dead records. An exploded record loses all its rows if one of them is dead."""
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
