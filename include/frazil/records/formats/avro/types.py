"""Compiles Avro schemas to Arrow types and readers of single values and of columns.

===================  ==========================================================================
record               struct; without fields: JSON text
enum                 string
fixed, bytes         fixed-size binary, binary
array, map           list, map from string
[null, T]            T; nullable in any case, whatever the schema declares
[null, T, U …]       struct with a field per branch, one of which is set. Its name is that of Kafka Connect: the kind of a
                     primitive or container (`int`, `array`), else the type's name (the full one if two branches share it)
null                 string, always null
a type within        JSON text from there on, since no column type nests endlessly. Times in it are numbers (days,
itself               microseconds), bytes are base64, and branches have no names
===================  ==========================================================================
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.schema import SchemaParseException, UnknownType

from frazil.records.casting.renames import with_former
from frazil.records.casting.source import with_doc
from frazil.records.formats import logical
from frazil.records.formats.avro import columns, read
from frazil.records.formats.avro.columns import (
    PRIMITIVES,
    ColumnReader,
    Cursors,
    Longs,
    read_fixed,
    read_spans,
    read_varints,
)
from frazil.records.formats.logical import Convert, meaning, truncating
from frazil.records.formats.registered import MAX_COLUMNS, reading_schema, unusable_schema
from frazil.records.json.convert import storage_type
from frazil.records.json.times import DAY
from frazil.records.model.cells import CellCount, cells_per_value
from frazil.records.model.format import WriterSchema
from frazil.records.model.json_number import JsonValue, Number, compact

_MOST_MILLIS: Final = (1 << 63) // 1_000 - 1
_NANOS: Final = 1_000
_UUID_CHARACTERS: Final = 36

NumberConverter = Callable[[Cursors, Longs], Longs]
"""Converts encoded numbers of all values; values that can't be converted become suspect."""


def _millis_to_micros(cursors: Cursors, millis: Longs) -> Longs:
    cursors.mark_suspect((millis < -_MOST_MILLIS) | (millis > _MOST_MILLIS))
    return millis * 1_000


def _nanos_to_micros(cursors: Cursors, nanos: Longs) -> Longs:
    cursors.mark_suspect(nanos % _NANOS != 0)
    return nanos // _NANOS


def _time_of_day(cursors: Cursors, micros: Longs) -> Longs:
    cursors.mark_suspect((micros < 0) | (micros >= DAY))
    return micros


_NUMBERS: Final[Mapping[logical.Convert, NumberConverter]] = {
    logical.millis: _millis_to_micros,
    logical.nanos: _nanos_to_micros,
    logical.time_of_day: _time_of_day,
    logical.millis_of_day: lambda cursors, millis: _time_of_day(cursors, _millis_to_micros(cursors, millis)),
    logical.nanos_of_day: lambda cursors, nanos: _time_of_day(cursors, _nanos_to_micros(cursors, nanos)),
    logical.whole_nanos: lambda _, nanos: nanos // _NANOS,
    logical.whole_nanos_of_day: lambda cursors, nanos: _time_of_day(cursors, nanos // _NANOS),
}


def _decimals(decimal_type: pa.DataType, size: int | None) -> ColumnReader:
    """Return the reader of decimals: big-endian integers in two's complement.

    Args:
        decimal_type: The type of the column, a decimal.
        size: Bytes of each decimal; None if a length stands before it.
    """
    width, widest_type = (16, pa.decimal128(38, 0)) if decimal_type.bit_width == 128 else (32, pa.decimal256(76, 0))  # noqa: PLR2004
    most = 10**decimal_type.precision - 1
    least, greatest = (pa.scalar(Decimal(sign * most), widest_type) for sign in (-1, 1))

    def read(cursors: Cursors) -> pa.Array:
        if size is None:
            start, end = read_spans(cursors)
        else:
            start = cursors.position
            end = cursors.position = start + size
        length = end - start
        cursors.mark_suspect((length < 1) | (length > width))
        digits = pa.py_buffer(_little_endian(cursors, start, end, width))
        numbers = pa.Array.from_buffers(widest_type, len(cursors), [None, digits])
        fits = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, greatest))
        cursors.mark_suspect(~fits.to_numpy(zero_copy_only=False))
        return pa.Array.from_buffers(decimal_type, len(cursors), [None, digits])

    return read


def _little_endian(cursors: Cursors, start: Longs, end: Longs, width: int) -> npt.NDArray[np.uint8]:
    length = np.clip(end - start, 0, width)
    used = max(int(length.max(initial=0)), 1)
    octets = cursors.bytes_at((end - 1)[:, None] - np.arange(used))
    sign = np.where(cursors.bytes_at(start) & 0x80, np.uint8(0xFF), np.uint8(0))
    padded = np.repeat(sign[:, None], width, axis=1)
    padded[:, :used] = np.where(np.arange(used) < length[:, None], octets, sign[:, None])
    return padded


_HEX: Final = np.full(256, 0xFF, np.uint8)
"""Byte -> its value as a hexadecimal digit, or 0xFF."""
_HEX[list(b"0123456789abcdefABCDEF")] = [*range(16), *range(10, 16)]
_HYPHENS: Final = [8, 13, 18, 23]
_DIGITS: Final = [index for index in range(_UUID_CHARACTERS) if index not in _HYPHENS]


def _uuids(cursors: Cursors) -> pa.Array:
    """Read uuids that are texts."""
    start, end = read_spans(cursors)
    cursors.mark_suspect(end - start != _UUID_CHARACTERS)
    raw = replace(cursors, position=start, end=end).read_numpy(f"V{_UUID_CHARACTERS}")
    texts = raw.view(np.uint8).reshape(len(cursors), _UUID_CHARACTERS)
    digits = _HEX.take(texts[:, _DIGITS])
    bad = (texts[:, _HYPHENS] != ord("-")).any(axis=1) | (digits == 0xFF).any(axis=1)  # noqa: PLR2004
    cursors.mark_suspect(bad)
    packed = (digits[:, 0::2] << 4) | (digits[:, 1::2] & 0xF)
    return pa.Array.from_buffers(pa.binary(16), len(cursors), [None, pa.py_buffer(np.ascontiguousarray(packed))])


def leaf_reader(kind: str, size: int, data_type: pa.DataType, convert: logical.Convert | None) -> ColumnReader:
    """Return the reader of a type that is not nested.

    Args:
        kind: Name of the type.
        size: Bytes of a value of type fixed.
        data_type: Type of the column.
        convert: Conversion of encoded values to those of the column.
    """
    if convert is None:
        read_plain = read_fixed(size) if kind == "fixed" else PRIMITIVES[kind]
        return read_plain if data_type == pa.uuid() else lambda cursors: read_plain(cursors).cast(data_type)
    if pa.types.is_decimal(data_type):
        return _decimals(data_type, size if kind == "fixed" else None)
    if data_type == pa.uuid():
        return _uuids
    to_micros = _NUMBERS[convert]
    return lambda cursors: pa.array(to_micros(cursors, read_varints(cursors))).cast(data_type)


_FIXED_BYTES: Final = 64 << 10
"""Bytes of all fixed types of a schema together, since a null takes the whole width in Arrow, too. Further ones become bytes of any
length."""

_LONGEST_FIXED: Final = (1 << 31) - 1

_NULL_COLUMNS: Final = 100
"""Columns of an item that are always null and take no bytes: a list of a few bytes must not become columns of gigabytes."""

Schema = Any
"""A parsed Avro schema: a name, a list of branches, or a mapping."""

_PRIMITIVES: Final[Mapping[str, tuple[pa.DataType, read.RowReader]]] = {
    "null": (pa.string(), read.read_null),
    "boolean": (pa.bool_(), read.read_boolean),
    "int": (pa.int32(), read.read_int),
    "long": (pa.int64(), read.read_long),
    "float": (pa.float32(), read.read_float),
    "double": (pa.float64(), read.read_double),
    "bytes": (pa.binary(), read.read_bytes),
    "string": (pa.string(), read.read_string),
}


@dataclass(frozen=True, slots=True)
class Node:
    """A compiled type.

    Attributes:
        type: The Arrow type.
        read: Reads one value.
        columnar: Reads many values; None if they are read one by one.
        empty: Whether a value may take no bytes.
    """

    type: pa.DataType
    read: read.RowReader
    columnar: columns.ColumnReader | None
    empty: bool = False

    @property
    def stored(self) -> pa.DataType:
        """The Arrow type that the column reader returns."""
        return storage_type(self.type)


def parse_schema(writer: WriterSchema) -> tuple[Schema, dict[str, Schema]]:
    """Return a schema in which all names are full ones, and the types by these names.

    Raises:
        Rejection: UNUSABLE_SCHEMA, the text is no Avro schema.
    """
    named: dict[str, Schema] = {}
    with reading_schema(SchemaParseException, UnknownType):
        for reference in writer.references:
            fastavro.parse_schema(json.loads(reference.text), named_schemas=named)
        schema = fastavro.parse_schema(json.loads(writer.text), named_schemas=named)
    return schema, named


def is_record(schema: Schema, named: Mapping[str, Schema]) -> bool:
    """Return whether a schema is that of a record."""
    definition = named.get(schema, schema) if isinstance(schema, str) else schema
    return isinstance(definition, Mapping) and definition["type"] in {"record", "error"}


class Compiler:
    """Compiles the types of one schema.

    Args:
        named: The schema's named types by their full names.
        truncates: Whether times are truncated to microseconds.
    """

    def __init__(self, named: Mapping[str, Schema], *, truncates: bool = False) -> None:
        self._named: Final = named
        self._truncates: Final = truncates
        self._open_records: Final[list[str]] = []
        self._json: Final[dict[str, read.Recursive]] = {}
        self.cells: Final = CellCount()
        self._columns = 0
        self._nulls = 0
        self._fixed_bytes = 0

    def node(self, schema: Schema) -> Node:
        """Return the node of a type.

        Raises:
            Rejection: UNUSABLE_SCHEMA.
        """
        self._columns += 1
        if self._columns > MAX_COLUMNS:
            raise unusable_schema(f"more than {MAX_COLUMNS} fields")
        if isinstance(schema, list):
            return self._union(schema)
        kind, schema = self._defined(schema)
        if kind == "record":
            return self._record(schema)
        if kind == "array":
            item = self._item(schema["items"])
            columnar = None if item.columnar is None else columns.array(item.columnar, item.stored)
            return Node(pa.list_(item.type), read.array(item.read, cells_per_value(item.type), self.cells), columnar)
        if kind == "map":
            item = self._item_node(schema["values"])
            columnar = None if item.columnar is None else columns.entries(item.columnar, item.stored)
            read_map = read.entries(item.read, 1 + cells_per_value(item.type), self.cells)
            return Node(pa.map_(pa.string(), item.type), read_map, columnar)
        self._nulls += kind == "null"
        return self._fixed(schema) if kind == "fixed" else _leaf(kind, schema, truncates=self._truncates)

    def _fixed(self, schema: Mapping[str, Any]) -> Node:
        check_fixed(schema)
        self._fixed_bytes += schema["size"]
        node = _leaf("fixed", schema, truncates=self._truncates)
        if self._fixed_bytes <= _FIXED_BYTES or not pa.types.is_fixed_size_binary(node.type):
            return node
        return Node(pa.binary(), node.read, None)

    def _item_node(self, schema: Schema) -> Node:
        nulls = self._nulls
        item = self.node(schema)
        if self._nulls - nulls > _NULL_COLUMNS:
            raise unusable_schema(f"items of more than {_NULL_COLUMNS} fields that are always null")
        return item

    def _defined(self, schema: Schema) -> tuple[str, Mapping[str, Any]]:
        """Return the kind and the definition of a type, which may be given by its name."""
        while isinstance(schema, str) or isinstance(schema["type"], Mapping | list):
            if isinstance(schema, str) and schema in _PRIMITIVES:
                return schema, {}
            schema = self._named[schema] if isinstance(schema, str) else schema["type"]
        kind: str = schema["type"]
        if kind in self._named:
            return self._defined(self._named[kind])
        return ("record" if kind == "error" else kind), schema

    def _item(self, schema: Schema) -> Node:
        item = self._item_node(schema)
        if item.empty:  # a few bytes could claim any number of them
            raise unusable_schema("an array of items that take no bytes")
        return item

    def _record(self, schema: Mapping[str, Any]) -> Node:
        name = schema["name"]
        if name in self._open_records or not schema["fields"]:
            return Node(pa.string(), _converted(self._json_read(name), compact), None, empty=not schema["fields"])
        if len({field["name"] for field in schema["fields"]}) < len(schema["fields"]):
            raise unusable_schema(f"a field twice in the record {name[:80]}")
        self._open_records.append(name)
        fields = [(field, self.node(field["type"])) for field in schema["fields"]]
        self._open_records.pop()
        columnar = [
            (pa.field(field["name"], node.stored), node.columnar) for field, node in fields if node.columnar is not None
        ]
        return Node(
            pa.struct([_field(field, node.type) for field, node in fields]),
            read.record([(field["name"], node.read) for field, node in fields]),
            columns.record(columnar) if len(columnar) == len(fields) else None,
            empty=all(node.empty for _, node in fields),
        )

    def _union(self, branches: list[Schema]) -> Node:
        nodes = [self.node(branch) for branch in branches]
        branch_readers = [node.read for node in nodes]
        value_branches = [index for index, branch in enumerate(branches) if self._defined(branch)[0] != "null"]
        columnar = {
            index: nodes[index].columnar or columns.all_suspect(nodes[index].stored) for index in value_branches
        }
        if len(value_branches) <= 1:
            data_type = nodes[value_branches[0]].type if value_branches else pa.string()
            return Node(data_type, read.union(branch_readers), columns.union(len(nodes), columnar, None))
        names = dict(zip(value_branches, self._names([branches[index] for index in value_branches]), strict=True))
        fields = pa.struct([pa.field(name, nodes[index].type) for index, name in names.items()])
        read_fields = read.union(
            [_branch_field(names.get(index), read_branch) for index, read_branch in enumerate(branch_readers)]
        )
        return Node(fields, read_fields, columns.union(len(nodes), columnar, list(storage_type(fields))))

    def _names(self, branches: list[Schema]) -> list[str]:
        defined = [self._defined(branch) for branch in branches]
        full = [schema.get("name", kind) for kind, schema in defined]
        short = [name.rpartition(".")[2] for name in full]
        occurrences = Counter(short)
        return [full[index] if occurrences[name] > 1 else name for index, name in enumerate(short)]

    def _json_read(self, name: str) -> read.RowReader:
        if name not in self._json:
            self._json[name] = recursive = read.Recursive()
            fields = self._named[name]["fields"]
            recursive.read = read.record([(field["name"], self._json_node(field["type"])) for field in fields])
        return self._json[name]

    def _json_node(self, schema: Schema) -> read.RowReader:
        if isinstance(schema, list):
            return read.union([self._json_node(branch) for branch in schema])
        kind, schema = self._defined(schema)
        if kind == "record":
            return self._json_read(schema["name"])
        if kind == "array":
            return read.array(self._json_node(schema["items"]), 0, self.cells)
        if kind == "map":
            return read.entries(self._json_node(schema["values"]), 0, self.cells)
        if kind == "fixed":
            check_fixed(schema)
        return _converted(_leaf(kind, schema, truncates=self._truncates).read, _as_json)


def check_fixed(schema: Mapping[str, Any]) -> None:
    """Refuse a fixed type with an impossible size, which the parser does not check."""
    size = schema["size"]
    if type(size) is not int or not 0 <= size <= _LONGEST_FIXED:
        raise unusable_schema(f"a fixed type of size {size!r}")


def _field(schema: Mapping[str, Any], data_type: pa.DataType) -> pa.Field:
    """Return the field of a record, with its doc, and its aliases as former names."""
    aliases = schema.get("aliases", ())
    names = [name for name in aliases if isinstance(name, str)] if isinstance(aliases, list | tuple) else []
    return with_doc(with_former(pa.field(schema["name"], data_type), names), schema.get("doc"))


def _leaf(kind: str, schema: Mapping[str, Any], *, truncates: bool) -> Node:
    if kind == "enum":
        symbols = schema["symbols"]
        if not isinstance(symbols, list):
            raise unusable_schema("symbols of an enum that are no list")
        return Node(pa.string(), read.enum(symbols), columns.read_enums(symbols))
    if kind == "fixed":
        data_type, read_value = pa.binary(schema["size"]), read.fixed(schema["size"])
    else:
        data_type, read_value = _PRIMITIVES[kind]
    empty = kind == "null" or schema.get("size") == 0
    annotated = meaning(schema, kind) or (data_type, None)
    data_type, convert = truncating(annotated) if truncates else annotated
    columnar = leaf_reader(kind, schema.get("size", 0), data_type, convert)
    return Node(data_type, read_value if convert is None else _converted(read_value, convert), columnar, empty)


def _converted(read_value: read.RowReader, convert: Convert) -> read.RowReader:
    def read_converted(data: bytes, position: int) -> tuple[object, int]:
        value, position = read_value(data, position)
        return convert(value), position

    return read_converted


def _branch_field(name: str | None, read_branch: read.RowReader) -> read.RowReader:
    """Return the reader of a union's branch as a struct in which only its field is set; null (without a name) stays null."""
    return read_branch if name is None else read.record([(name, read_branch)])


def _as_json(value: Any) -> JsonValue:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return Number(f"{value:f}")
    if isinstance(value, float):
        finite = value - value == 0
        return Number(repr(value)) if finite else str(value)
    if value is None or isinstance(value, bool | str):
        scalar: JsonValue = value
        return scalar
    return str(value) if isinstance(value, UUID) else Number(str(value))
