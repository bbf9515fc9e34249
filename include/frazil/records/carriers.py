"""What the block parser reads a column as, and how that becomes the column.

pyarrow.json can't be asked for every type in a way that is exactly ours, so a column travels in a
carrier type: a timestamp as text, a float32 as float64. Settling turns the carrier into the
column's type and says which rows it has a doubt about; these go to the exact decoder. A type
without a carrier takes the whole table off the block path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.convert import to_bytes, to_fixed, to_uuid, to_uuid_or_fixed
from frazil.records.dead import Rejection

Settled = tuple[pa.Array, pa.BooleanArray | None]
"""An array of the column's type, and per row whether the exact decoder must decide (None: no
row)."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """`type` is what pyarrow.json reads; `settle` takes an array of it, of offset 0."""

    type: pa.DataType
    settle: Callable[[pa.Array], Settled]


def carrier(data_type: pa.DataType) -> Carrier | None:
    """Return the carrier of a type, or None if pyarrow.json reads no form of it exactly."""
    if pa.types.is_struct(data_type):
        return _struct_carrier(data_type)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return _list_carrier(data_type)
    return _scalar_carrier(data_type)


def _scalar_carrier(data_type: pa.DataType) -> Carrier | None:
    if pa.types.is_int32(data_type):
        return Carrier(pa.int64(), _int32)
    if data_type in {pa.bool_(), pa.int64(), pa.string(), pa.large_string()}:
        read = pa.string() if pa.types.is_large_string(data_type) else data_type
        return Carrier(read, partial(_as_is, data_type))
    if pa.types.is_decimal128(data_type) and data_type.scale >= 0:
        return Carrier(data_type, _decimals)
    if pa.types.is_float32(data_type) or pa.types.is_float64(data_type):
        return Carrier(pa.float64(), partial(_floats, data_type))
    if pa.types.is_temporal(data_type):
        return Carrier(pa.string(), partial(_times, data_type))
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
    # Read as int64, a number out of range is a doubt about its row and not a failure of the block.
    in_range = pc.and_(pc.greater_equal(array, -(1 << 31)), pc.less(array, 1 << 31))
    numbers = array if _all(in_range) else pc.if_else(in_range, array, pa.scalar(None, pa.int64()))
    return numbers.cast(pa.int32()), _unless(in_range)


def _decimals(array: pa.Array) -> Settled:
    array.validate(full=True)  # pyarrow.json checks the scale and not the precision; a failure fails the block
    return array, None


def _floats(data_type: pa.DataType, array: pa.Array) -> Settled:
    numbers = array.cast(data_type, safe=False)
    return numbers, _unless(pc.is_finite(numbers))


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


# Years 1000 to 8999 and no 29th of February: within these bounds Arrow's cast can't fail and can't
# leave the range that the exact decoder accepts. All else is rare enough to be decided there.
_DATE: Final = (
    r"[1-8][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE: Final = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)$"
_PLAIN_DATE: Final = f"^{_DATE}$"
_PLAIN_TIME: Final = f"^{_TIME}$"
_PLAIN_TIMESTAMP: Final = f"^{_DATE}[T ]{_TIME}{_ZONE[:-1]}?$"
_ZONED: Final = f":[0-5][0-9](?:\\.[0-9]+)?{_ZONE}"


def _times(data_type: pa.DataType, array: pa.Array) -> Settled:
    plain = pc.match_substring_regex(array, _plain_form(data_type))
    texts = array if _all(plain) else pc.if_else(plain, array, pa.scalar(None, pa.string()))
    return _cast_times(data_type, texts), _unless(plain)


def _plain_form(data_type: pa.DataType) -> str:
    if pa.types.is_date(data_type):
        return _PLAIN_DATE
    return _PLAIN_TIME if pa.types.is_time(data_type) else _PLAIN_TIMESTAMP


def _cast_times(data_type: pa.DataType, texts: pa.Array) -> pa.Array:
    if pa.types.is_date(data_type):
        return texts.cast(data_type)
    if pa.types.is_time(data_type):  # Arrow casts no text to a time, but a timestamp
        stamps = pc.binary_join_element_wise("1970-01-01T", texts, "").cast(pa.timestamp("us"))
        return stamps.cast(data_type)
    zoned = pc.match_substring_regex(texts, _ZONED)
    if data_type.tz is None:
        walls = pc.replace_substring_regex(texts, _ZONE, "") if _any(zoned) else texts
        return walls.cast(data_type)
    # Arrow wants a zone in every text of a timestamp with zone.
    return pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", "")).cast(data_type)


def _struct_carrier(data_type: pa.StructType) -> Carrier | None:
    inner = [carrier(field.type) for field in data_type]
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
    nulls = array.is_null() if not field.nullable and array.null_count else None
    return values, any_of([doubt, nulls])


def _list_carrier(data_type: pa.ListType | pa.LargeListType) -> Carrier | None:
    item = data_type.value_field
    # Texts in a list of decimals can't be told from numbers: see json_screen.
    inner = None if pa.types.is_decimal(item.type) else carrier(item.type)
    return Carrier(pa.list_(inner.type), partial(_settle_list, data_type, inner)) if inner else None


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


def any_of(masks: list[pa.BooleanArray | None]) -> pa.BooleanArray | None:
    """Return where any of the masks is true; None stands for one that never is."""
    found = [mask for mask in masks if mask is not None]
    return reduce(pc.or_, found) if found else None


def _unless(certain: pa.BooleanArray) -> pa.BooleanArray | None:
    """Return a doubt where a check failed; a null value needs no check."""
    return None if _all(certain) else pc.fill_null(pc.invert(certain), fill_value=False)


def _all(mask: pa.BooleanArray) -> bool:
    return bool(pc.all(mask).as_py() in {True, None})


def _any(mask: pa.BooleanArray) -> bool:
    return bool(pc.any(mask).as_py())
