"""Avro: values with a registry's frame, or bare ones of a schema at hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa
from fastavro.schema import fingerprint, to_parsing_canonical_form

from frazil.error_codes import BAD_SCHEMA
from frazil.records.formats.avro.block import BlockCodec
from frazil.records.formats.avro.columns import record
from frazil.records.formats.avro.read import RowReader, read_whole
from frazil.records.formats.avro.types import Compiler, is_record, parse_schema
from frazil.records.formats.registered import RegistryFormat, RowCodec, reading_schema, row_codec
from frazil.records.model.cells import CellCount
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.format import Decoded, Format, NamedSchema, SchemaSource, WriterSchema
from frazil.records.model.frame import BARE

SINGLE_OBJECT: Final = b"\xc3\x01"
"""First bytes of Avro's single-object encoding; then the fingerprint of the schema, 8 bytes, then the value."""


class AvroFormat(RegistryFormat):
    """Avro values behind a Schema Registry's frame, each read with the schema that it was written with.

    Columns are the fields of the record; of any other type there is the one column `BARE`.

    Args:
        source: Knows the writer schemas.
        truncates: Whether what is finer than microseconds is cut off times.
    """

    def __init__(self, source: SchemaSource, *, truncates: bool = False) -> None:
        super().__init__(source, "AVRO", partial(codec, truncates=truncates))

    @classmethod
    def of_schema(cls, text: str, references: tuple[NamedSchema, ...] = (), *, truncates: bool = False) -> Format:
        """Return the format of values of one schema: bare, or in Avro's single-object encoding with its fingerprint.

        Raises:
            Terminal: the schema is none, or no columns can be made of it.
        """
        return _OneSchema(WriterSchema("AVRO", text, references), truncates=truncates)


class _OneSchema:
    def __init__(self, writer: WriterSchema, *, truncates: bool) -> None:
        try:
            schema, _ = parse_schema(writer)
            with reading_schema():
                self._codec: Final = codec(writer, head=_single_object_head(schema), truncates=truncates)
            self.fields: Final = self._codec.fields
        except Rejection as e:
            raise BAD_SCHEMA.terminal(f"Avro schema: {e.reason.message}", next_step="correct the schema file") from e

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null. No value makes this fail."""
        return self._codec.decode(values)


def codec(writer: WriterSchema, head: bytes | None = None, *, truncates: bool = False) -> RowCodec | BlockCodec:
    """Return the codec of a schema's values.

    Args:
        writer: The schema.
        head: What values may begin with that stand for themselves; None if a frame was taken off.
        truncates: Whether what is finer than microseconds is cut off times.

    Raises:
        Rejection: UNUSABLE_SCHEMA.
    """
    schema, named = parse_schema(writer)
    with reading_schema():
        compiler = Compiler(named, truncates=truncates)
        node = compiler.node(schema)
        is_bare = not is_record(schema, named)
    read_value = _framed(node.read) if head is None else _bare(node.read, head)
    rows = row_codec(node.type, _counting_cells(read_value, compiler.cells), bare=is_bare, cells=compiler.cells)
    if node.columnar is None:
        return rows
    return BlockCodec(rows, record([(pa.field(BARE, node.stored), node.columnar)]) if is_bare else node.columnar, head)


def _counting_cells(read_value: Callable[[bytes], Any], cells: CellCount) -> Callable[[bytes], Any]:
    def read(raw: bytes) -> Any:
        cells.begin(len(raw))
        return read_value(raw)

    return read


def _framed(read: RowReader) -> Callable[[bytes], Any]:
    return lambda raw: read_whole(read, raw)


def _bare(read: RowReader, head: bytes) -> Callable[[bytes], Any]:
    def read_value(raw: bytes) -> Any:
        if not raw:
            raise Rejection(DeadCode.EMPTY_VALUE, "expected an Avro value, found a value of 0 bytes")
        return read_whole(read, raw, len(head) if raw.startswith(head) else 0)

    return read_value


def _single_object_head(schema: Any) -> bytes:
    # `fastavro` prints the fingerprint as the specification's bytes: least significant first.
    return SINGLE_OBJECT + bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
