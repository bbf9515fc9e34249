"""Intermediate types: what the block decoder reads the values of a column as, and how these are cast to the column's type.

A timestamp is read as text, for example, and a decimal as the text of its number. A cast also returns which rows are in doubt:
the exact decoder decides about these. If one column has no intermediate type, the exact decoder reads all values of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json import times
from frazil.records.json.convert import UUID_BYTES, build_array, to_bytes, to_fixed, to_uuid, to_uuid_or_fixed
from frazil.records.model.column import AS_IT_IS, Reading
from frazil.records.model.dead_letter import Rejection
from frazil.records.model.json_number import SURE_DOUBLE

CastResult = tuple[pa.Array, pa.BooleanArray | None]
"""The array of the column's type, and the mask of the rows in doubt, about which the exact decoder decides (None: no row)."""

ArrayCast = Callable[[pa.Array], CastResult]


NUMBER: Final = pa.binary()
"""Stands for numbers that keep every digit. `cast` gets the text of each number, and the JSON text of a value of another kind."""

DOCUMENT: Final = pa.large_binary()
"""Stands for any JSON value. `cast` gets its text as it was sent."""


@dataclass(frozen=True, slots=True)
class IntermediateType:
    """How the values of a column are read.

    Attributes:
        type: The Arrow type that values are read as, or `NUMBER` or `DOCUMENT`.
        cast: Casts an array of this type, whose offset is 0, to the column's type.
        children: The intermediate types of a struct's fields.
    """

    type: pa.DataType
    cast: ArrayCast
    children: tuple[IntermediateType, ...] = ()


def or_masks(masks: list[pa.BooleanArray | None]) -> pa.BooleanArray | None:
    """Return a mask that is true where one of the masks is; None stands for a mask that is true nowhere."""
    present = [mask for mask in masks if mask is not None]
    return reduce(pc.or_, present) if present else None


def keep_certain(array: pa.Array, is_certain: pa.BooleanArray) -> CastResult:
    """Return the array with null in place of each value that is not certain, and the mask of these as in doubt."""
    if pc.all(is_certain).as_py() in {True, None}:  # a null value is never in doubt
        return array, None
    doubt = pc.fill_null(pc.invert(is_certain), fill_value=False)
    return pc.if_else(is_certain, array, pa.scalar(None, array.type)), doubt


_SECONDS: Final = pa.decimal128(24, 6)
"""Seconds may have a fraction: read as a decimal, their unscaled value is microseconds."""

_NANOS: Final = 1000
"""Nanoseconds of a microsecond."""

_LONG_BITS: Final = 64


def intermediate_time(data_type: pa.DataType, reading: Reading) -> IntermediateType:
    """Return the intermediate type of a date, a time or a timestamp."""
    if reading.unit is None or pa.types.is_date(data_type):
        cast = partial(_texts, data_type, _time_pattern(data_type, reading))
        return IntermediateType(pa.string(), partial(_truncated_texts, cast) if reading.truncates else cast)
    if reading.unit == "s":
        return IntermediateType(NUMBER, partial(_seconds, data_type))
    if reading.unit == "ns":
        return IntermediateType(pa.int64(), partial(_nanos, data_type, reading.truncates))
    return IntermediateType(pa.int64(), partial(_counts, data_type, 10 ** times.SHIFTS[reading.unit]))


def intermediate_days() -> IntermediateType:
    """Return the intermediate type of a date that is sent as the number of days since 1970-01-01."""
    return IntermediateType(pa.int64(), _days)


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
    if truncates:  # before 1970 Arrow's quotient is the next microsecond, not the last one
        whole = pc.or_(whole, pc.greater_equal(array, 0))
    first, end = _bounds(data_type)
    certain = pc.and_(whole, pc.and_(pc.greater_equal(micros, first), pc.less(micros, end)))
    micros, doubt = keep_certain(micros, certain)
    return micros.cast(data_type), doubt


def _bounds(data_type: pa.DataType) -> tuple[int, int]:
    return (0, times.DAY) if pa.types.is_time(data_type) else (times.FIRST, times.END)


# Years 1000 to 8999, and February 29 only in years that 4 divides and 100 does not: within these bounds Arrow's cast can't fail,
# and can't leave the range that the exact decoder accepts. All other dates are so rare that the exact decoder reads them.
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


def _texts(data_type: pa.DataType, pattern: str, array: pa.Array) -> CastResult:
    texts, doubt = keep_certain(array, pc.match_substring_regex(array, pattern))
    return _cast_texts(data_type, texts), doubt


def _truncated_texts(cast: ArrayCast, array: pa.Array) -> CastResult:
    return cast(pc.replace_substring_regex(array, times.SUB_MICROS, r"\1", max_replacements=1))


def _time_pattern(data_type: pa.DataType, reading: Reading) -> str:
    if not pa.types.is_timestamp(data_type):
        return _PLAIN_DATE if pa.types.is_date(data_type) else _PLAIN_TIME
    return _PLAIN_TIMESTAMP if data_type.tz is not None or reading.local_time == "keep" else _PLAIN_LOCAL


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


def intermediate_type(data_type: pa.DataType, reading: Reading = AS_IT_IS) -> IntermediateType | None:
    """Return the intermediate type of a type, or None if only the exact decoder reads it."""
    if pa.types.is_struct(data_type):
        return intermediate_struct(data_type, [intermediate_type(field.type, reading) for field in data_type])
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return intermediate_list(data_type, intermediate_type(data_type.value_type, reading))
    return _intermediate_scalar(data_type, reading)


def _intermediate_scalar(data_type: pa.DataType, reading: Reading) -> IntermediateType | None:
    if pa.types.is_int32(data_type):
        return intermediate_integer(32)
    if data_type in {pa.bool_(), pa.int64(), pa.string(), pa.large_string()}:
        read_type = pa.string() if pa.types.is_large_string(data_type) else data_type
        return IntermediateType(read_type, partial(_as_is, data_type))
    if (pa.types.is_decimal128(data_type) or pa.types.is_decimal256(data_type)) and data_type.scale >= 0:
        return IntermediateType(NUMBER, partial(_decimals, data_type))
    if pa.types.is_float32(data_type) or pa.types.is_float64(data_type):
        return IntermediateType(pa.float64(), partial(_floats, data_type))
    if pa.types.is_temporal(data_type):
        return intermediate_time(data_type, reading)
    return _intermediate_bytes(data_type)


def _intermediate_bytes(data_type: pa.DataType) -> IntermediateType | None:
    if data_type == pa.uuid():
        return intermediate_text(to_uuid, data_type)
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return intermediate_text(to_bytes, data_type)
    if pa.types.is_fixed_size_binary(data_type):
        width = data_type.byte_width
        return intermediate_text(to_uuid_or_fixed if width == UUID_BYTES else partial(to_fixed, width), data_type)
    return None


def _as_is(data_type: pa.DataType, array: pa.Array) -> CastResult:
    return array.cast(data_type), None


def intermediate_integer(bits: int) -> IntermediateType:
    """Return the intermediate type of an int64 if `bits` is 64, else of an int32 that holds integers of so many bits."""
    return IntermediateType(pa.int64(), partial(_as_is, pa.int64()) if bits == _LONG_BITS else partial(_integers, bits))


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


def intermediate_text(read: Callable[[str], object], data_type: pa.DataType) -> IntermediateType:
    """Return the intermediate type of a type that is sent as text; `read` converts one text, or raises `Rejection`."""
    return IntermediateType(pa.string(), partial(_each, read, data_type))


def _each(read: Callable[[str], object], data_type: pa.DataType, array: pa.Array) -> CastResult:
    values: list[object] = []
    doubt: list[bool] = []
    for text in array.to_pylist():
        value = None if text is None else value_or_none(read, text)
        values.append(value)
        doubt.append(text is not None and value is None)
    return build_array(values, data_type), pa.array(doubt, pa.bool_())


def value_or_none(read: Callable[[Any], object], value: Any) -> object:
    """Return the value that `read` makes of another; None if it rejects that."""
    try:
        return read(value)
    except Rejection:
        return None


def intermediate_struct(data_type: pa.StructType, children: list[IntermediateType | None]) -> IntermediateType | None:
    """Return the intermediate type of a struct whose fields have these; None if a field has none."""
    intermediates = [child for child in children if child is not None]
    names = [field.name for field in data_type]
    if len(intermediates) < len(children) or not children or len(set(names)) < len(names):
        return None
    read_type = pa.struct([pa.field(name, child.type) for name, child in zip(names, intermediates, strict=True)])
    cast = partial(_cast_struct, data_type, [child.cast for child in intermediates])
    return IntermediateType(read_type, cast, tuple(intermediates))


def _cast_struct(data_type: pa.StructType, casts: list[ArrayCast], array: pa.Array) -> CastResult:
    return cast_struct(data_type, casts, array.flatten(), array)


def cast_struct(
    target: pa.StructType, casts: Sequence[ArrayCast | None], children: Sequence[pa.Array], array: pa.Array
) -> CastResult:
    """Return structs of a type, each child cast to its field. Where `array` is null they are null, and not in doubt."""
    results = [cast_field(*parts) for parts in zip(target, casts, children, strict=True)]
    structs = pa.StructArray.from_arrays([child for child, _ in results], fields=list(target), mask=null_mask(array))
    return structs, without_nulls(array, or_masks([doubt for _, doubt in results]))


def cast_field(field: pa.Field, cast: ArrayCast | None, array: pa.Array) -> CastResult:
    """Cast an array to the type of `field`; without a cast all values are null. A null in a required field is in doubt."""
    values, doubt = (pa.nulls(len(array), field.type), None) if cast is None else cast(array)
    nulls = values.is_null() if not field.nullable and values.null_count else None
    return values, or_masks([doubt, nulls])


def null_mask(array: pa.Array) -> pa.BooleanArray | None:
    """Return the mask of an array's nulls; None if it has none."""
    return array.is_null() if array.null_count else None


def without_nulls(array: pa.Array, doubt: pa.BooleanArray | None) -> pa.BooleanArray | None:
    """Return a mask of doubt without the rows where `array` is null: values inside a null do not count."""
    if doubt is None or not pc.any(doubt).as_py():
        return None
    return pc.and_(doubt, array.is_valid())


def intermediate_list(
    data_type: pa.ListType | pa.LargeListType, intermediate: IntermediateType | None
) -> IntermediateType | None:
    """Return the intermediate type of a list, from that of its items; None if they have none."""
    if intermediate is None:
        return None
    return IntermediateType(pa.list_(intermediate.type), partial(cast_list, data_type, intermediate.cast))


def list_window(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return the offsets of a (sliced) list or map array, counted from its first item, and where its items begin and end."""
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
