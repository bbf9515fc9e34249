"""Casts columns as Java and Kafka Connect do: to JSON texts, texts, numbers and booleans."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_codes import FIELDS_UNFIT

Texts = list[str]

_ISO: Final = re.compile('"(?:[0-9]{4}-|[0-9]{2}:|"$)')
_NOT_FINITE: Final = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Java's names of numbers, by Arrow's."""
_NUMBERS: Final = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean)
_TIMES: Final = (pa.types.is_date, pa.types.is_time)
_BINARIES: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
_TEXTS: Final = (pa.types.is_string, pa.types.is_large_string)


def json_texts(values: pa.Array) -> pa.StringArray:
    """Return each value as compact JSON text, exactly; null stays null.

    Numbers keep every digit. Types that JSON does not have become texts: dates and times in ISO 8601 (instants with `Z`), binary
    in base64, uuids in their usual form, NaN and the infinities as `"NaN"`, `"Infinity"` and `"-Infinity"`. A date outside of the
    years 0000 to 9999 is the number that the column stores. Maps become objects; a key that is no text becomes its JSON text.

    Raises:
        Terminal: The type is one that decoded records never have.
    """
    texts = _texts(values)
    return pa.array(
        [text if valid else None for text, valid in zip(texts, values.is_valid().to_pylist(), strict=True)], pa.string()
    )


def _texts(values: pa.Array) -> Texts:
    """Return JSON texts with `null` for null."""
    value_type = values.type
    if pa.types.is_struct(value_type):
        return _with_nulls(values, _objects(values))
    if pa.types.is_map(value_type):
        return _maps(values)
    if pa.types.is_list(value_type) or pa.types.is_large_list(value_type) or pa.types.is_fixed_size_list(value_type):
        return _lists(values)
    return _with_nulls(values, _scalars(values))


def _with_nulls(values: pa.Array, texts: Texts) -> Texts:
    if not values.null_count:
        return texts
    return [text if valid else "null" for text, valid in zip(texts, values.is_valid().to_pylist(), strict=True)]


def _objects(values: pa.StructArray) -> Texts:
    names = [encode_basestring(field.name) for field in values.type]
    if not names:
        return ["{}"] * len(values)
    columns = [[f"{name}:{text}" for text in _texts(c)] for name, c in zip(names, values.flatten(), strict=True)]
    return ["{" + ",".join(row) + "}" for row in zip(*columns, strict=True)]


def _lists(values: pa.ListArray) -> Texts:
    items = _texts(values.flatten())
    return _joined(items, "[", "]", pc.list_value_length(values).to_pylist())


def _maps(values: pa.MapArray) -> Texts:
    entries = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
    keys, items = (_texts(column) for column in entries.flatten().flatten())
    names = (key if key.startswith('"') else encode_basestring(key) for key in keys)
    pairs = [f"{name}:{item}" for name, item in zip(names, items, strict=True)]
    return _joined(pairs, "{", "}", pc.list_value_length(entries).to_pylist())


def _joined(items: Texts, opening: str, closing: str, lengths: Sequence[int | None]) -> Texts:
    # Flattened lists have no elements of lists that are null, so the elements follow one another.
    texts: Texts = []
    start = 0
    for length in lengths:
        if length is None:
            texts.append("null")
            continue
        texts.append(opening + ",".join(items[start : start + length]) + closing)
        start += length
    return texts


def _scalars(values: pa.Array) -> Texts:
    """Return JSON texts of values that are not nested, and any text for null."""
    value_type = values.type
    if pa.types.is_null(value_type):
        return ["null"] * len(values)
    if pa.types.is_floating(value_type):
        return [f'"{_NOT_FINITE[text]}"' if text in _NOT_FINITE else text for text in _cast(values)]
    if value_type == pa.uuid():
        return _write_each(values.storage.to_pylist(), lambda raw: f'"{UUID(bytes=raw)}"')
    for tests, write in _WRITERS:
        if any(test(value_type) for test in tests):
            return write(values)
    raise FIELDS_UNFIT.terminal(
        f"values of Arrow type {value_type} have no JSON text", next_step="remove the field before this transform"
    )


def _cast(values: pa.Array) -> Texts:
    return [text or "" for text in values.cast(pa.string()).to_pylist()]


def _write_each(raw_values: list[bytes | None], write: Callable[[bytes], str]) -> Texts:
    return ["" if raw is None else write(raw) for raw in raw_values]


def _base64(values: pa.Array) -> Texts:
    return _write_each(values.to_pylist(), lambda raw: f'"{base64.b64encode(raw).decode()}"')


def _iso(values: pa.Array) -> Texts:
    texts = [f'"{text.replace(" ", "T", 1)}"' for text in _cast(values)]
    if all(map(_ISO.match, texts)):
        return texts
    # Arrow writes a remark in place of a time that its calendar does not reach.
    numbers = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64()).to_pylist()
    return [text if _ISO.match(text) else str(number) for text, number in zip(texts, numbers, strict=True)]


def _text(values: pa.Array) -> Texts:
    return [encode_basestring(text or "") for text in values.to_pylist()]


_WRITERS: Final[tuple[tuple[Sequence[Callable[[pa.DataType], bool]], Callable[[pa.Array], Texts]], ...]] = (
    (_TEXTS, _text),
    (_NUMBERS, _cast),
    (_TIMES, _iso),
    ((pa.types.is_timestamp,), _iso),
    (_BINARIES, _base64),
)


_PLAIN_BELOW: Final = 7
_PLAIN_FROM: Final = -3
"""Java writes floating-point numbers from 10^-3 to below 10^7 without an exponent."""


def java_texts(values: pa.Array) -> pa.StringArray | None:
    """Return values as text, null for null; None for types that have no text: struct, list, map.

    Booleans are `true` and `false`. Floating-point numbers look as Java's `Double.toString` writes them. Binary is base64 (RFC
    4648, padded). Dates, times and timestamps are ISO 8601 with three decimals, or six if needed, and `Z` if they have a zone.
    """
    data_type = values.type
    if pa.types.is_nested(data_type):
        return None
    if pa.types.is_floating(data_type):
        return _each(values.cast(pa.string()), pa.string(), _java_number)
    if pa.types.is_timestamp(data_type):
        zone = "" if data_type.tz is None else "Z"
        return _time_texts(values, f"%Y-%m-%dT%H:%M:%S{zone}")
    if pa.types.is_time(data_type):
        return _time_texts(values.cast(pa.int64()).cast(pa.timestamp("us")), "%H:%M:%S")
    if data_type == pa.uuid() or _is_binary(data_type):
        return _each(values, pa.string(), _base64_or_uuid)
    return values.cast(pa.string())


def header_bytes(values: pa.Array) -> pa.BinaryArray:
    """Return values as the bytes of header values: binary unchanged, nested values as JSON, the rest as text in UTF-8."""
    if _is_binary(values.type):
        return values.cast(pa.binary())
    texts = java_texts(values)
    return (json_texts(values) if texts is None else texts).cast(pa.binary())


def _is_binary(data_type: pa.DataType) -> bool:
    return any(test(data_type) for test in _BINARIES)


def _time_texts(values: pa.TimestampArray, form: str) -> pa.StringArray:
    """Return texts with milliseconds; with microseconds only where they are not zero."""
    millis_texts = pc.strftime(values.cast(pa.timestamp("ms", values.type.tz), safe=False), form)
    return pc.if_else(pc.equal(pc.microsecond(values), 0), millis_texts, pc.strftime(values, form))


def _java_number(text: str) -> str:
    """Return Arrow's shortest digits of a float or double as Java writes them: 1.0, 1.0E10, NaN."""
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
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


def _base64_or_uuid(value: bytes | UUID) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


_INTEGER: Final = r"^[+-]?[0-9]+$"
_SHORT_INTEGER: Final = r"^-?[0-9]{1,18}$"
"""Integers that surely fit, and that Arrow reads as Python does."""
_FLOAT: Final = r"^[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)$"
_BOOLEANS: Final = {"true": True, "false": False}
_INFINITE_FLOAT: Final = 3.4028235677973366e38
"""The least number whose nearest float is infinite: half a step above the largest float."""
_MICROS_PER_MILLI: Final = 1000
_MAX_DIGITS: Final = 5000
"""A longer text is no number that a column holds, and costs Python's int() too much."""


@dataclass(frozen=True, slots=True)
class CastResult:
    """Values cast to another type, and the rows on which the cast failed."""

    values: pa.Array
    failed: list[int] = field(default_factory=list)


def to_integers(values: pa.Array, bits: int) -> CastResult | None:
    """Cast to the range of integers of `bits` bits, as int32 (up to 32 bits) or int64; None if the type can't be cast.

    Fractions are cut off. Booleans become 0 and 1, dates days since 1970, times and timestamps milliseconds since midnight or
    1970. Texts are decimal digits with an optional sign. A number out of range fails.
    """
    whole = _to_int64(values)
    if whole is None:
        return None
    inside = pc.and_(pc.greater_equal(whole, -(1 << (bits - 1))), pc.less_equal(whole, (1 << (bits - 1)) - 1))
    integers = pc.if_else(inside, whole, pa.scalar(None, pa.int64()))
    return _with_failed_rows(values, integers if bits > 32 else integers.cast(pa.int32()))  # noqa: PLR2004 - bits of int32


def to_floats(values: pa.Array, float_type: pa.DataType) -> CastResult | None:
    """Cast to the nearest float32 or float64; a finite number that would become infinite fails."""
    doubles = _to_doubles(values)
    if doubles is None:
        return None
    if float_type == pa.float32():
        huge = pc.and_(pc.is_finite(doubles), pc.greater_equal(pc.abs(doubles), _INFINITE_FLOAT))
        doubles = pc.if_else(huge, pa.scalar(None, pa.float64()), doubles)
    return _with_failed_rows(values, doubles.cast(float_type, safe=False))


def to_booleans(values: pa.Array) -> CastResult | None:
    """Cast to booleans: numbers are true unless their whole part is 0; texts are `true` or `false`, in any case."""
    data_type = values.type
    if _is_text(data_type):
        return _with_failed_rows(values, _each(values, pa.bool_(), lambda text: _BOOLEANS.get(text.lower())))
    if pa.types.is_boolean(data_type):
        return CastResult(values)
    if pa.types.is_integer(data_type):
        return CastResult(pc.not_equal(values, 0))
    if pa.types.is_floating(data_type):
        return CastResult(pc.greater_equal(pc.abs(values), 1))
    if pa.types.is_decimal(data_type):
        return CastResult(pc.not_equal(pc.trunc(values), pa.scalar(0, pc.trunc(values).type)))
    return None


def _to_int64(values: pa.Array) -> pa.Int64Array | None:  # noqa: PLR0911 - a type per line
    """Return whole parts as int64, null where they don't fit; None if the type can't be cast."""
    data_type = values.type
    if _is_text(data_type):
        if pc.all(pc.match_substring_regex(values, _SHORT_INTEGER)).as_py() is not False:
            return values.cast(pa.int64())
        return _each(values, pa.int64(), lambda text: _int64(int(text)), _INTEGER)
    if pa.types.is_integer(data_type) or pa.types.is_boolean(data_type):
        return values.cast(pa.int64())
    if pa.types.is_date(data_type):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_time(data_type):
        return pc.divide(values.cast(pa.int64()), _MICROS_PER_MILLI)
    if pa.types.is_timestamp(data_type):
        return pc.floor_temporal(values, unit="millisecond").cast(pa.timestamp("ms", data_type.tz)).cast(pa.int64())
    if pa.types.is_floating(data_type):
        # 2**63 is the first double that is too large; NaN compares false and becomes null as well.
        doubles = values.cast(pa.float64())
        inside = pc.and_(pc.greater_equal(doubles, -(2.0**63)), pc.less(doubles, 2.0**63))
        return pc.trunc(pc.if_else(inside, doubles, pa.scalar(None, pa.float64()))).cast(pa.int64())
    if pa.types.is_decimal(data_type):
        return _each(values, pa.int64(), lambda number: _int64(int(number)))
    return None


def _to_doubles(values: pa.Array) -> pa.DoubleArray | None:
    data_type = values.type
    if _is_text(data_type):
        return _each(values, pa.float64(), _finite, _FLOAT)
    if pa.types.is_boolean(data_type):
        return values.cast(pa.int8()).cast(pa.float64())
    if pa.types.is_decimal(data_type):
        return _each(values, pa.float64(), float)
    if pa.types.is_integer(data_type) or pa.types.is_floating(data_type):
        return values.cast(pa.float64(), safe=False)
    return None


def _each(
    values: pa.Array, data_type: pa.DataType, convert: Callable[[Any], object], form: str | None = None
) -> pa.Array:
    """Convert values one by one; null where a text does not match `form`."""
    pattern = re.compile(form or "", re.ASCII | re.DOTALL)
    return pa.array(
        [
            None
            if value is None or (form and (len(value) > _MAX_DIGITS or not pattern.fullmatch(value)))
            else convert(value)
            for value in values.to_pylist()
        ],
        data_type,
    )


def _int64(number: int) -> int | None:
    return number if -(1 << 63) <= number < 1 << 63 else None


def _finite(text: str) -> float | None:
    number = float(text)
    return None if math.isinf(number) and "Inf" not in text else number


def _is_text(data_type: pa.DataType) -> bool:
    return any(test(data_type) for test in _TEXTS)


def _with_failed_rows(values: pa.Array, cast: pa.Array) -> CastResult:
    if cast.null_count == values.null_count:
        return CastResult(cast)
    return CastResult(cast, pc.indices_nonzero(pc.and_(values.is_valid(), cast.is_null())).to_pylist())
