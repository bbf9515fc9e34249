"""Preserves nulls in lists and maps, which PyIceberg 0.12 loses when it writes and reads them.

Its projection rebuilds some arrays from offsets and values alone: a null list of structs became an empty one. Others it
casts from what they were before: a field within lists of lists, whose name is another one in the file (`order-id`),
became null. Importing this module mends the projection for this process; `tests/unit/iceberg/patches/test_nested_nulls.py` says
when a newer PyIceberg makes it needless.
"""

from __future__ import annotations

import pyarrow as pa
import pyiceberg.io.pyarrow as pyiceberg_arrow
from pyiceberg.io.pyarrow import ArrowProjectionVisitor
from pyiceberg.types import ListType, MapType


class _WholeProjection(ArrowProjectionVisitor):
    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        if not isinstance(list_array, pa.ListArray | pa.LargeListArray) or value_array is None:
            return super().list(list_type, list_array, value_array)
        values = self._cast_if_needed(list_type.element_field, value_array)
        kind = pa.large_list if isinstance(list_array, pa.LargeListArray) else pa.list_
        return _with_values(list_array, kind(self._construct_field(list_type.element_field, values.type)), values)

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        if not isinstance(map_array, pa.MapArray) or key_result is None or value_result is None:
            return None
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        key = self._construct_field(map_type.key_field, keys.type)
        value = self._construct_field(map_type.value_field, values.type)
        entries = pa.StructArray.from_arrays([keys, values], fields=[key, value])
        return _with_values(map_array, pa.map_(key, value), entries)


def _with_values(source: pa.Array, arrow_type: pa.DataType, values: pa.Array) -> pa.Array:
    """The array with other values: nulls and offsets are its own, and so is the type, with the ids of its fields."""
    return pa.Array.from_buffers(
        arrow_type, len(source), source.buffers()[:2], source.null_count, source.offset, [values]
    )


pyiceberg_arrow.ArrowProjectionVisitor = _WholeProjection  # type: ignore[misc]
