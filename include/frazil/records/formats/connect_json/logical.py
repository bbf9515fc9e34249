"""Named types of Kafka Connect and Debezium: what a name makes of the type below it.

A name counts only over the type it is defined for; any other name says nothing, and the type below it stands. Sources: the
classes of `org.apache.kafka.connect.data`, and the chapters on data types in Debezium's documentation of its connectors.

- `Timestamp`, `MicroTimestamp` and `NanoTimestamp` of Debezium are wall clock times of a column without zone; Kafka Connect's
  own `Timestamp` is an instant.
- `VariableScaleDecimal` (a number of a column without declared scale) becomes text with every digit, as Java's
  `BigDecimal.toString` writes it: no decimal type of a table holds all of them.
- `IsoDate`, `IsoTime`, `IsoTimestamp` are text of columns without zone, too: their `Z` belongs to the form.
- `ZonedTime`, `Interval`, `Json`, `Xml`, `Enum`, `EnumSet` stay text, `Year`, `MicroDuration`, `NanoDuration` numbers,
  `Bits` bytes (the lowest bits first), geometries, sparse vectors and the times of `time.precision.mode=structured` structs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import partial
from typing import Final

import pyarrow as pa

from frazil.records.json import times
from frazil.records.json.convert import Converter, from_text, to_bytes, to_decimal, to_int, to_uuid, wrong_type
from frazil.records.json.intermediate_types import Carrier, carrier, day_carrier, text_carrier, time_carrier
from frazil.records.model.column import Reading, TimeUnit
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import Number
from frazil.records.model.json_text import JsonValue, describe

MAX_DIGITS: Final = 38
"""Of a decimal in an Iceberg table."""

MAX_NUMBER_BYTES: Final = 1 << 16
"""Of a decimal of any scale. Longer than the longest number of PostgreSQL, which has the longest of all; conversion to
decimal digits takes a tenth of a second here, and grows with the square."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH
_END_DAY: Final = date.max.toordinal() - _EPOCH + 1
_MILLI: Final = 1_000
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


@dataclass(frozen=True, slots=True)
class Logical:
    """Arrow type of a named type, the converter of its values, and what reads many at once; None if only `read` can."""

    type: pa.DataType
    read: Converter
    carrier: Carrier | None


@dataclass(frozen=True, slots=True)
class _Span:
    """A count of units, as the integers of an Arrow type; `end` is the first one that is too late.

    Attributes:
        expected: In words.
        bits: Of the type below.
        factor: Arrow's units per unit.
        divisor: Units per unit of Arrow's.
        first: The smallest, in Arrow's units.
        end: The first that is too great.
    """

    expected: str
    bits: int
    factor: int
    divisor: int
    first: int
    end: int

    def read(self, value: JsonValue) -> int:
        count, rest = divmod(to_int(self.bits, value) * self.factor, self.divisor)
        if rest:
            raise Rejection(DeadCode.LOSSY_CAST, f"expected at most microseconds, found nanoseconds {describe(value)}")
        if not self.first <= count < self.end:
            raise Rejection(DeadCode.OUT_OF_RANGE, f"expected {self.expected}, found {describe(value)}")
        return count


_UNITS: Final[Mapping[tuple[int, int], TimeUnit]] = {(_MILLI, 1): "ms", (1, 1): "us", (1, _MILLI): "ns"}
"""What is counted, by factor and divisor."""


def _time(unit: str, bits: int, factor: int = 1, divisor: int = 1) -> Logical:
    span = _Span(f"{unit} since midnight, less than a day", bits, factor, divisor, 0, times.DAY)
    return Logical(pa.time64("us"), span.read, time_carrier(pa.time64("us"), Reading(_UNITS[factor, divisor])))


def _timestamp(unit: str, factor: int = 1, divisor: int = 1, zone: str | None = None) -> Logical:
    first, end = _FIRST_DAY * times.DAY, _END_DAY * times.DAY
    span = _Span(f"{unit} since 1970-01-01 within years 0001 to 9999", 64, factor, divisor, first, end)
    data_type = pa.timestamp("us", zone)
    return Logical(data_type, span.read, time_carrier(data_type, Reading(_UNITS[factor, divisor])))


_DATE: Final = Logical(
    pa.date32(),
    _Span("days since 1970-01-01 within years 0001 to 9999", 32, 1, 1, _FIRST_DAY, _END_DAY).read,
    day_carrier(),
)


def _text(data_type: pa.DataType, expected: str, read: Callable[[str], object]) -> Logical:
    return Logical(data_type, partial(from_text, expected, read), carrier(data_type))


def _any_scale(value: JsonValue) -> str:
    if not isinstance(value, dict):
        raise wrong_type("object of scale and value", value)
    scale = to_int(32, value.get("scale"))
    raw = from_text("bytes as base64 text", to_bytes, value.get("value"))
    return str(Decimal(_integer(raw)).scaleb(-scale, _EXACT))


def _integer(raw: object) -> int:
    if not isinstance(raw, bytes) or not raw:
        raise Rejection(DeadCode.INVALID_TEXT, "expected an integer of 1 byte or more as base64, found 0 bytes")
    if len(raw) > MAX_NUMBER_BYTES:
        message = f"expected a number of at most {MAX_NUMBER_BYTES} bytes, found {len(raw)} bytes"
        raise Rejection(DeadCode.OUT_OF_RANGE, message)
    return int.from_bytes(raw, "big", signed=True)


_NAMED: Final[Mapping[tuple[str, str], Logical]] = {
    ("org.apache.kafka.connect.data.Date", "int32"): _DATE,
    ("org.apache.kafka.connect.data.Time", "int32"): _time("milliseconds", 32, _MILLI),
    ("org.apache.kafka.connect.data.Timestamp", "int64"): _timestamp("milliseconds", _MILLI, zone="UTC"),
    ("io.debezium.time.Date", "int32"): _DATE,
    ("io.debezium.time.Time", "int32"): _time("milliseconds", 32, _MILLI),
    ("io.debezium.time.MicroTime", "int64"): _time("microseconds", 64),
    ("io.debezium.time.NanoTime", "int64"): _time("nanoseconds", 64, divisor=1000),
    ("io.debezium.time.Timestamp", "int64"): _timestamp("milliseconds", _MILLI),
    ("io.debezium.time.MicroTimestamp", "int64"): _timestamp("microseconds"),
    ("io.debezium.time.NanoTimestamp", "int64"): _timestamp("nanoseconds", divisor=1000),
    ("io.debezium.time.IsoDate", "string"): _text(pa.date32(), "a date as text", times.days),
    ("io.debezium.time.IsoTime", "string"): _text(pa.time64("us"), "a time as text", times.time_micros),
    ("io.debezium.time.IsoTimestamp", "string"): _text(pa.timestamp("us"), "a timestamp as text", times.wall_micros),
    ("io.debezium.time.ZonedTimestamp", "string"): _text(
        pa.timestamp("us", "UTC"), "a timestamp with zone as text", times.utc_micros
    ),
    ("io.debezium.data.Uuid", "string"): _text(pa.uuid(), "a uuid as text", to_uuid),
    ("io.debezium.data.VariableScaleDecimal", "struct"): Logical(pa.string(), _any_scale, None),
}


def logical(name: str, base: str, parameters: Mapping[str, JsonValue]) -> Logical | None:
    """Return what a schema's name makes of the type `base`, or None if nothing.

    Raises:
        Rejection: UNUSABLE_SCHEMA, for a decimal whose scale is missing or beyond 38.
    """
    if name == "org.apache.kafka.connect.data.Decimal" and base == "bytes":
        return _decimal(parameters)
    return _NAMED.get((name, base))


def _decimal(parameters: Mapping[str, JsonValue]) -> Logical:
    scale = _parameter(parameters, "scale")
    if scale is None or scale > MAX_DIGITS:
        actual = describe(parameters.get("scale"))
        raise Rejection(DeadCode.UNUSABLE_SCHEMA, f"expected a decimal's scale of at most {MAX_DIGITS}, found {actual}")
    declared = _parameter(parameters, "connect.decimal.precision")
    precision = declared if declared is not None and 0 < declared <= MAX_DIGITS else MAX_DIGITS
    decimal_type = pa.decimal128(max(precision, scale), max(scale, 0))
    read = partial(_to_decimal, decimal_type.precision, decimal_type.scale, scale)
    return Logical(decimal_type, read, text_carrier(read, decimal_type))


def _parameter(parameters: Mapping[str, JsonValue], name: str) -> int | None:
    """Return a parameter, which Kafka Connect writes as text, as an integer."""
    value = parameters.get(name)
    try:
        return to_int(32, Number(value)) if isinstance(value, str) and value.lstrip("-").isdecimal() else None
    except (Rejection, ValueError):
        return None


def _to_decimal(precision: int, scale: int, written: int, value: JsonValue) -> Decimal:
    """Take base64 of the unscaled integer, or a number (`decimal.format=NUMERIC`)."""
    expected = f"decimal({precision}, {scale})"
    if type(value) is Number:
        return to_decimal(precision, scale, value)
    raw = from_text(f"{expected} as base64 text or number", to_bytes, value)
    unscaled = _integer(raw)
    if abs(unscaled) >= 10**MAX_DIGITS:
        message = f"expected {expected}, found an integer of {unscaled.bit_length()} bits before scaling"
        raise Rejection(DeadCode.OUT_OF_RANGE, message)
    if written >= 0 and abs(unscaled) < 10**precision:
        return Decimal(f"{unscaled}E-{written}")
    return to_decimal(precision, scale, Number(f"{unscaled}E{-written}"))
