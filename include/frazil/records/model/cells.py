"""Cells that lists make: an element takes one in each column of its type, whether the record fills it or not.

A few bytes such as `{},` may so become thousands of cells. They are counted before columns are built: what one record may make
is bounded, and so is what is decoded at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from sys import maxsize
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.model.dead_letter import MAX_CELLS, DeadCode, Reason, Rejection

STEP_CELLS: Final = 1_000_000
"""Cells of lists after which columns are made of Python objects, which take some 200 bytes each."""

STEP_BYTES: Final = 128 << 20
"""Bytes of decoded columns that are held at once."""

CELL_BYTES: Final = 8
"""What a cell takes at least, be it null."""

_ALONE: Final = ContextVar("alone", default=False)
"""Whether one record is decoded by itself: it can't be cut further, so what is too wide of it has a verdict."""

T = TypeVar("T")
Counts = npt.NDArray[np.int64]
Count = Callable[[Any], int]
"""Returns the cells that the lists of a JSON value make."""


class StepTooWide(Exception):
    """Several records make more cells than are held at once: they are to be decoded in smaller steps."""


def in_steps(
    decode: Callable[[pa.RecordBatch], T], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, T]]:
    """Decode batches of records, those that make too many cells in smaller steps.

    Yields:
        Records, and what became of them.
    """
    size = maxsize
    for batch in batches:
        at = 0
        while at < len(batch) or not at:  # a batch without records is a step, too
            step = batch.slice(at, min(size, len(batch) - at))
            # Neither what was decoded nor an error that holds it may be kept here while the next step is at work.
            if found := _at_once(decode, step):
                yield step, found.pop()
                at += max(1, len(step))
                # Wide records seldom come alone, so the next steps are small, too; one of them must not slow the rest.
                size = min(maxsize, size + max(1, size // 8))
            else:
                size = len(step) // 2


def _at_once(decode: Callable[[pa.RecordBatch], T], batch: pa.RecordBatch) -> list[T]:
    """Return what became of records; nothing if they are too wide together, which one record never is."""
    before = _ALONE.set(len(batch) <= 1)
    try:
        return [decode(batch)]
    except StepTooWide:
        if len(batch) <= 1:
            raise
        return []
    finally:
        _ALONE.reset(before)


def is_alone() -> bool:
    """Return whether one record is decoded by itself, however many rows it becomes."""
    return _ALONE.get()


class CellCount:
    """Counts the cells of one value while it is read."""

    def __init__(self) -> None:
        self.total = 0
        self._limit = MAX_CELLS

    def begin(self, size: int) -> None:
        """Begin with a value of so many bytes: where each cell has a byte of its own, nothing was blown up."""
        self.total, self._limit = 0, max(MAX_CELLS, size)

    def add(self, cells: int) -> None:
        """Count cells.

        Raises:
            Rejection: TOO_WIDE.
        """
        self.total += cells
        if self.total > self._limit:
            raise too_wide(self._limit)


class StepSize:
    """Bounds what is held of the values that are decoded at once.

    Args:
        values: How many there are: one alone is never too wide for a step.
    """

    def __init__(self, values: int) -> None:
        self._is_one: Final = values <= 1 or is_alone()
        self._cells = 0
        self._bytes = 0

    def is_full(self, cells: int) -> bool:
        """Count cells of Python objects, and tell whether it is time to make columns of them."""
        self._cells += cells
        return self._cells > STEP_CELLS

    def hold(self, columns: pa.RecordBatch) -> None:
        """Take count of columns that were made.

        Raises:
            StepTooWide: they are too many.
        """
        self._cells = 0
        self._bytes += columns.nbytes
        if self._bytes > STEP_BYTES and not self._is_one:
            raise StepTooWide


def too_many_rows(rows: int) -> Reason:
    """Return why a record whose lists become so many rows is dead."""
    return Reason(
        DeadCode.TOO_WIDE,
        f"expected rows that take at most {STEP_BYTES:,} bytes together, found {rows:,} rows that take more",
    )


def too_wide(limit: int = MAX_CELLS) -> Rejection:
    """Return the verdict on a value whose lists make too many cells."""
    return Rejection(DeadCode.TOO_WIDE, f"expected lists that make at most {limit:,} cells of columns, found more")


def width(of: pa.DataType) -> int:
    """Return the cells of a value without elements."""
    if pa.types.is_struct(of):
        return max(1, sum(width(field.type) for field in of))
    return 1


def _element(of: pa.DataType) -> pa.DataType | None:
    """Return the type of the elements of a list, or the entries of a map."""
    if pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_fixed_size_list(of):
        return of.value_type
    return pa.struct([of.key_field, of.item_field]) if pa.types.is_map(of) else None


def width_per_element(of: pa.DataType) -> int:
    """Return how many cells one more element makes at most, counted for all lists of a type together."""
    if pa.types.is_struct(of):
        return sum(width_per_element(field.type) for field in of)
    element = _element(of)
    return 0 if element is None else width(element) + width_per_element(element)


def json_cells(of: pa.DataType, *, any_case: bool = False) -> Count | None:
    """Return what counts the cells that lists in JSON values of a type make; None if each has a value of its own.

    Args:
        of: The type.
        any_case: Whether names of fields that differ in case only are the same.
    """
    if pa.types.is_struct(of):
        key = str.casefold if any_case else str
        inner = {key(field.name): found for field in of if (found := json_cells(field.type, any_case=any_case))}
        return partial(_of_object, inner, key) if inner else None
    element = _element(of)
    if element is None:
        return None
    each = width(element)
    entry = json_cells(of.item_type if pa.types.is_map(of) else element, any_case=any_case)
    return None if entry is None and each <= 1 + pa.types.is_map(of) else partial(_of_elements, each, entry)


def _of_object(inner: dict[str, Count], key: Callable[[str], str], value: object) -> int:
    if not isinstance(value, dict):
        return 0
    return sum(inner[found](held) for name, held in value.items() if (found := key(name)) in inner)


def _of_elements(each: int, inner: Count | None, value: object) -> int:
    if not isinstance(value, list | dict):
        return 0
    own = len(value) * each
    if inner is None:
        return own
    return own + sum(map(inner, value.values() if isinstance(value, dict) else value))


def wide_rows(array: pa.Array, of: pa.DataType) -> npt.NDArray[np.bool_]:
    """Return which rows of an array make too many cells in a column of a type, and more than they have.

    Of one record alone, which a transform made rows of, these are all rows if they make too many together.

    Raises:
        StepTooWide: all others together make more than are held at once.
    """
    cells, own = _list_cells(array, of), _list_cells(array, array.type)
    if cells is None or own is None:
        return np.zeros(len(array), np.bool_)
    wide = cells > np.maximum(MAX_CELLS, own)
    total = int(cells[~wide].sum())
    if len(array) > 1 and total > STEP_BYTES // CELL_BYTES and total > CELL_BYTES * int(own.sum()):
        if not is_alone():
            raise StepTooWide
        wide[:] = True
    return wide


def wide_repeats(rows: Counts, row_bytes: Counts) -> npt.NDArray[np.bool_]:
    """Return which lists become rows that take more bytes than are held at once: what stands beside a list repeats.

    Of one record alone, which a transform made several lists of, these are all lists if they take too much together.

    Args:
        rows: Per list, how many rows it becomes.
        row_bytes: Per list, how many bytes each of them takes.

    Raises:
        StepTooWide: all others together take more than is held at once.
    """
    taken = rows * row_bytes
    wide: npt.NDArray[np.bool_] = taken > STEP_BYTES
    if len(rows) > 1 and int(taken[~wide].sum()) > STEP_BYTES:
        if not is_alone():
            raise StepTooWide
        wide[:] = True
    return wide


def _list_cells(array: pa.Array, of: pa.DataType) -> Counts | None:
    """Return, row by row, the cells that the lists of an array make in a column of a type; None if there are none."""
    if isinstance(array.type, pa.BaseExtensionType) or pa.types.is_dictionary(array.type):
        return None
    if pa.types.is_struct(array.type) and pa.types.is_struct(of):
        targets = {field.name.casefold(): field.type for field in of}
        pairs = zip(array.type, array.flatten(), strict=True)
        parts = (_list_cells(part, targets[at]) for field, part in pairs if (at := field.name.casefold()) in targets)
        found: list[Counts] = [part for part in parts if part is not None]
        return sum(found[1:], found[0]) if found else None
    element = _element(of)
    if element is None or _element(array.type) is None or pa.types.is_fixed_size_list(array.type):
        return None
    lengths = pc.fill_null(pc.list_value_length(_as_list(array)), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    cells: Counts = lengths * width(element)
    inner = _list_cells(_as_list(array).flatten(), element)
    if inner is not None:
        sums = np.concatenate([[0], np.cumsum(inner)])
        ends = np.cumsum(lengths)
        cells = cells + sums[ends] - sums[ends - lengths]
    return cells


def _as_list(array: pa.Array) -> pa.Array:
    if not pa.types.is_map(array.type):
        return array
    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
