"""What a record must have become, column by column: an own reading of its value.

Written from the promises of the pipeline reference and docs/dead-letters.md, not from the code that writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from frazil.errors import Terminal
from frazil.pipeline.models.value import Column, Value
from frazil.verify.values.json_document import (
    LAST_COUNTS,
    Unfit,
    decoder_of,
    document_of,
    object_of,
    storable,
    without_case,
)
from frazil.verify.values.readers import Options, Read, or_null, reader

_ABSENT = object()
"""No such field, told apart from null."""


@dataclass(frozen=True, slots=True)
class Document:
    """A value.

    Attributes:
        whole: All of it.
        fields: Its fields, by case-folded names where case means nothing.
        unknown: Those that no column takes, if it matters.
    """

    whole: dict[str, Any]
    fields: dict[str, Any]
    unknown: dict[str, Any]


class InferredColumn(Column):
    """A column that no pipeline file declares: where it is a text, it takes any value as its JSON text."""


class RescuedColumn(InferredColumn):
    """One whose values of another kind are kept in the column for rescued fields: it is null then."""


Take = Callable[[Document], Any]
"""Returns what a column must hold, in canonical form, or raises Unfit."""


def options_of(column: Column, value: Value, *, in_orc: bool = False) -> Options:
    """How the values of a column are read."""
    return Options(
        column.unit,
        column.local_time == "keep",
        value.casts == "text" or isinstance(column, InferredColumn),
        value.field_names == "case_insensitive",
        value.duplicate_keys == "dead_letter",
        in_orc,
        isinstance(column, RescuedColumn),
    )


def column_reader(column: Column, value: Value, *, in_orc: bool = False) -> Read:
    """The reader of a column's values."""
    options = options_of(column, value, in_orc=in_orc)
    read = reader(column.parsed, options)
    return or_null(read) if options.rescues and not column.required else read


class ColumnReaders:
    """Takes values apart as the file says.

    Args:
        columns: Name -> column, in the order of the columns.
        value: What the file says of values as a whole.
        in_orc: Whether the columns are in ORC files.

    Raises:
        Terminal: A default is no value of its column.
    """

    def __init__(self, columns: Mapping[str, Column], value: Value, *, in_orc: bool = False) -> None:
        self._in_orc = in_orc
        self._any_case = value.field_names == "case_insensitive"
        self._once = value.duplicate_keys == "dead_letter"
        self._fails = value.unknown_fields == "fail"
        rescued = value.rescued_column if value.unknown_fields == "rescue" else None
        paths = {name: _path(name, column) for name, column in columns.items() if name != rescued}
        self._known = {self._sought(path[0]) for path in paths.values() if path}
        self._counts_unknown = value.unknown_fields != "ignore" and all(paths.values())
        taken = {name: self._taker(name, columns[name], value, path) for name, path in paths.items()}
        self.takes: list[Take] = [taken.get(name, _rescued) for name in columns]

    def document(self, whole: dict[str, Any]) -> Document:
        """A value, by what its fields mean here.

        Raises:
            Unfit: It has a field twice, or one that no column takes, and the file does not allow that.
        """
        fields = without_case(whole, self._known, once=self._once) if self._any_case else whole
        unknown: dict[str, Any] = {}
        if self._counts_unknown:
            unknown = {name: item for name, item in whole.items() if self._sought(name) not in self._known}
        if unknown and self._fails:
            raise Unfit("a field that no column takes")
        return Document(whole, fields, unknown)

    def _sought(self, name: str) -> str:
        return name.casefold() if self._any_case else name

    def _taker(self, name: str, column: Column, value: Value, path: Sequence[str]) -> Take:
        if not path:
            return lambda document: storable(document.whole)
        read = column_reader(column, value, in_orc=self._in_orc)
        default = _default(name, column, read)
        steps = [self._sought(step) for step in path]

        def take(document: Document) -> Any:
            found = self._find(document.fields, steps)
            if found is _ABSENT:
                return _absent(column, default)
            if found is None:
                return _absent(column, default) if column.required else None
            return read(found)

        return take

    def _find(self, fields: dict[str, Any], path: Sequence[str]) -> Any:
        """The value at the end of a path."""
        if len(path) == 1:
            return fields.get(path[0], _ABSENT)
        here: Any = fields
        for depth, step in enumerate(path):
            if here is None or here is _ABSENT:
                return _ABSENT
            if not isinstance(here, dict):
                raise Unfit("not an object on the way to the field")
            inner = without_case(here, {step}, once=self._once) if depth and self._any_case else here
            here = inner.get(step, _ABSENT)
        return here


def _path(name: str, column: Column) -> Sequence[str]:
    return (name,) if column.source is None else column.source


def _rescued(document: Document) -> str | None:
    return storable(document.unknown) if document.unknown else None


def _absent(column: Column, default: Any) -> Any:
    if column.has_default:
        return default
    if column.required:
        raise Unfit("a required field is missing or null")
    return None


def column_default(name: str, column: Column, value: Value, *, in_orc: bool = False) -> Any:
    """The canonical value of a column's default; None without one.

    Raises:
        Terminal: It is no value of the column.
    """
    return _default(name, column, column_reader(column, value, in_orc=in_orc))


def _default(name: str, column: Column, read: Read) -> Any:
    if column.default is None:
        return None
    try:
        return read(LAST_COUNTS.decode(json.dumps(column.default, default=str)))
    except Unfit as unfit:
        raise Terminal(
            f"the default of column {name} can't be its value: {unfit}",
            next_step="correct the columns of the pipeline file: frazil validate says what is wrong",
        ) from unfit


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
        self._takers = None if _is_plain(columns, value) else ColumnReaders(columns, value, in_orc=in_orc)
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
    def _of_any_file(self) -> ColumnReaders:
        loose = {"duplicate_keys": "last", "casts": "text", "unknown_fields": "ignore"}
        # Marking every field as required makes one that is missing Bad: another file may have had a default for it.
        columns = {
            name: Column.model_validate(
                column.model_dump(by_alias=True, exclude={"default"}) | {"local_time": "keep", "required": True}
            )
            for name, column in self._declared.items()
        }
        return ColumnReaders(columns, self._value.model_copy(update=loose))


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
