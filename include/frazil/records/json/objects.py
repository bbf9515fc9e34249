"""Decodes many JSON objects with msgspec into structs, and makes Arrow arrays of their fields. Also compacts whole JSON documents for
columns that take them as text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json.exact import nesting
from frazil.records.json.intermediate_types import DOCUMENT, NUMBER, CastResult, IntermediateType
from frazil.records.model.dead_letter import MAX_DEPTH

Counts = npt.NDArray[np.int64]
MakeArray = Callable[[Sequence[Any]], tuple[pa.Array, Counts | None]]

_INT64: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_SCALARS: Final[Mapping[pa.DataType, Any]] = {
    pa.int64(): _INT64,
    pa.float64(): float,
    pa.string(): str,
    pa.bool_(): bool,
}

_NATIVE: Final[Mapping[pa.DataType, str]] = {pa.int64(): "l", pa.float64(): "d"}
"""Type -> its format character of `struct`. Packing numbers of several digits takes half as long with `l` as with `q`."""

_NULL: Final = msgspec.Raw(b"null")
_NULL_BEGINS: Final = ord("n")
_LINE_FEED: Final = ord("\n")


@dataclass(frozen=True, slots=True)
class _FieldDecoder:
    """How the values of one field are decoded and become an array.

    Attributes:
        type: The type that msgspec decodes to.
        array: Converts decoded values (None is null) to Arrow. If names are counted, it also returns how many each value has.
        absent: What the struct holds where a value does not have the field.
    """

    type: Any
    array: MakeArray
    absent: Any = None


class ObjectDecoder:
    """Decodes JSON objects into structs, and makes arrays of their fields.

    Args:
        fields: The fields that are read.
        closed: Whether extra fields are refused: at the root, and in nested objects.
        counts: Whether the names in each value are counted.
        as_text: Whether doubles are decoded as the texts of their numbers.
    """

    def __init__(self, fields: list[pa.Field], closed: tuple[bool, bool], *, counts: bool, as_text: bool) -> None:
        self._counts: Final = counts
        self._as_text: Final = as_text
        closed_root, self._is_closed = closed
        root = self._struct(pa.struct(fields), is_closed=closed_root)
        decode = msgspec.json.Decoder(root.type).decode
        has_known_depth = self._is_closed and not has_type(pa.struct(fields), DOCUMENT)
        self.decode: Final[Callable[[bytes], Any]] = decode if has_known_depth else partial(_decode_shallow, decode)
        self.arrays: Final = root.array

    def _column(self, data_type: pa.DataType) -> _FieldDecoder:
        if data_type in {NUMBER, DOCUMENT} or (data_type == pa.float64() and self._as_text):
            return _FieldDecoder(msgspec.Raw, _numbers, _NULL)
        if pa.types.is_list(data_type):
            item = self._column(data_type.value_type)
            return _FieldDecoder(list[item.type] | None, partial(_lists, item))  # type: ignore[name-defined]
        if pa.types.is_struct(data_type):
            inner = self._struct(data_type, is_closed=self._is_closed)
            return _FieldDecoder(inner.type | None, inner.array)
        return _FieldDecoder(_SCALARS[data_type] | None, partial(_scalars, data_type))

    def _struct(self, data_type: pa.StructType, *, is_closed: bool) -> _FieldDecoder:
        columns = [self._column(field.type) for field in data_type]
        names = [f"f{index}" for index in range(len(columns))]
        absent = [msgspec.UNSET if self._counts else column.absent for column in columns]
        struct_type = msgspec.defstruct(
            "Object",
            [(name, column.type, default) for name, column, default in zip(names, columns, absent, strict=True)],
            rename={name: field.name for name, field in zip(names, data_type, strict=True)},
            forbid_unknown_fields=is_closed,
            gc=False,
        )
        return _FieldDecoder(
            struct_type, partial(_structs, data_type, struct_type(), [column.array for column in columns], self._counts)
        )


def _scalars(data_type: pa.DataType, values: Sequence[Any]) -> tuple[pa.Array, None]:
    if (code := _NATIVE.get(data_type)) is not None:
        with suppress(struct.error):  # there is a null; without one, `pack` takes a third to two thirds of the time
            packed = pa.py_buffer(struct.pack(f"{len(values)}{code}", *values))
            return pa.Array.from_buffers(data_type, len(values), [None, packed]), None
    return pa.array(values, data_type), None


def _numbers(values: Sequence[Any]) -> tuple[pa.StringArray, None]:
    """Return the texts of numbers, and the JSON texts of values of another kind."""
    raw_values = [_NULL if value is None else value for value in values]
    data = np.frombuffer(b"\n".join([*raw_values, b""]), np.uint8)
    ends = np.flatnonzero(data == _LINE_FEED)
    if len(ends) != len(raw_values):  # a value has line feeds, so it is no number
        texts = pa.array(list(map(bytes, raw_values)), pa.binary()).cast(pa.string())
        return pc.if_else(pc.equal(texts, "null"), None, texts), None
    offsets = np.zeros(len(raw_values) + 1, np.int32)
    # Line feeds are removed from the data below, so the n-th end moves back by the n line feeds before it.
    offsets[1:] = ends - np.arange(len(raw_values))
    data = data[data != _LINE_FEED]
    valid = np.packbits(data[offsets[:-1]] != _NULL_BEGINS, bitorder="little")
    return pa.StringArray.from_buffers(
        len(raw_values), pa.py_buffer(offsets), pa.py_buffer(data), pa.py_buffer(valid)
    ), None


def _lists(item: _FieldDecoder, values: Sequence[Any]) -> tuple[pa.ListArray, Counts | None]:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    inner, names = item.array(list(chain.from_iterable(filter(None, values))))
    lists = pa.ListArray.from_arrays(pa.array(offsets), inner, mask=_nulls(values))
    if names is None:
        return lists, None
    # Names of a list: the sum over its items, as a difference of running sums.
    total = np.concatenate([[0], np.cumsum(names)])
    return lists, total[offsets[1:]] - total[offsets[:-1]]


def _structs(
    data_type: pa.StructType,
    empty: msgspec.Struct,
    makers: list[MakeArray],
    counts: bool,  # noqa: FBT001 - bound by position
    values: Sequence[Any],
) -> tuple[pa.StructArray, Counts | None]:
    nulls = _nulls(values)
    filled = values if nulls is None else [empty if value is None else value for value in values]
    if not makers:  # no column reads a field: they take whole values
        return pa.array([{}] * len(values), data_type), None
    columns = zip(*map(msgspec.structs.astuple, filled), strict=True) if filled else repeat((), len(makers))
    arrays = []
    names = np.zeros(len(values), np.int64) if counts else None
    for column, maker in zip(columns, makers, strict=True):
        field_values = column
        if names is not None:
            names += np.fromiter((value is not msgspec.UNSET for value in column), np.bool_, len(column))
            field_values = tuple(None if value is msgspec.UNSET else value for value in column)
        array, inner = maker(field_values)
        arrays.append(array)
        if names is not None and inner is not None:
            names += inner
    return pa.StructArray.from_arrays(arrays, names=[field.name for field in data_type], mask=nulls), names


def _nulls(values: Sequence[Any]) -> pa.BooleanArray | None:
    nulls = [value is None for value in values]
    return pa.array(nulls) if True in nulls else None


def _decode_shallow(decode: Callable[[bytes], Any], raw: bytes) -> Any:
    """Decode a value; refuse one with too many levels, also in fields that no column reads."""
    decoded = decode(raw)
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and nesting(raw.decode()) > MAX_DEPTH:
        raise msgspec.DecodeError
    return decoded


def has_type(data_type: pa.DataType, scalar: pa.DataType) -> bool:
    """Return whether a type, or one nested in it, is `scalar`."""
    if pa.types.is_list(data_type):
        return has_type(data_type.value_type, scalar)
    if pa.types.is_struct(data_type):
        return any(has_type(each.type, scalar) for each in data_type)
    return bool(data_type == scalar)


# The exact decoder writes whole values by `json_number.document`. Here a document becomes compact by dropping the blanks outside of its
# texts. The results differ in two cases: a text has an escape that `document` does not write, such as `\u00e9` or `\/`, or an object
# names a field twice. Both are in doubt.

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
"""Indexes of bytes."""

_PART_BYTES: Final = 1 << 20
"""Bytes of documents that are compacted together: they fit into the processor's cache, and bound the memory of a batch of large ones."""

_QUOTE: Final = ord('"')
_ESCAPE: Final = ord("\\")
_COLON: Final = ord(":")
_BLANK: Final = ord(" ")
"""The highest byte of white space. Outside of texts all other bytes of JSON are higher."""

_WRITTEN_ESCAPES: Final = np.isin(np.arange(256), list(b'"\\nrtbf'))
"""Characters that `document` writes behind a backslash. It writes other control characters as `\\u00..`; these are rare, and in doubt."""

_decode: Final[Callable[[bytes], Any]] = msgspec.json.Decoder().decode
_encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode


def compact_documents(texts: pa.StringArray) -> CastResult:
    """Return documents without blanks, and the mask of those that `json_number.document` may write otherwise.

    Args:
        texts: JSON that was parsed already; or null, which stays null and is never in doubt.
    """
    size = max(1, len(texts) * _PART_BYTES // max(1, texts.nbytes))
    parts = [_compact_part(texts.slice(low, size)) for low in range(0, len(texts), size)]
    if len(parts) <= 1:
        return parts[0] if parts else (texts, None)
    in_doubt = np.concatenate([doubt.to_numpy(zero_copy_only=False) for _, doubt in parts])
    return pa.concat_arrays([part for part, _ in parts]), pa.array(in_doubt)


def _compact_part(texts: pa.StringArray) -> tuple[pa.StringArray, pa.BooleanArray]:
    data, offsets = _buffers(texts)
    outside, escapes = _outside_texts(data)
    foreign = escapes[~_WRITTEN_ESCAPES[data[escapes + 1]]]
    in_doubt = np.zeros(len(texts), np.bool_)
    in_doubt[np.searchsorted(offsets, foreign, "right") - 1] = True
    in_doubt |= _count_colons(data, offsets) != _count_colons_rewritten(texts)
    blanks = outside & (data <= _BLANK)
    if blanks.any():
        offsets = offsets - np.searchsorted(np.flatnonzero(blanks), offsets)
        valid = np.packbits(texts.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        buffers = [pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[~blanks]), pa.py_buffer(valid)]
        texts = pa.StringArray.from_buffers(len(texts), *buffers)
    return texts, pa.array(in_doubt)


def intermediate_document() -> IntermediateType:
    """Return the intermediate type of a text column that takes any JSON value as compact text."""
    return IntermediateType(DOCUMENT, compact_documents)


def _buffers(texts: pa.StringArray) -> tuple[Bytes, Offsets]:
    """Return the bytes of all texts, where each text begins in them, and where the last one ends."""
    _, offset_buffer, data = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    first, last = offsets[0], offsets[-1]
    return np.frombuffer(data, np.uint8)[first:last] if last > first else np.zeros(0, np.uint8), offsets - first


def _outside_texts(data: Bytes) -> tuple[npt.NDArray[np.bool_], Offsets]:
    """Return which bytes of JSON are not in a text, and where backslashes begin an escape."""
    quotes = data == _QUOTE
    slashes = np.flatnonzero(data == _ESCAPE)
    if len(slashes):
        # In a run of backslashes each second one is escaped by the one before it.
        begins = np.diff(slashes, prepend=-2) > 1
        numbers = np.arange(len(slashes))
        in_run = numbers - np.maximum.accumulate(np.where(begins, numbers, 0))
        slashes = slashes[in_run % 2 == 0]
        quotes[slashes + 1] = False
    return np.bitwise_xor.accumulate(quotes.view(np.uint8)) == 0, slashes


def _count_colons(data: Bytes, offsets: Offsets) -> Counts:
    """Return how many colons each document has: one behind each name of a field, and some in texts."""
    return np.diff(np.searchsorted(np.flatnonzero(data == _COLON), offsets))


def _count_colons_rewritten(texts: pa.StringArray) -> Counts:
    """Return how many colons each document has once its objects name each field once; -1 if that is not known."""
    rewritten = [b"" if raw is None else _rewrite(raw) for raw in texts.cast(pa.binary()).to_pylist()]
    colons = _count_colons(np.frombuffer(b"".join(rewritten), np.uint8), np.cumsum([0, *map(len, rewritten)]))
    colons[np.array([each == _NOT_REWRITTEN for each in rewritten], np.bool_)] = -1
    return colons


_NOT_REWRITTEN: Final = b" "


def _rewrite(raw: bytes) -> bytes:
    """Decode a document and encode it again: then each object names a field once."""
    try:
        return _encode(_decode(raw))
    except (msgspec.DecodeError, OverflowError):  # a number beyond a double, or beyond 64 bits
        return _NOT_REWRITTEN
