"""Messages on the wire, counted before they are parsed: a message takes memory for each field of its type, set or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from frazil.records.model.cells import CellCount
from frazil.records.model.dead_letter import MAX_CELLS

_MORE: Final = 0x80
_VARINT, _DOUBLE, _BYTES, _GROUP, _GROUP_END, _FLOAT = range(6)
_SMALLEST: Final = 2
"""Bytes of a message within another one: its tag and its length."""


class _MessageField(NamedTuple):
    """A field that holds messages: their type, and the number of cells that each of them adds."""

    message_type: Descriptor
    fields: int


class WireCells:
    """Counts fields of the messages that a value holds, those that are not set included.

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
            return  # cut off: parsing says so

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
                return  # no wire type: parsing says so

    def _fields(self, descriptor: Descriptor) -> Mapping[int, _MessageField]:
        """Return the fields of a type that hold messages, by their number."""
        if descriptor.full_name not in self._message_fields:
            self._message_fields[descriptor.full_name] = {
                field.number: _message_field(field) for field in descriptor.fields if field.message_type
            }
        return self._message_fields[descriptor.full_name]


def _message_field(field: FieldDescriptor) -> _MessageField:
    return _MessageField(field.message_type, len(field.message_type.fields) or 1)


def _max_fields(descriptor: Descriptor, visited: set[str]) -> int:
    """Return the largest number of fields among all message types that a message may hold."""
    visited.add(descriptor.full_name)
    inner = [field.message_type for field in descriptor.fields if field.message_type]
    nested_counts = [
        _max_fields(message_type, visited) for message_type in inner if message_type.full_name not in visited
    ]
    return max([1, *nested_counts, *(len(message_type.fields) for message_type in inner)])


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = raw[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < _MORE:
            return number, position
        shift += 7
