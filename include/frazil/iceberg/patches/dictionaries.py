"""Spares a Parquet column whose values hardly repeat its dictionary: PyIceberg 0.12 lets PyArrow make one of each column.

Of an id, an offset or an instant PyArrow puts 262,144 values into a hash table of many megabytes before it gives the dictionary
up. That takes an eighth of the CPU time of writing a file, and makes it larger. Files stay plain Parquet that all readers know.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ParquetFormatWriter, parquet_path_to_id_mapping

_SLICES: Final = 4
_SLICE_ROWS: Final = 5_000
"""Rows that are looked at, in places all over the table: repeated values may lie side by side, or far apart."""

_FEWEST_VALUES: Final = 10_000
"""Of fewer values a dictionary costs little."""

_MOST_REPEATS: Final = 0.02
"""Share of repeated values in the sample up to which a dictionary of all values would be larger than PyArrow lets it become."""

_BITS: Final = 64
_write: Final = ParquetFormatWriter.write


def _write_sparingly(self: ParquetFormatWriter, table: pa.Table) -> None:
    if self._writer is None:
        unique = unique_columns(table)
        paths = parquet_path_to_id_mapping(self._file_schema)
        self._parquet_writer_kwargs["use_dictionary"] = [path for path in paths if path not in unique]
    _write(self, table)


ParquetFormatWriter.write = _write_sparingly  # type: ignore[method-assign]


def unique_columns(table: pa.Table) -> set[str]:
    """Columns at the top, of wide numbers and instants, whose values hardly repeat, as far as a sample tells."""
    step = max(table.num_rows // _SLICES, _SLICE_ROWS)
    starts = range(0, max(table.num_rows, 1), step)
    sample = pa.concat_tables([table.slice(start, _SLICE_ROWS) for start in starts])
    return {field.name for field, column in zip(sample.schema, sample.columns, strict=True) if _is_unique(column)}


def _is_unique(column: pa.ChunkedArray) -> bool:
    count = len(column) - column.null_count
    if not pa.types.is_primitive(column.type) or column.type.bit_width < _BITS or count < _FEWEST_VALUES:
        return False
    distinct = pc.count_distinct(column).as_py()
    # Partitions share offsets: where values ascend, zstd makes less of them than a dictionary, even if they come again. Not so of
    # values that come again soon, as ids of devices that are read in turn: their dictionary makes a tenth of them.
    rises = pc.sum(pc.greater(column[1:], column[:-1])).as_py() if distinct >= _SLICE_ROWS * (1 - _MOST_REPEATS) else 0
    return bool(count - max(rises, distinct) <= count * _MOST_REPEATS)
