"""Values of registered schemas: the frame before a value says with which schema it was written, and it is read with
that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json.convert import build_array
from frazil.records.model.cells import CellCount, StepSize
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import BARE, Decoded, SchemaKind, SchemaSource, Shaped, TooManyUnknownIds, WriterSchema
from frazil.records.model.json_number import SHOWN_CHARACTERS
from frazil.records.model.rows import UnknownFieldPairs

# The frame of a value is:
# - magic 0 and the schema's id as 4 bytes, big-endian; or magic 1 and its GUID as 16 bytes;
# - for Protobuf then the path to the message's type within its file: the number of steps and the steps as zigzag varints. The most
#   frequent path, to the first message, is one zero byte.

BY_ID: Final = 0
BY_GUID: Final = 1
HEAD_BYTES: Final = {BY_ID: 5, BY_GUID: 17}
"""First byte of a frame -> bytes of magic and id."""

MAX_VALUE_BYTES: Final = (1 << 31) - 1
"""No value has more bytes. As the end of a slice: without one, `binary_slice` fails on values that end where the slice begins."""

MAX_STEPS: Final = 100
"""Steps of a path. Messages that are nested deeper don't compile."""

_VARINT_BYTES: Final = 5
"""Bytes of a step, which is an integer of 32 bits."""


@dataclass(frozen=True, slots=True)
class SchemaGroup:
    """Values that were written with one schema, without their heads, and their positions, ascending."""

    schema_id: int | UUID
    payloads: pa.BinaryArray
    positions: pa.Int64Array


def split_by_schema(values: pa.BinaryArray) -> tuple[list[SchemaGroup], dict[int, Reason]]:
    """Return values, none of them null, grouped by the schema that they name, and the reasons of the other values by position.

    These have no bytes (EMPTY_VALUE) or no frame (INVALID_WIRE).
    """
    groups: list[SchemaGroup] = []
    lengths = pc.binary_length(values)
    framed = pa.array([False] * len(values), pa.bool_())
    for magic, size in HEAD_BYTES.items():
        begins = pc.equal(pc.binary_slice(values, 0, 1), pa.scalar(bytes([magic]), values.type))
        has_frame = pc.and_(begins, pc.greater_equal(lengths, size))
        framed = pc.or_(framed, has_frame)
        groups += _group_by_head(values, _true_positions(has_frame), size)
    expected = "expected 0x00 and a schema's id of 4 bytes, or 0x01 and its GUID of 16"
    frameless = _true_positions(pc.invert(framed)).to_pylist()
    return groups, {position: no_frame(values[position].as_py(), expected) for position in frameless}


def _group_by_head(values: pa.BinaryArray, positions: pa.Int64Array, size: int) -> list[SchemaGroup]:
    """Group the values at some positions by their first `size` bytes."""
    if not len(positions):
        return []
    framed = values if len(positions) == len(values) else values.take(positions)
    heads = pc.binary_slice(framed, 0, size).dictionary_encode()
    payloads = pc.binary_slice(framed, size, MAX_VALUE_BYTES)
    if len(heads.dictionary) == 1:
        return [SchemaGroup(_schema_id(heads.dictionary[0].as_py()), payloads, positions)]
    order = pc.array_sort_indices(heads.indices)  # stable: positions stay ascending within a schema
    head_counts = pc.value_counts(heads.indices).to_pylist()
    groups, start = [], 0
    for head_count in sorted(head_counts, key=lambda head_count: int(head_count["values"])):
        rows = order.slice(start, head_count["counts"])
        start += head_count["counts"]
        schema_id = _schema_id(heads.dictionary[head_count["values"]].as_py())
        groups.append(SchemaGroup(schema_id, payloads.take(rows), positions.take(rows)))
    return groups


def _schema_id(head: bytes) -> int | UUID:
    return UUID(bytes=head[1:]) if head[0] == BY_GUID else int.from_bytes(head[1:], "big")


def _true_positions(mask: pa.BooleanArray) -> pa.Int64Array:
    return pc.indices_nonzero(mask).cast(pa.int64())


def no_frame(value: bytes, expected: str) -> Reason:
    """Return the reason of a value that has no frame, or no bytes at all."""
    if not value:
        return Reason(DeadCode.EMPTY_VALUE, "expected a schema's id and a value, found a value of 0 bytes")
    shown = f"0x{value[:8].hex()}{'…' if len(value) > 8 else ''}"  # noqa: PLR2004
    return Reason(DeadCode.INVALID_WIRE, f"{expected}, found {len(value)} bytes: {shown}")


def message_path(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path to the message's type in its file, and the index of the message's first byte.

    Raises:
        Rejection: INVALID_WIRE.
    """
    if payload[:1] == b"\0":
        return (0,), 1
    count, position = _varint(payload, 0)
    if not 0 < count <= MAX_STEPS:
        raise Rejection(DeadCode.INVALID_WIRE, f"expected 1 to {MAX_STEPS} steps to the message's type, found {count}")
    steps = []
    for _ in range(count):
        step, position = _varint(payload, position)
        steps.append(step)
    return tuple(steps), position


def _varint(payload: bytes, start: int) -> tuple[int, int]:
    number = 0
    for index in range(start, min(start + _VARINT_BYTES, len(payload))):
        number |= (payload[index] & 0x7F) << 7 * (index - start)
        if payload[index] < 0x80:  # noqa: PLR2004
            return (number >> 1) ^ -(number & 1), index + 1
    actual = f"0x{payload[start : start + _VARINT_BYTES].hex()}" if start < len(payload) else "the end"
    raise Rejection(DeadCode.INVALID_WIRE, f"expected a varint of the path to the message's type, found {actual}")


MAX_COLUMNS: Final = 5_000
"""Fields of one schema; those of a named type count wherever it is used. Types that use another type twice double with each level:
thirty lines of schema can ask for a billion columns."""

MAX_CHARACTERS: Final = 4 << 20
"""Characters of a schema and of all that it refers to. By default, registries take no larger ones."""

Fields = dict[str, object]
"""One value by field name, as `pa.array` takes it for the storage types of the fields."""


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A decoded value that has more fields than its schema names.

    Attributes:
        value: The decoded fields.
        unknown_fields: Names of the fields that the schema does not name.
    """

    value: object
    unknown_fields: tuple[str, ...]


class Codec(Protocol):
    """Decodes values of one writer schema, without frame."""

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode values; positions are those in `payloads`. No value makes this fail."""


@dataclass(frozen=True, slots=True)
class RowCodec:
    """Decodes values one by one.

    Attributes:
        fields: Type of the columns.
        read: Returns one value's fields (as `Incomplete` where there are more), or raises `Rejection`.
        cells: The cells of the value that `read` returned last.
    """

    fields: pa.StructType
    read: Callable[[bytes], Fields | Incomplete]
    cells: CellCount

    def decode(self, payloads: pa.BinaryArray) -> Decoded:
        """Decode values."""
        rows: list[object] = []
        unknown_fields: dict[int, tuple[str, ...]] = {}
        positions: list[int] = []
        dead: dict[int, Reason] = {}
        groups: tuple[Shaped, ...] = ()
        step = StepSize(len(payloads))
        for position, raw in enumerate(payloads.to_pylist()):
            try:
                value = self.read(raw)
            except Rejection as e:
                dead[position] = e.reason
                continue
            if isinstance(value, Incomplete):
                unknown_fields[position] = value.unknown_fields
            rows.append(value.value if isinstance(value, Incomplete) else value)
            positions.append(position)
            if step.add_cells(self.cells.total):
                groups += self._groups(rows, positions)
                step.hold(groups[-1].columns)
                rows, positions = [], []
        return Decoded(groups + self._groups(rows, positions), dead, UnknownFieldPairs.from_names(unknown_fields))

    def _groups(self, rows: list[object], positions: list[int]) -> tuple[Shaped, ...]:
        if not rows:
            return ()
        columns = pa.RecordBatch.from_struct_array(build_array(rows, self.fields))
        return (Shaped(columns, pa.array(positions, pa.int64())),)


def row_codec(data_type: pa.DataType, read: Callable[[bytes], object], *, bare: bool, cells: CellCount) -> RowCodec:
    """Return the codec of values whose fields become columns, or (`bare`) that become one column themselves.

    Raises:
        Rejection: UNUSABLE_SCHEMA, there are no fields.
    """
    if bare:
        return RowCodec(pa.struct([pa.field(BARE, data_type)]), partial(_bare, read), cells)
    if not data_type.num_fields:
        raise unusable_schema("it has no fields, so there are no columns")
    return RowCodec(data_type, read, cells)  # type: ignore[arg-type]  # a value of a struct is its fields


def _bare(read: Callable[[bytes], object], raw: bytes) -> Fields | Incomplete:
    value = read(raw)
    return Incomplete({BARE: value.value}, value.unknown_fields) if isinstance(value, Incomplete) else {BARE: value}


class RegistryFormat:
    """Decodes framed values. Caches the codec of each writer schema.

    Args:
        source: Returns the schemas.
        kind: The kind of schema that the format reads.
        make_codec: Makes the codec of a schema, or raises `Rejection`.
    """

    def __init__(self, source: SchemaSource, kind: SchemaKind, make_codec: Callable[[WriterSchema], Codec]) -> None:
        self._source: Final = source
        self._kind: Final = kind
        self._make_codec: Final = make_codec
        self._codecs: Final[dict[int | UUID, Codec | Reason]] = {}

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null. No value makes this fail.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses to answer.
        """
        groups, dead = split_by_schema(values)
        # The most frequent ids first, so that a flood of unknown ids, each in few records, can't keep a new schema from being looked up.
        by_size = sorted(groups, key=lambda group: -len(group.positions))
        codecs = {group.schema_id: self._codec(group.schema_id) for group in by_size}
        parts = [Decoded((), dead)]
        for group in groups:
            codec = codecs[group.schema_id]
            if isinstance(codec, Reason):
                parts.append(Decoded((), dict.fromkeys(group.positions.to_pylist(), codec)))
            else:
                parts.append(remap_positions(codec.decode(group.payloads), group.positions))
        return merge_decoded(parts)

    def _codec(self, schema_id: int | UUID) -> Codec | Reason:
        if (cached := self._codecs.get(schema_id)) is not None:
            return cached
        try:
            schema = self._source.schema(schema_id)
        except TooManyUnknownIds:
            actual = f"id {schema_id} after too many that it does not know"
            return Reason(DeadCode.SCHEMA_NOT_ASKED_FOR, f"expected ids of the registry, found {actual}")
        if schema is None:  # not cached: it may be registered later
            return Reason(DeadCode.UNKNOWN_SCHEMA, f"expected a registered schema, found id {schema_id}")
        self._codecs[schema_id] = codec = self._codec_or_reason(schema_id, schema)
        return codec

    def _codec_or_reason(self, schema_id: int | UUID, schema: WriterSchema) -> Codec | Reason:
        if schema.refusal:
            return Reason(DeadCode.UNUSABLE_SCHEMA, f"schema {schema_id}: {schema.refusal}")
        if schema.kind != self._kind:
            message = f"expected a schema of kind {self._kind}, found id {schema_id} of kind {schema.kind}"
            return Reason(DeadCode.UNUSABLE_SCHEMA, message)
        characters = len(schema.text) + sum(len(reference.text) for reference in schema.references)
        if characters > MAX_CHARACTERS:
            message = f"schema {schema_id}: expected at most {MAX_CHARACTERS} characters, found {characters}"
            return Reason(DeadCode.UNUSABLE_SCHEMA, message)
        try:
            with reading_schema():
                return self._make_codec(schema)
        except Rejection as e:
            return Reason(e.reason.code, f"schema {schema_id}: {e.reason.message}", e.reason.path)


def remap_positions(decoded: Decoded, positions: pa.Int64Array) -> Decoded:
    """Return the outcome of a selection of values with positions in all values; `positions` are those of the selected values."""
    groups = tuple(Shaped(group.columns, positions.take(group.positions)) for group in decoded.groups)
    dead = {positions[position].as_py(): reason for position, reason in decoded.dead.items()}
    return Decoded(groups, dead, decoded.unknown_fields.map_positions(positions))


def merge_decoded(decoded: Iterable[Decoded]) -> Decoded:
    """Merge the outcomes of different values, with positions in all values."""
    parts = list(decoded)
    dead = {position: reason for part in parts for position, reason in part.dead.items()}
    unknown_fields = UnknownFieldPairs.concat(part.unknown_fields for part in parts)
    return Decoded(tuple(group for part in parts for group in part.groups), dict(sorted(dead.items())), unknown_fields)


_RAISED_BY_LIBRARIES: Final = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    NotImplementedError,
)


@contextmanager
def reading_schema(*faults: type[Exception]) -> Iterator[None]:
    """Turn each error that is raised while a schema is compiled into a rejection: libraries expect careful authors of schemas.

    Args:
        faults: Errors of the library that reads the schema, besides those of Python.

    Raises:
        Rejection: UNUSABLE_SCHEMA.
    """
    raised: tuple[type[Exception], ...] = (*faults, *_RAISED_BY_LIBRARIES)
    try:
        yield
    except RecursionError as e:
        raise unusable_schema("too many levels") from e
    except raised as e:
        raise unusable_schema(f"{type(e).__name__}: {e}") from e


def unusable_schema(cause: object) -> Rejection:
    """Return the rejection of a writer schema."""
    text = str(cause)
    cut = text if len(text) <= 2 * SHOWN_CHARACTERS else f"{text[: 2 * SHOWN_CHARACTERS]}…"
    return Rejection(DeadCode.UNUSABLE_SCHEMA, f"expected a schema that columns can be made of, found: {cut}")
