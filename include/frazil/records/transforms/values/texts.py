"""Columns as text, as Kafka Connect writes values: Java's numbers, ISO 8601 times."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.transforms.values.arrow_json import json_texts

_PLAIN_BELOW: Final = 7
_PLAIN_FROM: Final = -3
"""Java writes floating-point numbers from 10^-3 to below 10^7 without an exponent."""


def texts_of(values: pa.Array) -> pa.StringArray | None:
    """Return values as text, null for null; None for types that have no text: struct, list, map.

    Booleans are `true` and `false`; floating-point numbers as Java's `Double.toString`; binary base64 (RFC 4648, padded);
    dates, times and timestamps ISO 8601 with three decimals, or six where they are needed, and `Z` where they have a zone.
    """
    data_type = values.type
    if pa.types.is_nested(data_type):
        return None
    if pa.types.is_floating(data_type):
        return _mapped(_java_number, values.cast(pa.string()))
    if pa.types.is_timestamp(data_type):
        zone = "" if data_type.tz is None else "Z"
        return _to_millis(values, data_type, f"%Y-%m-%dT%H:%M:%S{zone}")
    if pa.types.is_time(data_type):
        return _to_millis(values.cast(pa.int64()).cast(pa.timestamp("us")), pa.timestamp("us"), "%H:%M:%S")
    if data_type == pa.uuid() or _is_binary(data_type):
        return _mapped(_plain, values)
    return values.cast(pa.string())


def header_bytes(values: pa.Array) -> pa.BinaryArray:
    """Return values as the bytes of header values: binary as it is, nested values as JSON, the rest as text in UTF-8."""
    if _is_binary(values.type):
        return values.cast(pa.binary())
    texts = texts_of(values)
    return (json_texts(values) if texts is None else texts).cast(pa.binary())


def _is_binary(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type) or pa.types.is_fixed_size_binary(data_type)
    )


def _mapped(write: Any, values: pa.Array) -> pa.StringArray:
    return pa.array([None if value is None else write(value) for value in values.to_pylist()], pa.string())


def _to_millis(values: pa.TimestampArray, data_type: pa.DataType, form: str) -> pa.StringArray:
    """Write milliseconds, and microseconds only where there are some."""
    coarse = pc.strftime(values.cast(pa.timestamp("ms", data_type.tz), safe=False), form)
    return pc.if_else(pc.equal(pc.microsecond(values), 0), coarse, pc.strftime(values, form))


def _java_number(text: str) -> str:
    """Return Arrow's shortest digits of a float or double as Java writes them: 1.0, 1.0E10, NaN."""
    special = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    if text in special:
        return special[text]
    number = Decimal(text)
    if number.is_zero():
        return "-0.0" if number.is_signed() else "0.0"
    exponent = number.adjusted()
    if _PLAIN_FROM <= exponent < _PLAIN_BELOW:
        plain = f"{number:f}"
        return plain if "." in plain else f"{plain}.0"
    sign = "-" if number.is_signed() else ""
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _plain(value: bytes | UUID) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
