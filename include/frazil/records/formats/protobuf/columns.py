"""Reads the fields of many messages to columns, and converts messages that mean one value: times, decimals, wrapped scalars, JSON.
The reader of single messages decides about suspect ones.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import MAXYEAR, MINYEAR, date
from decimal import Context, Decimal
from functools import partial
from itertools import accumulate, chain
from operator import attrgetter, methodcaller
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf import any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from frazil.records.formats.logical import INSTANT, TIME, decimal_type, out_of_range, time_of_day
from frazil.records.json.times import SECOND
from frazil.records.model.dead_letter import DeadCode, Rejection

Convert = Callable[[Any], object]

WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
"""Messages with one field `value`. A field that has such a message is null if the message is not set."""

JSON_TYPES: Final = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue", "Any"))
"""Messages of any shape, which become JSON text."""

CONFLUENT_DECIMAL: Final = "confluent.type.Decimal"

_STANDARD: Final = (any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_INT, _UINT, _TEXT, _BYTES = (
    (kind, False)
    for kind in (
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_STRING,
        FieldDescriptor.TYPE_BYTES,
    )
)
KNOWN_FIELDS: Final[Mapping[str, Mapping[str, tuple[int, bool]]]] = {
    **{
        message.full_name: {field.name: (field.type, field.is_repeated) for field in message.fields}
        for module in _STANDARD
        for message in module.DESCRIPTOR.message_types_by_name.values()
    },
    "google.type.Date": dict.fromkeys(("year", "month", "day"), _INT),
    "google.type.TimeOfDay": dict.fromkeys(("hours", "minutes", "seconds", "nanos"), _INT),
    "google.type.Decimal": {"value": _TEXT},
    CONFLUENT_DECIMAL: {"value": _BYTES, "precision": _UINT, "scale": _INT},
}
"""Message -> the fields that are read of it, each with its type and whether it is repeated. A schema may bring its own version of these
messages, which must have the same fields."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
FIRST_SECOND: Final = -62_135_596_800
LAST_SECOND: Final = 253_402_300_799
"""The first and the last second of `google.protobuf.Timestamp`: years 0001 to 9999."""

NANOS: Final = 1_000_000_000
"""Nanoseconds of a second."""
_SCALES: Final = 1_000
"""The largest scale of a decimal: the zeros of a larger one would fill the memory."""


def _micros(nanos: int, *, truncates: bool) -> int:
    if not 0 <= nanos < NANOS:
        raise out_of_range("0 to 999999999 nanoseconds", nanos)
    if nanos % 1_000 and not truncates:
        raise Rejection(DeadCode.LOSSY_CAST, f"expected at most microseconds, found {nanos} nanoseconds")
    return nanos // 1_000


def _instant(message: Any, *, truncates: bool = False) -> int:
    seconds: int = message.seconds
    if not FIRST_SECOND <= seconds <= LAST_SECOND:
        raise out_of_range("years 0001 to 9999", f"{seconds} seconds since 1970")
    return seconds * SECOND + _micros(message.nanos, truncates=truncates)


def _date(message: Any) -> int:
    try:
        return date(message.year, message.month, message.day).toordinal() - _EPOCH
    except (ValueError, OverflowError) as e:
        actual = f"{message.year}-{message.month}-{message.day}"
        raise Rejection(DeadCode.INVALID_TIME, f"expected a day of the calendar, found {actual}") from e


def _time(message: Any, *, truncates: bool = False) -> int:
    hours, minutes, seconds = message.hours, message.minutes, message.seconds
    if not (0 <= minutes < 60 and 0 <= seconds < 60):  # noqa: PLR2004
        raise out_of_range("a time of day", f"{hours}:{minutes}:{seconds}")
    return time_of_day((hours * 3600 + minutes * 60 + seconds) * SECOND + _micros(message.nanos, truncates=truncates))


def json_text(pool: DescriptorPool) -> Convert:
    """Return a function that converts a message to JSON text, by Protobuf's JSON mapping, with fields named as in the schema.

    An `Any` of a type that the schema does not have becomes its type and its bytes as base64.
    """

    def convert(message: Any) -> str:
        try:
            document = MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        except (JsonError, DecodeError, TypeError, ValueError, OverflowError, KeyError) as e:
            if message.DESCRIPTOR.full_name != "google.protobuf.Any":
                raise Rejection(DeadCode.INVALID_PROTOBUF, f"expected a message with a JSON form: {str(e)[:80]}") from e
            document = {"@type": message.type_url, "value": base64.b64encode(message.value).decode()}
        except RecursionError as e:
            raise Rejection(DeadCode.TOO_DEEP, "expected a message of less depth, found too many levels") from e
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    return convert


def decimal_of(field: FieldDescriptor, pool: DescriptorPool) -> tuple[pa.DataType, Convert]:
    """Return type and converter of a field of Confluent's decimal. It is text if its annotation doesn't tell the digits."""
    declared = _parameters(field, pool)
    precision, scale = declared.get("precision", ""), declared.get("scale", "0")
    if not precision.isdecimal() or not scale.isdecimal() or not int(scale) <= int(precision) or int(precision) < 1:
        return pa.string(), lambda message: f"{_decimal(message):f}"
    data_type = decimal_type(int(precision), int(scale))
    return data_type, lambda message: _fitting(_decimal(message), int(precision), int(scale))


def _parameters(field: FieldDescriptor, pool: DescriptorPool) -> dict[str, str]:
    raw = field.GetOptions().SerializeToString()
    try:
        options = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FieldOptions")).FromString(raw)
        return dict(options.Extensions[pool.FindExtensionByName("confluent.field_meta")].params)
    except KeyError:
        return {}


def _decimal(message: Any) -> Decimal:
    if abs(message.scale) > _SCALES:
        raise out_of_range(f"a scale of at most {_SCALES}", message.scale)
    digits = int.from_bytes(message.value, "big", signed=True)
    if digits.bit_length() > 4 * _SCALES:
        raise out_of_range(f"a decimal of at most {_SCALES} digits", f"{digits.bit_length()} bits")
    return Decimal(digits).scaleb(-message.scale, Context(prec=2 * _SCALES))


def _fitting(number: Decimal, precision: int, scale: int) -> Decimal:
    expected = f"decimal({precision}, {scale})"
    if number and number.adjusted() >= precision - scale:
        raise out_of_range(expected, f"{number:.20E}")
    exact = number.quantize(Decimal(1).scaleb(-scale), context=Context(prec=4 * _SCALES))
    if exact != number:
        raise Rejection(DeadCode.LOSSY_CAST, f"expected {expected}, found {number:.40E}, which has more decimals")
    return exact


ReadColumn = Callable[[Sequence[Any], set[int]], pa.Array]
"""Takes values, or messages of which it reads one field; adds the indexes of suspect ones to the set. Their rows mean nothing."""

_INT64_DIGITS: Final = 18
_MONTHS: Final = 12
_EPOCH_YEAR: Final = 1970


def values(convert: Convert | None, data_type: pa.DataType) -> ReadColumn:
    """Return a reader of values; those that `convert` rejects are suspect."""
    if convert is None:
        return lambda items, _suspects: pa.array(items, data_type)
    return lambda items, suspects: pa.array(_converted(convert, items, suspects), data_type)


def texts(convert: Convert) -> ReadColumn:
    """Return a reader of texts; `convert` rejects those that the runtime returns as bytes, which are no UTF-8."""
    read_all = values(convert, pa.string())

    def read_column(items: Sequence[Any], suspects: set[int]) -> pa.Array:
        return read_all(items, suspects) if bytes in set(map(type, items)) else pa.array(items, pa.string())

    return read_column


def _converted(convert: Convert, items: Sequence[Any], suspects: set[int]) -> list[object]:
    converted: list[object] = []
    remaining = iter(items)
    while True:
        try:
            converted.extend(map(convert, remaining))
        except Rejection:  # `extend` has added the values before this one
            suspects.add(len(converted))
            converted.append(None)
        else:
            return converted


def plain(name: str, read: ReadColumn) -> ReadColumn:
    """Return a reader of a field without presence."""
    getter = attrgetter(name)
    return lambda messages, suspects: read(list(map(getter, messages)), suspects)


def optional(name: str, read: ReadColumn) -> ReadColumn:
    """Return a reader of a field with presence, which is null where it is not set."""
    getter, has_field = attrgetter(name), methodcaller("HasField", name)

    def read_column(messages: Sequence[Any], suspects: set[int]) -> pa.Array:
        is_set = np.fromiter(map(has_field, messages), np.bool_, len(messages))
        if is_set.all():
            return read(list(map(getter, messages)), suspects)
        rows = np.flatnonzero(is_set)
        inner: set[int] = set()
        column = read([getter(messages[row]) for row in rows.tolist()], inner)
        suspects.update(int(rows[item]) for item in inner)
        return column.take(pa.array(np.cumsum(is_set) - 1, mask=~is_set))

    return read_column


def repeated(name: str, data_type: pa.DataType, read: ReadColumn) -> ReadColumn:
    """Return a reader of a repeated field to a list type; `read` reads the items."""
    getter = attrgetter(name)

    def read_column(messages: Sequence[Any], suspects: set[int]) -> pa.Array:
        lists = [getter(message)[:] for message in messages]
        ends = np.fromiter(accumulate(map(len, lists), initial=0), np.int32, len(lists) + 1)
        inner: set[int] = set()
        items = read(list(chain.from_iterable(lists)), inner)
        suspects.update(int(np.searchsorted(ends, item, "right")) - 1 for item in inner)
        return pa.ListArray.from_arrays(pa.array(ends), items, data_type)

    return read_column


def struct(data_type: pa.StructType, readers: Sequence[ReadColumn]) -> ReadColumn:
    """Return a reader of messages to structs of their fields."""
    fields = list(data_type)
    return lambda messages, suspects: pa.StructArray.from_arrays(
        [read(messages, suspects) for read in readers], fields=fields
    )


def instants(messages: Sequence[Any], suspects: set[int], *, truncates: bool = False) -> pa.Array:
    """Read `google.protobuf.Timestamp`."""
    seconds, nanos = _integers("seconds", messages), _integers("nanos", messages)
    bad = (seconds < FIRST_SECOND) | (seconds > LAST_SECOND) | (nanos < 0) | (nanos >= NANOS)
    if not truncates:
        bad |= nanos % 1_000 != 0
    suspects.update(np.flatnonzero(bad).tolist())
    return pa.array(np.where(bad, 0, seconds) * SECOND + nanos // 1_000).cast(INSTANT)


def dates(messages: Sequence[Any], suspects: set[int]) -> pa.Array:
    """Read `google.type.Date`."""
    years, months, days = (_integers(name, messages) for name in ("year", "month", "day"))
    bad = (years < MINYEAR) | (years > MAXYEAR) | (months < 1) | (months > _MONTHS)
    month = np.where(bad, 0, (years - _EPOCH_YEAR) * _MONTHS + months - 1)
    first, following = (
        number.astype("datetime64[M]").astype("datetime64[D]").astype(np.int32) for number in (month, month + 1)
    )
    bad |= (days < 1) | (days > following - first)
    suspects.update(np.flatnonzero(bad).tolist())
    return pa.array((first + np.where(bad, 1, days) - 1).astype(np.int32)).cast(pa.date32())


def decimals(data_type: pa.DataType, convert: Convert) -> ReadColumn:
    """Return a reader of `confluent.type.Decimal` of a declared precision and scale."""
    if not pa.types.is_decimal128(data_type) or data_type.precision > _INT64_DIGITS:
        return values(convert, data_type)
    scale, limit = data_type.scale, 10**data_type.precision

    def unscaled(message: Any) -> int:
        if message.scale == scale:
            digits = int.from_bytes(message.value, "big", signed=True)
            if -limit < digits < limit:
                return digits
        return int(cast("Decimal", convert(message)).scaleb(scale))

    def read_column(messages: Sequence[Any], suspects: set[int]) -> pa.Array:
        low = pa.array(_converted(unscaled, messages, suspects), pa.int64()).fill_null(0).to_numpy()
        words = np.stack([low, low >> 63], axis=1)  # 128 bits: the low word first, then a word of sign bits
        return pa.Array.from_buffers(data_type, len(low), [None, pa.py_buffer(words)])

    return read_column


def _integers(name: str, messages: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.array(list(map(attrgetter(name), messages)), np.int64)


def known_messages(*, truncates: bool) -> Mapping[str, tuple[pa.DataType, Convert, ReadColumn]]:
    """Return type, converter and column reader of each message that means one value."""
    instant = partial(_instant, truncates=True) if truncates else _instant
    time = partial(_time, truncates=True) if truncates else _time
    number = attrgetter("value")
    return {
        "google.protobuf.Timestamp": (INSTANT, instant, partial(instants, truncates=truncates)),
        "google.type.Date": (pa.date32(), _date, dates),
        "google.type.TimeOfDay": (TIME, time, values(time, TIME)),
        "google.type.Decimal": (pa.string(), number, values(number, pa.string())),
    }
