"""JSON that a registered schema describes: framed JSON text, validated, with the columns that the schema declares."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urljoin

import pyarrow as pa
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from frazil.records.formats.json_block import BlockDecoder, UnknownFieldFinder, block_decoder, unknown_field_finder
from frazil.records.formats.json_schema.rules import Rules, load_schema
from frazil.records.formats.json_schema.types import Compiler
from frazil.records.formats.registered import (
    Codec,
    Incomplete,
    RegistryFormat,
    RowCodec,
    merge_decoded,
    reading_schema,
    remap_positions,
    row_codec,
)
from frazil.records.json.convert import Converter
from frazil.records.json.exact import parse_object
from frazil.records.model.cells import CellCount, CountCells, StepSize, json_cell_counter
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.format import Decoded, SchemaSource, Shaped, WriterSchema
from frazil.records.model.json_number import JsonValue, Number
from frazil.records.model.rows import complement, take_distinct

Check = Callable[[str, JsonValue], None]
"""Takes a value as text and parsed, and refuses it by a `Rejection`."""


class JsonSchemaFormat(RegistryFormat):
    """JSON values behind a Schema Registry's frame.

    Columns are the properties of the object; of any other schema there is the one column `BARE`. Schemas that don't
    say their draft are of draft 7, as the registry has it. Nothing is fetched: a schema refers to its references only.

    Args:
        source: Knows the writer schemas.
        validate: Whether values are validated against their schemas (SCHEMA_VIOLATION), not only converted by them.
        blocks: Whether values may be parsed as blocks where that is exact. Without, the outcome is the same, later.
    """

    def __init__(self, source: SchemaSource, *, validate: bool = True, blocks: bool = True) -> None:
        super().__init__(source, "JSON", partial(_codec, validate, blocks))


@dataclass(frozen=True, slots=True)
class _BlockCodec:
    """Reads many values of one schema at once, and the others one by one."""

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
        data_type, convert, carrier = Compiler().node(schema, resolver)
    bare = not pa.types.is_struct(data_type)
    cells, count = CellCount(), json_cell_counter(data_type)
    counted = convert if count is None else partial(_count_and_convert, convert, cells, count)
    find_unknown_fields = unknown_field_finder(data_type)
    check = None if rules is None else rules.check
    rows = row_codec(data_type, _reader(counted, check, find_unknown_fields, cells, bare=bare), bare=bare, cells=cells)
    if bare or carrier is None or not blocks:
        return rows
    columns, allow = pa.schema(list(data_type)), None if rules is None else rules.allow
    decoder = block_decoder(columns, carrier.children, find_unknown_fields, allow)
    return rows if decoder is None else _BlockCodec(rows, decoder)


def _named(writer: WriterSchema, root: Resource[Any]) -> Iterator[tuple[str, Resource[Any]]]:
    """Yield what the schema may refer to, under the name it is referred to by: as it is and next to the schema."""
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
        document = _document(raw) if bare else parse_object(raw)
        if check is not None:
            check(raw.decode("utf-8-sig"), document)
        value = convert(document)
        unknown_fields = () if find_unknown_fields is None else tuple(find_unknown_fields(document))
        return Incomplete(value, unknown_fields) if unknown_fields else value

    return read


def _document(raw: bytes) -> JsonValue:
    try:
        return parse_object(raw)
    except Rejection as e:
        if e.reason.code is not DeadCode.NOT_AN_OBJECT:
            raise
        # It is JSON, and may be another value than an object.
        value: JsonValue = json.loads(raw.decode("utf-8-sig"), parse_int=Number, parse_float=Number)
        return value
