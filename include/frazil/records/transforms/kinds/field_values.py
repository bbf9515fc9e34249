"""Transforms of the values of fields: `Cast`, `TimestampConverter` and `MaskField`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from frazil.records import pa, pc
from frazil.records.model.column import type_name
from frazil.records.model.dead_letter import Reason
from frazil.records.model.format import BARE, Frame, MissingField, Transformed
from frazil.records.transforms.definition import (
    KAFKA,
    ConnectClass,
    Names,
    TransformDefinition,
    option,
    pairs,
    target_option,
)
from frazil.records.transforms.fields import (
    Target,
    bare_column,
    describe_value,
    failure,
    fields_of,
    find,
    lacking,
    put_column,
    reject_all,
    select,
    with_fields,
)
from frazil.records.transforms.java_dates import DAY, FIRST, LAST, SECOND, DatePattern, in_range

if TYPE_CHECKING:
    from frazil.records.transforms import java_casts


CAST_TYPES: Final = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
"""Types that fields can be cast to, in Kafka Connect's names."""


def _pairs(spec: object) -> object:
    return spec if isinstance(spec, str) and ":" not in spec else pairs(spec)


def _known_types(spec: dict[str, str] | str) -> dict[str, str] | str:
    types = [spec] if isinstance(spec, str) else list(spec.values())
    if not types:
        raise ValueError("nothing to cast")
    if unknown_types := sorted(set(types) - set(CAST_TYPES)):
        raise ValueError(f"{unknown_types[0]!r} is not a type to cast to; known: {', '.join(CAST_TYPES)}")
    return spec


@dataclass(frozen=True, slots=True)
class Cast(TransformDefinition):
    """Casts fields to another type, even if digits are lost. A record with a value out of range is a dead letter.

    As in Kafka Connect, `1.9` and `true` become 1, a timestamp becomes its milliseconds, and anything can become a text. A record
    fails if a text is no number (or neither `true` nor `false`), or a number is too large for the new type; Kafka Connect wraps such
    a number around. int8 and int16 only limit the range: their columns are int32. Fields that do not exist are ignored.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}Cast")

    spec: dict[str, str] | str = option(
        "The type of each field: a mapping, or pairs `field:type`. Or one type, for values without fields. The types are"
        f" {', '.join(f'`{name}`' for name in CAST_TYPES)}.",
        form=(_pairs, dict[str, str] | tuple[str, ...] | str),
        check=_known_types,
    )
    target: Target = target_option()

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        fields = fields_of(frame, self.target)
        if not isinstance(self.spec, str):
            yield from lacking(fields, "spec", self.spec)
        elif bare_column(fields) is None:
            yield MissingField(
                "spec",
                f"one type, {self.spec}, is for values without fields, and these have {', '.join(fields.schema.names)}",
            )

    def apply(self, frame: Frame) -> Transformed:
        """Cast the fields."""
        fields = fields_of(frame, self.target)
        if isinstance(self.spec, str) and bare_column(fields) is None:
            return reject_all(frame, f"Cast: expected a value without fields to be {self.spec}, found fields")
        spec = {BARE: self.spec} if isinstance(self.spec, str) else self.spec
        failed: dict[int, Reason] = {}
        for name, cast_type in spec.items():
            values = find(fields, name, nested=False)
            if values is None:
                continue
            cast = _cast(values, cast_type)
            for row in cast.failed:
                actual = describe_value(values[row].as_py())
                failed.setdefault(row, failure(f"Cast: expected {cast_type}, found {actual}", name))
            fields = put_column(fields, name, cast.values)
        return select(with_fields(frame, self.target, fields), failed=failed)

    def referenced_names(self) -> Names:
        """Return the fields that are cast; None for one type, which needs to know that values have no fields."""
        return None if isinstance(self.spec, str) else self.spec


def _cast(values: pa.Array, cast_type: str) -> java_casts.CastResult:
    """Return values in another type. If their type can't be cast to it, each row that is not null fails."""
    from frazil.records.transforms import java_casts

    cast: java_casts.CastResult | None
    if cast_type == "string":
        texts = java_casts.java_texts(values)
        cast = None if texts is None else java_casts.CastResult(texts)
    elif cast_type == "boolean":
        cast = java_casts.to_booleans(values)
    elif cast_type.startswith("float"):
        cast = java_casts.to_floats(values, float_type=pa.float32() if cast_type == "float32" else pa.float64())
    else:
        cast = java_casts.to_integers(values, bits=int(cast_type.removeprefix("int")))
    return cast or java_casts.CastResult(values, pc.indices_nonzero(values.is_valid()).to_pylist())


TimeForm = Literal["string", "unix", "Date", "Time", "Timestamp"]
UnixPrecision = Literal["seconds", "milliseconds", "microseconds", "nanoseconds"]

_MICROS: Final = {"seconds": SECOND, "milliseconds": 1000, "microseconds": 1}
_NANOS: Final = 1000
_NANO_LIMIT: Final = (2**63 - 1) // _NANOS
"""The last microsecond that 64 bits hold as nanoseconds, in the year 2262."""


@dataclass(frozen=True, slots=True)
class TimestampConverter(TransformDefinition):
    """Converts a time between text, number, date, time and timestamp, in UTC.

    The type of the field decides how it is read: text, number, date, time (on 1970-01-01) or timestamp. It becomes string, int64
    (`unix`), date, time[us] or timestamp[us, UTC]. A record fails if a text does not match the format, or the moment is outside of
    the years 1 to 9999 (1677 to 2262 for unix nanoseconds). The new form may hold less: a date has no time, unix seconds have no
    fraction. A field that does not exist is ignored.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}TimestampConverter")

    field: str = option("The field; leave it out for values without fields.", "")
    target_type: TimeForm = option(
        "The new form. The type of the field tells the present one.", key="target.type", by_name=True
    )
    format: str | None = option(
        "Pattern of Java's SimpleDateFormat for text that is read or written, such as `yyyy-MM-dd`.", None, min_length=1
    )
    unix_precision: UnixPrecision = option(
        "Unit of numbers that are read or written.", "milliseconds", key="unix.precision"
    )
    target: Target = target_option()

    def __post_init__(self) -> None:
        if self.target_type == "string" and self.format is None:
            raise ValueError("target.type: string needs a format")

    def prepare(self) -> None:
        """Refuse a pattern that `DatePattern` does not support."""
        if self.format is not None:
            DatePattern(self.format)

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        fields = fields_of(frame, self.target)
        if self.field:
            yield from lacking(fields, "field", [self.field])
        elif bare_column(fields) is None:
            yield MissingField("field", f"it is missing, and the values have fields: {', '.join(fields.schema.names)}")

    def apply(self, frame: Frame) -> Transformed:
        """Convert the field."""
        fields = fields_of(frame, self.target)
        if not self.field and bare_column(fields) is None:
            return reject_all(frame, "TimestampConverter: expected a value without fields, found fields")
        name = self.field or BARE
        values = find(fields, name, nested=False)
        if values is None:
            return Transformed(frame)
        moments = self._moments(values)
        if moments is None:
            expected = "text, a number or a time" if self.format else "a number or a time (no format for text is given)"
            return reject_all(frame, f"TimestampConverter: expected {expected}, found {type_name(values.type)}", name)
        if self.target_type == "unix" and self.unix_precision == "nanoseconds":
            moments = in_range(moments, -_NANO_LIMIT, _NANO_LIMIT)
        failed = self._failed(values, moments, name)
        return select(with_fields(frame, self.target, put_column(fields, name, self._written(moments))), failed=failed)

    def _failed(self, values: pa.Array, moments: pa.Int64Array, name: str) -> dict[int, Reason]:
        if moments.null_count == values.null_count:
            return {}
        failed_rows = pc.indices_nonzero(pc.and_(values.is_valid(), moments.is_null())).to_pylist()
        is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        expected = f"a time as {self.format}" if is_text else f"a time that {self.target_type} holds"
        return {
            row: failure(f"TimestampConverter: expected {expected}, found {describe_value(values[row].as_py())}", name)
            for row in failed_rows
        }

    def _moments(self, values: pa.Array) -> pa.Int64Array | None:
        """Return microseconds since 1970, null for values that are no moment; None if the type has no moments."""
        data_type = values.type
        if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
            return None if self.format is None else in_range(DatePattern(self.format).read(values.cast(pa.string())))
        if pa.types.is_integer(data_type):
            return in_range(self._from_unix(values.cast(pa.int64())))
        if pa.types.is_date(data_type):
            return in_range(pc.multiply(values.cast(pa.int32()).cast(pa.int64()), DAY))
        if pa.types.is_time(data_type) or pa.types.is_timestamp(data_type):
            return in_range(values.cast(pa.int64()))
        return None

    def _from_unix(self, numbers: pa.Int64Array) -> pa.Int64Array:
        if self.unix_precision == "nanoseconds":
            return _floor_divide(numbers, _NANOS)
        size = _MICROS[self.unix_precision]
        # The range is checked before: a product that overflows would wrap around into it.
        return pc.multiply(in_range(numbers, FIRST // size, LAST // size), size)

    def _written(self, moments: pa.Int64Array) -> pa.Array:
        match self.target_type:
            case "string":
                return DatePattern(self.format or "").write(moments)
            case "unix" if self.unix_precision == "nanoseconds":
                return pc.multiply(moments, _NANOS)
            case "unix":
                return _floor_divide(moments, _MICROS[self.unix_precision])
            case "Date":
                return _floor_divide(moments, DAY).cast(pa.int32()).cast(pa.date32())
            case "Time":
                time_of_day = pc.subtract(moments, pc.multiply(_floor_divide(moments, DAY), DAY))
                return time_of_day.cast(pa.time64("us"))
            case _:
                return moments.cast(pa.timestamp("us", "UTC"))

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return [self.field] if self.field else None


def _floor_divide(numbers: pa.Int64Array, divisor: int) -> pa.Int64Array:
    """Divide and round down; Arrow's division rounds numbers before 1970, which are negative, up."""
    quotient = pc.divide(numbers, divisor)
    return pc.if_else(pc.less(numbers, pc.multiply(quotient, divisor)), pc.subtract(quotient, 1), quotient)


def _digits(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


@dataclass(frozen=True, slots=True)
class MaskField(TransformDefinition):
    """Replaces all values of some fields by a fixed value.

    Without a replacement, values become empty: `false`, 0, a text without characters, 1970-01-01, midnight, bytes of zero, a list or
    map without items. Null stays null; fields that do not exist are ignored. Records fail if the field's type can't be masked: a
    struct; with a replacement, any type but numbers and texts, or a type that does not hold the replacement.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}MaskField")
    reads: ClassVar = ("fields",)

    fields: tuple[str, ...] = option("The fields.", form="names", min_length=1)
    replacement: str | None = option(
        "The fixed value, text or number; by default the empty value of the field's type.",
        None,
        form=(_digits, str | float | None),
        min_length=1,
    )
    target: Target = target_option()

    def apply(self, frame: Frame) -> Transformed:
        """Replace the values."""
        fields = fields_of(frame, self.target)
        failed: dict[int, Reason] = {}
        for name in self.fields:
            values = find(fields, name, nested=False)
            if values is None or values.null_count == len(values):
                continue
            mask = self._mask(values.type)
            if mask is None:
                unmaskable_rows = pc.indices_nonzero(values.is_valid()).to_pylist()
                failed |= dict.fromkeys(unmaskable_rows, failure(self._unmaskable_message(values.type), name))
                continue
            masked = pc.if_else(values.is_valid(), mask, pa.scalar(None, mask.type))
            fields = put_column(fields, name, masked.cast(values.type))
        return select(with_fields(frame, self.target, fields), failed=failed)

    def _mask(self, data_type: pa.DataType) -> pa.Scalar | None:
        """Return the value that replaces values of a type; None if the type can't be masked."""
        if self.replacement is None:
            return _empty(data_type)
        if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
            return pa.scalar(self.replacement, data_type)
        return _number(self.replacement, data_type)

    def _unmaskable_message(self, data_type: pa.DataType) -> str:
        expected = "a type that can be masked" if self.replacement is None else f"a type for {self.replacement!r}"
        return f"MaskField: expected {expected}, found {type_name(data_type)}"


def _number(text: str, data_type: pa.DataType) -> pa.Scalar | None:
    """Return the number in a text as a scalar; None if the type is not numeric or does not hold it exactly."""
    from frazil.records.transforms import java_casts

    text_array = pa.array([text])
    if pa.types.is_integer(data_type):
        cast = java_casts.to_integers(text_array, data_type.bit_width)
    elif pa.types.is_floating(data_type):
        cast = java_casts.to_floats(text_array, data_type)
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
"""The empty value of each type; types by the tests of `pa.types`, without `is_`."""
