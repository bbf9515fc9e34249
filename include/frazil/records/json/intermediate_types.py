"""Carrier types: what the block decoder reads a column as, and how that is cast to the column's type.

A timestamp is read as text, for example, and a double as the text of its number. The cast of the carrier also returns which rows
are in doubt; these go to the exact decoder. If one type has no carrier, the exact decoder reads the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json import times
from frazil.records.json.convert import to_bytes, to_fixed, to_uuid, to_uuid_or_fixed
from frazil.records.model.column import AS_IT_IS, Reading
from frazil.records.model.dead_letter import Rejection
from frazil.records.model.json_number import SURE_DOUBLE

CastResult = tuple[pa.Array, pa.BooleanArray | None]
"""The array of the column's type, and a mask of doubt: the rows that the exact decoder must decide (None: no row)."""

ArrayCast = Callable[[pa.Array], CastResult]


NUMBER: Final = pa.binary()
"""The carrier type of numbers that keep every digit. `cast` gets their texts; a value of another kind comes as its JSON text."""

DOCUMENT: Final = pa.large_binary()
"""The carrier type of columns that take any JSON value as text: it comes as it was sent."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """How a column is read.

    Attributes:
        type: The Arrow type that values are read as.
        cast: Converts an array of it, whose offset is 0.
        children: The carriers of the fields of a struct.
    """

    type: pa.DataType
    cast: ArrayCast
    children: tuple[Carrier, ...] = ()


def or_masks(masks: list[pa.BooleanArray | None]) -> pa.BooleanArray | None:
    """Return where any of the masks is true; None stands for a mask that is true nowhere."""
    present = [mask for mask in masks if mask is not None]
    return reduce(pc.or_, present) if present else None


def keep_certain(array: pa.Array, is_certain: pa.BooleanArray) -> CastResult:
    """Return the values that are certain, null in place of the others, and a mask of the others as in doubt."""
    if pc.all(is_certain).as_py() in {True, None}:  # a null value is never in doubt
        return array, None
    doubt = pc.fill_null(pc.invert(is_certain), fill_value=False)
    return pc.if_else(is_certain, array, pa.scalar(None, array.type)), doubt


_SECONDS: Final = pa.decimal128(24, 6)
"""Seconds may have a fraction: read as a decimal, their unscaled value is microseconds."""

_NANOS: Final = 1000
_LONG_BITS: Final = 64


def time_carrier(data_type: pa.DataType, reading: Reading) -> Carrier:
    """Return the carrier of a date, a time or a timestamp."""
    if reading.unit is None or pa.types.is_date(data_type):
        zoned = data_type.tz is not None if pa.types.is_timestamp(data_type) else False
        read = partial(_texts, data_type, zoned or reading.local_time == "keep")
        return Carrier(pa.string(), partial(_cut_texts, read) if reading.truncates else read)
    if reading.unit == "s":
        return Carrier(NUMBER, partial(_seconds, data_type))
    if reading.unit == "ns":
        return Carrier(pa.int64(), partial(_nanos, data_type, reading.truncates))
    return Carrier(pa.int64(), partial(_counts, data_type, 10 ** times.SHIFTS[reading.unit]))


def day_carrier() -> Carrier:
    """Return the carrier of a date that is sent as the number of days since 1970-01-01."""
    return Carrier(pa.int64(), _days)


def _days(array: pa.Array) -> CastResult:
    in_range = pc.and_(pc.greater_equal(array, times.FIRST // times.DAY), pc.less(array, times.END // times.DAY))
    days, doubt = keep_certain(array, in_range)
    return days.cast(pa.int32()).cast(pa.date32()), doubt


def _counts(data_type: pa.DataType, factor: int, array: pa.Array) -> CastResult:
    first, end = _bounds(data_type)
    in_range = pc.and_(pc.greater_equal(array, first // factor), pc.less(array, end // factor))
    numbers, doubt = keep_certain(array, in_range)
    return pc.multiply(numbers, factor).cast(data_type), doubt


def _seconds(data_type: pa.DataType, array: pa.Array) -> CastResult:
    seconds, doubt = _decimals(_SECONDS, array)
    unscaled = pa.Array.from_buffers(
        pa.decimal128(_SECONDS.precision, 0), len(seconds), seconds.buffers(), seconds.null_count, seconds.offset
    )
    first, end = (pa.scalar(bound, unscaled.type) for bound in _bounds(data_type))
    micros, beyond = keep_certain(unscaled, pc.and_(pc.greater_equal(unscaled, first), pc.less(unscaled, end)))
    return micros.cast(pa.int64()).cast(data_type), or_masks([doubt, beyond])


def _nanos(data_type: pa.DataType, truncates: bool, array: pa.Array) -> CastResult:  # noqa: FBT001 - bound by position
    micros = pc.divide(array, _NANOS)
    whole = pc.equal(pc.multiply(micros, _NANOS), array)
    if truncates:  # of those before 1970 Arrow's quotient is the next microsecond
        whole = pc.or_(whole, pc.greater_equal(array, 0))
    first, end = _bounds(data_type)
    certain = pc.and_(whole, pc.and_(pc.greater_equal(micros, first), pc.less(micros, end)))
    micros, doubt = keep_certain(micros, certain)
    return micros.cast(data_type), doubt


def _bounds(data_type: pa.DataType) -> tuple[int, int]:
    return (0, times.DAY) if pa.types.is_time(data_type) else (times.FIRST, times.END)


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


def _texts(data_type: pa.DataType, zones: bool, array: pa.Array) -> CastResult:  # noqa: FBT001 - bound by position
    texts, doubt = keep_certain(array, pc.match_substring_regex(array, _plain_form(data_type, zones=zones)))
    return _cast_texts(data_type, texts), doubt


def _cut_texts(read: ArrayCast, array: pa.Array) -> CastResult:
    return read(pc.replace_substring_regex(array, times.FINER, r"\1", max_replacements=1))


def _plain_form(data_type: pa.DataType, *, zones: bool) -> str:
    if pa.types.is_date(data_type):
        return _PLAIN_DATE
    if pa.types.is_time(data_type):
        return _PLAIN_TIME
    return _PLAIN_TIMESTAMP if zones else _PLAIN_LOCAL


def _cast_texts(data_type: pa.DataType, texts: pa.Array) -> pa.Array:
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
    if pc.all(zoned).as_py():
        return texts.cast(data_type)
    # Arrow wants a zone in every text of a timestamp with zone.
    return pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", "")).cast(data_type)


def carrier(data_type: pa.DataType, reading: Reading = AS_IT_IS) -> Carrier | None:
    """Return the carrier of a type, or None if only the exact decoder reads it."""
    if pa.types.is_struct(data_type):
        return struct_carrier(data_type, [carrier(field.type, reading) for field in data_type])
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return list_carrier(data_type, carrier(data_type.value_type, reading))
    return _scalar_carrier(data_type, reading)


def _scalar_carrier(data_type: pa.DataType, reading: Reading) -> Carrier | None:
    if pa.types.is_int32(data_type):
        return integer_carrier(32)
    if data_type in {pa.bool_(), pa.int64(), pa.string(), pa.large_string()}:
        carrier_type = pa.string() if pa.types.is_large_string(data_type) else data_type
        return Carrier(carrier_type, partial(_as_is, data_type))
    if (pa.types.is_decimal128(data_type) or pa.types.is_decimal256(data_type)) and data_type.scale >= 0:
        return Carrier(NUMBER, partial(_decimals, data_type))
    if pa.types.is_float32(data_type) or pa.types.is_float64(data_type):
        return Carrier(pa.float64(), partial(_floats, data_type))
    if pa.types.is_temporal(data_type):
        return time_carrier(data_type, reading)
    return _bytes_carrier(data_type)


def _bytes_carrier(data_type: pa.DataType) -> Carrier | None:
    if data_type == pa.uuid():
        return text_carrier(to_uuid, data_type)
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return text_carrier(to_bytes, data_type)
    if pa.types.is_fixed_size_binary(data_type):
        width = data_type.byte_width
        read = to_uuid_or_fixed if width == pa.uuid().storage_type.byte_width else partial(to_fixed, width)
        return text_carrier(read, data_type)
    return None


def _as_is(data_type: pa.DataType, array: pa.Array) -> CastResult:
    return array.cast(data_type), None


def integer_carrier(bits: int) -> Carrier:
    """Return the carrier of an int32 that holds integers of at most so many bits; with 64 bits, of an int64."""
    return Carrier(pa.int64(), partial(_as_is, pa.int64()) if bits == _LONG_BITS else partial(_integers, bits))


def _integers(bits: int, array: pa.Array) -> CastResult:
    bound = 1 << (bits - 1)
    least, most = pc.min_max(array).values()
    if not least.is_valid or -bound <= least.as_py() <= most.as_py() < bound:
        return array.cast(pa.int32()), None
    numbers, doubt = keep_certain(array, pc.and_(pc.greater_equal(array, -bound), pc.less(array, bound)))
    return numbers.cast(pa.int32()), doubt


def _decimals(data_type: pa.Decimal128Type | pa.Decimal256Type, array: pa.Array) -> CastResult:
    whole = data_type.precision - data_type.scale
    fraction = rf"(?:\.[0-9]{{1,{data_type.scale}}})?" if data_type.scale else ""
    digits = f"|[1-9][0-9]{{0,{whole - 1}}}" if whole else ""
    texts, doubt = keep_certain(array, pc.match_substring_regex(array, f"^-?(?:0{digits}){fraction}$"))
    return texts.cast(data_type), doubt


def _floats(data_type: pa.DataType, array: pa.Array) -> CastResult:
    doubt = None
    if pa.types.is_string(array.type):  # texts of numbers, some of which are long
        texts, doubt = keep_certain(array, pc.match_substring_regex(array, f"^{SURE_DOUBLE}$"))
        array = texts.cast(pa.float64())
    numbers = array.cast(data_type, safe=False)
    return numbers, or_masks([doubt, keep_certain(numbers, pc.is_finite(numbers))[1]])


def text_carrier(read: Callable[[str], object], data_type: pa.DataType) -> Carrier:
    """Return the carrier of a type that is sent as text; `read` converts a text, or raises `Rejection`."""
    return Carrier(pa.string(), partial(_each, read, data_type))


def _each(read: Callable[[str], object], data_type: pa.DataType, array: pa.Array) -> CastResult:
    values: list[object] = []
    doubt: list[bool] = []
    for text in array.to_pylist():
        value = None if text is None else value_or_none(read, text)
        values.append(value)
        doubt.append(text is not None and value is None)
    return pa.array(values, _storage(data_type)).cast(data_type), pa.array(doubt, pa.bool_())


def value_or_none(read: Callable[[Any], object], value: Any) -> object:
    """Read a value; None where it is rejected."""
    try:
        return read(value)
    except Rejection:
        return None


def _storage(data_type: pa.DataType) -> pa.DataType:
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type


def struct_carrier(data_type: pa.StructType, children: list[Carrier | None]) -> Carrier | None:
    """Return the carrier of a struct whose fields have these carriers; None if one has none."""
    carriers = [child for child in children if child is not None]
    if len(carriers) < len(children) or not children:
        return None
    names = [field.name for field in data_type]
    if len(set(names)) < len(names):
        return None
    carrier_type = pa.struct([pa.field(name, child.type) for name, child in zip(names, carriers, strict=True)])
    return Carrier(carrier_type, partial(_cast_struct, data_type, [child.cast for child in carriers]), tuple(carriers))


def _cast_struct(data_type: pa.StructType, casts: list[ArrayCast], array: pa.Array) -> CastResult:
    return cast_struct(data_type, casts, array.flatten(), array)


def cast_struct(
    target: pa.StructType, casts: Sequence[ArrayCast | None], children: Sequence[pa.Array], array: pa.Array
) -> CastResult:
    """Return structs of a type: each child cast to its field, null where `array` is, which is never in doubt."""
    results = [cast_field(*parts) for parts in zip(target, casts, children, strict=True)]
    structs = pa.StructArray.from_arrays([child for child, _ in results], fields=list(target), mask=null_mask(array))
    return structs, without_nulls(array, or_masks([doubt for _, doubt in results]))


def cast_field(field: pa.Field, cast: ArrayCast | None, array: pa.Array) -> CastResult:
    """Cast an array to the type of `field`, to nulls without a cast; a null in a required field is in doubt."""
    values, doubt = (pa.nulls(len(array), field.type), None) if cast is None else cast(array)
    nulls = values.is_null() if not field.nullable and values.null_count else None
    return values, or_masks([doubt, nulls])


def null_mask(array: pa.Array) -> pa.BooleanArray | None:
    """Return where an array is null; None: nowhere."""
    return array.is_null() if array.null_count else None


def without_nulls(array: pa.Array, doubt: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return a mask of doubt without rows that are null: what lies inside of a null does not count."""
    if doubt is None or not pc.any(doubt).as_py():
        return None
    return pc.and_(doubt, array.is_valid())


def list_carrier(data_type: pa.ListType | pa.LargeListType, item_carrier: Carrier | None) -> Carrier | None:
    """Return the carrier of a list whose items have this carrier; None if they have none."""
    if item_carrier is None:
        return None
    return Carrier(pa.list_(item_carrier.type), partial(cast_list, data_type, item_carrier.cast))


def list_window(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return offsets that begin at 0, and where in the items of a (sliced) list or map array they begin and end."""
    wide = pa.types.is_large_list(array.type)
    if not len(array):
        return pa.array([0], pa.int64() if wide else pa.int32()), 0, 0
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, pa.scalar(first, offsets.type)), first, last


def cast_list(target: pa.ListType | pa.LargeListType, cast: ArrayCast, lists: pa.Array) -> CastResult:
    """Return lists of a type, with their items cast; a list with an item in doubt is in doubt."""
    offsets, first, last = list_window(lists)
    items, doubt = cast_field(target.value_field, cast, lists.values.slice(first, last - first))
    kind, size = (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(target) else (pa.ListArray, pa.int32())
    result = kind.from_arrays(offsets.cast(size), items, type=target, mask=null_mask(lists))
    return result, without_nulls(lists, lists_in_doubt(offsets, doubt))


_ZERO: Final = pa.array([0], pa.int64())


def lists_in_doubt(offsets: pa.Array, doubt: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return which lists hold an item in doubt."""
    if doubt is None:
        return None
    # A list has an item in doubt if the running sum of doubts rises between its first and its last offset.
    doubts_before = pa.concat_arrays([_ZERO, pc.cumulative_sum(doubt.cast(pa.int64()))])
    return pc.greater(pc.subtract(doubts_before.take(offsets[1:]), doubts_before.take(offsets[:-1])), 0)
