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


def type_name(data_type: pa.DataType) -> str:
    """Return the name of a type in pipeline files; Arrow's name if these have none."""
    if types.is_struct(data_type):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in data_type)}>"
    if types.is_list(data_type) or types.is_large_list(data_type):
        return f"list<{type_name(data_type.value_type)}>"
    if types.is_map(data_type):
        return f"map<{type_name(data_type.key_type)}, {type_name(data_type.item_type)}>"
    named = (name for test, name in _NAMES if test(data_type))
    return next(named, None) or _with_arguments(data_type)


def _with_arguments(data_type: pa.DataType) -> str:
    if types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if types.is_timestamp(data_type):
        return "timestamp" if data_type.tz is None else "timestamptz"
    return f"fixed[{data_type.byte_width}]" if types.is_fixed_size_binary(data_type) else str(data_type)
