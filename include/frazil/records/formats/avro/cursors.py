"""Read positions in many Avro values, which lie one behind the other in Arrow's buffer.

Each value has its own cursor. A reader decodes one field of all values and moves all cursors behind it. A value with impossible bytes
is marked as suspect: its decoded fields mean nothing, and the row reader decodes it again and decides. A cursor leaves its value only
forwards, so a cursor that did not stop at its value's end shows a bad value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from frazil.records.model.cells import STEP_BYTES, StepTooWide, is_single_record

_STEP_CELLS: Final = STEP_BYTES // 8

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_LAST_SHIFT: Final = 63
"""Of the tenth byte of a varint, which has one bit of 64."""


@dataclass(slots=True)
class Cursors:
    """One read position per value, for some of all values.

    Attributes:
        data: Bytes of all values.
        position: Where the next field of each value begins in `data`.
        end: Where each value ends. Values are in the order of their bytes.
        values: Indexes of these values among all values.
        suspect: Per value of all values, whether the row reader must decide about it.
        cells: Per value of all values, the cells that its lists make so far.
        max_cells: Per value of all values, the cells that its lists may make.
    """

    data: npt.NDArray[np.uint8]
    position: Longs
    end: Longs
    values: Longs
    suspect: Mask
    cells: Longs
    max_cells: Longs

    def __len__(self) -> int:
        return len(self.position)

    def select(self, indices: Longs) -> Cursors:
        """Return the cursors of some of these values."""
        return Cursors(
            self.data,
            self.position[indices],
            self.end[indices],
            self.values[indices],
            self.suspect,
            self.cells,
            self.max_cells,
        )

    def count_cells(self, items: Longs, cells_per_item: int) -> Longs:
        """Count the cells of each value's items. Returns the number of items to read: 0 for values with too many cells.

        Raises:
            StepTooWide: All values together have more cells than one step may keep in memory.
        """
        np.add.at(self.cells, self.values, items * cells_per_item)
        self.suspect |= self.cells > self.max_cells
        if len(self.cells) > 1 and not is_single_record() and int(self.cells[~self.suspect].sum()) > _STEP_CELLS:
            raise StepTooWide
        return np.where(self.suspect[self.values], 0, items)

    def mark_suspect(self, mask: Mask) -> None:
        """Leave the masked values to the row reader."""
        self.suspect[self.values[mask]] = True

    def bytes_at(self, positions: Longs) -> npt.NDArray[np.uint8]:
        """Return the bytes at positions. Behind the data it is the last byte: the value's end check finds that out."""
        return self.data.take(positions, mode="clip")

    def read_numpy(self, dtype: str) -> npt.NDArray[Any]:
        """Read one numpy value at each cursor, aligned or not, and move the cursors behind it."""
        width = np.dtype(dtype).itemsize
        last = len(self.data) - width
        # Overlapping windows of `width` bytes, one starting at each byte: no copy.
        windows = np.ndarray(max(last + 1, 0), dtype, self.data.data, strides=(1,))
        values = windows[np.minimum(self.position, last)] if last >= 0 else np.zeros(len(self), dtype)
        self.position += width
        return values


def read_varints(cursors: Cursors) -> Longs:
    """Read zigzag varints of at most 64 bits."""
    byte = cursors.bytes_at(cursors.position)
    cursors.position += 1
    number = (byte & 0x7F).astype(np.uint64)
    continued = np.flatnonzero(byte & 0x80)
    for shift in range(7, _LAST_SHIFT + 1, 7):
        if not len(continued):
            break
        byte = cursors.bytes_at(cursors.position[continued])
        cursors.position[continued] += 1
        number[continued] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        if shift == _LAST_SHIFT:
            cursors.suspect[cursors.values[continued[byte > 1]]] = True
        continued = continued[byte > 0x7F]  # noqa: PLR2004
    sign = -(number & np.uint64(1)).view(np.int64)
    return (number >> np.uint64(1)).view(np.int64) ^ sign


def read_spans(cursors: Cursors) -> tuple[Longs, Longs]:
    """Read a length per value, move behind as many bytes, and return their start and end."""
    length = read_varints(cursors)
    start = cursors.position
    bad = (length < 0) | (length > cursors.end - start)
    if bad.any():
        cursors.mark_suspect(bad)
        start, length = np.minimum(start, cursors.end), np.where(bad, 0, length)
    cursors.position = start + length
    return start, cursors.position
