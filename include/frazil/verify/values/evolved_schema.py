"""Columns that no pipeline file declares: what records brought a table to, and which rows were written for it as it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, NestedField, StructType

from frazil.pipeline.models.changes import DELETED
from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.models.value import Column, Value
from frazil.pipeline.syntax.types import VARIANT, parse_type
from frazil.verify.values.column_readers import Bad, Expectation, InferredColumn, RescuedColumn

Row = Mapping[str, Any]


def grows(destination: Destination) -> bool:
    """Whether rows have all columns of the table, not only those that the file declares."""
    return destination.evolves != "none" or not destination.columns


def columns_of(destination: Destination, schema: Schema, value: Value) -> dict[str, Column]:
    """The columns that are compared: the declared ones; or all of the table that this check can read.

    Left out are Kafka's, and the one for fields that no column could be made for.
    """
    if not grows(destination):
        return dict(destination.columns)
    others = {*destination.added_columns, *([DELETED] if destination.is_merged else []), value.rescued_column}
    found = {}
    for field in schema.fields:
        text = _spelled(field.field_type)
        if field.name in others or text is None:
            continue
        declared = destination.columns.get(field.name)
        must = field.required or (declared is not None and declared.required and destination.evolves != "full")
        own = {} if declared is None else declared.model_dump(by_alias=True, exclude_unset=True)
        kind = _kind(field.name, destination) if declared is None else Column
        found[field.name] = kind.model_validate(own | {"type": text, "required": must})
    return found


def _kind(name: str, destination: Destination) -> type[Column]:
    """How a column is read that the file does not declare."""
    if destination.evolves == "none":
        return Column
    sources = [of.source for of in destination.columns.values() if of.source is not None]
    taken = any(not path or path[0] == name for path in sources)
    return InferredColumn if taken or destination.on_incompatible != "rescue" else RescuedColumn


def _spelled(of: IcebergType) -> str | None:
    """A type as pipeline files have it; None for one that they don't know."""
    match of:
        case ListType():
            parts = [_spelled(of.element_type)]
            text = f"list<{parts[0]}>"
        case MapType():
            parts = [_spelled(of.key_type), _spelled(of.value_type)]
            text = f"map<{parts[0]}, {parts[1]}>"
        case StructType():
            parts = [_spelled(field.field_type) for field in of.fields]
            names = [f"`{field.name.replace('`', '``')}`" for field in of.fields]
            text = f"struct<{', '.join(f'{name}: {part}' for name, part in zip(names, parts, strict=True))}>"
        case _:
            return str(of) if isinstance(of, DecimalType | FixedType) or _is_known(of) else None
    return None if None in parts else text


def _is_known(of: IcebergType) -> bool:
    """Whether values of a type can be read here: those of variants only an engine can read."""
    try:
        return parse_type(str(of)) != VARIANT
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Since:
    """Columns of a table that are not what they were when a batch landed.

    Attributes:
        changed: Those of another type, name or rule about nulls: a record that is a row now may have been a dead letter.
        added: Of these the ones that it had not, or not with all they hold: they may be null. So may those of type `float`
            then and `double` now, whose values have other digits.
    """

    changed: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()

    def __or__(self, other: Since) -> Since:
        return Since(self.changed | other.changed, self.added | other.added)

    def among(self, columns: Collection[str]) -> Since:
        """The ones of these columns."""
        return Since(self.changed.intersection(columns), self.added.intersection(columns))


def earlier_schemas(rows: Iterable[Row], table: str, metadata: TableMetadata) -> dict[int, Since]:
    """Number of each batch that may have landed while the table had other columns -> what they have become since.

    The snapshot of the batch says which schema it had. Of one that is gone any may have been it.

    Args:
        rows: Rows of the ledger.
        table: Name of the destination.
        metadata: Of it.
    """
    now = metadata.schema()
    others = {of.schema_id: _since(of, now) for of in metadata.schemas}
    anything = reduce(or_, others.values(), Since())
    of_snapshot = {of.snapshot_id: of.schema_id for of in metadata.snapshots}
    found: dict[int, Since] = {}
    for row in rows:
        schema = of_snapshot.get(row["snapshot_id"]) if row["table"] == table else None
        if schema in others:
            found[row["n"]] = others[schema]
        else:
            found.setdefault(row["n"], anything)
    return {n: since for n, since in found.items() if since.changed}


def _since(then: Schema, now: Schema) -> Since:
    before = {part for field in then.fields for part in _parts(field)}
    had = {_place(part) for part in before}
    after = {field.name: frozenset(_parts(field)) for field in now.fields}
    return Since(
        frozenset(name for name, parts in after.items() if not parts <= before),
        frozenset(name for name, parts in after.items() if not {_place(part) for part in parts} <= had),
    )


class _Part(NamedTuple):
    """A column or a part of one. Comments on it are not."""

    path: tuple[str, ...]
    number: int
    type: str
    required: bool


def _place(part: _Part) -> tuple[tuple[str, ...], int, bool]:
    return part.path, part.number, part.type == "float"


def _parts(field: NestedField, above: tuple[str, ...] = ()) -> Iterator[_Part]:
    path, of = (*above, field.name), field.field_type
    inner = _inner(of)
    yield _Part(path, field.field_id, type(of).__name__ if inner else str(of), field.required)
    for part in inner:
        yield from _parts(part, path)


def _inner(of: IcebergType) -> tuple[NestedField, ...]:
    match of:
        case StructType():
            return of.fields
        case ListType():
            return (of.element_field,)
        case MapType():
            return of.key_field, of.value_field
        case _:
            return ()


class EvolvedExpectation:
    """Takes the place of an expectation for such a table: what tells no type, such as `[]`, is null there or is not.

    Which of both depends on whether the table had the column when the record was staged.
    """

    def __init__(self, expectation: Expectation) -> None:
        self._expectation = expectation

    def row(self, raw: bytes) -> tuple[Any, ...] | Bad:
        """The canonical values of the row that this record must be, or why it must be a dead letter."""
        return _without_empties(self._expectation.row(raw))

    def cells(self, raw: bytes) -> tuple[Any, ...] | Bad:
        """What another file, or an earlier schema, must have made of this record."""
        return _without_empties(self._expectation.cells(raw))


def _without_empties(row: tuple[Any, ...] | Bad) -> tuple[Any, ...] | Bad:
    return row if isinstance(row, Bad) else tuple(without_empties(value) for value in row)


def without_empties(value: Any) -> Any:
    """A canonical value with null in place of lists, maps and structs that hold nothing but nulls."""
    if not isinstance(value, tuple):
        return value
    parts = tuple(without_empties(part) for part in value)
    return None if all(part is None for part in parts) else parts
