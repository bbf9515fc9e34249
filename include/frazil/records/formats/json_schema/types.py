"""JSON values with a Schema Registry's frame: they are validated against their JSON Schema, and get the columns that it declares. Compiles
JSON Schemas to Arrow types and converters.

===============================  ======================================================================================
object with properties           struct of them; other fields of the value are left out
object, additionalProperties     map from string, if that is a schema and there are no properties
array                            list; map, if `connect.type` is `map` (entries of `key` and `value`)
string                           string; by `format` date, time, timestamp in UTC, uuid; by `contentEncoding` or
                                 `connect.type: bytes` binary, from base64
integer, number                  int64, float64, or narrower by `connect.type`
boolean                          bool
Connect's and Debezium's names   in `title`: Date, Time, Timestamp, Decimal and `io.debezium.time.*`
null or one other type           that type
anything else                    JSON text: several types, tuples, no type, a schema within itself
===============================  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin

import pyarrow as pa
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from frazil.records.casting.source import with_doc
from frazil.records.formats.json_block import BlockDecoder, UnknownFieldFinder, block_decoder, unknown_field_finder
from frazil.records.formats.json_schema.rules import Rules, load_schema
from frazil.records.formats.logical import INSTANT, TIME, decimal_from_bytes, meaning, time_unit
from frazil.records.formats.registered import (
    MAX_COLUMNS,
    Codec,
    Incomplete,
    RegistryFormat,
    RowCodec,
    merge_decoded,
    reading_schema,
    remap_positions,
    row_codec,
    unusable_schema,
)
from frazil.records.json import times
from frazil.records.json.convert import (
    Converter,
    check_characters,
    convert_at,
    from_text,
    to_bool,
    to_bytes,
    to_decimal,
    to_float32,
    to_float64,
    to_int,
    to_list,
    to_struct,
    to_text,
    to_uuid,
    wrong_type,
)
from frazil.records.json.exact import parse_document, parse_object
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
from frazil.records.json.objects import intermediate_document
from frazil.records.model.cells import CellCount, CountCells, StepSize, json_cell_counter
from frazil.records.model.column import Reading
from frazil.records.model.format import Decoded, SchemaSource, Shaped, WriterSchema
from frazil.records.model.json_number import JsonValue, compact
from frazil.records.model.rows import complement, take_distinct


class Node(NamedTuple):
    """A part of a schema.

    Attributes:
        type: Its Arrow type.
        convert: Converts JSON values to values of the type; null stays null.
        intermediate: The intermediate type of many values; None if they are converted one by one.
    """

    type: pa.DataType
    convert: Converter
    intermediate: IntermediateType | None


_CONNECT_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_WIDTHS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_INT32: Final = 32


def json_text(value: JsonValue) -> str:
    """Return any value as compact JSON text."""
    text = compact(value)
    check_characters(text)
    return text


def _text_node(data_type: pa.DataType, expected: str, read: Callable[[str], object]) -> Node:
    return Node(data_type, partial(from_text, expected, read), intermediate_type(data_type))


ANYTHING: Final = Node(pa.string(), json_text, intermediate_document())
_FORMATS: Final[Mapping[str, Node]] = {
    "date": _text_node(pa.date32(), "a date as text", times.days),
    "time": _text_node(TIME, "a time as text", times.time_micros),
    "date-time": _text_node(INSTANT, "a timestamp as text", times.utc_micros),
    "uuid": _text_node(pa.uuid(), "a uuid as text", to_uuid),
}
_BINARY: Final = _text_node(pa.binary(), "binary as base64 text", to_bytes)


class Compiler:
    """Compiles a schema and those that it refers to."""

    def __init__(self) -> None:
        self._open_schemas: Final[list[int]] = []
        self._columns = 0

    def node(self, schema: Any, resolver: Any) -> Node:
        """Return the node of a schema. Its converter takes null, too.

        Args:
            schema: The schema, or part of one.
            resolver: Finds the schemas that it refers to (a resolver of `referencing`).

        Raises:
            Rejection: UNUSABLE_SCHEMA.
        """
        self._columns += 1
        if self._columns > MAX_COLUMNS:
            raise unusable_schema(f"more than {MAX_COLUMNS} fields")
        if not isinstance(schema, Mapping) or id(schema) in self._open_schemas:
            return _nullable(ANYTHING)
        self._open_schemas.append(id(schema))
        node = self._composed(schema, resolver)
        self._open_schemas.pop()
        return node

    def _composed(self, schema: Mapping[str, Any], resolver: Any) -> Node:
        if isinstance(schema.get("$ref"), str):
            try:
                resolved = resolver.lookup(schema["$ref"])
            except Unresolvable as e:
                raise unusable_schema(f"no schema that {schema['$ref'][:80]!r} refers to") from e
            return self.node(resolved.contents, resolved.resolver)
        if (choices := schema.get("oneOf") or schema.get("anyOf")) and isinstance(choices, Sequence):
            values = [choice for choice in choices if not _is_null(choice)]
            return self.node(values[0], resolver) if len(values) == 1 else _nullable(ANYTHING)
        parts = schema.get("allOf")
        if isinstance(parts, Sequence) and len(parts) == 1 and "properties" not in schema:
            return self.node(parts[0], resolver)
        if parts:
            return self._all_of(schema, parts, resolver)
        return _nullable(self._typed(schema, resolver))

    def _all_of(self, schema: Mapping[str, Any], parts: Any, resolver: Any) -> Node:
        """Return the struct of the fields of all parts of an `allOf`, by which schemas inherit."""
        own = {name: value for name, value in schema.items() if name != "allOf"}
        nodes = [self.node(part, resolver) for part in [*parts, own] if part]
        structs = [node for node in nodes if pa.types.is_struct(node.type)]
        names = [field.name for node in structs for field in node.type]
        if not structs or len(set(names)) < len(names):
            return _nullable(ANYTHING)
        fields = pa.struct([field for node in structs for field in node.type])
        convert = partial(_merge_structs, [node.convert for node in structs])
        children = [
            child for node in structs for child in (node.intermediate.children if node.intermediate else [None])
        ]
        return _nullable(Node(fields, convert, intermediate_struct(fields, children)))

    def _typed(self, schema: Mapping[str, Any], resolver: Any) -> Node:
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, resolver)
        if kind == "array":
            return self._array(schema, resolver)
        scalar = _SCALARS.get(kind)
        return ANYTHING if scalar is None else scalar(schema)

    def _object(self, schema: Mapping[str, Any], resolver: Any) -> Node:
        properties, additional = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, Mapping) and properties:
            nodes = {name: self.node(part, resolver) for name, part in properties.items()}
            data_type = pa.struct(
                [with_doc(pa.field(name, node.type), _description(properties[name])) for name, node in nodes.items()]
            )
            convert = partial(to_struct, tuple((name, node.convert) for name, node in nodes.items()))
            return Node(
                data_type, convert, intermediate_struct(data_type, [node.intermediate for node in nodes.values()])
            )
        if isinstance(additional, Mapping) and additional:
            item = self.node(additional, resolver)
            return Node(pa.map_(pa.string(), item.type), partial(_map, item.convert), None)
        return ANYTHING

    def _array(self, schema: Mapping[str, Any], resolver: Any) -> Node:
        items = schema.get("items")
        if "prefixItems" in schema or isinstance(items, Sequence):
            return ANYTHING
        entry = items.get("properties") if isinstance(items, Mapping) else None
        if schema.get("connect.type") == "map" and isinstance(entry, Mapping) and {"key", "value"} <= entry.keys():
            key, item = (self.node(entry[part], resolver) for part in ("key", "value"))
            return Node(pa.map_(key.type, item.type), partial(_entries, key.convert, item.convert), None)
        item = self.node(items, resolver)
        list_type = pa.list_(item.type)
        return Node(list_type, partial(to_list, item.convert), intermediate_list(list_type, item.intermediate))


def _description(schema: Any) -> object:
    return schema.get("description") if isinstance(schema, Mapping) else None


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") in ("null", ["null"])


def _kind(schema: Mapping[str, Any]) -> str | None:
    declared = schema.get("type")
    kinds = {declared} if isinstance(declared, str) else set(declared or ()) - {"null"}
    if kinds == {"integer", "number"}:
        return "number"
    if len(kinds) == 1:
        return str(kinds.pop())
    if kinds:
        return None
    if "properties" in schema:
        return "object"
    values = schema.get("enum", [schema.get("const")])
    return "string" if all(isinstance(value, str) for value in values) else None


def _string(schema: Mapping[str, Any]) -> Node:
    if schema.get("connect.type") == "bytes":
        if schema.get("title") == _CONNECT_DECIMAL and (decimal := _connect_decimal(schema)):
            read = partial(_digits, decimal.precision, decimal.scale)
            convert = partial(from_text, "a decimal as base64 text", read)
            return Node(decimal, convert, intermediate_text(read, decimal))
        return _BINARY
    if schema.get("contentEncoding") == "base64":
        return _BINARY
    return _FORMATS.get(str(schema.get("format")), Node(pa.string(), to_text, intermediate_type(pa.string())))


def _integer(schema: Mapping[str, Any]) -> Node:
    bits = _WIDTHS.get(str(schema.get("connect.type")), 64)
    title = str(schema.get("title"))
    named = meaning({"connect.name": title}, "int" if bits == _INT32 else "long")
    if named is not None:
        data_type, convert = named
        return Node(data_type, partial(_convert_integer, bits, convert or int), _counted(bits, data_type, convert))
    return Node(pa.int32() if bits <= _INT32 else pa.int64(), partial(to_int, bits), intermediate_integer(bits))


def _counted(bits: int, data_type: pa.DataType, convert: Converter | None) -> IntermediateType | None:
    """Return the intermediate type of dates and times that are sent as integers."""
    if bits < _INT32:  # too few for a date or a time of day
        return None
    return (
        intermediate_days()
        if pa.types.is_date(data_type)
        else intermediate_time(data_type, Reading(time_unit(convert)))
    )


def _number(schema: Mapping[str, Any]) -> Node:
    kind = schema.get("connect.type")
    if kind in _WIDTHS:
        return _integer(schema)
    if kind == "bytes" and (decimal := _connect_decimal(schema)):
        return Node(decimal, partial(to_decimal, decimal.precision, decimal.scale), intermediate_type(decimal))
    if kind == "float32":
        return Node(pa.float32(), to_float32, intermediate_type(pa.float32()))
    return Node(pa.float64(), to_float64, intermediate_type(pa.float64()))


_SCALARS: Final[Mapping[str | None, Callable[[Mapping[str, Any]], Node]]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": lambda _: Node(pa.bool_(), to_bool, intermediate_type(pa.bool_())),
}


def _connect_decimal(schema: Mapping[str, Any]) -> pa.DataType | None:
    """Return the decimal type that a schema's parameters declare."""
    logical_type = meaning({**schema, "connect.name": _CONNECT_DECIMAL}, "bytes")
    return None if logical_type is None else logical_type[0]


def _digits(precision: int, scale: int, text: str) -> Decimal:
    return decimal_from_bytes(precision, scale, to_bytes(text))


def _convert_integer(bits: int, convert: Converter, value: JsonValue) -> object:
    return convert(to_int(bits, value))


def _nullable(node: Node) -> Node:
    convert = node.convert
    return node._replace(convert=lambda value: None if value is None else convert(value))


def _merge_structs(structs: Sequence[Converter], value: JsonValue) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for convert in structs:
        fields: Any = convert(value)
        row.update(fields)
    return row


def _map(convert: Converter, value: JsonValue) -> list[tuple[str, object]]:
    if not isinstance(value, dict):
        raise wrong_type("object", value)
    for name in value:
        check_characters(name)
    return [(name, convert_at(f"[{compact(name[:20])}]", convert, item)) for name, item in value.items()]


def _entries(key: Converter, item: Converter, value: JsonValue) -> list[tuple[object, object]]:
    if not isinstance(value, list):
        raise wrong_type("list of entries", value)
    return [convert_at(f"[{index}]", partial(_entry, key, item), entry) for index, entry in enumerate(value)]


def _entry(key: Converter, item: Converter, value: JsonValue) -> tuple[object, object]:
    if not isinstance(value, dict) or value.get("key") is None:
        raise wrong_type("an object of key and value", value)
    return convert_at("key", key, value["key"]), convert_at("value", item, value.get("value"))


Check = Callable[[str, JsonValue], None]
"""Takes a value as text and parsed, and raises a `Rejection` if it breaks a rule."""


class JsonSchemaFormat(RegistryFormat):
    """JSON values with a Schema Registry's frame.

    The properties of an object are the columns. A value of another schema is the one column `BARE`. Schemas that don't
    name their draft are of draft 7, as in the registry. Nothing is fetched: a schema can only refer to its references.

    Args:
        source: Returns the writer schemas.
        validate: Whether values are validated against their schemas (SCHEMA_VIOLATION), not only converted by them.
        blocks: False parses each value alone: the outcome is the same, but takes longer.
    """

    def __init__(self, source: SchemaSource, *, validate: bool = True, blocks: bool = True) -> None:
        super().__init__(source, "JSON", partial(_codec, validate, blocks))


@dataclass(frozen=True, slots=True)
class _BlockCodec:
    """Decodes many values of one schema at once, and the others one by one."""

    rows: RowCodec
    blocks: BlockDecoder

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode values."""
        block = self.blocks.decode(payloads, StepSize(len(payloads)))
        remaining = complement(len(payloads), block.positions)
        shaped = (Shaped(block.rows, block.positions),) if len(block.positions) else ()
        rows = remap_positions(self.rows.decode(take_distinct(payloads, remaining)), remaining)
        return merge_decoded([Decoded(shaped, unknown_fields=block.unknown_fields), rows])


def _codec(validate: bool, blocks: bool, writer: WriterSchema) -> Codec:  # noqa: FBT001  # bound once, above
    schema = load_schema(writer.text)
    with reading_schema(Unresolvable):
        root = Resource.from_contents(schema, default_specification=DRAFT7)
        named = [*_named(writer, root)]
        registry: Registry[Any] = Registry().with_resources(named)
        resolver = registry.resolver_with_root(root)
        rules = Rules(schema, [(name, part.contents) for name, part in named], resolver) if validate else None
        data_type, convert, intermediate = Compiler().node(schema, resolver)
    bare = not pa.types.is_struct(data_type)
    cells, count = CellCount(), json_cell_counter(data_type)
    counted = convert if count is None else partial(_count_and_convert, convert, cells, count)
    find_unknown_fields = unknown_field_finder(data_type)
    check = None if rules is None else rules.check
    rows = row_codec(data_type, _reader(counted, check, find_unknown_fields, cells, bare=bare), bare=bare, cells=cells)
    if bare or intermediate is None or not blocks:
        return rows
    columns, allow = pa.schema(list(data_type)), None if rules is None else rules.allow
    decoder = block_decoder(columns, intermediate.children, find_unknown_fields, allow)
    return rows if decoder is None else _BlockCodec(rows, decoder)


def _named(writer: WriterSchema, root: Resource[Any]) -> Iterator[tuple[str, Resource[Any]]]:
    """Yield the schemas that a schema may refer to, under each name by which it may: absolute, relative, or the schema's own id."""
    base = root.id() or ""
    for reference in writer.references:
        resource = Resource.from_contents(load_schema(reference.text), default_specification=DRAFT7)
        own = resource.id()
        for name in {reference.name, urljoin(base, reference.name), *([own] if own else [])}:
            yield name, resource


def _count_and_convert(convert: Converter, cells: CellCount, count: CountCells, value: JsonValue) -> object:
    cells.add(count(value))
    return convert(value)


def _reader(
    convert: Converter,
    check: Check | None,
    find_unknown_fields: UnknownFieldFinder | None,
    cells: CellCount,
    *,
    bare: bool,
) -> Callable[[bytes], object]:
    def read(raw: bytes) -> object:
        cells.begin(len(raw))
        document = parse_document(raw) if bare else parse_object(raw)
        if check is not None:
            check(raw.decode("utf-8-sig"), document)
        value = convert(document)
        unknown_fields = () if find_unknown_fields is None else tuple(find_unknown_fields(document))
        return Incomplete(value, unknown_fields) if unknown_fields else value

    return read
