"""One column: where its values come from, how they are read, and what its type is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from frazil.records import pa

TimeUnit = Literal["s", "ms", "us", "ns"]
"""Unit of a number that stands for a time: since 1970-01-01T00:00Z, or since midnight."""

WHOLE_VALUE: Final[tuple[str, ...]] = ()
"""The source of a column that takes the whole value as JSON text."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the JSON values of one column are read, at any level of its type.

    Attributes:
        unit: Unit of numbers that stand for times; None: times must be texts.
        local_time: Whether a text with an offset may become a timestamp without zone, which keeps its wall clock.
        cast_text: Whether numbers and booleans become texts, as they were sent.
        inferred: Whether the column is undeclared. If it, or a part of it, is a text, then any other value becomes its JSON text.
        truncates: Whether times are truncated to microseconds.
        fold: Which of several fields counts whose names differ in case only; None: they are different fields.
    """

    unit: TimeUnit | None = None
    local_time: Literal["keep", "dead_letter"] = "keep"
    cast_text: bool = False
    inferred: bool = False
    truncates: bool = False
    fold: Literal["last", "dead_letter"] | None = None


AS_IT_IS: Final = Reading()
"""Reads JSON values without any conversion."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One declared column.

    Attributes:
        name: Its name in the table.
        type: Its Arrow type.
        required: Whether null is refused.
        source: Field names from the value's root to the field that it takes. None: the field of its name. `WHOLE_VALUE`: the value
            itself as JSON text.
        has_default: Whether `default` replaces a missing field (and null, if the column is required).
        default: A JSON value: text, number, bool, list, dict or None.
        reading: How its values are read.
        variant: Whether its texts become variants, so that a text is refused if a variant can't hold it.
    """

    name: str
    type: pa.DataType
    required: bool
    source: tuple[str, ...] | None = None
    has_default: bool = False
    default: object = None
    reading: Reading = AS_IT_IS
    variant: bool = False

    @property
    def steps(self) -> tuple[str, ...]:
        """Field names from the root of the value to the field; empty for the value itself."""
        return (self.name,) if self.source is None else self.source


_NAMES: Final = {
    "boolean": "boolean",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "date": "date",
    "time": "time",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
}
"""Names of types in pipeline files, by the tests of `pa.types`, without `is_`."""


def type_name(data_type: pa.DataType) -> str:
    """Return the name of a type in pipeline files, or Arrow's name for a type that they don't have."""
    if pa.types.is_struct(data_type):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in data_type)}>"
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return f"list<{type_name(data_type.value_type)}>"
    if pa.types.is_map(data_type):
        return f"map<{type_name(data_type.key_type)}, {type_name(data_type.item_type)}>"
    named = (name for test, name in _NAMES.items() if getattr(pa.types, f"is_{test}")(data_type))
    return next(named, None) or _with_arguments(data_type)


def _with_arguments(data_type: pa.DataType) -> str:
    if data_type == pa.uuid():
        return "uuid"
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_timestamp(data_type):
        return "timestamp" if data_type.tz is None else "timestamptz"
    return f"fixed[{data_type.byte_width}]" if pa.types.is_fixed_size_binary(data_type) else str(data_type)
