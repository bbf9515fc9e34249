"""Reads many values of one Avro schema column by column; suspect values are read again one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.formats.avro.columns import MIN_BLOCK_VALUES, ColumnReader
from frazil.records.formats.avro.cursors import Cursors, Longs
from frazil.records.formats.registered import RowCodec, merge_decoded, remap_positions
from frazil.records.model.dead_letter import MAX_CELLS
from frazil.records.model.format import Decoded, Shaped


@dataclass(frozen=True, slots=True)
class BlockCodec:
    """Reads values of one schema, without frame.

    Attributes:
        rows: Reads values one by one, and decides what is rejected.
        columnar: Reads many into a struct of the columns.
        head: What a value may begin with; None for nothing.
    """

    rows: RowCodec
    columnar: ColumnReader
    head: bytes | None = None

    @property
    def fields(self) -> pa.StructType:
        """Type of the columns."""
        return self.rows.fields

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode values; positions are those in `payloads`. No value makes this fail."""
        if len(payloads) < MIN_BLOCK_VALUES or not payloads.buffers()[2]:
            return self.rows.decode(payloads)
        cursors = _cursors(payloads)
        if self.head is not None:
            begins = pc.equal(pc.binary_slice(payloads, 0, len(self.head)), pa.scalar(self.head, payloads.type))
            cursors.position += begins.to_numpy(zero_copy_only=False) * len(self.head)
        empty = cursors.position == cursors.end
        rows = self.columnar(cursors)
        cursors.mark_suspect(empty | (cursors.position != cursors.end))
        good, bad = np.flatnonzero(~cursors.suspect), np.flatnonzero(cursors.suspect)
        parts = [Decoded(self._groups(rows, good))]
        if len(bad):
            suspects = pa.array(bad)
            parts.append(remap_positions(self.rows.decode(payloads.take(suspects)), suspects))
        return merge_decoded(parts)

    def _groups(self, rows: pa.StructArray, good: Longs) -> tuple[Shaped, ...]:
        if not len(good):
            return ()
        positions = pa.array(good)
        stored = rows if len(good) == len(rows) else rows.take(positions)
        return (Shaped(pa.RecordBatch.from_struct_array(stored.cast(self.fields)), positions),)


def _cursors(payloads: pa.BinaryArray) -> Cursors:
    _, offsets, data = payloads.buffers()
    edges = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.int64)
    count = len(payloads)
    return Cursors(
        np.frombuffer(data, np.uint8),
        edges[:-1].copy(),
        edges[1:],
        np.arange(count),
        np.zeros(count, np.bool_),
        np.zeros(count, np.int64),
        np.maximum(MAX_CELLS, np.diff(edges)),
    )
