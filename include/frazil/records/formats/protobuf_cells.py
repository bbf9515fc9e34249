"""Messages on the wire, counted before they are parsed: a message takes memory for each field of its type, set or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from frazil.records.cells import CellCount
from frazil.records.dead import MAX_CELLS

_MORE: Final = 0x80
_VARINT, _DOUBLE, _BYTES, _GROUP, _GROUP_END, _FLOAT = range(6)
_SMALLEST: Final = 2
"""Bytes of a message within another one: its tag and its length."""


class _Held(NamedTuple):
    """A field that holds messages: their type, and the fields that a further one has."""

    of: Descriptor
    fields: int


class WireCells:
    """Counts fields of the messages that a value holds, those that are not set included.

    Args:
        descriptor: Type of the values.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self._root: Final = descriptor
        self._held: Final[dict[str, Mapping[int, _Held]]] = {}
        self._most: Final = _most(descriptor, set())

    def check(self, raw: bytes) -> None:
        """Refuse a value whose messages have too many fields together.

        Raises:
            Rejection: TOO_WIDE.
        """
        if len(raw) // _SMALLEST * self._most <= max(MAX_CELLS, len(raw)):
            return
        cells = CellCount()
        cells.begin(len(raw))
        try:
            self._walk(raw, cells)
        except IndexError:
            return  # cut off: parsing says so

    def _walk(self, raw: bytes, cells: CellCount) -> None:
        inside = [(len(raw), self._fields(self._root))]
        at = 0
        while inside:
            end, held = inside[-1]
            if at >= end:
                inside.pop()
                continue
            tag, at = _varint(raw, at)
            kind, field = tag & 7, held.get(tag >> 3)
            if field is not None and kind in (_BYTES, _GROUP):
                cells.add(field.fields)
            if kind == _VARINT:
                _, at = _varint(raw, at)
            elif kind == _BYTES:
                size, at = _varint(raw, at)
                if field is None:
                    at += size
                else:
                    inside.append((at + size, self._fields(field.of)))
            elif kind == _GROUP:
                inside.append((end, {} if field is None else self._fields(field.of)))
            elif kind == _GROUP_END:
                inside.pop()
            elif kind in (_DOUBLE, _FLOAT):
                at += 8 if kind == _DOUBLE else 4
            else:
                return  # no wire type: parsing says so

    def _fields(self, of: Descriptor) -> Mapping[int, _Held]:
        """Return the fields of a type that hold messages, by their number."""
        if of.full_name not in self._held:
            self._held[of.full_name] = {field.number: _held(field) for field in of.fields if field.message_type}
        return self._held[of.full_name]


def _held(field: FieldDescriptor) -> _Held:
    return _Held(field.message_type, len(field.message_type.fields) or 1)


def _most(of: Descriptor, known: set[str]) -> int:
    """Return the fields of the type that has most of them, among all that a message may hold."""
    known.add(of.full_name)
    inner = [field.message_type for field in of.fields if field.message_type]
    found = [_most(each, known) for each in inner if each.full_name not in known]
    return max([1, *found, *(len(each.fields) for each in inner)])


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < _MORE:
            return number, at
        shift += 7
