"""Logical types of Avro, and those that Kafka Connect and Debezium name in a schema: integers, texts and bytes that mean dates, times,
decimals and uuids.

Units and epochs are from the Avro specification and from Debezium's documentation of its temporal types. Debezium's
`Timestamp`, `MicroTimestamp` and `NanoTimestamp` are wall times without a zone; its times with a zone are texts, and stay texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from frazil.records.formats.registered import unusable_schema
from frazil.records.json.convert import UUID_BYTES, to_uuid
from frazil.records.json.times import DAY
from frazil.records.model.column import TimeUnit
from frazil.records.model.dead_letter import DeadCode, Rejection

Convert = Callable[[Any], object]
Meaning = tuple[pa.DataType, Convert | None]
"""The Arrow type, and the conversion of encoded values to it; None if they are its numbers already."""

MAX_PRECISION: Final = 76
"""Digits of decimal256. Kafka Connect declares 64 if the source does not tell."""

_DECIMAL38: Final = 38
_CONNECT_PRECISION: Final = 64
_INT64: Final = 1 << 63
_EXACT: Final = Context(prec=MAX_PRECISION + 4)

WALL: Final = pa.timestamp("us")
INSTANT: Final = pa.timestamp("us", "UTC")
TIME: Final = pa.time64("us")


def millis(value: int) -> int:
    """Convert milliseconds to microseconds."""
    micros = value * 1_000
    if -_INT64 <= micros < _INT64:
        return micros
    raise out_of_range("milliseconds within 64 bits of microseconds", value)


def nanos(value: int) -> int:
    """Convert nanoseconds to microseconds, without loss."""
    if value % 1_000:
        raise Rejection(DeadCode.LOSSY_CAST, f"expected at most microseconds, found {value} nanoseconds")
    return value // 1_000


def time_of_day(micros: int) -> int:
    """Check microseconds since midnight."""
    if 0 <= micros < DAY:
        return micros
    raise out_of_range("a time of day", f"{micros} microseconds since midnight")


def millis_of_day(value: int) -> int:
    """Convert milliseconds since midnight to microseconds."""
    return time_of_day(value * 1_000)


def nanos_of_day(value: int) -> int:
    """Convert nanoseconds since midnight to microseconds, without loss."""
    return time_of_day(nanos(value))


def whole_nanos(value: int) -> int:
    """Convert nanoseconds to the last whole microsecond."""
    return value // 1_000


def whole_nanos_of_day(value: int) -> int:
    """Convert nanoseconds since midnight to the last whole microsecond."""
    return time_of_day(whole_nanos(value))


_TRUNCATING: Final[Mapping[Convert | None, Convert]] = {nanos: whole_nanos, nanos_of_day: whole_nanos_of_day}


def truncating(exact: Meaning) -> Meaning:
    """Return the meaning that truncates times to microseconds."""
    data_type, convert = exact
    return data_type, _TRUNCATING.get(convert, convert)


def time_unit(convert: Convert | None) -> TimeUnit:
    """Return the unit of the numbers that a conversion takes; without one they are microseconds."""
    if convert in {millis, millis_of_day}:
        return "ms"
    return "ns" if convert in {nanos, nanos_of_day} else "us"


def out_of_range(expected: str, actual: object) -> Rejection:
    """Return the rejection of a value beyond what a type holds."""
    return Rejection(DeadCode.OUT_OF_RANGE, f"expected {expected}, found {actual}")


def decimal_from_bytes(precision: int, scale: int, raw: bytes) -> Decimal:
    """Return the decimal whose digits are a big-endian integer in two's complement.

    Raises:
        Rejection: OUT_OF_RANGE, more digits than declared; INVALID_AVRO, no bytes.
    """
    if not raw:
        raise Rejection(DeadCode.INVALID_AVRO, "expected a decimal's digits, found 0 bytes")
    digits = int.from_bytes(raw, "big", signed=True)
    if abs(digits) >= 10**precision:
        raise out_of_range(f"decimal({precision}, {scale})", f"a number of {digits.bit_length()} bits")
    return Decimal(digits).scaleb(-scale, _EXACT)


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Return the narrowest decimal type of these digits.

    Raises:
        Rejection: UNUSABLE_SCHEMA, more digits than any column can hold.
    """
    if precision > MAX_PRECISION:
        raise unusable_schema(f"a decimal of {precision} digits")
    return pa.decimal128(precision, scale) if precision <= _DECIMAL38 else pa.decimal256(precision, scale)


_LOGICAL: Final[Mapping[tuple[str, str], Meaning]] = {
    ("date", "int"): (pa.date32(), None),
    ("time-millis", "int"): (TIME, millis_of_day),
    ("time-micros", "long"): (TIME, time_of_day),
    ("timestamp-millis", "long"): (INSTANT, millis),
    ("timestamp-micros", "long"): (INSTANT, None),
    ("timestamp-nanos", "long"): (INSTANT, nanos),
    ("local-timestamp-millis", "long"): (WALL, millis),
    ("local-timestamp-micros", "long"): (WALL, None),
    ("local-timestamp-nanos", "long"): (WALL, nanos),
    ("uuid", "string"): (pa.uuid(), to_uuid),
}

_CONNECT: Final = "org.apache.kafka.connect.data."
_DEBEZIUM: Final = "io.debezium.time."
_NAMED: Final[Mapping[tuple[str, str], Meaning]] = {
    (f"{_CONNECT}Date", "int"): (pa.date32(), None),
    (f"{_CONNECT}Time", "int"): (TIME, millis_of_day),
    (f"{_CONNECT}Timestamp", "long"): (INSTANT, millis),
    (f"{_DEBEZIUM}Date", "int"): (pa.date32(), None),
    (f"{_DEBEZIUM}Time", "int"): (TIME, millis_of_day),
    (f"{_DEBEZIUM}MicroTime", "long"): (TIME, time_of_day),
    (f"{_DEBEZIUM}NanoTime", "long"): (TIME, nanos_of_day),
    (f"{_DEBEZIUM}Timestamp", "long"): (WALL, millis),
    (f"{_DEBEZIUM}MicroTimestamp", "long"): (WALL, None),
    (f"{_DEBEZIUM}NanoTimestamp", "long"): (WALL, nanos),
}


def meaning(schema: Mapping[str, Any], base: str) -> Meaning | None:
    """Return what a type means by its annotations; None without annotations, or if they are unknown or don't fit the type.

    Args:
        schema: The type with its annotations.
        base: Name of the type.

    Raises:
        Rejection: UNUSABLE_SCHEMA, a decimal of more digits than any column can hold.
    """
    logical, named = str(schema.get("logicalType")), str(schema.get("connect.name"))
    if base in {"bytes", "fixed"}:
        if logical == "decimal":
            return _decimal(schema.get("precision"), schema.get("scale", 0))
        if logical == "uuid" and schema.get("size") == UUID_BYTES:
            return pa.uuid(), None
        return _connect_decimal(schema) if named == f"{_CONNECT}Decimal" else None
    return _LOGICAL.get((logical, base)) or _NAMED.get((named, base))


def _decimal(precision: object, scale: object) -> Meaning | None:
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
        return None  # the specification says to ignore an invalid logical type
    return decimal_type(precision, scale), partial(decimal_from_bytes, precision, scale)


def _connect_decimal(schema: Mapping[str, Any]) -> Meaning | None:
    parameters = schema.get("connect.parameters")
    if not isinstance(parameters, Mapping) or not str(parameters.get("scale")).isdecimal():
        return None
    precision = str(parameters.get("connect.decimal.precision", _CONNECT_PRECISION))
    return _decimal(int(precision) if precision.isdecimal() else None, int(parameters["scale"]))
