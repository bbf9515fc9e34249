"""Protocol Buffers: messages with a registry's frame, or bare ones of a message type at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from frazil.error_codes import BAD_SCHEMA
from frazil.records.formats.protobuf.cells import WireCells
from frazil.records.formats.protobuf.schema import Schema
from frazil.records.formats.protobuf.types import Compiler, FormerNames
from frazil.records.formats.registered import (
    Codec,
    Fields,
    Incomplete,
    RegistryFormat,
    RowCodec,
    merge_decoded,
    reading_schema,
    remap_positions,
    row_codec,
)
from frazil.records.formats.wire import message_path
from frazil.records.model.cells import CellCount
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import Decoded, Format, NamedSchema, SchemaSource, WriterSchema

_FIRST: Final = b"\0"
"""The way to the first message of a file."""

Path = tuple[int, ...]


class ProtobufFormat(RegistryFormat):
    """Messages behind a Schema Registry's frame, each read as the type that it was written as.

    Args:
        source: Knows the writer schemas.
    """

    def __init__(self, source: SchemaSource) -> None:
        super().__init__(source, "PROTOBUF", _SchemaCodec)

    @classmethod
    def of_schema(cls, text: str, message: str, references: tuple[NamedSchema, ...] = ()) -> Format:
        """Return the format of bare messages of one type. A value of 0 bytes is a message with nothing set.

        Args:
            text: Source of the file that declares the type.
            message: Name of the type, with or without the file's package.
            references: The files that it imports, less the well-known ones.

        Raises:
            Terminal: the source does not compile, or has no such type.
            Retryable: the compiler does not come to an end.
        """
        try:
            schema = Schema(WriterSchema("PROTOBUF", text, references))
            return message_codec(schema.named(message), schema.pool)
        except Rejection as e:
            raise BAD_SCHEMA.terminal(
                f"Protobuf schema: {e.reason.message}", next_step="correct the schema file"
            ) from e


class _SchemaCodec:
    """Reads values of one file: the way to the message's type, then the message."""

    def __init__(self, writer: WriterSchema) -> None:
        self._schema: Final = Schema(writer)
        self._former: Final = FormerNames(writer.earlier)
        self._codecs: Final[dict[Path, Codec]] = {}

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        is_first_message = pc.equal(pc.binary_slice(payloads, 0, 1), pa.scalar(_FIRST, payloads.type))
        first_message_rows = pc.indices_nonzero(is_first_message).cast(pa.int64())
        paths: dict[Path, list[int]] = {}
        dead: dict[int, Reason] = {}
        begins: dict[int, int] = {}
        for row in pc.indices_nonzero(pc.invert(is_first_message)).to_pylist():
            try:
                path, begins[row] = message_path(payloads[row].as_py())
            except Rejection as e:
                dead[row] = e.reason
            else:
                paths.setdefault(path, []).append(row)
        parts = [Decoded((), dead)]
        if len(first_message_rows):
            parts.append(
                self._decode((0,), pc.binary_slice(payloads.take(first_message_rows), 1, _LONGEST), first_message_rows)
            )
        for path, rows in paths.items():
            bodies = pa.array([payloads[row].as_py()[begins[row] :] for row in rows], pa.binary())
            parts.append(self._decode(path, bodies, pa.array(rows, pa.int64())))
        return merge_decoded(parts)

    def _decode(self, path: Path, bodies: pa.BinaryArray, positions: pa.Int64Array) -> Decoded:
        try:
            codec = self._codec(path)
        except Rejection as e:
            return Decoded((), dict.fromkeys(positions.to_pylist(), e.reason))
        return remap_positions(codec.decode(bodies), positions)

    def _codec(self, path: Path) -> Codec:
        if path not in self._codecs:
            self._codecs[path] = message_codec(self._schema.message_at(path), self._schema.pool, self._former)
        return self._codecs[path]


_LONGEST: Final = (1 << 31) - 1


def message_codec(descriptor: Descriptor, pool: DescriptorPool, former: FormerNames | None = None) -> RowCodec:
    """Return the codec of a type of messages.

    Raises:
        Rejection: UNUSABLE_SCHEMA.
    """
    with reading_schema():
        compiler = Compiler(pool, former)
        data_type, read_fields = compiler.message(descriptor)
        read = _reader(GetMessageClass(descriptor), read_fields, compiler.cells)
    return row_codec(data_type, read, bare=False, cells=compiler.cells)


def _reader(
    message_class: Any, read_fields: Callable[[Any], Fields], cells: CellCount
) -> Callable[[bytes], Fields | Incomplete]:
    name = message_class.DESCRIPTOR.full_name
    wire = WireCells(message_class.DESCRIPTOR)

    def read(raw: bytes) -> Fields | Incomplete:
        cells.begin(len(raw))
        wire.check(raw)
        try:
            message = message_class.FromString(raw)
        except DecodeError as e:
            cause = str(e).rpartition(": ")[2]
            raise Rejection(DeadCode.INVALID_PROTOBUF, f"expected a message of type {name[:80]}: {cause}") from e
        if not message.IsInitialized():
            raise Rejection(
                DeadCode.INVALID_PROTOBUF, f"expected all required fields of {name[:80]}, found not all set"
            )
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() == size:
            return read_fields(message)
        return Incomplete(read_fields(message), tuple(dict.fromkeys(_unknown_fields(message_class.FromString(raw)))))

    return read


def _unknown_fields(message: Any) -> Iterator[str]:
    """Yield the fields that a message has and its type does not: by number, those inside of messages by their path."""
    for unknown_field in UnknownFieldSet(message):
        yield f"#{unknown_field.field_number}"
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in _messages(field, value):
                for path in _unknown_fields(part):
                    yield f"{field.name}.{path}"


def _messages(field: FieldDescriptor, value: Any) -> Iterable[Any]:
    """Return the messages that a field holds: itself, its items, or the values of its map."""
    if not field.is_repeated:
        return [value]
    if field.message_type.GetOptions().map_entry:
        return value.values() if field.message_type.fields_by_name["value"].message_type is not None else ()
    return value  # type: ignore[no-any-return]  # a list of messages
