"""Whether a value was sent: formats whose fields have defaults can't tell them from values, and say so of each field."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.fit.source import plain

STANDS_IN: Final = b"frazil.stands_in"
"""Metadata of a field without presence: the text that stands for nothing, empty for the zero of any other type."""


def sent(field: pa.Field, array: pa.Array) -> pa.BooleanArray:
    """Return which values of a field are there: not null, and not what stands in where nothing was sent."""
    values = plain(array)
    default = (field.metadata or {}).get(STANDS_IN)
    if default is None:
        return values.is_valid()
    return pc.and_kleene(values.is_valid(), pc.fill_null(_differs(values, default.decode()), False))  # noqa: FBT003


def is_sent(field: pa.Field, value: object) -> bool:
    """Return the same of one physical value, as `frazil.records.fit.source` has it."""
    default = (field.metadata or {}).get(STANDS_IN)
    if default is None or value is None:
        return value is not None
    return value != default.decode() if isinstance(value, str) else bool(value)


def _differs(values: pa.Array, default: str) -> pa.BooleanArray:
    of = values.type
    if pa.types.is_string(of):
        return pc.not_equal(values, default)
    if pa.types.is_binary(of):
        return pc.greater(pc.binary_length(values), 0)
    if pa.types.is_boolean(of):
        return values
    if pa.types.is_list(of):
        return pc.greater(pc.list_value_length(values), 0)
    if pa.types.is_map(of):
        offsets = values.offsets
        return pc.greater(pc.subtract(offsets[1:], offsets[:-1]), 0)
    return pc.not_equal(values, pa.scalar(0, pa.int64()).cast(of))
