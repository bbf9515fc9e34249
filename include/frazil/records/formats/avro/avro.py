"""Avro values with a registry's frame, or without frame and of one schema. Values of one schema are read column by column; those that are
suspect then are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.schema import fingerprint, to_parsing_canonical_form

from frazil.error_codes import BAD_SCHEMA
from frazil.records.formats.avro.columns import MIN_BLOCK_VALUES, ColumnReader, Cursors, Longs, record
from frazil.records.formats.avro.read import RowReader, read_whole
from frazil.records.formats.avro.types import Compiler, is_record, parse_schema
from frazil.records.formats.registered import (
    RegistryFormat,
    RowCodec,
    merge_decoded,
    reading_schema,
    remap_positions,
    row_codec,
)
from frazil.records.model.cells import CellCount
from frazil.records.model.dead_letter import MAX_CELLS, DeadCode, Rejection
from frazil.records.model.format import BARE, Decoded, Format, SchemaSource, Shaped, WriterSchema


@dataclass(frozen=True, slots=True)
class BlockCodec:
    """Decodes values of one schema, without frame.

    Attributes:
        rows: Decodes values one by one, and decides which are rejected.
        columnar: Reads many values into a struct of the columns.
        head: Bytes that a value may begin with; None if values had a frame.
    """

    rows: RowCodec
    columnar: ColumnReader
    head: bytes | None = None

    @property
    def fields(self) -> pa.StructType:
        """Type of the columns."""
        return self.rows.fields

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode values; positions are those in `payloads`. No value makes this fail."""
        if len(payloads) < MIN_BLOCK_VALUES or not payloads.buffers()[2]:
            return self.rows.decode(payloads)
        cursors = _cursors(payloads)
        if self.head is not None:
            begins = pc.equal(pc.binary_slice(payloads, 0, len(self.head)), pa.scalar(self.head, payloads.type))
            cursors.position += begins.to_numpy(zero_copy_only=False) * len(self.head)
        empty = cursors.position == cursors.end
        rows = self.columnar(cursors)
        cursors.mark_suspect(empty | (cursors.position != cursors.end))
        good, bad = np.flatnonzero(~cursors.suspect), np.flatnonzero(cursors.suspect)
        parts = [Decoded(self._groups(rows, good))]
        if len(bad):
            suspects = pa.array(bad)
            parts.append(remap_positions(self.rows.decode(payloads.take(suspects)), suspects))
        return merge_decoded(parts)

    def _groups(self, rows: pa.StructArray, good: Longs) -> tuple[Shaped, ...]:
        if not len(good):
            return ()
        positions = pa.array(good)
        stored = rows if len(good) == len(rows) else rows.take(positions)
        return (Shaped(pa.RecordBatch.from_struct_array(stored.cast(self.fields)), positions),)


def _cursors(payloads: pa.BinaryArray) -> Cursors:
    _, offsets, data = payloads.buffers()
    edges = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.int64)
    count = len(payloads)
    return Cursors(
        np.frombuffer(data, np.uint8),
        edges[:-1].copy(),
        edges[1:],
        np.arange(count),
        np.zeros(count, np.bool_),
        np.zeros(count, np.int64),
        np.maximum(MAX_CELLS, np.diff(edges)),
    )


SINGLE_OBJECT: Final = b"\xc3\x01"
"""The first bytes of Avro's single-object encoding. The fingerprint of the schema, 8 bytes, and the value follow."""


class AvroFormat(RegistryFormat):
    """Avro values with a Schema Registry's frame, each read with the schema that it was written with.

    The fields of a record are the columns. A value of another type is the one column `BARE`.

    Args:
        source: Returns the writer schemas.
        truncates: Whether times are truncated to microseconds.
    """

    def __init__(self, source: SchemaSource, *, truncates: bool = False) -> None:
        super().__init__(source, "AVRO", partial(codec, truncates=truncates))

    @classmethod
    def of_schema(cls, text: str, *, truncates: bool = False) -> Format:
        """Return the format of values of one schema, without frame or in Avro's single-object encoding with its fingerprint.

        Raises:
            Terminal: the text is no schema, or no columns can be made of it.
        """
        writer = WriterSchema("AVRO", text)
        try:
            schema, _ = parse_schema(writer)
            with reading_schema():
                return codec(writer, _single_object_head(schema), truncates=truncates)
        except Rejection as e:
            raise BAD_SCHEMA.terminal(f"Avro schema: {e.reason.message}", next_step="correct the schema file") from e


def codec(writer: WriterSchema, head: bytes | None = None, *, truncates: bool = False) -> RowCodec | BlockCodec:
    """Return the codec of a schema's values.

    Args:
        writer: The schema.
        head: Bytes that a value without frame may begin with; None if a frame was removed.
        truncates: Whether times are truncated to microseconds.

    Raises:
        Rejection: UNUSABLE_SCHEMA.
    """
    schema, named = parse_schema(writer)
    with reading_schema():
        compiler = Compiler(named, truncates=truncates)
        node = compiler.node(schema)
        is_bare = not is_record(schema, named)
    read_value = partial(read_whole, node.read) if head is None else _bare(node.read, head)
    rows = row_codec(node.type, _counting_cells(read_value, compiler.cells), bare=is_bare, cells=compiler.cells)
    if node.columnar is None:
        return rows
    return BlockCodec(rows, record([(pa.field(BARE, node.stored), node.columnar)]) if is_bare else node.columnar, head)


def _counting_cells(read_value: Callable[[bytes], Any], cells: CellCount) -> Callable[[bytes], Any]:
    def read(raw: bytes) -> Any:
        cells.begin(len(raw))
        return read_value(raw)

    return read


def _bare(read: RowReader, head: bytes) -> Callable[[bytes], Any]:
    def read_value(raw: bytes) -> Any:
        if not raw:
            raise Rejection(DeadCode.EMPTY_VALUE, "expected an Avro value, found a value of 0 bytes")
        return read_whole(read, raw, len(head) if raw.startswith(head) else 0)

    return read_value


def _single_object_head(schema: Any) -> bytes:
    # `fastavro` prints the bytes of the fingerprint in the order of the specification: the least significant one first.
    return SINGLE_OBJECT + bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
