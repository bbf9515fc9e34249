"""Applies schema changes to a table, all in one commit. Repeating it changes nothing.

What is there already is skipped, so a change that a rival, a killed run or a person made first is no conflict. Paths are
followed name by name: PyIceberg's own update joins them with dots, and a name may have one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)

from frazil.batch.schema_change import SchemaChange, listed, shorten
from frazil.error_codes import TABLE_UNFIT
from frazil.errors import Terminal, quotable
from frazil.failpoints import Failpoint, hit
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import ATTEMPTS, pause
from frazil.iceberg.commit.refs import send
from frazil.iceberg.commit.summary_state import CHANGES_KEY
from frazil.iceberg.errors import as_frazil, foreign_errors
from frazil.iceberg.patches.variant import FORMAT_VERSION
from frazil.iceberg.schema.promotion import coming_columns, promotes
from frazil.iceberg.schema.schema import declared_order, iceberg_type, partition_field
from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.syntax.types import ColumnType, ListOf, MapOf, StructOf, parse_type


@dataclass(frozen=True, slots=True)
class ChangedSchema:
    """A schema after changes.

    Attributes:
        applied: The changes that made a difference: the schema did not have them before.
    """

    schema: Schema
    applied: tuple[SchemaChange, ...]


class _Overtaken(Exception):
    """A change no longer fits its column: another writer has changed the column's type meanwhile."""


def apply_changes(
    schema: Schema, changes: Iterable[SchemaChange], ids: Iterator[int], table: str, *, fold: bool = False
) -> ChangedSchema:
    """A schema with changes made.

    A change whose column is gone, or has a type now that the change does not fit, is left out. The records are then checked
    against the columns as they are, and ask again for what they still need.

    A column comes before its fields. With `fold` names that differ in case only are the same column; the one that is
    there keeps its spelling.

    Raises:
        Terminal: A column that identifies rows can't be null.
    """
    fields, applied = schema.fields, []
    for change in changes:
        try:
            after = _parts(
                _ColumnChange(change, ids, table, schema, fold).change_nested(StructType(*fields), change.path)
            )
        except _Overtaken:
            continue
        if after != fields:
            applied.append(change)
        fields = after
    return ChangedSchema(Schema(*fields, identifier_field_ids=schema.identifier_field_ids), tuple(applied))


@dataclass(frozen=True, slots=True)
class _ColumnChange:
    """One change on its way down to its column."""

    change: SchemaChange
    ids: Iterator[int]
    table: str
    schema: Schema
    fold: bool

    def key(self, name: str) -> str:
        return name.casefold() if self.fold else name

    def change_nested(self, parent: IcebergType, path: Sequence[str]) -> IcebergType:
        """The type with the change applied to the field that the path names."""
        fields = _parts(parent)
        if parent.is_primitive:
            raise _Overtaken
        name, rest = path[0], path[1:]
        existing_name = next((field.name for field in fields if self.key(field.name) == self.key(name)), None)
        if existing_name is None:
            is_new = not rest and self.change.kind == "add" and isinstance(parent, StructType)
            return StructType(*fields, self.new_field(name, parse_type(self.change.type))) if is_new else parent
        if isinstance(parent, MapType) and name == "key":
            raise _Overtaken  # keys of maps never change
        return _with_parts(
            parent, [self.change_field(field, rest) if field.name == existing_name else field for field in fields]
        )

    def new_field(self, name: str, column_type: ColumnType) -> NestedField:
        return NestedField(next(self.ids), name, iceberg_type(column_type, self.ids), required=False)

    def change_field(self, field: NestedField, rest: Sequence[str]) -> NestedField:
        if rest:
            return field.model_copy(update={"field_type": self.change_nested(field.field_type, rest)})
        if self.change.kind == "optional":
            return self.optional(field)
        new_type = parse_type(self.change.type)
        change_type = self.widen if self.change.kind == "widen" else self.union
        return field.model_copy(update={"field_type": change_type(field.field_type, new_type)})

    def optional(self, field: NestedField) -> NestedField:
        if field.field_id in self.schema.identifier_field_ids:
            raise TABLE_UNFIT.terminal(
                f"table {self.table}, column {field.name}: it identifies rows, so it can't be null",
                next_step="records without it are dead letters: declare evolve: widen, add or none",
            )
        return field.model_copy(update={"required": False})

    def widen(self, current: IcebergType, new_type: ColumnType) -> IcebergType:
        target = iceberg_type(new_type, self.ids)
        if promotes(current, target):
            return target
        if not promotes(target, current):
            raise _Overtaken
        return current

    def union(self, current: IcebergType, new_type: ColumnType) -> IcebergType:
        """The current type with the new type's missing fields added. Types that only need widening stay: records that need it ask."""
        match current, new_type:
            case StructType(), StructOf(fields):
                return self.join_structs(current, fields)
            case ListType(), ListOf(element):
                return _with_parts(current, [self.merge_field(current.element_field, element)])
            case MapType(), MapOf(key, value):
                self.union(current.key_type, key)
                return _with_parts(current, [current.key_field, self.merge_field(current.value_field, value)])
            case ((StructType() | ListType() | MapType()), _) | (_, (StructOf() | ListOf() | MapOf())):
                raise _Overtaken
        target = iceberg_type(new_type, self.ids)
        if not (promotes(current, target) or promotes(target, current)):
            raise _Overtaken
        return current

    def join_structs(self, struct: StructType, new_fields: Sequence[tuple[str, ColumnType]]) -> StructType:
        existing_names, types = (
            {self.key(field.name) for field in struct.fields},
            {self.key(name): column_type for name, column_type in new_fields},
        )
        merged_fields = [
            self.merge_field(field, types[self.key(field.name)]) if self.key(field.name) in types else field
            for field in struct.fields
        ]
        return StructType(
            *merged_fields,
            *(
                self.new_field(name, column_type)
                for name, column_type in new_fields
                if self.key(name) not in existing_names
            ),
        )

    def merge_field(self, field: NestedField, new_type: ColumnType) -> NestedField:
        return field.model_copy(update={"field_type": self.union(field.field_type, new_type)})


def _parts(nested: IcebergType) -> tuple[NestedField, ...]:
    match nested:
        case StructType():
            return nested.fields
        case ListType():
            return (nested.element_field,)
        case MapType():
            return (nested.key_field, nested.value_field)
    return ()


def _with_parts(nested: IcebergType, parts: Sequence[NestedField]) -> IcebergType:
    match nested:
        case ListType():
            (element,) = parts
            return ListType(element.field_id, element.field_type, element_required=element.required)
        case MapType():
            key, value = parts
            return MapType(
                key.field_id, key.field_type, value.field_id, value.field_type, value_required=value.required
            )
    return StructType(*parts)


_LAST = -1
"""What this very request adds, in the table specification's words."""


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes to make to a table.

    Attributes:
        destination: What the pipeline file says of it: partition fields and sort order are set with their columns.
        changes: What its schema is to have, in this order: a column before its fields.
        pipeline: Whose records need it. The table notes what was changed for them, until their batch is decided.
        fold: Whether names that differ in case only are the same column.
    """

    destination: Destination
    changes: tuple[SchemaChange, ...]
    pipeline: str = ""
    n: int = 0
    fold: bool = False

    @property
    def table(self) -> str:
        """Its name."""
        return self.destination.table


def declared_changes(schema: Schema, destination: Destination, *, fold: bool = False) -> tuple[SchemaChange, ...]:
    """Changes that add the declared columns which a table lacks. The new columns are optional; records are checked for required ones."""
    coming = coming_columns(schema, destination, fold=fold)
    return tuple(SchemaChange((name,), "add", destination.columns[name].type) for name in coming)


def evolve(lake: Lake, request: TableChanges) -> tuple[SchemaChange, ...]:
    """Make the changes that a table does not have yet and still takes, in one commit, and return them.

    Raises:
        Terminal: A column that identifies rows can't be null; or a new one can't partition the table; or PyIceberg can't change
            the table.
        Retryable: The catalog is not available now, or others changed the table every time.
    """
    failure: BaseException = RuntimeError("no attempt")
    unconfirmed: tuple[SchemaChange, ...] = ()
    for number in range(ATTEMPTS):
        pause(number, failure if number else None)
        table = lake.load_table(request.table)
        after = plan_changes(table, request)
        if not after.applied:
            return unconfirmed  # of an attempt that was not confirmed and landed all the same; or nothing was to do
        updates, requirements = _commit_request(table, request, after.schema)
        updates += (_note_update(table.metadata, request, after.applied),)
        _refuse_unwritable(lake, table, request.table)
        hit(Failpoint.EVOLVING)
        try:
            send(table, updates, requirements)
        except foreign_errors() as error:
            failure = error
            unconfirmed = () if isinstance(error, CommitFailedException) else after.applied
            continue
        hit(Failpoint.EVOLVED)
        return after.applied
    raise as_frazil(failure, f"changing the schema of table {request.table}") from quotable(failure)


def _note_update(
    metadata: TableMetadata, request: TableChanges, applied: Iterable[SchemaChange]
) -> SetPropertiesUpdate:
    """The table property that notes the changes made for a batch. It moves in the same commit: the run may die before the batch is decided."""
    last, noted = _noted_changes(metadata, request.pipeline)
    before = noted if last >= request.n else ()
    body = {
        "n": max(last, request.n),
        "changes": [[change.path, change.kind, change.type] for change in (*before, *applied)],
    }
    return SetPropertiesUpdate(updates={CHANGES_KEY.format(request.pipeline): json.dumps(body, separators=(",", ":"))})


def _noted_changes(metadata: TableMetadata, pipeline: str) -> tuple[int, tuple[SchemaChange, ...]]:
    text = metadata.properties.get(CHANGES_KEY.format(pipeline))
    if text is None:
        return -1, ()
    body = json.loads(text)
    return body["n"], tuple(SchemaChange(tuple(path), kind, column_type) for path, kind, column_type in body["changes"])


def undecided_changes(metadata: TableMetadata, pipeline: str, newest: int) -> tuple[SchemaChange, ...]:
    """Schema changes made for records of a pipeline that no batch up to `newest` reports.

    They may come from a run that failed or was killed after its change: the next batch records them.
    """
    n, changes = _noted_changes(metadata, pipeline)
    return changes if n > newest else ()


def plan_changes(table: Table, request: TableChanges) -> ChangedSchema:
    """The changes that `evolve` would make to the table, without making them.

    Raises:
        Terminal: As `evolve`, but for what only the catalog knows.
    """
    ids = itertools.count(table.metadata.last_column_id + 1)
    try:
        after = apply_changes(table.schema(), request.changes, ids, request.table, fold=request.fold)
    except ValueError as error:  # two columns whose names are one with dots between
        raise _refusal(request, str(error)) from error
    if after.applied:
        _refuse_taken_names(table, request, _new_columns(table, after.schema))
        _refuse_unfit(request, after.schema)
    return after


def _new_columns(table: Table, after: Schema) -> set[str]:
    return {field.name for field in after.fields} - {field.name for field in table.schema().fields}


def _refuse_taken_names(table: Table, request: TableChanges, coming: Collection[str]) -> None:
    """A partition field keeps its name when its column is renamed: no engine reads a table that has the name twice."""
    brought = {field.name: field.column for field in request.destination.partition_fields if field.column in coming}
    for field in table.spec().fields:
        column = field.name if field.name in coming else brought.get(field.name)
        if column is not None:
            its = table.schema().find_column_name(field.source_id)
            raise _refusal(
                request,
                f"{field.name} is the name of a partition field of column {its}",
                f"if {its} is what {column} was, call it {its} in the pipeline file (columns: {{{its}: {{type: …, from: {column}}}}},"
                f" and in partition_by); else drop the partition field {field.name} of the table, or rename it",
            )


def _refuse_unfit(request: TableChanges, after: Schema) -> None:
    """Refuse a schema that engines could not read, or that Spark could not write. Checked before anything is decided."""
    for field in request.destination.partition_fields:
        if field.name != field.column and field.name in after.column_names:
            raise _refusal(request, f"{field.name} is the name of a partition field and of a column")
    if not request.destination.by_engine:
        return
    for number in index_by_id(after):
        if str(kind := after.find_type(number)) in request.destination.absent_types:
            raise _refusal(
                request,
                f"{after.find_column_name(number)} would be {kind}, a type that Spark, which writes the table, does not have",
            )


_OTHERWISE = (
    "rename or cast the field by a transform, set value.field_names to case_insensitive, or declare the columns"
)


def _refusal(request: TableChanges, why: str, next_step: str = _OTHERWISE) -> Terminal:
    return TABLE_UNFIT.terminal(
        f"table {request.table} can't become what its records need ({listed(request.changes)}): {why}",
        next_step=next_step,
    )


def _commit_request(
    table: Table, request: TableChanges, after: Schema
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    metadata = table.metadata
    schema = after.model_copy(
        update={"schema_id": 1 + max(known_schema.schema_id for known_schema in metadata.schemas)}
    )
    updates: tuple[TableUpdate, ...] = (AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=_LAST))
    requirements: tuple[TableRequirement, ...] = (
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
    )
    coming = _new_columns(table, schema)
    spec, order = _extended_spec(table, request, schema, coming), _extended_order(table, request, schema, coming)
    if spec is not None:
        updates += AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=_LAST)
        requirements += (
            AssertLastAssignedPartitionId(last_assigned_partition_id=metadata.last_partition_id),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        )
    if order is not None:
        updates += AddSortOrderUpdate(sort_order=order), SetDefaultSortOrderUpdate(sort_order_id=_LAST)
        requirements += (AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id),)
    return updates, requirements


def _extended_spec(table: Table, request: TableChanges, after: Schema, coming: Collection[str]) -> PartitionSpec | None:
    """The partition spec with the fields of the new columns; None if no partition field has a new column."""
    metadata = table.metadata
    fields = [field for field in request.destination.partition_fields if field.column in coming]
    if not fields:
        return None
    number = itertools.count((metadata.last_partition_id or 999) + 1)
    added = [partition_field(field, after, next(number), request.table) for field in fields]
    return PartitionSpec(*table.spec().fields, *added, spec_id=1 + max(metadata.specs()))


def _extended_order(table: Table, request: TableChanges, after: Schema, coming: Collection[str]) -> SortOrder | None:
    """The sort order over the columns after the change; None if no sort field has a new column."""
    if not any(field.column in coming for field in request.destination.sort_fields):
        return None
    order_id = 1 + max(order.order_id for order in table.metadata.sort_orders)
    return SortOrder(*declared_order(request.destination, after).fields, order_id=order_id)


def _refuse_unwritable(lake: Lake, table: Table, name: str) -> None:
    """PyIceberg sends the changes of any table to a server; metadata of version 3 it does not write itself."""
    catalog = lake.catalog_of(name)
    if table.format_version >= FORMAT_VERSION and catalog.kind != "rest":
        raise TABLE_UNFIT.terminal(
            f"table {name} is of format version {table.format_version}; in catalog {catalog.name} its schema can only be changed"
            " by an engine",
            next_step="alter the table with Spark as its records need it, or declare evolve: none",
        )


def change_lines(changes: Sequence[SchemaChange]) -> Iterator[str]:
    """Changes as lines for the log."""
    words = {"add": "column {} added: {}", "widen": "column {} is {} now", "optional": "column {} may be null now"}
    return (words[change.kind].format(".".join(change.path), shorten(change.type)) for change in changes)
