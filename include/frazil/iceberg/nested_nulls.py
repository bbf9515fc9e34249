"""Keeps nulls that PyIceberg 0.12 loses: a null list of structs, or map to structs, was written and read as an empty one.

Its projection rebuilds such arrays from offsets and values alone. Importing this module mends the projection for this
process; `tests/unit/iceberg/test_nested_nulls.py` says when a newer PyIceberg makes it needless.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.io.pyarrow as pyiceberg_arrow
from pyiceberg.io.pyarrow import ArrowProjectionVisitor
from pyiceberg.types import ListType, MapType


class _NullKeepingProjection(ArrowProjectionVisitor):
    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        return _with_nulls_of(list_array, super().list(list_type, list_array, value_array))

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        return _with_nulls_of(map_array, super().map(map_type, map_array, key_result, value_result))


def _with_nulls_of(source: pa.Array | None, projected: pa.Array | None) -> pa.Array | None:
    if source is None or projected is None or source.null_count == projected.null_count:
        return projected
    return pc.if_else(source.is_valid(), projected, pa.scalar(None, projected.type))


pyiceberg_arrow.ArrowProjectionVisitor = _NullKeepingProjection  # type: ignore[misc]
