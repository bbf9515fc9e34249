"""Applies changes of schema, layout and properties to a table, all in one commit.

Changes that the table already has are skipped, so it is no conflict if another run, a killed run or a person made one first.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, parse_mapping_from_json, update_mapping
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
from pyiceberg.types import NestedField

from frazil.batch.schema_change import ChangeKind, SchemaChange, listed, shorten
from frazil.error_codes import TABLE_UNFIT
from frazil.errors import Terminal, safe_cause
from frazil.failpoints import Failpoint, hit
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import send
from frazil.iceberg.commit.commit import ATTEMPTS, pause
from frazil.iceberg.commit.summary_state import CHANGES_KEY, decode_property
from frazil.iceberg.errors import as_frazil, foreign_errors
from frazil.iceberg.patches.metadata import FORMAT_VERSION
from frazil.iceberg.schema.column_changes import apply_changes, new_fields
from frazil.iceberg.schema.schema import declared_order, partition_field
from frazil.pipeline.models.layout import parse_partition_field, parse_sort_field
from frazil.pipeline.models.pipeline_file import Destination


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """A table after changes.

    Attributes:
        applied: The changes that the table did not have before.
        spec: The new partition spec; None if the present one stays.
        order: The new sort order; None if the present one stays.
        properties: The properties to set.
    """

    schema: Schema
    applied: tuple[SchemaChange, ...]
    spec: PartitionSpec | None = None
    order: SortOrder | None = None
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)


_LAST = -1
"""Id, by the table specification, of the schema, spec or order that the same request adds."""


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes to make to a table.

    Attributes:
        destination: The table in the pipeline file: new columns bring their partition fields and sort order.
        changes: The changes in their order: a column before its fields.
        pipeline: The pipeline whose records need the changes: a table property notes them until batch `n` is decided. Empty if a
            decided batch records them.
        fold: Whether names that differ only in case are the same column.
    """

    destination: Destination
    changes: tuple[SchemaChange, ...]
    pipeline: str = ""
    n: int = 0
    fold: bool = False

    @property
    def table(self) -> str:
        """Name of the table."""
        return self.destination.table


def evolve(lake: Lake, request: TableChanges, is_over: Callable[[], bool] = lambda: False) -> tuple[SchemaChange, ...]:
    """Make the changes that a table does not have yet, as far as they still fit it, in one commit, and return them.

    `is_over` is called before each attempt, after the table was read: once it returns true, no attempt follows.

    Raises:
        Terminal: A column that identifies rows can't be null; or a new column can't partition the table; or PyIceberg can't change
            the table.
        Retryable: The catalog is not available now, or others changed the table every time.
    """
    failure: BaseException = RuntimeError("no attempt")
    unconfirmed: tuple[SchemaChange, ...] = ()
    for number in range(ATTEMPTS):
        pause(number, failure if number else None)
        table = lake.load_table(request.table)
        if is_over():
            return unconfirmed
        after = plan_changes(table, request)
        if not after.applied:
            return unconfirmed  # an attempt landed although it failed; or there was nothing to do
        updates, requirements = _commit_request(table, after)
        if request.pipeline:
            updates += (_note_update(table.metadata, request, after.applied),)
        refuse_unwritable(lake, table, request.table)
        hit(Failpoint.EVOLVING)
        try:
            send(table, updates, requirements)
        except foreign_errors() as error:
            failure = error
            unconfirmed = () if isinstance(error, CommitFailedException) else after.applied
            continue
        hit(Failpoint.EVOLVED)
        return after.applied
    raise as_frazil(failure, f"changing the schema of table {request.table}") from safe_cause(failure)


def _note_update(
    metadata: TableMetadata, request: TableChanges, applied: Iterable[SchemaChange]
) -> SetPropertiesUpdate:
    """The table property with the changes made for a batch, set in their commit: the run may be killed before the batch is decided."""
    last, noted = _noted_changes(metadata, request.pipeline, request.table)
    before = noted if last >= request.n else ()
    body = {
        "n": max(last, request.n),
        "changes": [[change.path, change.kind, change.type] for change in (*before, *applied)],
    }
    return SetPropertiesUpdate(updates={CHANGES_KEY.format(request.pipeline): json.dumps(body, separators=(",", ":"))})


class _NotedChanges(TypedDict):
    n: int
    changes: list[tuple[tuple[str, ...], Any, str]]


def _noted_changes(metadata: TableMetadata, pipeline: str, table: str) -> tuple[int, tuple[SchemaChange, ...]]:
    key = CHANGES_KEY.format(pipeline)
    if key not in metadata.properties:
        return -1, ()
    body = decode_property(metadata.properties[key], key, table, _NotedChanges)
    return body["n"], tuple(SchemaChange(*change) for change in body["changes"])


def undecided_changes(metadata: TableMetadata, pipeline: str, table: str, newest: int) -> tuple[SchemaChange, ...]:
    """Schema changes for records of a pipeline that no batch up to `newest` records.

    A run that failed or was killed may have made them: the next batch records them.
    """
    n, changes = _noted_changes(metadata, pipeline, table)
    return changes if n > newest else ()


def plan_changes(table: Table, request: TableChanges) -> ChangedTable:
    """The changes that `evolve` would make to the table, without making them.

    Raises:
        Terminal: As `evolve`, except for refusals of the catalog.
    """
    ids = itertools.count(table.metadata.last_column_id + 1)
    try:
        schema, applied = apply_changes(table.schema(), request.changes, ids, request.table, fold=request.fold)
    except ValueError as error:  # a column has the same dotted path as a nested one
        raise _refusal(request, str(error)) from error
    new_columns = {field.name for field in schema.fields} - {field.name for field in table.schema().fields}
    schema = _with_identifier(request, schema)
    properties = _properties_after(table, request)
    after = ChangedTable(
        schema,
        applied,
        _spec_after(table, request, schema, new_columns),
        _order_after(table, request, schema, new_columns),
        properties | _mapping_after(table, schema, properties),
    )
    applied = tuple(change for change in request.changes if _is_applied(change, table, after))
    if applied:
        _refuse_taken_names(table, request, new_columns)
        _refuse_unfit(request, schema)
    return dataclasses.replace(after, applied=tuple(dataclasses.replace(change, docs=()) for change in applied))


def _is_applied(change: SchemaChange, table: Table, after: ChangedTable) -> bool:
    """Whether a change differs from what the table has."""
    match change.kind:
        case "identifier":
            return {*after.schema.identifier_field_ids} != {*table.schema().identifier_field_ids}
        case "partition":
            (name,) = change.path
            fields = after.spec.fields if after.spec is not None else table.spec().fields
            return [field for field in fields if field.name == name] != [
                field for field in table.spec().fields if field.name == name
            ]
        case "sort":
            return after.order is not None
        case "property":
            return change.path[0] in after.properties
    return change in after.applied


def _with_identifier(request: TableChanges, schema: Schema) -> Schema:
    """The schema with the requested identifier fields, if all of them are required columns."""
    names = {name for change in request.changes if change.kind == "identifier" for name in change.path}
    ids = [field.field_id for field in schema.fields if field.name in names and field.required]
    if len(ids) < len(names) or {*ids} == {*schema.identifier_field_ids} or not names:
        return schema
    return Schema(*schema.fields, identifier_field_ids=ids)


def _properties_after(table: Table, request: TableChanges) -> dict[str, str]:
    """The requested properties that differ from the table's, with the values of the file, if it still has them."""
    names = [change.path[0] for change in request.changes if change.kind == "property"]
    values = {name: request.destination.properties[name] for name in names if name in request.destination.properties}
    return {name: value for name, value in values.items() if table.metadata.properties.get(name) != value}


def _mapping_after(table: Table, after: Schema, properties: Mapping[str, str]) -> dict[str, str]:
    """The table's name mapping with the new fields added: by it, files without field ids show them.

    A name that the mapping has for another field stays with that field. Iceberg's libraries would move it, and with it the
    values in existing files, which a record must not cause. A mapping that can't be read stays as it is.
    """
    added = [*new_fields(after.as_struct(), table.metadata.last_column_id)]
    text = {**table.properties, **properties}.get(TableProperties.DEFAULT_NAME_MAPPING)
    if not added or text is None:
        return {}
    try:
        mapping = parse_mapping_from_json(text)
    except ValueError:
        return {}
    present, adds = {*_mapped_names(mapping)}, defaultdict[int, list[NestedField]](list)
    for parent_id, field in added:
        if (parent_id, field.name) not in present:
            adds[parent_id].append(field)
    return {TableProperties.DEFAULT_NAME_MAPPING: update_mapping(mapping, {}, adds).model_dump_json()}


def _mapped_names(fields: Iterable[MappedField], parent_id: int | None = -1) -> Iterator[tuple[int | None, str]]:
    for field in fields:
        yield from ((parent_id, name) for name in field.names)
        yield from _mapped_names(field.fields, field.field_id)


def _refuse_taken_names(table: Table, request: TableChanges, new_columns: Collection[str]) -> None:
    """Refuse a new column that has the name of a partition field, which keeps its name when its column is renamed.

    No engine reads a table that has the name twice.
    """
    new_fields = {
        field.name: field.column for field in request.destination.partition_fields if field.column in new_columns
    }
    for field in table.spec().fields:
        column = field.name if field.name in new_columns else new_fields.get(field.name)
        if column is not None:
            source = table.schema().find_column_name(field.source_id)
            raise _refusal(
                request,
                f"{field.name} is the name of a partition field of column {source}",
                f"if {source} is what {column} was, call it {source} in the pipeline file (columns: {{{source}: {{type: …, from: {column}}}}},"
                f" and in partition_by); else drop the partition field {field.name} of the table, or rename it",
            )


def _refuse_unfit(request: TableChanges, after: Schema) -> None:
    """Refuse a schema that engines can't read, or that Spark can't write. Call this before a batch is decided."""
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


_RENAME_STEP = (
    "rename or cast the field by a transform, set value.field_names to case_insensitive, or declare the columns"
)


def _refusal(request: TableChanges, why: str, next_step: str = _RENAME_STEP) -> Terminal:
    return TABLE_UNFIT.terminal(
        f"table {request.table} can't become what its records need ({listed(request.changes)}): {why}",
        next_step=next_step,
    )


def _commit_request(table: Table, after: ChangedTable) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """The updates, and the requirements that the table is as it was read. An earlier schema, spec or order gets its id again."""
    metadata = table.metadata
    updates: tuple[TableUpdate, ...] = ()
    requirements: tuple[TableRequirement, ...] = (
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
    )
    if after.schema != table.schema():
        number = next((schema.schema_id for schema in metadata.schemas if schema == after.schema), _LAST)
        schema_id = 1 + max(schema.schema_id for schema in metadata.schemas)
        if number == _LAST:
            updates += (AddSchemaUpdate(schema_=after.schema.model_copy(update={"schema_id": schema_id})),)
        updates += (SetCurrentSchemaUpdate(schema_id=number),)
    if after.spec is not None:
        number = next((spec.spec_id for spec in metadata.specs().values() if spec.fields == after.spec.fields), _LAST)
        if number == _LAST:
            updates += (AddPartitionSpecUpdate(spec=after.spec),)
        updates += (SetDefaultSpecUpdate(spec_id=number),)
        requirements += (
            AssertLastAssignedPartitionId(last_assigned_partition_id=metadata.last_partition_id),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        )
    if after.order is not None:
        number = next((order.order_id for order in metadata.sort_orders if order.fields == after.order.fields), _LAST)
        if number == _LAST:
            updates += (AddSortOrderUpdate(sort_order=after.order),)
            number = number if after.order.fields else after.order.order_id  # PyIceberg takes the highest for the last
        updates += (SetDefaultSortOrderUpdate(sort_order_id=number),)
        requirements += (AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id),)
    if after.properties:
        updates += (SetPropertiesUpdate(updates=dict(after.properties)),)
    return updates, requirements


def _spec_after(
    table: Table, request: TableChanges, after: Schema, new_columns: Collection[str]
) -> PartitionSpec | None:
    """The partition spec with the requested fields and those of new columns; None if the present one stays.

    A field that the table had before gets its id again, as the table specification demands.
    """
    metadata, current = table.metadata, table.spec().fields
    requested = [change for change in request.changes if change.kind == "partition"]
    dropped = {change.path[0] for change in requested if not change.type}
    fields = [field for field in current if field.name not in dropped]
    declared = [parse_partition_field(change.type) for change in requested if change.type]
    declared += [
        field for field in request.destination.partition_fields if field.column in new_columns and field not in declared
    ]
    former = {
        (field.source_id, str(field.transform), field.name): field.field_id
        for spec in metadata.specs().values()
        for field in spec.fields
    }
    numbers = itertools.count((metadata.last_partition_id or 999) + 1)
    columns = {column.name for column in after.fields}
    for declared_field in declared:
        if declared_field.name in {field.name for field in fields} or declared_field.column not in columns:
            continue
        new_field = partition_field(declared_field, after, 0, request.table)
        number = former.get((new_field.source_id, str(new_field.transform), new_field.name))
        fields.append(new_field.model_copy(update={"field_id": next(numbers) if number is None else number}))
    return None if tuple(fields) == current else PartitionSpec(*fields, spec_id=1 + max(metadata.specs()))


_BETWEEN_SORT_FIELDS = re.compile(r",\s*(?![^()]*\))")


def _order_after(table: Table, request: TableChanges, after: Schema, new_columns: Collection[str]) -> SortOrder | None:
    """The requested sort order; else the declared one, if it has a new column. None if the present one stays."""
    destination = request.destination
    for change in (change for change in request.changes if change.kind == "sort"):
        texts = tuple(filter(None, _BETWEEN_SORT_FIELDS.split(change.type)))
        if {parse_sort_field(text).column for text in texts} <= {column.name for column in after.fields}:
            order = declared_order(destination.model_copy(update={"sort_by": texts}), after)
            break
    else:
        if {field.column for field in destination.sort_fields}.isdisjoint(new_columns):
            return None
        order = declared_order(destination, after)
    if order.fields == table.sort_order().fields:
        return None
    return (
        SortOrder(*order.fields, order_id=1 + max(each.order_id for each in table.metadata.sort_orders))
        if order.fields
        else order
    )


def refuse_unwritable(lake: Lake, table: Table, name: str) -> None:
    """Refuse to change a table of format version 3 if its catalog is no server: PyIceberg can't write such metadata itself.

    Raises:
        Terminal: The table is such a one.
    """
    catalog = lake.catalog_of(name)
    if table.format_version >= FORMAT_VERSION and catalog.kind != "rest":
        raise TABLE_UNFIT.terminal(
            f"table {name} is of format version {table.format_version}; in catalog {catalog.name} its schema can only be changed"
            " by an engine",
            next_step="alter the table with Spark as its records need it, or declare evolve: none",
        )


_LINES: Mapping[ChangeKind, str] = {
    "add": "column {} added: {}",
    "widen": "column {} is {} now",
    "optional": "column {} may be null now",
    "doc": "column {} is described now",
    "identifier": "identifier fields are {} now{}",
    "partition": "partition field {} added: {}",
    "sort": "{}sort order is {} now",
    "property": "property {} set",
}


def change_lines(changes: Sequence[SchemaChange]) -> Iterator[str]:
    """Changes as lines for the log."""
    for change in changes:
        is_dropped = change.kind == "partition" and not change.type
        line = "partition field {} dropped" if is_dropped else _LINES[change.kind]
        separator = ", " if change.kind == "identifier" else "."
        yield line.format(separator.join(change.path), shorten(change.type))
