"""The transform that hides values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final

from frazil.records import pa, pc
from frazil.records.model.column import type_name
from frazil.records.model.dead_letter import Reason
from frazil.records.model.frame import Frame, Transformed
from frazil.records.transforms.definition import KAFKA, ConnectClass, TransformDefinition, option, target_option
from frazil.records.transforms.fields import Target, failure, fields_of, find, put_column, select, with_fields


def _digits(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


@dataclass(frozen=True, slots=True)
class MaskField(TransformDefinition):
    """Puts another value in place of each value of some fields.

    Empty are `false`, 0, the text without characters, 1970-01-01, midnight, bytes of zero, the list and map without items.
    Nulls stay null; names that no field has do nothing. Records fail where the type of a field can't be masked: a struct;
    with a replacement, anything but numbers and texts; a replacement that is no such number.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}MaskField")
    reads: ClassVar = ("fields",)

    fields: tuple[str, ...] = option("The fields.", form="names", min_length=1)
    replacement: str | None = option(
        "Text or digits to put there; without, what is empty in the field's type.",
        None,
        form=(_digits, str | float | None),
        min_length=1,
    )
    target: Target = target_option()

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
        return f"MaskField: expected {expected}, found {type_name(data_type)}"


def _number(text: str, data_type: pa.DataType) -> pa.Scalar | None:
    """Return a number of the type, exactly as it is written; None if the type is none or can't hold it."""
    from frazil.records.transforms.values import numbers

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


def _empty(data_type: pa.DataType) -> pa.Scalar | None:
    if pa.types.is_fixed_size_binary(data_type):
        return pa.scalar(bytes(data_type.byte_width), data_type)
    if data_type == pa.uuid():
        return pa.scalar(bytes(16), data_type.storage_type)
    return next(
        (pa.scalar(value, data_type) for kind, value in _EMPTY if getattr(pa.types, f"is_{kind}")(data_type)), None
    )


_EMPTY: Final[tuple[tuple[str, Any], ...]] = (
    ("boolean", False),
    ("integer", 0),
    ("floating", 0.0),
    ("decimal", Decimal(0)),
    ("string", ""),
    ("large_string", ""),
    ("binary", b""),
    ("large_binary", b""),
    ("date", dt.date(1970, 1, 1)),
    ("time", dt.time(0)),
    ("timestamp", 0),
    ("list", []),
    ("map", []),
)
"""Kinds of types, as the tests of `pa.types` are named, and what is empty in each."""
