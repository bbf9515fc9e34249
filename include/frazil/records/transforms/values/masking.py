"""The transform that hides values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_codes import BAD_TRANSFORM
from frazil.records.model.dead_letter import Reason
from frazil.records.model.frame import Frame, MissingField, Transformed
from frazil.records.transforms.fields import Target, failure, fields_of, find, lacking, put_column, select, with_fields
from frazil.records.transforms.values import numbers


@dataclass(frozen=True, slots=True)
class MaskField:
    """Puts another value in place of each value of some fields: the replacement, or what is empty in the field's type.

    Empty are `false`, 0, the text without characters, 1970-01-01, midnight, bytes of zero, the list and map without items.
    Nulls stay null; names that no field has do nothing. Records fail where the type of a field can't be masked: a struct;
    with a replacement, anything but numbers and texts; a replacement that is no such number.

    Attributes:
        fields: Names of the fields.
        replacement: Text, or the digits of a number.
        target: Values or keys.

    Raises:
        Terminal: no field is named, or the replacement has no characters.
    """

    fields: tuple[str, ...]
    replacement: str | None = None
    target: Target = "value"

    def __post_init__(self) -> None:
        if not self.fields:
            raise BAD_TRANSFORM.terminal("MaskField: no field is named", next_step="name them under fields")
        if self.replacement is not None and not self.replacement:
            raise BAD_TRANSFORM.terminal(
                "MaskField: the replacement is empty", next_step="leave it out: texts become empty then"
            )

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        yield from lacking(fields_of(frame, self.target), "fields", self.fields)

    def apply(self, frame: Frame) -> Transformed:
        """Hide the values."""
        fields = fields_of(frame, self.target)
        failed: dict[int, Reason] = {}
        for name in self.fields:
            values = find(fields, name, nested=False)
            if values is None or values.null_count == len(values):
                continue
            mask = self._mask(values.type)
            if mask is None:
                unmaskable_rows = pc.indices_nonzero(values.is_valid()).to_pylist()
                failed |= dict.fromkeys(unmaskable_rows, failure(self._unmaskable(values.type), name))
                continue
            masked = pc.if_else(values.is_valid(), mask, pa.scalar(None, mask.type))
            fields = put_column(fields, name, masked.cast(values.type))
        return select(with_fields(frame, self.target, fields), failed=failed)

    def _mask(self, data_type: pa.DataType) -> pa.Scalar | None:
        if self.replacement is None:
            return _empty(data_type)
        if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
            return pa.scalar(self.replacement, data_type)
        return _number(self.replacement, data_type)

    def _unmaskable(self, data_type: pa.DataType) -> str:
        expected = "a type that can be masked" if self.replacement is None else f"a type for {self.replacement!r}"
        return f"MaskField: expected {expected}, found {data_type}"


def _number(text: str, data_type: pa.DataType) -> pa.Scalar | None:
    """Return a number of the type, exactly as it is written; None if the type is none or can't hold it."""
    text_array = pa.array([text])
    if pa.types.is_integer(data_type):
        cast = numbers.to_integers(text_array, data_type.bit_width)
    elif pa.types.is_floating(data_type):
        cast = numbers.to_floats(text_array, data_type)
    elif pa.types.is_decimal(data_type):
        return _decimal(text, data_type)
    else:
        return None
    return None if cast is None or cast.failed else cast.values.cast(data_type)[0]


def _decimal(text: str, data_type: pa.DataType) -> pa.Scalar | None:
    try:
        return pa.scalar(Decimal(text), data_type)
    except (ArithmeticError, pa.ArrowException, ValueError):
        return None


_EMPTY: Final[list[tuple[Callable[[pa.DataType], bool], Any]]] = [
    (pa.types.is_boolean, False),
    (pa.types.is_integer, 0),
    (pa.types.is_floating, 0.0),
    (pa.types.is_decimal, Decimal(0)),
    (pa.types.is_string, ""),
    (pa.types.is_large_string, ""),
    (pa.types.is_binary, b""),
    (pa.types.is_large_binary, b""),
    (pa.types.is_date, dt.date(1970, 1, 1)),
    (pa.types.is_time, dt.time(0)),
    (pa.types.is_timestamp, 0),
    (pa.types.is_list, []),
    (pa.types.is_map, []),
]


def _empty(data_type: pa.DataType) -> pa.Scalar | None:
    if pa.types.is_fixed_size_binary(data_type):
        return pa.scalar(bytes(data_type.byte_width), data_type)
    if data_type == pa.uuid():
        return pa.scalar(bytes(16), data_type.storage_type)
    return next((pa.scalar(value, data_type) for is_kind, value in _EMPTY if is_kind(data_type)), None)
