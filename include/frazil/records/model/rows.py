"""Rows that were decoded together, and where they belong."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.model.unknown_fields import NOTHING_UNKNOWN, UnknownAt

_NOWHERE: Final = pa.array([], pa.int64())


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that were decoded together.

    Attributes:
        rows: Of the declared columns.
        positions: Of the values they came from, ascending.
        unknown: Fields of these values that are in no row. It may also speak of values that have no row here.
        plain: int64, positions of values that surely have no field beside those of the columns, at no level.
    """

    rows: pa.RecordBatch
    positions: pa.Int64Array
    unknown: UnknownAt = field(default=NOTHING_UNKNOWN)
    plain: pa.Int64Array = field(default_factory=lambda: _NOWHERE)


def concat_blocks(blocks: list[Block], schema: pa.Schema) -> Block:
    """Return one block with the rows and positions of `blocks`, as they come."""
    table = pa.Table.from_batches([block.rows for block in blocks], schema).combine_chunks()
    positions = pa.chunked_array([block.positions for block in blocks], pa.int64())
    batches = table.to_batches()
    unknown = UnknownAt.together(block.unknown for block in blocks)
    plain = pa.chunked_array([block.plain for block in blocks], pa.int64())
    rows = batches[0] if batches else no_rows(schema)
    return Block(rows, positions.combine_chunks(), unknown, plain.combine_chunks())


def in_order(blocks: list[Block], schema: pa.Schema) -> Block:
    """Return one block with the rows of `blocks` by their positions; rows of one position keep their order."""
    filled = [block for block in blocks if len(block.positions)]
    if len(filled) <= 1:
        return filled[0] if filled else Block(no_rows(schema), pa.array([], pa.int64()))
    whole = concat_blocks(filled, schema)
    if pc.all(pc.less_equal(whole.positions[:-1], whole.positions[1:])).as_py():
        return whole
    order = pc.sort_indices(whole.positions)  # a stable sort
    return Block(whole.rows.take(order), whole.positions.take(order), whole.unknown, whole.plain)


def without(block: Block, dead: Collection[int]) -> Block:
    """Return the block without the rows of dead records: of an exploded record no row lands if one of them can't."""
    if not dead or not len(block.positions):
        return block
    of_dead = pc.is_in(block.positions, value_set=pa.array(list(dead), pa.int64()))
    if not of_dead.true_count:
        return block
    good = pc.invert(of_dead)
    return Block(block.rows.filter(good), block.positions.filter(good), block.unknown)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
