"""Messages that stand for one value: times, decimals, wrapped scalars, JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final

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
"""Messages of one field `value`, which are null if it is not there."""

JSON_TYPES: Final = frozenset(f"google.protobuf.{kind}" for kind in ("Struct", "Value", "ListValue", "Any"))
"""Messages of any shape."""

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
"""What is read of these messages, with its type and whether it is repeated. A schema may bring its own version of them."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
FIRST_SECOND: Final = -62_135_596_800
LAST_SECOND: Final = 253_402_300_799
"""Of `google.protobuf.Timestamp`: years 0001 to 9999."""

NANOS: Final = 1_000_000_000
_SCALES: Final = 1_000
"""A decimal's scale beyond this is no scale: writing its zeros would fill the memory."""


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


KNOWN: Final[Mapping[str, tuple[pa.DataType, Convert]]] = {
    "google.protobuf.Timestamp": (INSTANT, _instant),
    "google.type.Date": (pa.date32(), _date),
    "google.type.TimeOfDay": (TIME, _time),
    "google.type.Decimal": (pa.string(), lambda message: message.value),
}

TRUNCATING: Final[Mapping[str, tuple[pa.DataType, Convert]]] = {
    **KNOWN,
    "google.protobuf.Timestamp": (INSTANT, partial(_instant, truncates=True)),
    "google.type.TimeOfDay": (TIME, partial(_time, truncates=True)),
}
"""The same without what is finer than microseconds."""


def json_text(pool: DescriptorPool) -> Convert:
    """Return a function that converts a message to JSON text, by Protobuf's JSON mapping, with fields named as in the schema.

    An `Any` of a type that the schema does not hold shows its type and its bytes as base64.
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
    """Return type and converter of a field of Confluent's decimal: text, if its annotation doesn't tell the digits."""
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
