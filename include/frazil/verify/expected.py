"""What a record must have become: an own reading of its value, column by column.

Written from the promises of the pipeline reference and docs/dead-letters.md, not from the code that writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from frazil.pipeline.model import Column, Value
from frazil.verify.documents import decoder_of, document_of, object_of, storable
from frazil.verify.figures import Unfit
from frazil.verify.readers import Read
from frazil.verify.takers import Document, Take, Takers, column_reader

_DEFAULTS = Value()


@dataclass(frozen=True, slots=True)
class Bad:
    """A value that must be a dead letter, or a cell of which this file does not say what it must be."""

    why: str


class Expectation:
    """Reads values into the declared columns.

    Args:
        columns: Name -> column, in the order in which values are returned.
        value: What the pipeline file says of values.
        in_orc: Whether the columns are in ORC files.

    Raises:
        Terminal: A default is no value of its column.
    """

    def __init__(self, columns: Mapping[str, Column], value: Value = _DEFAULTS, *, in_orc: bool = False) -> None:
        self._declared, self._value = columns, value
        any_case = value.field_names == "case_insensitive"
        self._decoder = decoder_of(once=value.duplicate_keys == "dead_letter", any_case=any_case)
        self._lenient = decoder_of(once=False, any_case=any_case)
        self._is_whole = bool(columns) and all(column.source == () for column in columns.values())
        self._takers = None if _is_plain(columns, value) else Takers(columns, value, in_orc=in_orc)
        self._columns = [
            (name, column.required, column_reader(column, value, in_orc=in_orc)) for name, column in columns.items()
        ]

    def row(self, raw: bytes) -> tuple[Any, ...] | Bad:
        """The canonical values of the row that this record must be, or why it must be a dead letter."""
        try:
            if self._is_whole:
                return (storable(document_of(raw, self._decoder)),) * len(self._declared)
            whole = object_of(raw, self._decoder)
            if self._takers is None:
                return tuple([_cell(whole.get(name), required, read) for name, required, read in self._columns])
            document = self._takers.document(whole)
            return tuple([take(document) for take in self._takers.takes])
        except Unfit as unfit:
            return Bad(str(unfit))

    def cells(self, raw: bytes) -> tuple[Any, ...] | Bad:
        """What another file, with other options, must have made of this record: `Bad` where this one does not know.

        Options of this file that refuse a value are not looked at.
        """
        try:
            if self._is_whole:
                return (storable(document_of(raw, self._lenient)),) * len(self._declared)
            document = self._of_any_file.document(object_of(raw, self._lenient))
        except Unfit as unfit:
            return Bad(str(unfit))
        return tuple(_tolerant(document, take) for take in self._of_any_file.takes)

    @cached_property
    def _of_any_file(self) -> Takers:
        loose = {"duplicate_keys": "last", "casts": "text", "unknown_fields": "ignore"}
        # Marking every field as required makes one that is missing Bad: another file may have had a default for it.
        columns = {
            name: Column.model_validate(
                column.model_dump(by_alias=True, exclude={"default"}) | {"local_time": "keep", "required": True}
            )
            for name, column in self._declared.items()
        }
        return Takers(columns, self._value.model_copy(update=loose))


def _is_plain(columns: Mapping[str, Column], value: Value) -> bool:
    """Whether each column takes the field of its name, and nothing else is asked of the value."""
    as_named = all(column.source is None and not column.has_default for column in columns.values())
    return as_named and value.unknown_fields == "ignore" and value.field_names == "exact"


def _cell(value: Any, required: bool, read: Read) -> Any:  # noqa: FBT001 - a column's property
    if value is not None:
        return read(value)
    if required:
        raise Unfit("a required field is missing or null")
    return None


def _tolerant(document: Document, take: Take) -> Any:
    try:
        return take(document)
    except Unfit as unfit:
        return Bad(str(unfit))
