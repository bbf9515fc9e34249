"""How records name their schema: the bytes and headers of each registry's clients are rewritten to the frame that all formats read.

It is Confluent's: magic 0 and an id of 4 bytes, or magic 1 and a UUID, then the value (`frazil.records.formats.registered`).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.formats.registered import BY_GUID, HEAD_BYTES, MAX_VALUE_BYTES, message_path, no_frame
from frazil.records.model.cells import StepSize
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import Framing
from frazil.records.model.rows import last_header

# Confluent: the header `__value_schema_id` or `__key_schema_id` holds what else stands before the value: magic and id or GUID, and for
# Protobuf the path to the message's type. So it is put back there. As in Confluent's Java deserialiser, the last header of that name
# counts, and a header without value is none.
#
# Apicurio: magic 0 and an id of 8 bytes, or an id of 8 bytes in a header named `apicurio.value.contentId` or `.globalId`.
# AWS Glue: version 3, a byte for the compression, and the UUID of the schema's version. The value behind them may be packed by zlib.

HEADERS: Final = {"value": "__value_schema_id", "key": "__key_schema_id"}
"""Part of the record -> name of Confluent's header about it."""

PayloadName = Literal["value", "key"]

MAX_UNPACKED: Final = 16 << 20
"""Bytes of one unpacked value. Zlib packs zeros to a thousandth, so a megabyte would become a gigabyte."""

MAX_RATIO: Final = 100
_UNPACKED_FLOOR: Final = 4096
"""A value may unpack to at most 4 KiB and a hundred times its packed bytes: a batch is sized by packed bytes, and must not take hours."""

_GLUE_HEAD: Final = 18
_GLUE_STORED, _GLUE_ZLIB = b"\x03\x00", b"\x03\x05"
_GLUE_EXPECTED: Final = "expected 0x03, 0x00 or 0x05, and the UUID of a schema's version in 16 bytes"

_APICURIO_HEAD: Final = 9
_APICURIO_IDS: Final[Mapping[Framing, tuple[str, str]]] = {
    "apicurio-content-id": ("contentId", "globalId"),
    "apicurio-global-id": ("globalId", "contentId"),
}
"""Framing -> the name of its ids in headers, and the name of the other framing's ids, which count something else."""

Dead = dict[int, Reason]


def unframe(
    framing: Framing, data: pa.BinaryArray, headers: pa.ListArray, name: PayloadName, *, has_path: bool
) -> tuple[pa.BinaryArray, Dead]:
    """Return values, or keys, each with Confluent's frame before it. No bytes make this fail.

    Args:
        framing: How they name their schema.
        data: Values or keys, none of them null.
        headers: The headers of their records.
        name: Which of the two they are.
        has_path: Whether the path to a Protobuf message type follows the id.

    Returns:
        As many values, and the reasons of dead ones (INVALID_WIRE, EMPTY_VALUE, UNKNOWN_SCHEMA) by position; their bytes mean nothing.

    Raises:
        StepTooWide: the unpacked values together have more bytes than may be held at once.
    """
    if framing == "glue":
        return _from_glue(data)
    if framing in _APICURIO_IDS:
        return _from_apicurio(framing, data, headers, name)
    return prepend_schema_ids(data, headers, HEADERS[name], has_path=has_path)


def prepend_schema_ids(
    data: pa.BinaryArray, headers: pa.ListArray, name: str, *, has_path: bool
) -> tuple[pa.BinaryArray, Dead]:
    """Put the schema id in each record's header before its value; values without such a header stay as they are.

    Args:
        data: Values or keys, none of them null.
        headers: The headers of their records.
        name: Name of the header.
        has_path: Whether the path to a Protobuf message type follows the id.

    Returns:
        As many values, and reasons (INVALID_WIRE) by position where the header names no schema.
    """
    rows, header_values = _header(headers, name)
    if not len(rows):
        return data, {}
    distinct_heads = header_values.dictionary_encode()
    reasons = [_bad_head(head, name, has_path=has_path) for head in distinct_heads.dictionary.to_pylist()]
    dead = {
        row: reason
        for row, head_index in zip(rows.to_pylist(), distinct_heads.indices.to_pylist(), strict=True)
        if (reason := reasons[head_index]) is not None
    }
    return _prepend(data, rows, header_values), dead


def _header(headers: pa.ListArray, name: str) -> tuple[pa.Int64Array, pa.BinaryArray]:
    """Return the records that have a header of this name with a value, and these values."""
    rows, header_values = last_header(headers, name)
    return rows.filter(header_values.is_valid()), header_values.drop_null()


def _prepend(data: pa.BinaryArray, rows: pa.Int64Array, heads: pa.BinaryArray) -> pa.BinaryArray:
    # A value without header has null here, which becomes an empty prefix below.
    head_index = pc.index_in(pa.arange(0, len(data)), value_set=rows)
    prefixes = pc.fill_null(heads.take(head_index), pa.scalar(b"", pa.binary()))
    return pc.binary_join_element_wise(prefixes, data, pa.scalar(b"", pa.binary()))


def _bad_head(head: bytes, name: str, *, has_path: bool) -> Reason | None:
    """Return why the value of a header names no schema; None if it does."""
    size = HEAD_BYTES.get(head[0]) if head else None
    if size is not None and len(head) >= size and _has_expected_rest(head[size:], has_path=has_path):
        return None
    behind = " and the path to a message" if has_path else ""
    expected = f"expected 0x00 and a schema's id of 4 bytes, or 0x01 and its GUID of 16{behind}"
    return _bad_header(name, head, expected)


def _bad_header(name: str, head: bytes, expected: str) -> Reason:
    actual = f"{len(head)} bytes" + (f": 0x{head[:20].hex()}" if head else "")
    return Reason(DeadCode.INVALID_WIRE, f"header {name}: {expected}, found {actual}")


def _has_expected_rest(rest: bytes, *, has_path: bool) -> bool:
    """Return whether nothing follows the id, or with `has_path` exactly the path to a message type."""
    if not has_path:
        return not rest
    try:
        return message_path(rest)[1] == len(rest)
    except Rejection:
        return False


def _from_apicurio(
    framing: Framing, data: pa.BinaryArray, headers: pa.ListArray, name: PayloadName
) -> tuple[pa.BinaryArray, Dead]:
    own_name, foreign_name = (f"apicurio.{name}.{kind}" for kind in _APICURIO_IDS[framing])
    dead: Dead = {}
    for row, head in zip(*(part.to_pylist() for part in _header(headers, foreign_name)), strict=True):
        dead[row] = _bad_header(foreign_name, head, f"expected {own_name}, since the registry's framing is {framing}")
    rows, ids = _header(headers, own_name)
    for row, head in zip(rows.to_pylist(), ids.to_pylist(), strict=True):
        if len(head) == _APICURIO_HEAD - 1:
            dead.pop(row, None)  # a record may have both
        else:
            dead[row] = _bad_header(own_name, head, "expected a schema's id of 8 bytes")
    data = _prepend(data, rows, pc.binary_join_element_wise(pa.scalar(b"\0"), ids, pa.scalar(b"")))
    is_framed = pc.and_(_begins(data, b"\0"), pc.greater_equal(pc.binary_length(data), _APICURIO_HEAD))
    for row in _false_positions(is_framed):
        dead.setdefault(row, no_frame(data[row].as_py(), "expected 0x00 and a schema's id of 8 bytes"))
    for row in _false_positions(pc.equal(pc.binary_slice(data, 1, 5), pa.scalar(bytes(4), data.type))):
        number = int.from_bytes(data[row].as_py()[1:_APICURIO_HEAD], "big")
        dead.setdefault(row, Reason(DeadCode.UNKNOWN_SCHEMA, f"expected a registered schema, found id {number}"))
    return _join(b"\0", pc.binary_slice(data, 5, MAX_VALUE_BYTES)), dead


def _from_glue(data: pa.BinaryArray) -> tuple[pa.BinaryArray, Dead]:
    is_whole = pc.greater_equal(pc.binary_length(data), _GLUE_HEAD)
    is_packed = pc.and_(is_whole, _begins(data, _GLUE_ZLIB))
    is_framed = pc.or_(is_packed, pc.and_(is_whole, _begins(data, _GLUE_STORED)))
    dead = {row: no_frame(data[row].as_py(), _GLUE_EXPECTED) for row in _false_positions(is_framed)}
    framed = _join(b"\1", pc.binary_slice(data, 2, MAX_VALUE_BYTES))
    packed_rows = pc.indices_nonzero(is_packed).to_pylist()
    if not packed_rows:
        return framed, dead
    step, unpacked = StepSize(len(data)), []
    for row in packed_rows:
        value = framed[row].as_py()
        try:
            value = value[: HEAD_BYTES[BY_GUID]] + _unpack(value[HEAD_BYTES[BY_GUID] :])
        except Rejection as e:
            dead[row] = e.reason
        step.hold_bytes(len(value))
        unpacked.append(value)
    return pc.replace_with_mask(framed, is_packed, pa.array(unpacked, framed.type)), dead


def _unpack(packed: bytes) -> bytes:
    unpacker, limit = zlib.decompressobj(), min(MAX_UNPACKED, _UNPACKED_FLOOR + MAX_RATIO * len(packed))
    try:
        value = unpacker.decompress(packed, limit)
    except zlib.error as e:
        raise Rejection(DeadCode.INVALID_WIRE, "expected a value packed by zlib, found other bytes") from e
    if len(value) >= limit:
        raise Rejection(DeadCode.INVALID_WIRE, f"expected fewer than {limit:,} bytes unpacked, found more")
    if not unpacker.eof or unpacker.unused_data:
        actual = "more behind it" if unpacker.eof else "no end of it"
        raise Rejection(DeadCode.INVALID_WIRE, f"expected a value packed by zlib, found {actual}")
    return value


def _begins(data: pa.BinaryArray, head: bytes) -> pa.BooleanArray:
    return pc.equal(pc.binary_slice(data, 0, len(head)), pa.scalar(head, data.type))


def _join(head: bytes, data: pa.BinaryArray) -> pa.BinaryArray:
    return pc.binary_join_element_wise(pa.scalar(head, data.type), data, pa.scalar(b"", data.type))


def _false_positions(mask: pa.BooleanArray) -> list[int]:
    return pc.indices_nonzero(pc.invert(mask)).to_pylist()  # type: ignore[no-any-return]
