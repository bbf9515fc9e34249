"""Many values of one Avro schema: column by column, and those that are suspect by their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.dead import MAX_CELLS
from frazil.records.formats.avro_columns import FEW, Columnar
from frazil.records.formats.avro_places import Longs, Places
from frazil.records.formats.port import Decoded, Shaped
from frazil.records.formats.registered import RowCodec, at_positions, together


@dataclass(frozen=True, slots=True)
class BlockCodec:
    """Reads values of one schema, without frame.

    Attributes:
        rows: Reads them one by one, and decides.
        columnar: Reads many into a struct of the columns.
        head: What a value may begin with; None for nothing.
    """

    rows: RowCodec
    columnar: Columnar
    head: bytes | None = None

    @property
    def fields(self) -> pa.StructType:
        """Type of the columns."""
        return self.rows.fields

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode values; positions are those in `payloads`. No value makes this fail."""
        if len(payloads) < FEW or not payloads.buffers()[2]:
            return self.rows.decode(payloads)
        places = _places(payloads)
        if self.head is not None:
            begins = pc.equal(pc.binary_slice(payloads, 0, len(self.head)), pa.scalar(self.head, payloads.type))
            places.at += begins.to_numpy(zero_copy_only=False) * len(self.head)
        empty = places.at == places.end
        found = self.columnar(places)
        places.doubt(empty | (places.at != places.end))
        good, bad = np.flatnonzero(~places.suspect), np.flatnonzero(places.suspect)
        parts = [Decoded(self._shaped(found, good))]
        if len(bad):
            suspects = pa.array(bad)
            parts.append(at_positions(self.rows.decode(payloads.take(suspects)), suspects))
        return together(parts)

    def _shaped(self, found: pa.StructArray, good: Longs) -> tuple[Shaped, ...]:
        if not len(good):
            return ()
        positions = pa.array(good)
        stored = found if len(good) == len(found) else found.take(positions)
        return (Shaped(pa.RecordBatch.from_struct_array(stored.cast(self.fields)), positions),)


def _places(payloads: pa.BinaryArray) -> Places:
    _, offsets, data = payloads.buffers()
    edges = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.int64)
    count = len(payloads)
    return Places(
        np.frombuffer(data, np.uint8),
        edges[:-1].copy(),
        edges[1:],
        np.arange(count),
        np.zeros(count, np.bool_),
        np.zeros(count, np.int64),
        np.maximum(MAX_CELLS, np.diff(edges)),
    )
