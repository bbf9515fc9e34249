r"""Many JSON documents as compact text at once, only where that is what `document` writes of each of them.

A good document becomes compact by leaving out the blanks outside of its texts. `document` writes it otherwise in two cases: a
text has an escape that the writer does not use, such as `\u00e9` or `\/`, or an object names a field twice. Both are in doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.records.json.intermediate_types import DOCUMENT, Carrier, CastResult

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

_PART_BYTES: Final = 1 << 20
"""Of documents that are looked at together: bounds the memory of a batch of large ones, and fits into the processor's cache."""

_QUOTE: Final = ord('"')
_ESCAPE: Final = ord("\\")
_COLON: Final = ord(":")
_BLANK: Final = ord(" ")
"""Outside of texts no other byte of JSON is as low, but for other blanks."""

_WRITTEN_ESCAPES: Final = np.isin(np.arange(256), list(b'"\\nrtbf'))
"""Characters behind a backslash as the writer has them. It writes other control characters as `\\u00..`: seldom enough to doubt."""

_decode: Final[Callable[[bytes], Any]] = msgspec.json.Decoder().decode
_encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode


def compact_documents(texts: pa.StringArray) -> CastResult:
    """Return the documents without blanks, and a mask of those that `document` may write otherwise.

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
    in_doubt |= _colons(data, offsets) != _colons_read_again(texts)
    blanks = outside & (data <= _BLANK)
    if blanks.any():
        offsets = offsets - np.searchsorted(np.flatnonzero(blanks), offsets)
        valid = np.packbits(texts.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
        buffers = [pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[~blanks]), pa.py_buffer(valid)]
        texts = pa.StringArray.from_buffers(len(texts), *buffers)
    return texts, pa.array(in_doubt)


def document_carrier() -> Carrier:
    """Return the carrier of a text column that takes any JSON value as compact text."""
    return Carrier(DOCUMENT, compact_documents)


def _buffers(texts: pa.StringArray) -> tuple[Bytes, Places]:
    """Return the bytes of all texts, and where each text begins in them, and the last one ends."""
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    first, last = places[0], places[-1]
    return np.frombuffer(data, np.uint8)[first:last] if last > first else np.zeros(0, np.uint8), places - first


def _outside_texts(data: Bytes) -> tuple[npt.NDArray[np.bool_], Places]:
    """Return which bytes of JSON are not in a text, and the places of backslashes that begin an escape."""
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


def _colons(data: Bytes, offsets: Places) -> Places:
    """Return how many colons each document has: one behind each name of a field, and some in texts."""
    return np.diff(np.searchsorted(np.flatnonzero(data == _COLON), offsets))


def _colons_read_again(texts: pa.StringArray) -> Places:
    """Return how many colons each document has without the fields that an object repeats; -1 if that can't be said."""
    encoded = [b"" if raw is None else _again(raw) for raw in texts.cast(pa.binary()).to_pylist()]
    colons = _colons(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)]))
    colons[np.array([each == _UNKNOWN for each in encoded], np.bool_)] = -1
    return colons


_UNKNOWN: Final = b" "


def _again(raw: bytes) -> bytes:
    """Return a document as it is written after it was read, when each object names a field once."""
    try:
        return _encode(_decode(raw))
    except (msgspec.DecodeError, OverflowError):  # a number beyond a double, or beyond 64 bits
        return _UNKNOWN
