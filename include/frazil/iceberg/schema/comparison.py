"""Compares an existing table with its pipeline file: which changes make it what the file declares, who may make them, and which are
impossible.

A run makes the changes that `evolve` allows and refuses a table that does not fit. `frazil apply` makes all changes, and
`frazil validate --diff` shows them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, TimeType

from frazil.batch.schema_change import ChangeKind, SchemaChange
from frazil.error_codes import TABLE_UNFIT
from frazil.errors import Terminal
from frazil.iceberg.patches.metadata import FORMAT_VERSION
from frazil.iceberg.schema.column_changes import apply_changes
from frazil.iceberg.schema.schema import (
    UNWRITABLE,
    declared_order,
    declared_schema,
    iceberg_type,
    identifier_columns,
    partition_field,
    plain_types,
    promotes,
    same_shape,
    takes_table_columns,
)
from frazil.pipeline.models.layout import PartitionField as DeclaredField
from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.syntax.types import ColumnType, ListOf, MapOf, Primitive, StructOf

_WRITABLE_FORMAT_VERSION: Final = 2
"""PyIceberg 0.12 reads version 3 but can't write it. In version 1 partition fields can't be dropped."""

_RUN_MAKES: Final[Mapping[str, tuple[ChangeKind, ...]]] = {
    "none": (),
    "add": ("add",),
    "widen": ("add", "widen"),
    "full": ("add", "widen", "optional"),
}
"""Value of `evolve` -> changes of declared columns that a run makes by itself."""

OWN_PROPERTIES: Final = ("frazil.", "kafka.offsets.")
"""Prefixes of properties with the state of a pipeline: no file may set them."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between a pipeline file and a table.

    Attributes:
        changes: The changes that make the table what the file declares, in an order in which they can be made.
        by_run: Those of the changes that the next run makes by itself.
        unfit: Why a run refuses the table, even after its own changes.
        refused: Differences that no change of metadata can remove: rows or files would have to be rewritten.
    """

    changes: tuple[SchemaChange, ...]
    by_run: tuple[SchemaChange, ...]
    unfit: tuple[str, ...]
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Difference:
    """One difference.

    Attributes:
        line: The difference, as messages show it.
        reason: Why it can't be removed; None if `changes` remove it; empty if `line` tells the reason.
        blocks: Whether a run refuses a table with this difference.
    """

    line: str
    changes: tuple[SchemaChange, ...] = ()
    reason: str | None = None
    blocks: bool = True

    @property
    def text(self) -> str:
        """The line, and the reason if there is one."""
        return f"{self.line}: {self.reason}" if self.reason else self.line


def compare(table: Table, destination: Destination, *, fold: bool = False) -> Comparison:
    """Compare a table with its destination. With `fold`, names that differ only in case are the same column."""
    declared = {field.name: field for field in declared_schema(destination).fields}
    columns = list(_column_differences(table, destination, declared, fold=fold))
    keys = list(_key_differences(table, destination))
    after = _schema_after(table, destination, columns, fold=fold)
    layout = list(_layout_differences(table, destination, after))
    properties = list(_property_differences(table, destination))
    filled = {field.name for field in after.fields} if takes_table_columns(destination) else declared.keys()
    dropped = {change.path[0] for change in _possible_changes(layout) if change.kind == "partition" and not change.type}
    formats = list(_format_differences(table, destination, filled, dropped))
    differences = [*columns, *keys, *layout, *properties, *formats]
    changes = _possible_changes(differences)
    by_run = _by_run(destination, changes)
    return Comparison(
        changes,
        by_run,
        tuple(
            difference.text for difference in differences if difference.blocks and not _is_removed(difference, by_run)
        ),
        tuple(difference.text for difference in differences if difference.reason is not None),
    )


def check_destination(
    table: Table, destination: Destination, pipeline: str = "PIPELINE", *, fold: bool = False
) -> tuple[SchemaChange, ...]:
    """Refuse an existing table that does not fit its destination, even after the changes that the next run makes.

    Returns those changes.

    Raises:
        Terminal: A column is missing and will not be added, has another type, or is required although the pipeline does not fill it.
    """
    comparison = compare(table, destination, fold=fold)
    refuse_unfit(comparison, destination, pipeline)
    return comparison.by_run


def refuse_unfit(comparison: Comparison, destination: Destination, pipeline: str) -> None:
    """Refuse a table that does not fit, by its comparison.

    Raises:
        Terminal: As `check_destination`.
    """
    if comparison.unfit:
        can_apply = {*comparison.unfit}.isdisjoint(comparison.refused)
        raise TABLE_UNFIT.terminal(
            f"table {destination.table} does not fit its pipeline:\n"
            + "\n".join(f"  {problem}" for problem in comparison.unfit),
            next_step="change the columns of the pipeline file, or alter the table"
            + (f" to fit it: frazil apply {pipeline}" if can_apply else ""),
        )


def _possible_changes(differences: Iterable[_Difference]) -> tuple[SchemaChange, ...]:
    return tuple(change for difference in differences if difference.reason is None for change in difference.changes)


def _is_removed(difference: _Difference, changes: Collection[SchemaChange]) -> bool:
    return difference.reason is None and bool(difference.changes) and {*difference.changes} <= {*changes}


def _by_run(destination: Destination, changes: Collection[SchemaChange]) -> tuple[SchemaChange, ...]:
    """The changes that the next run makes: of declared columns those that `evolve` allows; and the layout and docs of new ones."""
    kinds = {*_RUN_MAKES[destination.evolves], *(("add", "widen") if destination.is_history else ())}
    new_columns = {
        change.path[0]
        for change in changes
        if change.kind == "add" and "add" in kinds and change.path[1:] == () and change.path[0] in destination.columns
    }
    sorted_columns = {field.column for field in destination.sort_fields}
    new_fields = {field.name for field in destination.partition_fields if field.column in new_columns}

    def is_by_run(change: SchemaChange) -> bool:
        match change.kind:
            case "add" | "widen" | "optional":
                return change.kind in kinds and change.path[0] in destination.columns
            case "doc":
                return change.path[0] in new_columns
            case "partition":
                return bool(change.type) and change.path[0] in new_fields
            case "sort":
                return not sorted_columns.isdisjoint(new_columns)
        return False

    return tuple(filter(is_by_run, changes))


def _schema_after(
    table: Table, destination: Destination, differences: Collection[_Difference], *, fold: bool
) -> Schema:
    """The schema with new columns: partition fields and sort order may need them."""
    changes = _possible_changes(differences)
    if not changes:
        return table.schema()
    try:
        ids = itertools.count(table.metadata.last_column_id + 1)
        return apply_changes(table.schema(), changes, ids, destination.table, fold=fold)[0]
    except ValueError:  # a column has the same dotted path as a nested one: `evolve` refuses it
        return table.schema()


def _column_differences(
    table: Table, destination: Destination, declared: Mapping[str, NestedField], *, fold: bool
) -> Iterator[_Difference]:
    existing = {field.name: field for field in table.schema().fields}
    alike = {name.casefold(): name for name in existing if fold}
    for name, field in declared.items():
        if name in existing:
            yield from _type_differences(field, existing[name], destination)
        else:
            same = alike.get(name.casefold())
            actual = f"{same}, with field_names: case_insensitive the same column" if same else "no such column"
            yield _Difference(
                f"column {name}: declared {field.field_type}, the table has {actual}",
                (
                    SchemaChange((name,), "add", str(_declared_type(field, destination))),
                    *_doc_changes(field, None, destination),
                ),
                "" if same else _no_column_reason(name, destination),
            )
    for name in sorted(existing.keys() - declared.keys()) if destination.undeclared_columns == "refuse" else ():
        yield _Difference(
            f"column {name}: the table has it, the pipeline does not declare it",
            reason="declare it; or drop it by hand, with its values; or leave undeclared_columns out",
        )
    keys = identifier_columns(table)
    for name, field in existing.items():
        if field.required and not (name in declared and declared[name].required):
            yield from _required_difference(name, destination, is_declared=name in declared, is_key=name in keys)


def _type_differences(field: NestedField, existing: NestedField, destination: Destination) -> Iterator[_Difference]:
    name, more = field.name, takes_table_columns(destination)
    changes = list(_type_changes((name,), _declared_type(field, destination), existing.field_type, more=more))
    if changes:
        yield _Difference(
            f"column {name}: declared {field.field_type}, the table has {existing.field_type}",
            tuple(filter(None, changes)),
            "a column only gets a wider type (int to long, float to double, more digits before the point), and a struct more"
            " fields"
            if None in changes
            else None,
        )
    if docs := tuple(_doc_changes(field, existing, destination)):
        yield _Difference(f"column {name}: another doc", docs, blocks=False)


def _type_changes(
    path: tuple[str, ...], declared: ColumnType, actual: IcebergType, *, more: bool
) -> Iterator[SchemaChange | None]:
    """The changes that make a column's type the declared one; None for a difference that no change removes.

    With `more`, wider types and further fields are no difference.
    """
    match declared, actual:
        case StructOf(fields), StructType():
            existing = {field.name: field.field_type for field in actual.fields}
            if not more and not existing.keys() <= {name for name, _ in fields}:
                yield None
            for name, field_type in fields:
                if name in existing:
                    yield from _type_changes((*path, name), field_type, existing[name], more=more)
                else:
                    yield SchemaChange((*path, name), "add", str(field_type))
        case ListOf(element), ListType():
            yield from _type_changes((*path, "element"), element, actual.element_type, more=more)
        case MapOf(key, value), MapType():
            if not same_shape(_iceberg(key), actual.key_type):
                yield None
            yield from _type_changes((*path, "value"), value, actual.value_type, more=more)
        case _:
            target = _iceberg(declared)
            if not same_shape(target, actual) and not (more and promotes(target, actual)):
                yield SchemaChange(path, "widen", str(declared)) if promotes(actual, target) else None


def _iceberg(declared: ColumnType) -> IcebergType:
    return iceberg_type(declared, itertools.count(1))


def _declared_type(field: NestedField, destination: Destination) -> ColumnType:
    """The type of a column by the pipeline file; columns that Frazil adds have primitive types."""
    column = destination.columns.get(field.name)
    return Primitive(plain_types()[field.field_type]) if column is None else column.parsed


def _doc_changes(field: NestedField, existing: NestedField | None, destination: Destination) -> Iterator[SchemaChange]:
    """The change to the declared comment, if there is one. Existing columns that Frazil adds keep theirs."""
    is_own = field.name not in destination.columns and existing is not None
    if field.doc is not None and not is_own and (existing is None or field.doc != existing.doc):
        yield SchemaChange((field.name,), "doc", field.doc)


def _no_column_reason(name: str, destination: Destination) -> str | None:
    """Why a missing column can't be added; None if it can."""
    column = destination.columns.get(name)
    if name in destination.identifier:
        return "it identifies rows, and existing rows have no value for it"
    is_exact = destination.evolves == "none" and not destination.is_history
    if is_exact and column is not None and column.required and not column.has_default:
        return (
            "existing rows have no value for a required column: give it a default, leave required out, or declare evolve: add"
            " (then records without it are dead letters, and older rows have null)"
        )
    return None


def _required_difference(
    name: str, destination: Destination, *, is_declared: bool, is_key: bool
) -> Iterator[_Difference]:
    """The difference of a column that the table requires and the file does not."""
    column = destination.columns.get(name)
    if not takes_table_columns(destination):
        reason = "it identifies rows" if is_key else None if is_declared else "no record fills it: declare it"
        yield _Difference(
            f"column {name}: the table requires a value, the pipeline declares it as optional",
            (SchemaChange((name,), "optional"),),
            reason,
        )
    elif column is not None and "required" in column.model_fields_set and not is_key:
        yield _Difference(f"column {name}: required", (SchemaChange((name,), "optional"),), blocks=False)


def _key_differences(table: Table, destination: Destination) -> Iterator[_Difference]:
    """Differences between declared and actual identifier fields, and required columns that a row with only a key can't fill.

    A table without identifier fields is fine if the declared ones may be null in it: an engine need not know the key.
    """
    table_key, declared = identifier_columns(table), destination.identifier
    required = {field.name for field in table.schema().fields if field.required}
    if table_key and destination.is_history:
        yield _Difference(
            f"identifier: the table has {', '.join(table_key)}, and write: history adds several rows of one key",
            reason="",
        )
    elif declared and not destination.is_history and sorted(table_key) != sorted(declared):
        reason = None
        if table_key and destination.is_merged and table.current_snapshot() is not None:
            reason = "rows were not merged by this key, so a key may have several rows"
        elif nullable := [name for name in declared if name not in required]:
            reason = f"{', '.join(nullable)} may be null in the table, and identifier fields may not"
        if table_key or reason is None:
            yield _Difference(
                f"identifier: declared {', '.join(declared)}, the table has {', '.join(table_key) or 'none'}",
                (SchemaChange(tuple(declared), "identifier"),),
                reason,
                blocks=bool(table_key),
            )
    if destination.deleted_column is not None and takes_table_columns(destination):
        for name in sorted(required - {*declared, *table_key, destination.order_by or ""}):
            yield _Difference(
                f"column {name}: the table requires a value, and the row of a deleted key may have none",
                reason="",
            )


def _layout_differences(table: Table, destination: Destination, after: Schema) -> Iterator[_Difference]:
    """Differences of partition fields and of the sort order, if the file declares them. Columns that records will add are left out."""
    names = {field.name for field in after.fields}
    if "partition_by" in destination.model_fields_set:
        declared = zip(destination.partition_by, destination.partition_fields, strict=True)
        yield from _partition_differences(
            table, destination, after, {text: field for text, field in declared if field.column in names}
        )
    if "sort_by" in destination.model_fields_set and {field.column for field in destination.sort_fields} <= names:
        change = SchemaChange((), "sort", ", ".join(destination.sort_by))
        try:
            if declared_order(destination, after).fields != table.sort_order().fields:
                yield _Difference("sort_by: another order", (change,), blocks=False)
        except Terminal as refusal:
            yield _Difference(refusal.message, reason="", blocks=False)


def _partition_differences(
    table: Table, destination: Destination, after: Schema, declared: Mapping[str, DeclaredField]
) -> Iterator[_Difference]:
    fields: dict[str, PartitionField] = {}
    for text, field in declared.items():
        try:
            fields[text] = partition_field(field, after, 0, destination.table)
        except Terminal as refusal:
            yield _Difference(refusal.message, reason="", blocks=False)
            return
    existing_names = {
        text: existing.name
        for text, field in fields.items()
        for existing in table.spec().fields
        if _is_same(existing, field, declared[text])
    }
    changes = [
        *(
            SchemaChange((field.name,), "partition")
            for field in table.spec().fields
            if field.name not in existing_names.values() and not isinstance(field.transform, VoidTransform)
        ),
        *(
            SchemaChange((field.name,), "partition", text)
            for text, field in fields.items()
            if text not in existing_names
        ),
    ]
    if changes:
        is_old = table.format_version < _WRITABLE_FORMAT_VERSION
        reason = "in format version 1 no partition field can be dropped: make it version 2 first" if is_old else None
        yield _Difference("partition_by: other fields", tuple(changes), reason, blocks=False)


def _is_same(existing: PartitionField, field: PartitionField, declared: DeclaredField) -> bool:
    """Whether a partition field is the declared one. Engines choose names of their own, so a name counts only if it is declared."""
    is_named = declared.alias in (None, existing.name)
    return is_named and (existing.source_id, existing.transform) == (field.source_id, field.transform)


def _property_differences(table: Table, destination: Destination) -> Iterator[_Difference]:
    """Declared properties that the table does not have, or with another value; without the format version."""
    for name, value in destination.properties.items():
        if name == "format-version" or table.metadata.properties.get(name) == value:
            continue
        is_own = name.startswith(OWN_PROPERTIES)
        reason = "it holds the state of a pipeline, and no file may set it" if is_own else None
        yield _Difference(f"property {name}", (SchemaChange((name,), "property"),), reason, blocks=False)


def _format_differences(
    table: Table, destination: Destination, filled: Collection[str], dropped: Collection[str]
) -> Iterator[_Difference]:
    """Reasons why the pipeline's writer, PyIceberg or Spark, can't write the table; without those that the declared layout removes."""
    if destination.by_engine:
        for name in columns_with_times(table.schema()):
            line = f"column {name}: it has the type time, and Spark, which writes the table, can't read it"
            yield _Difference(line, reason="")
    else:
        yield from _writer_differences(table, destination, filled, dropped)
    if destination.format_version == "3" and table.format_version < FORMAT_VERSION:
        line = f"format version {table.format_version}: the pipeline declares {FORMAT_VERSION}"
        yield _Difference(line, reason="")


def columns_with_times(schema: Schema) -> Iterator[str]:
    """Columns that are, or hold, times of day: Iceberg's Spark can't read a table that has one."""
    for field in schema.fields:
        if any(isinstance(part.field_type, TimeType) for part in index_by_id(Schema(field)).values()):
            yield field.name


def _writer_differences(
    table: Table, destination: Destination, filled: Collection[str], dropped: Collection[str]
) -> Iterator[_Difference]:
    """Reasons why PyIceberg can't write files for an existing table."""
    if table.format_version > _WRITABLE_FORMAT_VERSION:
        yield _Difference(
            f"format version {table.format_version}: files can be written up to version {_WRITABLE_FORMAT_VERSION}",
            reason="",
        )
    file_format = table.properties.get("write.format.default", "parquet").lower()
    if file_format != "parquet":
        yield _Difference(
            f"write.format.default is {file_format}: only Parquet can be written without an engine; for orc, say so in the"
            f" pipeline file: properties: {{write.format.default: orc}}",
            # Existing rows may be in such files, which reset, repair and verify can't read.
            reason=None if "write.format.default" in destination.properties and not table.metadata.snapshots else "",
        )
    for field in table.spec().fields:
        source = table.schema().find_field(field.source_id)
        transform = str(field.transform).partition("[")[0]
        problem = None
        if table.schema().find_column_name(field.source_id) not in filled:
            problem = f"the pipeline does not fill its column {source.name}"
        elif (str(source.field_type), transform) in UNWRITABLE:
            problem = f"{transform} of {source.field_type} can't be written"
        if problem is not None:
            reason = None if field.name in dropped else ""
            yield _Difference(f"partition field {field.name}: {problem}", reason=reason)
