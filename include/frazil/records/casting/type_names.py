"""Arrow types by the names that pipeline files have for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyarrow import types

_NAMES: Final[tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = (
    (types.is_boolean, "boolean"),
    (types.is_int32, "int"),
    (types.is_int64, "long"),
    (types.is_float32, "float"),
    (types.is_float64, "double"),
    (types.is_date, "date"),
    (types.is_time, "time"),
    (pa.uuid().equals, "uuid"),
    (types.is_string, "string"),
    (types.is_large_string, "string"),
    (types.is_binary, "binary"),
    (types.is_large_binary, "binary"),
)


def spelled(of: pa.DataType) -> str:
    """Return a type as a pipeline file writes it; one that it has no name for as Arrow does."""
    if types.is_struct(of):
        return f"struct<{', '.join(f'{field.name}: {spelled(field.type)}' for field in of)}>"
    if types.is_list(of) or types.is_large_list(of):
        return f"list<{spelled(of.value_type)}>"
    if types.is_map(of):
        return f"map<{spelled(of.key_type)}, {spelled(of.item_type)}>"
    named = (name for test, name in _NAMES if test(of))
    return next(named, None) or _with_arguments(of)


def _with_arguments(of: pa.DataType) -> str:
    if types.is_decimal(of):
        return f"decimal({of.precision},{of.scale})"
    if types.is_timestamp(of):
        return "timestamp" if of.tz is None else "timestamptz"
    return f"fixed[{of.byte_width}]" if types.is_fixed_size_binary(of) else str(of)
