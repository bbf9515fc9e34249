"""Schemas of Kafka Connect, as its JsonConverter writes them, to Arrow types and value converters.

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

Where a value is null or its field missing, the default of its schema stands in; without one it is null if the schema is
`optional`. Fields that a struct's schema does not name are left out, as by JsonConverter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from frazil.records.formats.connect_json.logical import Logical, logical
from frazil.records.json.convert import (
    Converter,
    check_characters,
    from_text,
    to_bool,
    to_bytes,
    to_float32,
    to_float64,
    to_int,
    wrong_type,
)
from frazil.records.json.convert_nested import missing_value, to_list, to_map, to_struct
from frazil.records.json.intermediate_types import Carrier, carrier, integer_carrier, list_carrier, struct_carrier
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_text import JsonValue, compact, describe

Schema = Mapping[str, JsonValue]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a value: of a field, an item, or of the payload as a whole.

    Attributes:
        type: Its Arrow type.
        nullable: Whether `convert` may return None.
        convert: Takes what the payload has there, None for nothing.
        carrier: What reads many values at once; None if only `convert` can.
    """

    type: pa.DataType
    nullable: bool
    convert: Converter
    carrier: Carrier | None = None

    def field(self, name: str) -> pa.Field:
        """Return the Arrow field of this slot."""
        return pa.field(name, self.type, nullable=self.nullable)


class Compiler:
    """Compiles schemas. A default stands in for null."""

    def slot(self, schema: JsonValue) -> Slot:
        """Return the slot that a schema describes.

        Raises:
            Rejection: UNUSABLE_SCHEMA, with the path within the schema.
        """
        if not isinstance(schema, dict):
            raise _unusable(f"expected a schema as object, found {describe(schema)}")
        logical_type = self._type(schema)
        optional = schema.get("optional") is True
        default = schema.get("default")
        if default is not None:
            default_value = _within("default", partial(_default, logical_type.read), default)
            convert: Converter = partial(_value_or_default, logical_type.read, default_value)
        elif optional:
            convert = partial(_optional, logical_type.read)
        else:
            convert = partial(_required, str(schema.get("type")), logical_type.read)
        # Only `convert` knows the default that a null stands for: to a carrier the value is required.
        return Slot(logical_type.type, optional and default is None, convert, logical_type.carrier)

    def _type(self, schema: Schema) -> Logical:
        base = schema.get("type")
        if type(base) is not str or (base not in _SCALARS and base not in _NESTED):
            raise _unusable(f"expected a type of Kafka Connect, found {describe(base)}")
        name, parameters = schema.get("name"), schema.get("parameters")
        if type(name) is str:
            named_type = logical(name, base, parameters if isinstance(parameters, dict) else {})
            if named_type is not None:
                return named_type
        return _SCALARS[base] if base in _SCALARS else _NESTED[base](self, schema)

    def _array(self, schema: Schema) -> Logical:
        item = _within("items", self.slot, schema.get("items"))
        list_type = pa.list_(item.field("item"))
        return Logical(list_type, partial(to_list, item.convert), list_carrier(list_type, item.carrier))

    def _map(self, schema: Schema) -> Logical:
        key = _within("keys", self.slot, schema.get("keys"))
        item = _within("values", self.slot, schema.get("values"))
        map_type = pa.map_(key.type, item.field("value"))
        keys = schema["keys"]
        has_text_keys = isinstance(keys, dict) and keys.get("type") == "string"
        if has_text_keys and pa.types.is_string(key.type):
            return Logical(map_type, partial(to_map, item.convert), None)
        return Logical(map_type, partial(_object_map if has_text_keys else _pair_map, key.convert, item.convert), None)

    def _struct(self, schema: Schema) -> Logical:
        slots = self.fields(schema)
        struct_type = pa.struct([slot.field(name) for name, slot in slots.items()])
        convert = partial(to_struct, tuple((name, slot.convert) for name, slot in slots.items()))
        return Logical(struct_type, convert, struct_carrier(struct_type, [slot.carrier for slot in slots.values()]))

    def fields(self, schema: Schema) -> dict[str, Slot]:
        """Return the slots of a struct's fields, in their order."""
        declared = schema.get("fields")
        if not isinstance(declared, list):
            raise _unusable(f"expected fields as list, found {describe(declared)}")
        slots: dict[str, Slot] = {}
        for index, field in enumerate(declared):
            name = _within(f"fields[{index}]", partial(_field_name, slots), field)
            slots[name] = _within(f"fields[{index}]", self.slot, field)
        return slots


def _field_name(earlier_fields: Mapping[str, Slot], field: JsonValue) -> str:
    name = field.get("field") if isinstance(field, dict) else None
    if type(name) is not str:
        raise _unusable(f"expected a schema with the name of its field, found {describe(field)}")
    if name in earlier_fields:
        raise _unusable(f"expected each field once, found {describe(name)} twice")
    check_characters(name)
    return name


def _within(step: str, read: Callable[[JsonValue], T], value: JsonValue) -> T:
    try:
        return read(value)
    except Rejection as e:
        raise e.with_parent(step) from e


def _unusable(message: str) -> Rejection:
    return Rejection(DeadCode.UNUSABLE_SCHEMA, message)


def _default(read: Converter, value: JsonValue) -> object:
    try:
        return read(value)
    except Rejection as e:
        raise Rejection(DeadCode.UNUSABLE_SCHEMA, f"the default: {e.reason.message}", e.reason.path) from e


def _required(expected: str, read: Converter, value: JsonValue) -> object:
    if value is None:
        raise missing_value(expected)
    return read(value)


def _optional(read: Converter, value: JsonValue) -> object:
    return None if value is None else read(value)


def _value_or_default(read: Converter, default: object, value: JsonValue) -> object:
    return default if value is None else read(value)


def to_text(value: JsonValue) -> str:
    """Take text. Unlike a declared column of text, a schema of text means nothing else."""
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
    """Take an object whose names are keys of another type than text."""
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
        converted_key = _within(step, key, key_value)
        if converted_key is None:
            raise missing_value("a key").with_parent(step)
        # Keys may be lists and structs, which have no hash; their representation tells them apart.
        entries[repr(converted_key)] = (converted_key, _within(step, item, item_value))
    return list(entries.values())


_SCALARS: Final[Mapping[str, Logical]] = {
    **{f"int{bits}": Logical(pa.int32(), partial(to_int, bits), integer_carrier(bits)) for bits in (8, 16, 32)},
    "int64": Logical(pa.int64(), partial(to_int, 64), integer_carrier(64)),
    **{
        name: Logical(pa.float32(), partial(_to_float, to_float32), carrier(pa.float32()))
        for name in ("float", "float32")
    },
    **{
        name: Logical(pa.float64(), partial(_to_float, to_float64), carrier(pa.float64()))
        for name in ("double", "float64")
    },
    "boolean": Logical(pa.bool_(), to_bool, carrier(pa.bool_())),
    "string": Logical(pa.string(), to_text, carrier(pa.string())),
    "bytes": Logical(pa.binary(), partial(from_text, "bytes as base64 text", to_bytes), carrier(pa.binary())),
}

_NESTED: Final[Mapping[str, Callable[[Compiler, Schema], Logical]]] = {
    "array": Compiler._array,  # noqa: SLF001 (its own)
    "map": Compiler._map,  # noqa: SLF001
    "struct": Compiler._struct,  # noqa: SLF001
}
