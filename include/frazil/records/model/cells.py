"""Limits the memory of decoded lists. An element of a list takes one cell in each column of its type, even if it has no value.

So a few bytes such as `{},` may become thousands of cells. Cells are counted before columns are built: those of each record, and
of all records that are decoded at once.
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
"""Most cells of lists that are held as Python objects, of some 200 bytes each, before columns are made of them."""

STEP_BYTES: Final = 128 << 20
"""Most bytes of decoded columns that are held at once."""

MIN_CELL_BYTES: Final = 8
"""Least bytes of a cell, even of a null one."""

_IS_SINGLE_RECORD: Final = ContextVar("is_single_record", default=False)
"""Whether a single record is decoded. It can't be split further: if it is too wide, it becomes a dead letter."""

T = TypeVar("T")
Counts = npt.NDArray[np.int64]
CountCells = Callable[[Any], int]
"""Counts the cells that the lists of a JSON value make."""


class StepTooWide(Exception):
    """Several records take more memory than may be held at once. The caller decodes them again in smaller steps."""


def in_steps(
    decode: Callable[[pa.RecordBatch], T], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, T]]:
    """Decode batches of records. A batch that takes too much memory is decoded in smaller steps.

    Yields:
        The records of each step, and the result of `decode`.
    """
    size = maxsize
    for batch in batches:
        start = 0
        while start < len(batch) or not start:  # a batch without records is a step, too
            step = batch.slice(start, min(size, len(batch) - start))
            # No reference to decoded columns, or to an error that refers to them, may stay while the next step is decoded.
            if decoded := _decode_step(decode, step):
                yield step, decoded.pop()
                start += max(1, len(step))
                # More wide records probably follow, so the next steps are small; they grow, so that one wide record costs little.
                size = min(maxsize, size + max(1, size // 8))
            else:
                size = len(step) // 2


def _decode_step(decode: Callable[[pa.RecordBatch], T], batch: pa.RecordBatch) -> list[T]:
    """Return a list with the decoded step; an empty list if several records take too much memory together."""
    before = _IS_SINGLE_RECORD.set(len(batch) <= 1)
    try:
        return [decode(batch)]
    except StepTooWide:
        if len(batch) <= 1:
            raise
        return []
    finally:
        _IS_SINGLE_RECORD.reset(before)


def is_single_record() -> bool:
    """Return whether a single record is decoded, which may have several rows."""
    return _IS_SINGLE_RECORD.get()


class CellCount:
    """Counts the cells of one value while it is read."""

    def __init__(self) -> None:
        self.total = 0
        self._limit = MAX_CELLS

    def begin(self, size: int) -> None:
        """Start at zero for a value of `size` bytes. One cell per byte is always allowed: so the value does not inflate."""
        self.total, self._limit = 0, max(MAX_CELLS, size)

    def add(self, cells: int) -> None:
        """Add cells of the present value.

        Raises:
            Rejection: TOO_WIDE.
        """
        self.total += cells
        if self.total > self._limit:
            raise too_wide(self._limit)


class StepSize:
    """Counts the memory of the values that are decoded at once. A single value is never too much."""

    def __init__(self, values: int) -> None:
        self._is_one: Final = values <= 1 or is_single_record()
        self._cells = 0
        self._bytes = 0

    def add_cells(self, cells: int) -> bool:
        """Add cells that are Python objects now. Return whether they are so many that columns must be made of them."""
        self._cells += cells
        return self._cells > STEP_CELLS

    def hold(self, columns: pa.RecordBatch) -> None:
        """Add decoded columns, made of the cells that were added before.

        Raises:
            StepTooWide: All columns together take more than `STEP_BYTES`.
        """
        self._cells = 0
        self.hold_bytes(columns.nbytes)

    def hold_bytes(self, size: int) -> None:
        """Add decoded bytes.

        Raises:
            StepTooWide: All bytes together are more than `STEP_BYTES`.
        """
        self._bytes += size
        if self._bytes > STEP_BYTES and not self._is_one:
            raise StepTooWide


def too_many_rows(rows: int) -> Reason:
    """Return the reason of a record whose lists become too many rows."""
    return Reason(
        DeadCode.TOO_WIDE,
        f"expected rows that take at most {STEP_BYTES:,} bytes together, found {rows:,} rows that take more",
    )


def too_wide(limit: int = MAX_CELLS) -> Rejection:
    """Return the rejection of a value whose lists make too many cells."""
    return Rejection(DeadCode.TOO_WIDE, f"expected lists that make at most {limit:,} cells of columns, found more")


def cells_per_value(data_type: pa.DataType) -> int:
    """Return how many cells one value of a type fills, not counting the elements of its lists."""
    if pa.types.is_struct(data_type):
        return max(1, sum(cells_per_value(field.type) for field in data_type))
    return 1


def _element_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the type of the elements of a list, or the entries of a map."""
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type):
        return data_type.value_type
    return pa.struct([data_type.key_field, data_type.item_field]) if pa.types.is_map(data_type) else None


def cells_per_element(data_type: pa.DataType) -> int:
    """Return how many cells one more element of any list in the type adds at most."""
    if pa.types.is_struct(data_type):
        return sum(cells_per_element(field.type) for field in data_type)
    element = _element_type(data_type)
    return 0 if element is None else cells_per_value(element) + cells_per_element(element)


def json_cell_counter(data_type: pa.DataType, *, any_case: bool = False) -> CountCells | None:
    """Return a function that counts the cells of the lists in a JSON value; None if they are no more than its values."""
    if pa.types.is_struct(data_type):
        key = str.casefold if any_case else str
        field_counts = {
            key(field.name): count for field in data_type if (count := json_cell_counter(field.type, any_case=any_case))
        }
        return partial(_count_object, field_counts, key) if field_counts else None
    element = _element_type(data_type)
    if element is None:
        return None
    element_cells = cells_per_value(element)
    count_element = json_cell_counter(data_type.item_type if pa.types.is_map(data_type) else element, any_case=any_case)
    return (
        None
        if count_element is None and element_cells <= 1 + pa.types.is_map(data_type)
        else partial(_count_elements, element_cells, count_element)
    )


def _count_object(field_counts: dict[str, CountCells], key: Callable[[str], str], value: object) -> int:
    if not isinstance(value, dict):
        return 0
    return sum(
        field_counts[field](field_value) for name, field_value in value.items() if (field := key(name)) in field_counts
    )


def _count_elements(element_cells: int, count_element: CountCells | None, value: object) -> int:
    if not isinstance(value, list | dict):
        return 0
    own = len(value) * element_cells
    if count_element is None:
        return own
    return own + sum(map(count_element, value.values() if isinstance(value, dict) else value))


def wide_rows(array: pa.Array, column_type: pa.DataType) -> npt.NDArray[np.bool_]:
    """Return, per row, whether it makes too many cells in a column of a type, and more than it has now.

    A transform may have made many rows of a single record. If these make too many cells together, all of them are too wide.

    Raises:
        StepTooWide: The other rows together make more cells than may be held at once.
    """
    cells, own_cells = _list_cells(array, column_type), _list_cells(array, array.type)
    if cells is None or own_cells is None:
        return np.zeros(len(array), np.bool_)
    wide = cells > np.maximum(MAX_CELLS, own_cells)
    total = int(cells[~wide].sum())
    if len(array) > 1 and total > STEP_BYTES // MIN_CELL_BYTES and total > MIN_CELL_BYTES * int(own_cells.sum()):
        if not is_single_record():
            raise StepTooWide
        wide[:] = True
    return wide


def wide_repeats(rows: Counts, row_bytes: Counts) -> npt.NDArray[np.bool_]:
    """Return, per list, whether it becomes rows that take too many bytes. Each row repeats the other fields of its record.

    A transform may have made several lists of a single record. If these take too many bytes together, all of them are too wide.

    Raises:
        StepTooWide: The other lists together take more bytes than may be held at once.
    """
    list_bytes = rows * row_bytes
    wide: npt.NDArray[np.bool_] = list_bytes > STEP_BYTES
    if len(rows) > 1 and int(list_bytes[~wide].sum()) > STEP_BYTES:
        if not is_single_record():
            raise StepTooWide
        wide[:] = True
    return wide


def _list_cells(array: pa.Array, column_type: pa.DataType) -> Counts | None:
    """Return for each row how many cells its lists make in a column of a type; None if the array has no lists."""
    if isinstance(array.type, pa.BaseExtensionType) or pa.types.is_dictionary(array.type):
        return None
    if pa.types.is_struct(array.type) and pa.types.is_struct(column_type):
        # Fields match in any case, so that no cells are missed if columns ignore case.
        targets = {field.name.casefold(): field.type for field in column_type}
        pairs = zip(array.type, array.flatten(), strict=True)
        child_counts = (
            _list_cells(child, targets[key]) for field, child in pairs if (key := field.name.casefold()) in targets
        )
        counts: list[Counts] = [child for child in child_counts if child is not None]
        return sum(counts[1:], counts[0]) if counts else None
    element = _element_type(column_type)
    if element is None or _element_type(array.type) is None or pa.types.is_fixed_size_list(array.type):
        return None
    lengths = pc.fill_null(pc.list_value_length(_as_list(array)), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    cells: Counts = lengths * cells_per_value(element)
    # Cells of nested lists: the sum over the elements of a row, as a difference of running sums.
    inner_cells = _list_cells(_as_list(array).flatten(), element)
    if inner_cells is not None:
        sums = np.concatenate([[0], np.cumsum(inner_cells)])
        ends = np.cumsum(lengths)
        cells = cells + sums[ends] - sums[ends - lengths]
    return cells


def _as_list(array: pa.Array) -> pa.Array:
    if not pa.types.is_map(array.type):
        return array
    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
