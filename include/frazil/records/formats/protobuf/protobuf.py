"""Protocol Buffers messages with a registry's frame, or without frame and of one message type. The cells of a value are counted before
it is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from frazil.error_codes import BAD_SCHEMA
from frazil.records.formats.protobuf.columns import ReadColumn
from frazil.records.formats.protobuf.schema import Schema
from frazil.records.formats.protobuf.types import Compiler, FormerNames
from frazil.records.formats.registered import (
    MAX_VALUE_BYTES,
    Codec,
    Fields,
    Incomplete,
    RegistryFormat,
    RowCodec,
    merge_decoded,
    message_path,
    reading_schema,
    remap_positions,
    row_codec,
)
from frazil.records.model.cells import STEP_CELLS, CellCount, StepSize, cells_per_element
from frazil.records.model.dead_letter import MAX_CELLS, DeadCode, Reason, Rejection
from frazil.records.model.format import Decoded, Format, NamedSchema, SchemaSource, Shaped, WriterSchema
from frazil.records.model.rows import UnknownFieldPairs, mask_without, take_distinct

_MORE: Final = 0x80
_VARINT_BYTES: Final = 10
_VARINT, _DOUBLE, _BYTES, _GROUP, _GROUP_END, _FLOAT = range(6)
_SMALLEST: Final = 2
"""Bytes of an empty message within another one: its tag and its length."""


class _MessageField(NamedTuple):
    """A field that contains messages: their type, and the number of their fields."""

    message_type: Descriptor
    fields: int


class WireCells:
    """Counts the fields of all messages that a value contains, set or not: each of them makes a cell.

    Args:
        descriptor: Type of the values.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self._root: Final = descriptor
        self._message_fields: Final[dict[str, Mapping[int, _MessageField]]] = {}
        self.max_fields: Final = _max_fields(descriptor, set())

    def check(self, raw: bytes) -> None:
        """Refuse a value whose messages have too many fields together.

        Raises:
            Rejection: TOO_WIDE.
        """
        if len(raw) // _SMALLEST * self.max_fields <= max(MAX_CELLS, len(raw)):
            return
        cells = CellCount()
        cells.begin(len(raw))
        try:
            self._walk(raw, cells)
        except IndexError:
            return  # cut off, or no varint: the parser will say so

    def _walk(self, raw: bytes, cells: CellCount) -> None:
        open_messages = [(len(raw), self._fields(self._root))]
        position = 0
        while open_messages:
            end, message_fields = open_messages[-1]
            if position >= end:
                open_messages.pop()
                continue
            tag, position = _varint(raw, position)
            kind, field = tag & 7, message_fields.get(tag >> 3)
            if field is not None and kind in (_BYTES, _GROUP):
                cells.add(field.fields)
            if kind == _VARINT:
                _, position = _varint(raw, position)
            elif kind == _BYTES:
                size, position = _varint(raw, position)
                if field is None:
                    position += size
                else:
                    open_messages.append((position + size, self._fields(field.message_type)))
            elif kind == _GROUP:
                open_messages.append((end, {} if field is None else self._fields(field.message_type)))
            elif kind == _GROUP_END:
                open_messages.pop()
            elif kind in (_DOUBLE, _FLOAT):
                position += 8 if kind == _DOUBLE else 4
            else:
                return  # no wire type: the parser will say so

    def _fields(self, descriptor: Descriptor) -> Mapping[int, _MessageField]:
        """Return the fields of a type that hold messages, by their number."""
        if descriptor.full_name not in self._message_fields:
            self._message_fields[descriptor.full_name] = {
                field.number: _MessageField(field.message_type, len(field.message_type.fields) or 1)
                for field in descriptor.fields
                if field.message_type
            }
        return self._message_fields[descriptor.full_name]


def _max_fields(descriptor: Descriptor, visited: set[str]) -> int:
    """Return the largest number of fields among all message types that a message may contain."""
    visited.add(descriptor.full_name)
    inner = [field.message_type for field in descriptor.fields if field.message_type]
    nested_counts = [
        _max_fields(message_type, visited) for message_type in inner if message_type.full_name not in visited
    ]
    return max([1, *nested_counts, *(len(message_type.fields) for message_type in inner)])


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        byte = raw[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < _MORE:
            return number, position
    raise IndexError  # the parser refuses longer ones; to read one here would take time by the square of its bytes


_FIRST: Final = b"\0"
"""The path to the first message of a file."""

Path = tuple[int, ...]
Rows = npt.NDArray[np.int64]


class ProtobufFormat(RegistryFormat):
    """Messages with a Schema Registry's frame, each read as the type that it was written as.

    Args:
        source: Returns the writer schemas.
        truncates: Whether times are truncated to microseconds.
    """

    def __init__(self, source: SchemaSource, *, truncates: bool = False) -> None:
        super().__init__(source, "PROTOBUF", partial(_SchemaCodec, truncates=truncates))

    @classmethod
    def of_schema(
        cls, text: str, message: str, references: tuple[NamedSchema, ...] = (), *, truncates: bool = False
    ) -> Format:
        """Return the format of messages of one type, without frame. A value of 0 bytes is a message with nothing set.

        Args:
            text: Source of the file that declares the type.
            message: Name of the type, with or without the file's package.
            references: The files that it imports, without the well-known ones.
            truncates: Whether times are truncated to microseconds.

        Raises:
            Terminal: the source does not compile, or has no such type.
            Retryable: the compiler timed out.
        """
        try:
            schema = Schema(WriterSchema("PROTOBUF", text, references))
            return message_codec(schema.named(message), schema, truncates=truncates)
        except Rejection as e:
            raise BAD_SCHEMA.terminal(
                f"Protobuf schema: {e.reason.message}", next_step="correct the schema file"
            ) from e


class _SchemaCodec:
    """Decodes values of one file: the path to the message's type, then the message."""

    def __init__(self, writer: WriterSchema, *, truncates: bool) -> None:
        self._truncates: Final = truncates
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
                self._decode(
                    (0,), pc.binary_slice(payloads.take(first_message_rows), 1, MAX_VALUE_BYTES), first_message_rows
                )
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
            message = self._schema.message_at(path)
            self._codecs[path] = message_codec(message, self._schema, self._former, truncates=self._truncates)
        return self._codecs[path]


_STEP_CELLS: Final = 4 * STEP_CELLS
"""Cells that are read as columns at once. In messages and columns a cell takes a quarter of the bytes of Python objects."""


@dataclass(frozen=True, slots=True)
class MessageCodec:
    """Decodes messages of one type to columns. Values that are suspect then, or may be too wide, are decoded one by one.

    Attributes:
        rows: Decodes values one by one, and decides which are rejected.
        parse: Parses a value.
        read_column: Makes structs of messages.
        message_cells: Cells that two bytes of a value can make at most, as fields of messages.
        text_cells: The same for messages that become JSON text; 0 if there are none.
        list_cells: Cells that one byte of a value can make at most, as items of lists.
    """

    rows: RowCodec
    parse: Callable[[bytes], ParsedMessage]
    read_column: ReadColumn
    message_cells: int
    text_cells: int
    list_cells: int

    @property
    def fields(self) -> pa.StructType:
        """Type of the columns."""
        return self.rows.fields

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode values; positions are those in `payloads`. No value makes this fail."""
        sizes = pc.binary_length(payloads).to_numpy(zero_copy_only=False).astype(np.int64)
        is_wide = np.maximum(sizes // 2 * self.message_cells, sizes * self.list_cells) > MAX_CELLS
        narrow = np.flatnonzero(~is_wide)
        # All messages of a step are held together.
        cells = np.maximum(sizes // 2 * self.text_cells, sizes * self.list_cells)
        steps = np.cumsum(cells[narrow]) // _STEP_CELLS
        step_size = StepSize(len(payloads))
        parts = [self._one_by_one(payloads, np.flatnonzero(is_wide))]
        columns: list[Shaped] = []
        held_groups = 0
        for rows in np.split(narrow, np.flatnonzero(np.diff(steps)) + 1):
            if len(columns) > held_groups:
                step_size.hold(columns[-1].columns)
                held_groups += 1
            parts.append(self._as_columns(payloads, rows, columns))
        if columns:
            batch = pa.concat_batches([group.columns for group in columns])
            parts.append(Decoded((Shaped(batch, pa.concat_arrays([group.positions for group in columns])),)))
        return merge_decoded(parts)

    def _one_by_one(self, payloads: pa.BinaryArray, rows: Rows) -> Decoded:
        if not len(rows):
            return Decoded(())
        positions = pa.array(rows)
        return remap_positions(self.rows.decode(payloads.take(positions)), positions)

    def _as_columns(self, payloads: pa.BinaryArray, rows: Rows, columns: list[Shaped]) -> Decoded:
        """Append the decoded values to `columns` as one group, and return the outcomes of all other values."""
        messages: list[Any] = []
        positions: list[int] = []
        dead: dict[int, Reason] = {}
        unknown_fields: dict[int, tuple[str, ...]] = {}
        for position, raw in zip(rows.tolist(), take_distinct(payloads, pa.array(rows)).to_pylist(), strict=True):
            try:
                message, unknown_names = self.parse(raw)
            except Rejection as e:
                dead[position] = e.reason
                continue
            if unknown_names:
                unknown_fields[position] = unknown_names
            messages.append(message)
            positions.append(position)
        suspects: set[int] = set()
        stored = self.read_column(messages, suspects)
        good = pa.array(positions, pa.int64())
        if suspects:
            is_good = mask_without(len(messages), suspects)
            stored, good = stored.filter(is_good), good.filter(is_good)
        if len(good):
            columns.append(Shaped(pa.RecordBatch.from_struct_array(stored), good))
        suspect_positions = sorted(positions[index] for index in suspects)
        for position in suspect_positions:
            unknown_fields.pop(position, None)
        outcomes = Decoded((), dead, UnknownFieldPairs.from_names(unknown_fields))
        return merge_decoded([outcomes, self._one_by_one(payloads, np.array(suspect_positions, np.int64))])


def message_codec(
    descriptor: Descriptor, schema: Schema, former: FormerNames | None = None, *, truncates: bool = False
) -> MessageCodec:
    """Return the codec of a message type.

    Raises:
        Rejection: UNUSABLE_SCHEMA.
    """
    with reading_schema():
        compiler = Compiler(schema, former, truncates=truncates)
        data_type, read_fields, read_column = compiler.message(descriptor)
        parse = _parser(GetMessageClass(descriptor))
        wire = WireCells(descriptor)
        read = _reader(parse, read_fields, wire, compiler.cells)
    rows = row_codec(data_type, read, bare=False, cells=compiler.cells)
    text_cells = wire.max_fields if compiler.holds_messages_as_text else 0
    return MessageCodec(rows, parse, read_column, wire.max_fields, text_cells, cells_per_element(data_type))


ParsedMessage = tuple[Any, tuple[str, ...]]
"""A message without its unknown fields, and the names of these."""


def _parser(message_class: Any) -> Callable[[bytes], ParsedMessage]:
    name = message_class.DESCRIPTOR.full_name
    from_string = message_class.FromString
    has_required_fields = _has_required_fields(message_class.DESCRIPTOR, set())

    def parse(raw: bytes) -> ParsedMessage:
        try:
            message = from_string(raw)
        except DecodeError as e:
            cause = str(e).rpartition(": ")[2]
            raise Rejection(DeadCode.INVALID_PROTOBUF, f"expected a message of type {name[:80]}: {cause}") from e
        if has_required_fields and not message.IsInitialized():
            raise Rejection(
                DeadCode.INVALID_PROTOBUF, f"expected all required fields of {name[:80]}, found not all set"
            )
        message.DiscardUnknownFields()
        if message.SerializePartialToString() == raw:
            return message, ()
        original = from_string(raw)  # the value has unknown fields, or is encoded in an unusual way
        if original.ByteSize() == message.ByteSize():
            return message, ()
        return message, tuple(dict.fromkeys(_unknown_fields(original)))

    return parse


def _has_required_fields(descriptor: Descriptor, visited: set[str]) -> bool:
    """Return whether messages of a type can lack required fields, also in nested messages or in extensions."""
    visited.add(descriptor.full_name)
    return descriptor.is_extendable or any(
        field.is_required
        or (
            field.message_type is not None
            and field.message_type.full_name not in visited
            and _has_required_fields(field.message_type, visited)
        )
        for field in descriptor.fields
    )


def _reader(
    parse: Callable[[bytes], ParsedMessage], read_fields: Callable[[Any], Fields], wire: WireCells, cells: CellCount
) -> Callable[[bytes], Fields | Incomplete]:
    def read(raw: bytes) -> Fields | Incomplete:
        cells.begin(len(raw))
        wire.check(raw)
        message, unknown_fields = parse(raw)
        fields = read_fields(message)
        return Incomplete(fields, unknown_fields) if unknown_fields else fields

    return read


def _unknown_fields(message: Any) -> Iterator[str]:
    """Yield the fields that a message has and its type does not: `#` and the number, behind the path to an inner message."""
    for unknown_field in UnknownFieldSet(message):
        yield f"#{unknown_field.field_number}"
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in _messages(field, value):
                for path in _unknown_fields(part):
                    yield f"{field.name}.{path}"


def _messages(field: FieldDescriptor, value: Any) -> Iterable[Any]:
    """Return the messages in a field: its value, its items, or the values of its map."""
    if not field.is_repeated:
        return [value]
    if field.message_type.GetOptions().map_entry:
        return value.values() if field.message_type.fields_by_name["value"].message_type is not None else ()
    return value  # type: ignore[no-any-return]  # a list of messages
