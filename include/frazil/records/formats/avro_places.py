"""Places in the bytes of many Avro values, which lie one behind the other in Arrow's buffer.

Each value has its own place, and whoever reads a field of all values moves all places behind it. A value whose bytes claim what they
should not is suspect: it is read again by its own, and only then a verdict is found. What was read of it has no meaning. A place may
leave its value only forwards, so that in the end it shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from frazil.records.cells import STEP_BYTES, StepTooWide, is_alone

_STEP_CELLS: Final = STEP_BYTES // 8

Longs = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

_LAST_SHIFT: Final = 63
"""Of the tenth byte of a varint, which has one bit of 64."""


@dataclass(slots=True)
class Places:
    """Where the next field of some values begins.

    Attributes:
        data: Bytes of all values.
        at: Per value a place in them.
        end: Where each value ends. Values are in the order of their bytes.
        values: Which of all values these are.
        suspect: Of all values those that are not surely right.
        cells: Of all values how many cells their lists make so far.
        most: Of all values how many they may make.
    """

    data: npt.NDArray[np.uint8]
    at: Longs
    end: Longs
    values: Longs
    suspect: Marks
    cells: Longs
    most: Longs

    def __len__(self) -> int:
        return len(self.at)

    def some(self, chosen: Longs) -> Places:
        """Return the places of some of the values."""
        return Places(
            self.data, self.at[chosen], self.end[chosen], self.values[chosen], self.suspect, self.cells, self.most
        )

    def counted(self, items: Longs, each: int) -> Longs:
        """Count items of so many cells each, and return how many are read: none of values that make too many.

        Raises:
            StepTooWide: all values together make more than are held at once.
        """
        np.add.at(self.cells, self.values, items * each)
        self.suspect |= self.cells > self.most
        if len(self.cells) > 1 and not is_alone() and int(self.cells[~self.suspect].sum()) > _STEP_CELLS:
            raise StepTooWide
        return np.where(self.suspect[self.values], 0, items)

    def doubt(self, marks: Marks) -> None:
        """Take marked values for suspect."""
        self.suspect[self.values[marks]] = True

    def octets(self, at: Longs) -> npt.NDArray[np.uint8]:
        """Return the bytes at places; the last one of all where there is none: the value is found to end elsewhere."""
        return self.data.take(at, mode="clip")

    def taken(self, kind: str) -> npt.NDArray[Any]:
        """Return what of a kind (as numpy spells it) begins at each place, wherever that is, and move behind it."""
        width = np.dtype(kind).itemsize
        last = len(self.data) - width
        shown = np.ndarray(max(last + 1, 0), kind, self.data.data, strides=(1,))
        found = shown[np.minimum(self.at, last)] if last >= 0 else np.zeros(len(self), kind)
        self.at += width
        return found


def longs(places: Places) -> Longs:
    """Read zigzag varints of at most 64 bits."""
    byte = places.octets(places.at)
    places.at += 1
    number = (byte & 0x7F).astype(np.uint64)
    more = np.flatnonzero(byte & 0x80)
    for shift in range(7, _LAST_SHIFT + 1, 7):
        if not len(more):
            break
        byte = places.octets(places.at[more])
        places.at[more] += 1
        number[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        if shift == _LAST_SHIFT:
            places.suspect[places.values[more[byte > 1]]] = True
        more = more[byte > 0x7F]  # noqa: PLR2004
    sign = -(number & np.uint64(1)).view(np.int64)
    return (number >> np.uint64(1)).view(np.int64) ^ sign


def spans(places: Places) -> tuple[Longs, Longs]:
    """Read lengths, and pass as many bytes."""
    length = longs(places)
    start = places.at
    bad = (length < 0) | (length > places.end - start)
    if bad.any():
        places.doubt(bad)
        start, length = np.minimum(start, places.end), np.where(bad, 0, length)
    places.at = start + length
    return start, places.at
