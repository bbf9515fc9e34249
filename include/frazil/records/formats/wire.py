"""The frame that Schema Registry clients put before a value: which schema it was written with.

- magic 0, then the schema's id as 4 bytes, big-endian; or magic 1, then its GUID as 16 bytes;
- with Protobuf then the way to the message's type within its file: the number of steps and the steps as zigzag varints,
  the commonest way, the first message, shortened to one zero byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import Dead

BY_ID: Final = 0
BY_GUID: Final = 1
HEADS: Final = {BY_ID: 5, BY_GUID: 17}
"""Length of a frame's head by its first byte."""

_LONGEST: Final = (1 << 31) - 1
"""No value is longer. (Without an end, `binary_slice` fails on values that end where the slice begins.)"""

MAX_STEPS: Final = 100
"""Messages nested deeper than this don't compile either."""

_VARINT_BYTES: Final = 5
"""Steps are 32-bit integers."""


@dataclass(frozen=True, slots=True)
class SchemaGroup:
    """Values that were written with one schema, less their heads, and their positions, ascending."""

    schema_id: int | UUID
    payloads: pa.BinaryArray
    positions: pa.Int64Array


@dataclass(frozen=True, slots=True)
class SplitValues:
    """Values grouped by writer schema, and reasons for values without a valid frame."""

    groups: tuple[SchemaGroup, ...]
    dead: Dead


def split_by_schema(values: pa.BinaryArray) -> SplitValues:
    """Group values by the schema that they name; none of them is null.

    Dead are values without bytes (EMPTY_VALUE) and without a frame (INVALID_WIRE).
    """
    groups: list[SchemaGroup] = []
    lengths = pc.binary_length(values)
    framed = pa.array([False] * len(values), pa.bool_())
    for magic, head in HEADS.items():
        begins = pc.equal(pc.binary_slice(values, 0, 1), pa.scalar(bytes([magic]), values.type))
        has_frame = pc.and_(begins, pc.greater_equal(lengths, head))
        framed = pc.or_(framed, has_frame)
        groups += _by_head(values, _true_positions(has_frame), head)
    dead = {
        position: _unframed(values[position].as_py()) for position in _true_positions(pc.invert(framed)).to_pylist()
    }
    return SplitValues(tuple(groups), dead)


def _by_head(values: pa.BinaryArray, positions: pa.Int64Array, head: int) -> list[SchemaGroup]:
    if not len(positions):
        return []
    framed = values if len(positions) == len(values) else values.take(positions)
    heads = pc.binary_slice(framed, 0, head).dictionary_encode()
    payloads = pc.binary_slice(framed, head, _LONGEST)
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


def _unframed(value: bytes) -> Reason:
    if not value:
        return Reason(DeadCode.EMPTY_VALUE, "expected a schema's id and a value, found a value of 0 bytes")
    expected = "expected 0x00 and a schema's id of 4 bytes, or 0x01 and its GUID of 16"
    shown = f"0x{value[:8].hex()}{'…' if len(value) > 8 else ''}"  # noqa: PLR2004
    return Reason(DeadCode.INVALID_WIRE, f"{expected}, found {len(value)} bytes: {shown}")


def message_path(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the way to the message's type in its file, and where the message begins.

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
    raise Rejection(DeadCode.INVALID_WIRE, f"expected a varint of the way to the message's type, found {actual}")
