"""The transform between the forms of times: text, number since 1970, date, time of day, timestamp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from frazil.records import pa, pc
from frazil.records.model.column import type_name
from frazil.records.model.dead_letter import Reason
from frazil.records.model.frame import BARE, Frame, MissingField, Transformed
from frazil.records.transforms.definition import KAFKA, ConnectClass, Names, TransformDefinition, option, target_option
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
from frazil.records.transforms.values.java_dates import DAY, FIRST, LAST, SECOND, DatePattern, in_range

TimeForm = Literal["string", "unix", "Date", "Time", "Timestamp"]
UnixPrecision = Literal["seconds", "milliseconds", "microseconds", "nanoseconds"]

_MICROS: Final = {"seconds": SECOND, "milliseconds": 1000, "microseconds": 1}
_NANOS: Final = 1000
_NANO_LIMIT: Final = (2**63 - 1) // _NANOS
"""The last microsecond that 64 bits hold as nanoseconds, in the year 2262."""


@dataclass(frozen=True, slots=True)
class TimestampConverter(TransformDefinition):
    """Converts a time between text, number, date, time and timestamp, in UTC.

    What it is now, its type says: text, number, date, time (on 1970-01-01), timestamp. It becomes string, int64 (`unix`), date,
    time[us] or timestamp[us, UTC]. A record fails where a text does not fit the format, or a moment is outside of years 1 to
    9999 (1677 to 2262 where unix nanoseconds are written). What the new form can't hold is cut off: the time of a date,
    nanoseconds, the fraction of unix seconds. A field that is not there does nothing.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}TimestampConverter")

    field: str = option("The field; none for values without fields.", "")
    target_type: TimeForm = option("The new form; what it is now, its type says.", key="target.type", by_name=True)
    format: str | None = option(
        "Pattern of Java's SimpleDateFormat for text read or written, such as `yyyy-MM-dd`.", None, min_length=1
    )
    unix_precision: UnixPrecision = option("Unit of numbers read or written.", "milliseconds", key="unix.precision")
    target: Target = target_option()

    def __post_init__(self) -> None:
        if self.target_type == "string" and self.format is None:
            raise ValueError("target.type: string needs a format")

    def prepare(self) -> None:
        """Refuse a pattern that is not known here."""
        if self.format is not None:
            DatePattern(self.format)

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        fields = fields_of(frame, self.target)
        if self.field:
            yield from lacking(fields, "field", [self.field])
        elif bare_column(fields) is None:
            yield MissingField(
                "field", f"none is for values without fields; there are {', '.join(fields.schema.names)}"
            )

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
        """Return microseconds since 1970, null for what is no moment; None for a type that has none."""
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
        # Held against the range first: a product that overflows would wrap around into it.
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
    """Divide towards the earlier moment, also before 1970, where division alone goes towards the later one."""
    cut = pc.divide(numbers, divisor)
    return pc.if_else(pc.less(numbers, pc.multiply(cut, divisor)), pc.subtract(cut, 1), cut)
