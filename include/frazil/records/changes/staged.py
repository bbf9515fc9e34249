"""The columns that staged rows of a merged table carry beside those of the table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, OP, UPSERT
from frazil.records.changes.spec import MergeSpec


def merge_columns(merge: MergeSpec, rows: pa.RecordBatch, positions: pa.Int64Array) -> list[pa.Array]:
    """Return the columns that tell what happens to rows: the mark of soft deletes if there is one, op, and place.

    Args:
        merge: How rows are merged.
        rows: Decoded rows; without a column for what happens, each is a row as it is.
        positions: Of the records that rows came from, ascending.
    """
    size = rows.num_rows
    op = rows.column(OP) if OP in rows.schema.names else pa.repeat(pa.scalar(UPSERT, pa.string()), size)
    first = pc.index_in(positions, value_set=positions)
    place = pc.subtract(pa.arange(0, size).cast(pa.int32()), first)
    deleted = [] if merge.deleted is None else [pc.equal(op, DELETE)]
    return [*deleted, op, place]
