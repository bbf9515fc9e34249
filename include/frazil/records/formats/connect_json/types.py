"""Compiles schemas of Kafka Connect, as its JsonConverter writes them, to Arrow types and converters; knows the named types of Connect
and Debezium.

====================  ===========================================  =========================
type                  JSON value                                   Arrow
====================  ===========================================  =========================
int8, int16, int32    number                                       int32
int64                 number                                       int64
float, double         number, or text NaN, Infinity, -Infinity     float32, float64
boolean               true, false                                  bool
string                text                                         string
bytes                 text, base64                                 binary
array                 list                                         list
map of string keys    object                                       map
map of other keys     list of [key, value]                         map
struct                object                                       struct
====================  ===========================================  =========================

If a value is null or its field missing, it gets the default of its schema; without a default it is null if the schema is `optional`.
Fields that a struct's schema does not name are left out, as by JsonConverter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import partial
from typing import Final

import pyarrow as pa

from frazil.records.casting.source import with_doc
from frazil.records.json import times
from frazil.records.json.convert import (
    Converter,
    check_characters,
    convert_at,
    from_text,
    missing_value,
    required,
    to_bool,
    to_bytes,
    to_decimal,
    to_float32,
    to_float64,
    to_int,
    to_list,
    to_map,
    to_struct,
    to_uuid,
    wrong_type,
)
from frazil.records.json.intermediate_types import (
    IntermediateType,
    intermediate_days,
    intermediate_integer,
    intermediate_list,
    intermediate_struct,
    intermediate_text,
    intermediate_time,
    intermediate_type,
)
from frazil.records.model.column import Reading, TimeUnit
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import JsonValue, Number, compact, describe

# A schema's name counts only with the type that it is defined for. With another type, and for any other name, the type alone counts.
# Sources: the classes of `org.apache.kafka.connect.data`, and the chapters on data types in Debezium's documentation of its connectors.
#
# - `Timestamp`, `MicroTimestamp` and `NanoTimestamp` of Debezium are wall clock times of a column without zone; Kafka Connect's
#   own `Timestamp` is an instant.
# - `VariableScaleDecimal` (a number of a column without declared scale) becomes text with every digit, as Java's
#   `BigDecimal.toString` writes it: no decimal type of a table holds all of them.
# - `IsoDate`, `IsoTime`, `IsoTimestamp` are text of columns without zone, too: their `Z` belongs to the form.
# - `ZonedTime`, `Interval`, `Json`, `Xml`, `Enum`, `EnumSet` stay text, `Year`, `MicroDuration`, `NanoDuration` numbers,
#   `Bits` bytes (the lowest bits first), geometries, sparse vectors and the times of `time.precision.mode=structured` structs.

MAX_DIGITS: Final = 38
"""Digits of a decimal in an Iceberg table."""

MAX_NUMBER_BYTES: Final = 1 << 16
"""Bytes of a decimal of any scale. No database has longer numbers: the longest are PostgreSQL's. Conversion to decimal digits takes a
tenth of a second for so many bytes, and grows with their square."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH
_END_DAY: Final = date.max.toordinal() - _EPOCH + 1
_MILLI: Final = 1_000
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


@dataclass(frozen=True, slots=True)
class Logical:
    """What a type means: its Arrow type, the converter of a value, and the intermediate type of many; None if `read` converts each."""

    type: pa.DataType
    read: Converter
    intermediate: IntermediateType | None


@dataclass(frozen=True, slots=True)
class _Span:
    """Converts counts of units to the integers of an Arrow type.

    Attributes:
        expected: What messages call the counts.
        bits: Bits of the integers that are sent.
        factor: Units of the Arrow type in a unit that is sent.
        divisor: Units that are sent in a unit of the Arrow type.
        first: The smallest integer, in units of the Arrow type.
        end: The first integer that is too large, in units of the Arrow type.
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
"""Factor and divisor -> the unit that is sent."""


def _time(unit: str, bits: int, factor: int = 1, divisor: int = 1) -> Logical:
    span = _Span(f"{unit} since midnight, less than a day", bits, factor, divisor, 0, times.DAY)
    return Logical(pa.time64("us"), span.read, intermediate_time(pa.time64("us"), Reading(_UNITS[factor, divisor])))


def _timestamp(unit: str, factor: int = 1, divisor: int = 1, zone: str | None = None) -> Logical:
    first, end = _FIRST_DAY * times.DAY, _END_DAY * times.DAY
    span = _Span(f"{unit} since 1970-01-01 within years 0001 to 9999", 64, factor, divisor, first, end)
    data_type = pa.timestamp("us", zone)
    return Logical(data_type, span.read, intermediate_time(data_type, Reading(_UNITS[factor, divisor])))


_DATE: Final = Logical(
    pa.date32(),
    _Span("days since 1970-01-01 within years 0001 to 9999", 32, 1, 1, _FIRST_DAY, _END_DAY).read,
    intermediate_days(),
)


def _text(data_type: pa.DataType, expected: str, read: Callable[[str], object]) -> Logical:
    return Logical(data_type, partial(from_text, expected, read), intermediate_type(data_type))


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
    """Return what a schema's name means with the type `base`; None if it means nothing.

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
    return Logical(decimal_type, read, intermediate_text(read, decimal_type))


def _parameter(parameters: Mapping[str, JsonValue], name: str) -> int | None:
    """Return a parameter, which Kafka Connect writes as text, as an integer."""
    value = parameters.get(name)
    try:
        return to_int(32, Number(value)) if isinstance(value, str) and value.lstrip("-").isdecimal() else None
    except (Rejection, ValueError):
        return None


def _to_decimal(precision: int, scale: int, written: int, value: JsonValue) -> Decimal:
    """Convert base64 of the unscaled integer, or a number (`decimal.format=NUMERIC`). `written` is the scale of the schema."""
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


Schema = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for values: a field, the items of a list, or the payload as a whole.

    Attributes:
        type: The Arrow type of the values.
        nullable: Whether `convert` may return None.
        convert: Converts the JSON value in this place, or None if there is none.
        intermediate: The intermediate type of many values; None if they are converted one by one.
        doc: The description in the schema, which should be a text.
    """

    type: pa.DataType
    nullable: bool
    convert: Converter
    intermediate: IntermediateType | None = None
    doc: JsonValue = None

    def field(self, name: str) -> pa.Field:
        """Return the Arrow field of this slot."""
        return with_doc(pa.field(name, self.type, nullable=self.nullable), self.doc)


def compile_slot(schema: JsonValue) -> Slot:
    """Return the slot that a schema describes.

    Raises:
        Rejection: UNUSABLE_SCHEMA, with the path within the schema.
    """
    if not isinstance(schema, dict):
        raise _unusable(f"expected a schema as object, found {describe(schema)}")
    logical_type = _compile_type(schema)
    optional = schema.get("optional") is True
    default = schema.get("default")
    if default is not None:
        default_value = convert_at("default", partial(_default, logical_type.read), default)
        convert: Converter = partial(_value_or_default, logical_type.read, default_value)
    elif optional:
        convert = partial(_optional, logical_type.read)
    else:
        convert = partial(required, str(schema.get("type")), logical_type.read)
    # A null may stand for the default, which only `convert` knows: for blocks the value is required.
    nullable = optional and default is None
    return Slot(logical_type.type, nullable, convert, logical_type.intermediate, schema.get("doc"))


def _compile_type(schema: Schema) -> Logical:
    base = schema.get("type")
    if type(base) is not str or (base not in _SCALARS and base not in _NESTED):
        raise _unusable(f"expected a type of Kafka Connect, found {describe(base)}")
    name, parameters = schema.get("name"), schema.get("parameters")
    if type(name) is str:
        named_type = logical(name, base, parameters if isinstance(parameters, dict) else {})
        if named_type is not None:
            return named_type
    return _SCALARS[base] if base in _SCALARS else _NESTED[base](schema)


def _array_type(schema: Schema) -> Logical:
    item = convert_at("items", compile_slot, schema.get("items"))
    list_type = pa.list_(item.field("item"))
    return Logical(list_type, partial(to_list, item.convert), intermediate_list(list_type, item.intermediate))


def _map_type(schema: Schema) -> Logical:
    key = convert_at("keys", compile_slot, schema.get("keys"))
    item = convert_at("values", compile_slot, schema.get("values"))
    map_type = pa.map_(key.type, item.field("value"))
    keys = schema["keys"]
    has_text_keys = isinstance(keys, dict) and keys.get("type") == "string"
    if has_text_keys and pa.types.is_string(key.type):
        return Logical(map_type, partial(to_map, item.convert), None)
    return Logical(map_type, partial(_object_map if has_text_keys else _pair_map, key.convert, item.convert), None)


def _struct_type(schema: Schema) -> Logical:
    slots = _slots(schema)
    struct_type = pa.struct([slot.field(name) for name, slot in slots.items()])
    convert = partial(to_struct, tuple((name, slot.convert) for name, slot in slots.items()))
    return Logical(
        struct_type, convert, intermediate_struct(struct_type, [slot.intermediate for slot in slots.values()])
    )


def _slots(schema: Schema) -> dict[str, Slot]:
    """Return the slots of a struct's fields, in their order."""
    declared = schema.get("fields")
    if not isinstance(declared, list):
        raise _unusable(f"expected fields as list, found {describe(declared)}")
    slots: dict[str, Slot] = {}
    for index, field in enumerate(declared):
        name = convert_at(f"fields[{index}]", partial(_field_name, slots), field)
        slots[name] = convert_at(f"fields[{index}]", compile_slot, field)
    return slots


def _field_name(earlier_fields: Mapping[str, Slot], field: JsonValue) -> str:
    name = field.get("field") if isinstance(field, dict) else None
    if type(name) is not str:
        raise _unusable(f"expected a schema with the name of its field, found {describe(field)}")
    if name in earlier_fields:
        raise _unusable(f"expected each field once, found {describe(name)} twice")
    check_characters(name)
    return name


def _unusable(message: str) -> Rejection:
    return Rejection(DeadCode.UNUSABLE_SCHEMA, message)


def _default(read: Converter, value: JsonValue) -> object:
    try:
        return read(value)
    except Rejection as e:
        raise Rejection(DeadCode.UNUSABLE_SCHEMA, f"the default: {e.reason.message}", e.reason.path) from e


def _optional(read: Converter, value: JsonValue) -> object:
    return None if value is None else read(value)


def _value_or_default(read: Converter, default: object, value: JsonValue) -> object:
    return default if value is None else read(value)


def to_text(value: JsonValue) -> str:
    """Convert text. A declared column of text takes objects and lists, too; a schema of text means nothing but text."""
    if type(value) is not str:
        raise wrong_type("text", value)
    text: str = value
    if not text.isascii():
        check_characters(text)
    return text


_NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""JSON has no such numbers; JsonConverter writes them as text."""


def _to_float(read: Converter, value: JsonValue) -> object:
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    return read(value)


def _object_map(key: Converter, item: Converter, value: JsonValue) -> list[tuple[object, object]]:
    """Convert an object whose names are keys of another type than text."""
    if not isinstance(value, dict):
        raise wrong_type("object", value)
    return _entries(key, item, [(f"[{compact(name)}]", name, item_value) for name, item_value in value.items()])


def _pair_map(key: Converter, item: Converter, value: JsonValue) -> list[tuple[object, object]]:
    if not isinstance(value, list):
        raise wrong_type("list of [key, value]", value)
    pairs: list[tuple[str, JsonValue, JsonValue]] = []
    for index, pair in enumerate(value):
        if not isinstance(pair, list) or len(pair) != 2:  # noqa: PLR2004 (a pair)
            raise wrong_type("[key, value]", pair).with_parent(f"[{index}]")
        pairs.append((f"[{index}]", pair[0], pair[1]))
    return _entries(key, item, pairs)


def _entries(
    key: Converter, item: Converter, pairs: list[tuple[str, JsonValue, JsonValue]]
) -> list[tuple[object, object]]:
    """Return the entries of a map: each key once, with its last value, as Java's maps keep them."""
    entries: dict[str, tuple[object, object]] = {}
    for step, key_value, item_value in pairs:
        converted_key = convert_at(step, key, key_value)
        if converted_key is None:
            raise missing_value("a key").with_parent(step)
        # Keys may be lists and structs, which have no hash; their representation tells them apart.
        entries[repr(converted_key)] = (converted_key, convert_at(step, item, item_value))
    return list(entries.values())


_SCALARS: Final[Mapping[str, Logical]] = {
    **{f"int{bits}": Logical(pa.int32(), partial(to_int, bits), intermediate_integer(bits)) for bits in (8, 16, 32)},
    "int64": Logical(pa.int64(), partial(to_int, 64), intermediate_integer(64)),
    **dict.fromkeys(
        ("float", "float32"), Logical(pa.float32(), partial(_to_float, to_float32), intermediate_type(pa.float32()))
    ),
    **dict.fromkeys(
        ("double", "float64"), Logical(pa.float64(), partial(_to_float, to_float64), intermediate_type(pa.float64()))
    ),
    "boolean": Logical(pa.bool_(), to_bool, intermediate_type(pa.bool_())),
    "string": Logical(pa.string(), to_text, intermediate_type(pa.string())),
    "bytes": Logical(pa.binary(), partial(from_text, "bytes as base64 text", to_bytes), intermediate_type(pa.binary())),
}
_NESTED: Final[Mapping[str, Callable[[Schema], Logical]]] = {
    "array": _array_type,
    "map": _map_type,
    "struct": _struct_type,
}
