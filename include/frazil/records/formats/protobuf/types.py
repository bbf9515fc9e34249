"""Compiles message types of Protocol Buffers to Arrow types and readers.

===================================  ==================================================================================
int32, sint32, sfixed32              int32
uint32, fixed32, 64-bit ones         int64; uint64 and fixed64: decimal(20, 0)
float, double, bool, string, bytes   the same
enum                                 string; a number without name as its digits
message                              struct, null if it is not set; without fields: JSON text
repeated, map                        list, map
optional, oneof, proto2              null if it is not set; a field without presence has its default
wrappers                             the wrapped scalar, null if it is not set
Timestamp, Duration                  timestamp in UTC; struct of seconds and nanos, as it is
Struct, Value, ListValue, Any        JSON text
google.type.Date, TimeOfDay          date, time; google.type.Decimal: string
confluent.type.Decimal               decimal as `confluent.field_meta` declares it, else string
a message within itself              JSON text from there on
===================================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from frazil.records.casting.renames import with_former
from frazil.records.casting.source import STANDS_IN, with_doc
from frazil.records.formats.protobuf import columns
from frazil.records.formats.protobuf.columns import (
    CONFLUENT_DECIMAL,
    JSON_TYPES,
    WRAPPERS,
    Convert,
    ReadColumn,
    decimal_of,
    json_text,
)
from frazil.records.formats.protobuf.schema import Schema
from frazil.records.formats.registered import MAX_COLUMNS, Fields, unusable_schema
from frazil.records.json.convert import convert_at
from frazil.records.model.cells import CellCount, cells_per_value
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.format import WriterSchema


class FormerNames:
    """The names of fields in earlier versions of a schema.

    Args:
        earlier: Earlier versions, the last one first. Those that do not compile are skipped.

    Raises:
        Retryable: the compiler timed out.
    """

    def __init__(self, earlier: Iterable[WriterSchema] = ()) -> None:
        self._pools: Final[list[DescriptorPool]] = []
        for writer in earlier:
            with suppress(Rejection):
                self._pools.append(Schema(writer).pool)

    def former_names(self, field: FieldDescriptor) -> Iterator[str]:
        """Yield the names that the field with this number had in the message, the last one first."""
        for pool in self._pools:
            try:
                fields = pool.FindMessageTypeByName(field.containing_type.full_name).fields_by_number
            except KeyError:
                continue
            if field.number in fields:
                yield fields[field.number].name


ReadField = Callable[[Any], object]
"""Takes a message, returns the value of one of its fields."""


def _text(value: object) -> object:
    if isinstance(value, bytes):  # proto2 does not check texts; the runtime returns one that is no UTF-8 as bytes
        raise Rejection(DeadCode.INVALID_PROTOBUF, f"expected text in UTF-8, found bytes 0x{value[:20].hex()}")
    return value


METHODS: Final = frozenset(
    {
        "ByteSize",
        "DESCRIPTOR",
        "DiscardUnknownFields",
        "HasField",
        "IsInitialized",
        "ListFields",
        "SerializePartialToString",
    }
)
"""Attributes of messages that are used here. A field with such a name would hide the attribute."""

_SCALARS: Final[Mapping[int, tuple[pa.DataType, Convert | None]]] = {
    FieldDescriptor.TYPE_DOUBLE: (pa.float64(), None),
    FieldDescriptor.TYPE_FLOAT: (pa.float32(), None),
    FieldDescriptor.TYPE_INT64: (pa.int64(), None),
    FieldDescriptor.TYPE_UINT64: (pa.decimal128(20, 0), Decimal),
    FieldDescriptor.TYPE_INT32: (pa.int32(), None),
    FieldDescriptor.TYPE_FIXED64: (pa.decimal128(20, 0), Decimal),
    FieldDescriptor.TYPE_FIXED32: (pa.int64(), None),
    FieldDescriptor.TYPE_BOOL: (pa.bool_(), None),
    FieldDescriptor.TYPE_BYTES: (pa.binary(), None),
    FieldDescriptor.TYPE_UINT32: (pa.int64(), None),
    FieldDescriptor.TYPE_SFIXED32: (pa.int32(), None),
    FieldDescriptor.TYPE_SFIXED64: (pa.int64(), None),
    FieldDescriptor.TYPE_SINT32: (pa.int32(), None),
    FieldDescriptor.TYPE_SINT64: (pa.int64(), None),
}


def identity(value: object) -> object:
    """Return a value as it is."""
    return value


class Compiler:
    """Compiles the message types of one schema.

    Args:
        schema: The message types, and the comments of their fields.
        former: The former names of fields.
        truncates: Whether times are truncated to microseconds.
    """

    def __init__(self, schema: Schema, former: FormerNames | None = None, *, truncates: bool = False) -> None:
        self._known: Final = columns.known_messages(truncates=truncates)
        self._pool: Final = schema.pool
        self._former: Final = former or FormerNames()
        self._comments: Final = schema.comments
        self._json: Final = json_text(schema.pool)
        self._open_messages: Final[list[str]] = []
        self._columns = 0
        self.holds_messages_as_text = False
        self.cells: Final = CellCount()

    def message(self, descriptor: Descriptor) -> tuple[pa.StructType, Callable[[Any], Fields], ReadColumn]:
        """Return the type of a message's fields, the reader of one message, and the reader of many.

        Raises:
            Rejection: UNUSABLE_SCHEMA.
        """
        self._columns += len(descriptor.fields)
        if methods := METHODS.intersection(field.name for field in descriptor.fields):
            raise unusable_schema(f"a field with the name of a method of messages: {min(methods)}")
        if self._columns > MAX_COLUMNS:
            raise unusable_schema(f"more than {MAX_COLUMNS} fields")
        self._open_messages.append(descriptor.full_name)
        fields = [(field, *self._field(field)) for field in descriptor.fields]
        self._open_messages.pop()
        readers = [(field.name, read_field) for field, _, read_field, _ in fields]
        declared = pa.struct(
            [
                with_doc(
                    with_former(
                        pa.field(field.name, data_type, metadata=_stands_in(field)), self._former.former_names(field)
                    ),
                    self._comments.get(field.full_name),
                )
                for field, data_type, _, _ in fields
            ]
        )
        return declared, _fields(readers), columns.struct(declared, [read_column for *_, read_column in fields])

    def _field(self, field: FieldDescriptor) -> tuple[pa.DataType, ReadField, ReadColumn]:
        name = field.name
        if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
            map_type, read_map = self._map(name, field.message_type)
            return map_type, read_map, columns.values(self._without_limit(read_map), map_type)
        data_type, convert, read_column = self._value(field)
        if field.is_repeated:
            list_type = pa.list_(data_type)
            read_list = self._repeated(name, cells_per_value(data_type), convert)
            return list_type, read_list, columns.repeated(name, list_type, read_column)
        if field.has_presence:
            return (
                data_type,
                lambda message: convert(getattr(message, name)) if message.HasField(name) else None,
                columns.optional(name, read_column),
            )
        return data_type, lambda message: convert(getattr(message, name)), columns.plain(name, read_column)

    def _map(self, name: str, entry: Descriptor) -> tuple[pa.DataType, ReadField]:
        key_type, convert_key, _ = self._value(entry.fields_by_name["key"])
        item_type, convert_item, _ = self._value(entry.fields_by_name["value"])
        cells_per_entry, cells = 1 + cells_per_value(item_type), self.cells

        def read_field(message: Any) -> object:
            entries = getattr(message, name)
            cells.add(len(entries) * cells_per_entry)
            return [
                (convert_key(key), convert_at(f"[{str(key)[:20]!r}]", convert_item, item))
                for key, item in entries.items()
            ]

        return pa.map_(key_type, item_type), read_field

    def _without_limit(self, read_field: ReadField) -> ReadField:
        """Return a reader that counts the cells of each message alone: values that might reach the limit are not read as columns."""
        cells = self.cells

        def read(message: Any) -> object:
            cells.begin(0)
            return read_field(message)

        return read

    def _repeated(self, name: str, cells_per_item: int, convert: Convert) -> ReadField:
        if convert is identity:
            return lambda message: list(getattr(message, name))
        cells = self.cells

        def read_field(message: Any) -> object:
            items = getattr(message, name)
            cells.add(len(items) * cells_per_item)
            return [convert_at(f"[{index}]", convert, item) for index, item in enumerate(items)]

        return read_field

    def _value(self, field: FieldDescriptor) -> tuple[pa.DataType, Convert, ReadColumn]:
        """Return the type of a field's values, the converter of one value, and the reader of many."""
        if field.message_type is not None:
            return self._message_value(field, field.message_type)
        if field.enum_type is not None:
            return _value_type(pa.string(), _enum(field.enum_type))
        if field.type == FieldDescriptor.TYPE_STRING:
            return pa.string(), _text, columns.texts(_text)
        return _value_type(*_SCALARS[field.type])

    def _message_value(self, field: FieldDescriptor, descriptor: Descriptor) -> tuple[pa.DataType, Convert, ReadColumn]:
        name = descriptor.full_name
        if name in self._known:
            return self._known[name]
        if name in WRAPPERS:
            data_type, convert, _ = self._value(descriptor.fields_by_name["value"])
            return _value_type(data_type, lambda wrapper: convert(wrapper.value))
        if name == CONFLUENT_DECIMAL:
            data_type, convert = decimal_of(field, self._pool)
            return data_type, convert, columns.decimals(data_type, convert)
        if name in JSON_TYPES or name in self._open_messages or not descriptor.fields:
            self.holds_messages_as_text = True
            return _value_type(pa.string(), self._json)
        return self.message(descriptor)


def _value_type(data_type: pa.DataType, convert: Convert | None) -> tuple[pa.DataType, Convert, ReadColumn]:
    return data_type, convert or identity, columns.values(convert, data_type)


def _stands_in(field: FieldDescriptor) -> dict[bytes, bytes] | None:
    """Return the metadata of a field without presence: the default that stands for an unset field."""
    if field.has_presence:
        return None
    is_enum = field.enum_type is not None and not field.is_repeated
    return {STANDS_IN: str(_enum(field.enum_type)(0)).encode() if is_enum else b""}


def _enum(descriptor: EnumDescriptor) -> Convert:
    # If a number has two names, the first one counts.
    names = {value.number: value.name for value in reversed(descriptor.values)}
    return lambda number: names.get(number) or str(number)


def _fields(readers: list[tuple[str, ReadField]]) -> Callable[[Any], Fields]:
    def read(message: Any) -> Fields:
        row: Fields = {}
        name = ""
        try:
            for name, read_field in readers:
                row[name] = read_field(message)
        except Rejection as e:
            raise e.with_parent(name) from e
        return row

    return read
