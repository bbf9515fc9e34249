"""Rows that were decoded together, with the positions of their records."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.model.unknown_fields import NOTHING_UNKNOWN, UnknownFieldPairs

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
