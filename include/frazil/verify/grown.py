"""Columns that no pipeline file declares: what records brought a table to, and which rows were written for it as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType

from frazil.pipeline.changes import DELETED
from frazil.pipeline.model import Destination
from frazil.pipeline.types import VARIANT, parse_type
from frazil.pipeline.value import Column, Value
from frazil.verify.expected import Bad, Expectation

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
        found[field.name] = Column.model_validate(own | {"type": text, "required": must})
    return found


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


def earlier_schemas(rows: Iterable[Row], table: str, metadata: TableMetadata) -> dict[int, frozenset[str]]:
    """Number of each batch that may have landed while the table had other columns -> the columns that were others then.

    The snapshot of the batch says which schema it had. Of one that is gone any may have been it.

    Args:
        rows: Rows of the ledger.
        table: Name of the destination.
        metadata: Of it.
    """
    now = metadata.schema()
    others = {of.schema_id: _others(of, now) for of in metadata.schemas}
    anything = frozenset[str]().union(*others.values())
    of_snapshot = {of.snapshot_id: of.schema_id for of in metadata.snapshots}
    found: dict[int, frozenset[str]] = {}
    for row in rows:
        schema = of_snapshot.get(row["snapshot_id"]) if row["table"] == table else None
        if schema in others:
            found[row["n"]] = others[schema]
        else:
            found.setdefault(row["n"], anything)
    return {n: names for n, names in found.items() if names}


def _others(then: Schema, now: Schema) -> frozenset[str]:
    """Columns of a table that it did not have, or not as they are."""
    before = {field.field_id: field for field in then.fields}
    return frozenset(field.name for field in now.fields if before.get(field.field_id) != field)


class Grown:
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
