"""What a column is read as from many values at once, and how that becomes the column.

A column travels in a carrier type: a timestamp as text, a double as the text of its number. Settling turns the carrier into the
column's type and says which rows it has a doubt about; these go to the exact decoder. A type without a carrier leaves the whole
table to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json import times
from frazil.records.json.convert import to_bytes, to_fixed, to_uuid, to_uuid_or_fixed
from frazil.records.model.column import AS_IT_IS, Reading
from frazil.records.model.dead_letter import Rejection
from frazil.records.model.json_number import SURE_DOUBLE

Settled = tuple[pa.Array, pa.BooleanArray | None]
"""An array of the column's type, and per row whether the exact decoder must decide (None: no
row)."""


NUMBER: Final = pa.binary()
"""The carrier type of numbers that keep every digit: `settle` takes their texts, among which a value of another kind stands as the
JSON that it is."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """`type` is what values are read as; `settle` takes an array of it, of offset 0."""

    type: pa.DataType
    settle: Callable[[pa.Array], Settled]


def any_of(masks: list[pa.BooleanArray | None]) -> pa.BooleanArray | None:
    """Return where any of the masks is true; None stands for one that never is."""
    found = [mask for mask in masks if mask is not None]
    return reduce(pc.or_, found) if found else None


def unless(certain: pa.BooleanArray) -> pa.BooleanArray | None:
    """Return a doubt where a check failed; a null value needs no check."""
    return None if all_of(certain) else pc.fill_null(pc.invert(certain), fill_value=False)


def all_of(mask: pa.BooleanArray) -> bool:
    """Return whether a check failed nowhere."""
    return bool(pc.all(mask).as_py() in {True, None})


_SECONDS: Final = pa.decimal128(24, 6)
"""Seconds may have a fraction: read as a decimal, their unscaled value is microseconds."""

_NANOS: Final = 1000


def time_carrier(data_type: pa.DataType, reading: Reading) -> Carrier:
    """Return the carrier of a date, a time or a timestamp."""
    if reading.unit is None or pa.types.is_date(data_type):
        zoned = data_type.tz is not None if pa.types.is_timestamp(data_type) else False
        return Carrier(pa.string(), partial(_texts, data_type, zoned or reading.local_time == "keep"))
    if reading.unit == "s":
        return Carrier(NUMBER, partial(_seconds, data_type))
    if reading.unit == "ns":
        return Carrier(pa.int64(), partial(_nanos, data_type))
    return Carrier(pa.int64(), partial(_counts, data_type, 10 ** times.SHIFTS[reading.unit]))


def _counts(data_type: pa.DataType, factor: int, array: pa.Array) -> Settled:
    first, end = _bounds(data_type)
    in_range = pc.and_(pc.greater_equal(array, first // factor), pc.less(array, end // factor))
    return pc.multiply(_where(in_range, array), factor).cast(data_type), unless(in_range)


def _seconds(data_type: pa.DataType, array: pa.Array) -> Settled:
    seconds, doubt = _decimals(_SECONDS, array)
    unscaled = pa.Array.from_buffers(
        pa.decimal128(_SECONDS.precision, 0), len(seconds), seconds.buffers(), seconds.null_count, seconds.offset
    )
    first, end = (pa.scalar(bound, unscaled.type) for bound in _bounds(data_type))
    in_range = pc.and_(pc.greater_equal(unscaled, first), pc.less(unscaled, end))
    return _where(in_range, unscaled).cast(pa.int64()).cast(data_type), any_of([doubt, unless(in_range)])


def _nanos(data_type: pa.DataType, array: pa.Array) -> Settled:
    micros = pc.divide(array, _NANOS)
    whole = pc.equal(pc.multiply(micros, _NANOS), array)
    first, end = _bounds(data_type)
    certain = pc.and_(whole, pc.and_(pc.greater_equal(micros, first), pc.less(micros, end)))
    return _where(certain, micros).cast(data_type), unless(certain)


def _bounds(data_type: pa.DataType) -> tuple[int, int]:
    return (0, times.DAY) if pa.types.is_time(data_type) else (times.FIRST, times.END)


def _where(certain: pa.BooleanArray, array: pa.Array) -> pa.Array:
    return array if all_of(certain) else pc.if_else(certain, array, pa.scalar(None, array.type))


# Years 1000 to 8999, and the 29th of February of years that 4 divides and 100 does not: within these bounds Arrow's cast
# can't fail and can't leave the range that the exact decoder accepts. All else is rare enough to be decided there.
_DATE: Final = (
    r"(?:[1-8][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))|[1-8][0-9](?:0[48]|[2468][048]|[13579][26])-02-29)"
)
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE: Final = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)$"
_PLAIN_DATE: Final = f"^{_DATE}Z?$"
_PLAIN_TIME: Final = f"^{_TIME}Z?$"
_PLAIN_LOCAL: Final = f"^{_DATE}[T ]{_TIME}$"
_PLAIN_TIMESTAMP: Final = f"^{_DATE}[T ]{_TIME}{_ZONE[:-1]}?$"
_ZONED: Final = f":[0-5][0-9](?:\\.[0-9]+)?{_ZONE}"


def _texts(data_type: pa.DataType, zones: bool, array: pa.Array) -> Settled:  # noqa: FBT001 - bound by position
    plain = pc.match_substring_regex(array, _plain_form(data_type, zones=zones))
    return _cast(data_type, _where(plain, array)), unless(plain)


def _plain_form(data_type: pa.DataType, *, zones: bool) -> str:
    if pa.types.is_date(data_type):
        return _PLAIN_DATE
    if pa.types.is_time(data_type):
        return _PLAIN_TIME
    return _PLAIN_TIMESTAMP if zones else _PLAIN_LOCAL


def _cast(data_type: pa.DataType, texts: pa.Array) -> pa.Array:
    if pa.types.is_date(data_type):
        return pc.utf8_rtrim(texts, "Z").cast(data_type)
    if pa.types.is_time(data_type):  # Arrow casts no text to a time, but a timestamp
        walls = pc.utf8_rtrim(texts, "Z")
        stamps = pc.binary_join_element_wise("1970-01-01T", walls, "").cast(pa.timestamp("us"))
        return stamps.cast(data_type)
    zoned = pc.match_substring_regex(texts, _ZONED)
    if data_type.tz is None:
        walls = pc.replace_substring_regex(texts, _ZONE, "") if pc.any(zoned).as_py() else texts
        return walls.cast(data_type)
    # Arrow wants a zone in every text of a timestamp with zone.
    return pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", "")).cast(data_type)


__all__ = ["Carrier", "Settled", "any_of", "carrier", "settle_field"]


def carrier(data_type: pa.DataType, reading: Reading = AS_IT_IS) -> Carrier | None:
    """Return the carrier of a type, or None if only the exact decoder reads it."""
    if pa.types.is_struct(data_type):
        return _struct_carrier(data_type, reading)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return _list_carrier(data_type, reading)
    return _scalar_carrier(data_type, reading)


def _scalar_carrier(data_type: pa.DataType, reading: Reading) -> Carrier | None:
    if pa.types.is_int32(data_type):
        return Carrier(pa.int64(), _int32)
    if data_type in {pa.bool_(), pa.int64(), pa.string(), pa.large_string()}:
        read = pa.string() if pa.types.is_large_string(data_type) else data_type
        return Carrier(read, partial(_as_is, data_type))
    if pa.types.is_decimal128(data_type) and data_type.scale >= 0:
        return Carrier(NUMBER, partial(_decimals, data_type))
    if pa.types.is_float32(data_type) or pa.types.is_float64(data_type):
        return Carrier(pa.float64(), partial(_floats, data_type))
    if pa.types.is_temporal(data_type):
        return time_carrier(data_type, reading)
    return _bytes_carrier(data_type)


def _bytes_carrier(data_type: pa.DataType) -> Carrier | None:
    if data_type == pa.uuid():
        return Carrier(pa.string(), partial(_each, to_uuid, data_type))
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return Carrier(pa.string(), partial(_each, to_bytes, data_type))
    if pa.types.is_fixed_size_binary(data_type):
        width = data_type.byte_width
        read = to_uuid_or_fixed if width == pa.uuid().storage_type.byte_width else partial(to_fixed, width)
        return Carrier(pa.string(), partial(_each, read, data_type))
    return None


def _as_is(data_type: pa.DataType, array: pa.Array) -> Settled:
    return array.cast(data_type), None


def _int32(array: pa.Array) -> Settled:
    in_range = pc.and_(pc.greater_equal(array, -(1 << 31)), pc.less(array, 1 << 31))
    numbers = array if all_of(in_range) else pc.if_else(in_range, array, pa.scalar(None, pa.int64()))
    return numbers.cast(pa.int32()), unless(in_range)


def _decimals(data_type: pa.Decimal128Type, array: pa.Array) -> Settled:
    whole = data_type.precision - data_type.scale
    fraction = rf"(?:\.[0-9]{{1,{data_type.scale}}})?" if data_type.scale else ""
    digits = f"|[1-9][0-9]{{0,{whole - 1}}}" if whole else ""
    certain = pc.match_substring_regex(array, f"^-?(?:0{digits}){fraction}$")
    return _where(certain, array).cast(data_type), unless(certain)


def _floats(data_type: pa.DataType, array: pa.Array) -> Settled:
    doubt = None
    if pa.types.is_string(array.type):  # texts of numbers, some of which are long
        certain = pc.match_substring_regex(array, f"^{SURE_DOUBLE}$")
        array, doubt = _where(certain, array).cast(pa.float64()), unless(certain)
    numbers = array.cast(data_type, safe=False)
    return numbers, any_of([doubt, unless(pc.is_finite(numbers))])


def _each(read: Callable[[str], bytes], data_type: pa.DataType, array: pa.Array) -> Settled:
    values: list[bytes | None] = []
    doubt: list[bool] = []
    for text in array.to_pylist():
        value = None if text is None else _value_of(read, text)
        values.append(value)
        doubt.append(text is not None and value is None)
    return pa.array(values, _storage(data_type)).cast(data_type), pa.array(doubt, pa.bool_())


def _value_of(read: Callable[[str], bytes], text: str) -> bytes | None:
    try:
        return read(text)
    except Rejection:
        return None


def _storage(data_type: pa.DataType) -> pa.DataType:
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type


def _struct_carrier(data_type: pa.StructType, reading: Reading) -> Carrier | None:
    inner = [carrier(field.type, reading) for field in data_type]
    carriers = [found for found in inner if found is not None]
    if len(carriers) < len(inner) or not inner:
        return None
    names = [field.name for field in data_type]
    if len(set(names)) < len(names):
        return None
    read = pa.struct([pa.field(name, found.type) for name, found in zip(names, carriers, strict=True)])
    return Carrier(read, partial(_settle_struct, data_type, carriers))


def _settle_struct(data_type: pa.StructType, carriers: list[Carrier], array: pa.Array) -> Settled:
    settled = [settle_field(field, *pair) for field, *pair in zip(data_type, carriers, array.flatten(), strict=True)]
    # A null struct has null children: that is no doubt about the children.
    doubt = any_of([child_doubt for _, child_doubt in settled])
    if doubt is not None:
        doubt = pc.and_(doubt, array.is_valid())
    children = [child for child, _ in settled]
    return pa.StructArray.from_arrays(children, fields=list(data_type), mask=array.is_null()), doubt


def settle_field(field: pa.Field, found: Carrier, array: pa.Array) -> Settled:
    """Settle an array of `field`; a null in a required field is a doubt."""
    values, doubt = found.settle(array)
    nulls = values.is_null() if not field.nullable and values.null_count else None
    return values, any_of([doubt, nulls])


def _list_carrier(data_type: pa.ListType | pa.LargeListType, reading: Reading) -> Carrier | None:
    item = data_type.value_field
    inner = carrier(item.type, reading)
    if inner is None:
        return None
    return Carrier(pa.list_(inner.type), partial(_settle_list, data_type, inner))


def _settle_list(data_type: pa.ListType | pa.LargeListType, inner: Carrier, array: pa.Array) -> Settled:
    values, doubt = settle_field(data_type.value_field, inner, array.values)
    kind = pa.LargeListArray if pa.types.is_large_list(data_type) else pa.ListArray
    offsets = array.offsets.cast(pa.int64()) if kind is pa.LargeListArray else array.offsets
    lists = kind.from_arrays(offsets, values, type=data_type, mask=array.is_null())
    return lists, None if doubt is None else _parents(array, doubt)


def _parents(array: pa.Array, doubt: pa.BooleanArray) -> pa.BooleanArray:
    """Return which lists hold a doubtful item."""
    doubtful = pc.list_parent_indices(array).filter(doubt)
    return pc.is_in(pa.array(range(len(array)), pa.int64()), value_set=doubtful)
