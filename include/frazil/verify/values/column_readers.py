"""Derives the row that a record must become from its JSON value, column by column, including columns that records added.

Written from the promises of the pipeline reference and docs/dead-letters.md, not from the code that writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Any, NamedTuple

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, NestedField, StructType

from frazil.error_codes import FIELDS_UNFIT
from frazil.pipeline.models.layout import DELETED
from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.models.value import Column, Value
from frazil.pipeline.syntax.types import VARIANT, parse_type
from frazil.verify.values.canonical import null_empty_values
from frazil.verify.values.json_document import (
    LAST_COUNTS,
    Unfit,
    decoder_of,
    document_of,
    folded_fields,
    object_of,
    storable,
)
from frazil.verify.values.readers import Options, Read, null_if_misfit, reader

_ABSENT = object()
"""Marks a field that is absent, unlike one that is null."""


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON value of a record, prepared for the columns.

    Attributes:
        whole: The value as it was parsed.
        fields: Its fields; by case-folded names if names match in any case.
        unknown_fields: Fields that no column reads; empty if the pipeline file ignores them.
    """

    whole: dict[str, Any]
    fields: dict[str, Any]
    unknown_fields: dict[str, Any]


class InferredColumn(Column):
    """A column that the pipeline file does not declare: one of type string takes any value, as JSON text."""


class RescuedColumn(InferredColumn):
    """An inferred column that is null for values that do not fit, which go to the column for rescued fields."""


CellReader = Callable[[Document], Any]
"""Returns the canonical value that a column must have, or raises Unfit."""


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
        value.sub_micros == "truncate",
    )


def column_reader(column: Column, value: Value, *, in_orc: bool = False) -> Read:
    """The reader of a column's values."""
    options = options_of(column, value, in_orc=in_orc)
    read = reader(column.parsed, options)
    return null_if_misfit(read) if options.rescues and not column.required else read


class ColumnReaders:
    """Reads the values of all columns out of a record's value, by the options of the pipeline file.

    Raises:
        Terminal: A default is no value of its column.
    """

    def __init__(self, columns: Mapping[str, Column], value: Value, *, in_orc: bool = False) -> None:
        self._in_orc = in_orc
        self._any_case = value.field_names == "case_insensitive"
        self._once = value.duplicate_keys == "dead_letter"
        self._fails = value.unknown_fields == "fail"
        rescued = value.rescued_column if value.unknown_fields == "rescue" else None
        headers = [name for name, column in columns.items() if column.part == "header"]  # see HeaderCells
        paths = {
            name: (name,) if column.source is None else column.source
            for name, column in columns.items()
            if name not in (rescued, *headers)
        }
        self._known_names = {self._lookup_name(path[0]) for path in [*paths.values(), *((n,) for n in headers)] if path}
        self._counts_unknown = value.unknown_fields != "ignore" and all(paths.values())
        readers_by_name = {name: self._cell_reader(name, columns[name], value, path) for name, path in paths.items()}
        readers_by_name |= dict.fromkeys(headers, lambda _: None)
        self.cell_readers: list[CellReader] = [readers_by_name.get(name, _rescued_fields) for name in columns]

    def document(self, whole: dict[str, Any]) -> Document:
        """Prepare a value for the column readers.

        Raises:
            Unfit: It has a field twice, or a field that no column reads, and the file refuses that.
        """
        fields = folded_fields(whole, self._known_names, once=self._once) if self._any_case else whole
        unknown_fields: dict[str, Any] = {}
        if self._counts_unknown:
            unknown_fields = {
                name: item for name, item in whole.items() if self._lookup_name(name) not in self._known_names
            }
        if unknown_fields and self._fails:
            raise Unfit("a field that no column takes")
        return Document(whole, fields, unknown_fields)

    def _lookup_name(self, name: str) -> str:
        return name.casefold() if self._any_case else name

    def _cell_reader(self, name: str, column: Column, value: Value, path: Sequence[str]) -> CellReader:
        if not path:
            return lambda document: storable(document.whole)
        read = column_reader(column, value, in_orc=self._in_orc)
        default = _default(name, column, read)
        steps = [self._lookup_name(step) for step in path]

        def read_cell(document: Document) -> Any:
            field_value = self._find(document.fields, steps)
            if field_value is _ABSENT:
                return _value_if_absent(column, default)
            if field_value is None:
                return _value_if_absent(column, default) if column.required else None
            return read(field_value)

        return read_cell

    def _find(self, fields: dict[str, Any], path: Sequence[str]) -> Any:
        """The value at the end of a path; `_ABSENT` if there is none."""
        if len(path) == 1:
            return fields.get(path[0], _ABSENT)
        value: Any = fields
        for depth, step in enumerate(path):
            if value is None or value is _ABSENT:
                return _ABSENT
            if not isinstance(value, dict):
                raise Unfit("not an object on the way to the field")
            inner = folded_fields(value, {step}, once=self._once) if depth and self._any_case else value
            value = inner.get(step, _ABSENT)
        return value


def _rescued_fields(document: Document) -> str | None:
    return storable(document.unknown_fields) if document.unknown_fields else None


def _value_if_absent(column: Column, default: Any) -> Any:
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
        raise FIELDS_UNFIT.terminal(
            f"the default of column {name} can't be its value: {unfit}",
            next_step="correct the columns of the pipeline file: frazil validate says what is wrong",
        ) from unfit


_DEFAULTS = Value()


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that must be a dead letter, or a cell whose expected value is unknown, with the reason."""

    why: str


def count_unjudged(unjudged: dict[str, tuple[int, str]], name: str, why: str, count: int = 1) -> Bad:
    """Count a cell that can't be compared, per column with the first reason, and return it as unknown."""
    earlier, first = unjudged.get(name, (0, why))
    unjudged[name] = earlier + count, first
    return Bad(why)


class Expectation:
    """Reads values into the declared columns.

    If records may add columns (`is_evolving`), a value without type, such as `[]`, counts as null: it was stored only if the
    table already had the column when the record was staged, which is not known here.

    Raises:
        Terminal: A default is no value of its column.
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        value: Value = _DEFAULTS,
        *,
        in_orc: bool = False,
        is_evolving: bool = False,
    ) -> None:
        self._declared, self._value, self.is_evolving = columns, value, is_evolving
        any_case = value.field_names == "case_insensitive"
        self._decoder = decoder_of(once=value.duplicate_keys == "dead_letter", any_case=any_case)
        self._lenient = decoder_of(once=False, any_case=any_case)
        self._is_whole = bool(columns) and all(column.source == () for column in columns.values())
        self._column_readers = None if _is_plain(columns, value) else ColumnReaders(columns, value, in_orc=in_orc)
        self._columns = [
            (name, column.required, column_reader(column, value, in_orc=in_orc)) for name, column in columns.items()
        ]

    def row(self, raw: bytes) -> tuple[Any, ...] | Bad:
        """The canonical values of the row that this record must be, or why it must be a dead letter."""
        try:
            if self._is_whole:
                return (storable(document_of(raw, self._decoder)),) * len(self._declared)
            whole = object_of(raw, self._decoder)
            if self._column_readers is None:
                cells = [_cell(whole.get(name), required, read) for name, required, read in self._columns]
            else:
                document = self._column_readers.document(whole)
                cells = [read_cell(document) for read_cell in self._column_readers.cell_readers]
        except Unfit as unfit:
            return Bad(str(unfit))
        return tuple(map(null_empty_values, cells) if self.is_evolving else cells)

    def cells(self, raw: bytes) -> tuple[Any, ...] | Bad:
        """The values that any pipeline file makes of this record; `Bad` for a value that depends on its options."""
        try:
            if self._is_whole:
                return (storable(document_of(raw, self._lenient)),) * len(self._declared)
            document = self._of_any_file.document(object_of(raw, self._lenient))
        except Unfit as unfit:
            return Bad(str(unfit))
        cells = [_cell_or_bad(document, read_cell) for read_cell in self._of_any_file.cell_readers]
        return tuple(map(null_empty_values, cells) if self.is_evolving else cells)

    @cached_property
    def _of_any_file(self) -> ColumnReaders:
        loose = {"duplicate_keys": "last", "casts": "text", "unknown_fields": "ignore"}
        # Every field is required here, so that a missing one is Bad: another file may have had a default for it.
        columns = {
            name: Column.model_validate(
                column.model_dump(by_alias=True, exclude={"default"}) | {"local_time": "keep", "required": True}
            )
            for name, column in self._declared.items()
        }
        return ColumnReaders(columns, self._value.model_copy(update=loose))


def _is_plain(columns: Mapping[str, Column], value: Value) -> bool:
    """Whether each column reads the field of its own name, without options or defaults, so that a fast path applies."""
    as_named = all(
        column.part == "value" and column.source is None and not column.has_default for column in columns.values()
    )
    return as_named and value.unknown_fields == "ignore" and value.field_names == "exact"


def _cell(value: Any, required: bool, read: Read) -> Any:  # noqa: FBT001 - a column's property
    if value is not None:
        return read(value)
    if required:
        raise Unfit("a required field is missing or null")
    return None


def _cell_or_bad(document: Document, read_cell: CellReader) -> Any:
    try:
        return read_cell(document)
    except Unfit as unfit:
        return Bad(str(unfit))


Row = Mapping[str, Any]


def has_undeclared_columns(destination: Destination) -> bool:
    """Whether rows may have columns of the table that the pipeline file does not declare."""
    return destination.evolves != "none" or not destination.columns


def compared_columns(destination: Destination, schema: Schema, value: Value) -> dict[str, Column]:
    """The columns to compare: the declared ones, or all columns of the table that can be read here.

    Left out are the Kafka columns and the column for rescued fields.
    """
    if not has_undeclared_columns(destination):
        return dict(destination.columns)
    added_names = {*destination.added_columns, *([DELETED] if destination.is_merged else []), value.rescued_column}
    columns = {}
    for field in schema.fields:
        text = _type_text(field.field_type)
        if field.name in added_names or text is None:
            continue
        declared = destination.columns.get(field.name)
        is_required = field.required or (declared is not None and declared.required and destination.evolves != "full")
        own = {} if declared is None else declared.model_dump(by_alias=True, exclude_unset=True)
        kind = _column_class(field.name, destination) if declared is None else Column
        columns[field.name] = kind.model_validate(own | {"type": text, "required": is_required})
    return columns


def _column_class(name: str, destination: Destination) -> type[Column]:
    """The class of an undeclared column, which decides how its values are read."""
    if destination.evolves == "none":
        return Column
    sources = [column.source for column in destination.columns.values() if column.source is not None]
    is_taken = any(not path or path[0] == name for path in sources)
    return InferredColumn if is_taken or destination.on_incompatible != "rescue" else RescuedColumn


def _type_text(iceberg_type: IcebergType) -> str | None:
    """An Iceberg type in the syntax of pipeline files; None for one that they don't know."""
    match iceberg_type:
        case ListType():
            parts = [_type_text(iceberg_type.element_type)]
            text = f"list<{parts[0]}>"
        case MapType():
            parts = [_type_text(iceberg_type.key_type), _type_text(iceberg_type.value_type)]
            text = f"map<{parts[0]}, {parts[1]}>"
        case StructType():
            parts = [_type_text(field.field_type) for field in iceberg_type.fields]
            names = [f"`{field.name.replace('`', '``')}`" for field in iceberg_type.fields]
            text = f"struct<{', '.join(f'{name}: {part}' for name, part in zip(names, parts, strict=True))}>"
        case _:
            return (
                str(iceberg_type)
                if isinstance(iceberg_type, DecimalType | FixedType) or _is_readable(iceberg_type)
                else None
            )
    return None if None in parts else text


def _is_readable(iceberg_type: IcebergType) -> bool:
    """Whether values of a type can be read here; only an engine can read a variant."""
    try:
        return parse_type(str(iceberg_type)) != VARIANT
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """Columns of a table that changed since a batch landed.

    Attributes:
        changed: Columns whose type, name or nullability changed: a record that fits now may have been a dead letter then.
        added: Those of them that were missing, or that lacked fields, so that their values may be null. Also columns that
            were widened from `float` to `double`, because their values have other digits.
        renamed: Those of them that had another name, or a field with another name, so that their values are from that field.
    """

    changed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    renamed: frozenset[str] = frozenset()

    def __or__(self, changes: ColumnChanges) -> ColumnChanges:
        return ColumnChanges(self.changed | changes.changed, self.added | changes.added, self.renamed | changes.renamed)

    def restricted_to(self, columns: Collection[str]) -> ColumnChanges:
        """The changes restricted to some columns."""
        return ColumnChanges(*(names.intersection(columns) for names in (self.changed, self.added, self.renamed)))


def earlier_schemas(rows: Iterable[Row], table: str, metadata: TableMetadata) -> dict[int, ColumnChanges]:
    """Number of each batch that may have landed under another schema -> the columns that changed since.

    The snapshot of the batch names its schema. If the snapshot is expired, any former schema is possible.
    """
    present = metadata.schema()
    changes_per_schema = {schema.schema_id: _changes_between(schema, present) for schema in metadata.schemas}
    any_changes = reduce(or_, changes_per_schema.values(), ColumnChanges())
    schema_of_snapshot = {snapshot.snapshot_id: snapshot.schema_id for snapshot in metadata.snapshots}
    changes_per_batch: dict[int, ColumnChanges] = {}
    for row in rows:
        schema = schema_of_snapshot.get(row["snapshot_id"]) if row["table"] == table else None
        if schema in changes_per_schema:
            changes_per_batch[row["n"]] = changes_per_schema[schema]
        else:
            changes_per_batch.setdefault(row["n"], any_changes)
    return {n: changes for n, changes in changes_per_batch.items() if changes.changed}


def _changes_between(former: Schema, present: Schema) -> ColumnChanges:
    before = {part for field in former.fields for part in _parts(field)}
    places_before, paths_before = {_part_identity(part) for part in before}, {part.number: part.path for part in before}
    after = {field.name: frozenset(_parts(field)) for field in present.fields}
    return ColumnChanges(
        frozenset(name for name, parts in after.items() if not parts <= before),
        frozenset(
            name for name, parts in after.items() if not {_part_identity(part) for part in parts} <= places_before
        ),
        frozenset(
            name
            for name, parts in after.items()
            if any(paths_before.get(part.number, part.path) != part.path for part in parts)
        ),
    )


class _Part(NamedTuple):
    """A column or a nested field of one, without its comment."""

    path: tuple[str, ...]
    number: int
    type: str
    required: bool


def _part_identity(part: _Part) -> tuple[tuple[str, ...], int, bool]:
    return part.path, part.number, part.type == "float"


def _parts(field: NestedField, above: tuple[str, ...] = ()) -> Iterator[_Part]:
    path, field_type = (*above, field.name), field.field_type
    inner = _inner(field_type)
    yield _Part(path, field.field_id, type(field_type).__name__ if inner else str(field_type), field.required)
    for part in inner:
        yield from _parts(part, path)


def _inner(iceberg_type: IcebergType) -> tuple[NestedField, ...]:
    match iceberg_type:
        case StructType():
            return iceberg_type.fields
        case ListType():
            return (iceberg_type.element_field,)
        case MapType():
            return iceberg_type.key_field, iceberg_type.value_field
        case _:
            return ()
