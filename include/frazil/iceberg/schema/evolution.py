"""Changes of a table's schema, carried out: one commit for all of them, made once however often it is asked for.

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

from frazil.batch.schema_change import SchemaChange, listed, shortened
from frazil.errors import Terminal, quotable
from frazil.failpoints import Failpoint, hit
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import ATTEMPTS, pause
from frazil.iceberg.commit.refs import send
from frazil.iceberg.commit.summary_state import CHANGES_KEY
from frazil.iceberg.errors import as_frazil, foreign
from frazil.iceberg.patches.variant import FORMAT_VERSION
from frazil.iceberg.schema.promotion import coming_columns, promotes
from frazil.iceberg.schema.schema import declared_order, iceberg_type, partition_field
from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.syntax.types import ColumnType, ListOf, MapOf, StructOf, parse_type


@dataclass(frozen=True, slots=True)
class Evolved:
    """A schema after changes.

    Attributes:
        schema: The whole of it.
        made: The changes that it did not have before.
    """

    schema: Schema
    made: tuple[SchemaChange, ...]


class _Overtaken(Exception):
    """A column has a type that does not go with a change: somebody else made it so since records were looked at."""


def evolved(
    schema: Schema, changes: Iterable[SchemaChange], ids: Iterator[int], table: str, *, fold: bool = False
) -> Evolved:
    """A schema with changes made.

    Left out is one whose column is gone meanwhile, or has become of a type that does not go with it: records are held against
    the columns as they are then, and whoever still needs a change asks again.

    Args:
        schema: As it is.
        changes: What it is to have, a column before its fields.
        ids: Gives new fields their ids.
        table: Its name, for messages.
        fold: Whether names that differ in case only are the same column; the one that is there keeps its spelling.

    Raises:
        Terminal: A column that identifies rows can't be null.
    """
    fields, made = schema.fields, []
    for change in changes:
        try:
            after = _parts(_Changing(change, ids, table, schema, fold).within(StructType(*fields), change.path))
        except _Overtaken:
            continue
        if after != fields:
            made.append(change)
        fields = after
    return Evolved(Schema(*fields, identifier_field_ids=schema.identifier_field_ids), tuple(made))


@dataclass(frozen=True, slots=True)
class _Changing:
    """One change on its way down to its column."""

    change: SchemaChange
    ids: Iterator[int]
    table: str
    schema: Schema
    fold: bool

    def key(self, name: str) -> str:
        return name.casefold() if self.fold else name

    def within(self, of: IcebergType, path: Sequence[str]) -> IcebergType:
        """A type with a field inside it changed."""
        fields = _parts(of)
        if of.is_primitive:
            raise _Overtaken
        name, rest = path[0], path[1:]
        there = next((field.name for field in fields if self.key(field.name) == self.key(name)), None)
        if there is None:
            is_new = not rest and self.change.kind == "add" and isinstance(of, StructType)
            return StructType(*fields, self.new(name, parse_type(self.change.type))) if is_new else of
        if isinstance(of, MapType) and name == "key":
            raise _Overtaken  # keys of maps never change
        return _with_parts(of, [self.changed(field, rest) if field.name == there else field for field in fields])

    def new(self, name: str, of: ColumnType) -> NestedField:
        return NestedField(next(self.ids), name, iceberg_type(of, self.ids), required=False)

    def changed(self, field: NestedField, rest: Sequence[str]) -> NestedField:
        if rest:
            return field.model_copy(update={"field_type": self.within(field.field_type, rest)})
        if self.change.kind == "optional":
            return self.optional(field)
        wanted = parse_type(self.change.type)
        take = self.widened if self.change.kind == "widen" else self.union
        return field.model_copy(update={"field_type": take(field.field_type, wanted)})

    def optional(self, field: NestedField) -> NestedField:
        if field.field_id in self.schema.identifier_field_ids:
            raise Terminal(
                f"table {self.table}, column {field.name}: it identifies rows, so it can't be null",
                next_step="records without it are dead letters: declare evolve: widen or less",
            )
        return field.model_copy(update={"required": False})

    def widened(self, found: IcebergType, wanted: ColumnType) -> IcebergType:
        to = iceberg_type(wanted, self.ids)
        if promotes(found, to):
            return to
        if not promotes(to, found):
            raise _Overtaken
        return found

    def union(self, found: IcebergType, wanted: ColumnType) -> IcebergType:
        """What is there with the fields that are wanted and not there. A narrower type stays: whoever needs more asks."""
        match found, wanted:
            case StructType(), StructOf(fields):
                return self.joined(found, fields)
            case ListType(), ListOf(element):
                return _with_parts(found, [self.merged(found.element_field, element)])
            case MapType(), MapOf(key, value):
                self.union(found.key_type, key)
                return _with_parts(found, [found.key_field, self.merged(found.value_field, value)])
            case ((StructType() | ListType() | MapType()), _) | (_, (StructOf() | ListOf() | MapOf())):
                raise _Overtaken
        to = iceberg_type(wanted, self.ids)
        if not (promotes(found, to) or promotes(to, found)):
            raise _Overtaken
        return found

    def joined(self, found: StructType, wanted: Sequence[tuple[str, ColumnType]]) -> StructType:
        there, types = {self.key(field.name) for field in found.fields}, {self.key(name): of for name, of in wanted}
        kept = [
            self.merged(field, types[self.key(field.name)]) if self.key(field.name) in types else field
            for field in found.fields
        ]
        return StructType(*kept, *(self.new(name, of) for name, of in wanted if self.key(name) not in there))

    def merged(self, field: NestedField, wanted: ColumnType) -> NestedField:
        return field.model_copy(update={"field_type": self.union(field.field_type, wanted)})


def _parts(of: IcebergType) -> tuple[NestedField, ...]:
    match of:
        case StructType():
            return of.fields
        case ListType():
            return (of.element_field,)
        case MapType():
            return (of.key_field, of.value_field)
    return ()


def _with_parts(of: IcebergType, parts: Sequence[NestedField]) -> IcebergType:
    match of:
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
    """What a table is to become.

    Attributes:
        destination: What the pipeline file says of it: partition fields and sort order are set with their columns.
        changes: What its schema is to have, in this order: a column before its fields.
        pipeline: Whose records need it. The table notes what was changed for them, until their batch is decided.
        n: Number of that batch.
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
    """What adds the declared columns that a table lacks. They are optional there; what is required is asked of records."""
    coming = coming_columns(schema, destination, fold=fold)
    return tuple(SchemaChange((name,), "add", destination.columns[name].type) for name in coming)


def evolve(lake: Lake, wanted: TableChanges) -> tuple[SchemaChange, ...]:
    """Make the changes that a table does not have yet and still takes, in one commit, and return them.

    Raises:
        Terminal: A column that identifies rows can't be null; or a new one can't partition the table; or PyIceberg can't change
            the table.
        Retryable: The catalog is not available now, or others changed the table every time.
    """
    failure: BaseException = RuntimeError("no attempt")
    sent: tuple[SchemaChange, ...] = ()
    for number in range(ATTEMPTS):
        pause(number, failure if number else None)
        table = lake.load_table(wanted.table)
        after = planned(table, wanted)
        if not after.made:
            return sent  # of an attempt that was not confirmed and landed all the same; or nothing was to do
        updates, requirements = _request(table, wanted, after.schema)
        updates += (_note(table.metadata, wanted, after.made),)
        _refuse_unwritable(lake, table, wanted.table)
        hit(Failpoint.EVOLVING)
        try:
            send(table, updates, requirements)
        except foreign() as error:
            failure = error
            sent = () if isinstance(error, CommitFailedException) else after.made
            continue
        hit(Failpoint.EVOLVED)
        return after.made
    raise as_frazil(failure, f"changing the schema of table {wanted.table}") from quotable(failure)


def _note(metadata: TableMetadata, wanted: TableChanges, made: Iterable[SchemaChange]) -> SetPropertiesUpdate:
    """What was changed for a batch, in the same commit: the run may end before the batch is decided."""
    last, known = _noted(metadata, wanted.pipeline)
    before = known if last >= wanted.n else ()
    body = {"n": max(last, wanted.n), "changes": [[of.path, of.kind, of.type] for of in (*before, *made)]}
    return SetPropertiesUpdate(updates={CHANGES_KEY.format(wanted.pipeline): json.dumps(body, separators=(",", ":"))})


def _noted(metadata: TableMetadata, pipeline: str) -> tuple[int, tuple[SchemaChange, ...]]:
    text = metadata.properties.get(CHANGES_KEY.format(pipeline))
    if text is None:
        return -1, ()
    body = json.loads(text)
    return body["n"], tuple(SchemaChange(tuple(path), kind, of) for path, kind, of in body["changes"])


def undecided_changes(metadata: TableMetadata, pipeline: str, newest: int) -> tuple[SchemaChange, ...]:
    """What a table's schema was changed for records of a pipeline that no batch up to `newest` tells of.

    Runs that failed or were killed behind a change count as well: the next batch has it on record.
    """
    n, changes = _noted(metadata, pipeline)
    return changes if n > newest else ()


def planned(table: Table, wanted: TableChanges) -> Evolved:
    """What `evolve` would make of a table as it is, without making it.

    Raises:
        Terminal: As `evolve`, but for what only the catalog knows.
    """
    ids = itertools.count(table.metadata.last_column_id + 1)
    try:
        after = evolved(table.schema(), wanted.changes, ids, wanted.table, fold=wanted.fold)
    except ValueError as error:  # two columns whose names are one with dots between
        raise _unfit(wanted, str(error)) from error
    if after.made:
        _refuse_taken(table, wanted, _coming(table, after.schema))
        _refuse_unfit(wanted, after.schema)
    return after


def _coming(table: Table, after: Schema) -> set[str]:
    return {field.name for field in after.fields} - {field.name for field in table.schema().fields}


def _refuse_taken(table: Table, wanted: TableChanges, coming: Collection[str]) -> None:
    """A partition field keeps its name when its column is renamed: no engine reads a table that has the name twice."""
    brought = {of.name: of.column for of in wanted.destination.partition_fields if of.column in coming}
    for field in table.spec().fields:
        column = field.name if field.name in coming else brought.get(field.name)
        if column is not None:
            its = table.schema().find_column_name(field.source_id)
            raise _unfit(
                wanted,
                f"{field.name} is the name of a partition field of column {its}",
                f"if {its} is what {column} was, call it {its} in the pipeline file (columns: {{{its}: {{type: …, from: {column}}}}},"
                f" and in partition_by); else drop the partition field {field.name} of the table, or rename it",
            )


def _refuse_unfit(wanted: TableChanges, after: Schema) -> None:
    """Before anything is decided: engines must be able to read the table, and Spark to write it where it does."""
    for field in wanted.destination.partition_fields:
        if field.name != field.column and field.name in after.column_names:
            raise _unfit(wanted, f"{field.name} is the name of a partition field and of a column")
    if not wanted.destination.by_engine:
        return
    for number in index_by_id(after):
        if str(kind := after.find_type(number)) in wanted.destination.absent_types:
            raise _unfit(
                wanted, f"{after.find_column_name(number)} would be {kind}, which Spark, who writes it, has not"
            )


_OTHERWISE = (
    "rename or cast the field by a transform, set value.field_names to case_insensitive, or declare the columns"
)


def _unfit(wanted: TableChanges, why: str, next_step: str = _OTHERWISE) -> Terminal:
    return Terminal(
        f"table {wanted.table} can't become what its records need ({listed(wanted.changes)}): {why}",
        next_step=next_step,
    )


def _request(
    table: Table, wanted: TableChanges, after: Schema
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    metadata = table.metadata
    schema = after.model_copy(update={"schema_id": 1 + max(of.schema_id for of in metadata.schemas)})
    updates: tuple[TableUpdate, ...] = (AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=_LAST))
    requirements: tuple[TableRequirement, ...] = (
        AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
    )
    coming = _coming(table, schema)
    spec, order = _spec(table, wanted, schema, coming), _order(table, wanted, schema, coming)
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


def _spec(table: Table, wanted: TableChanges, after: Schema, coming: Collection[str]) -> PartitionSpec | None:
    """The spec with the fields whose columns come now; None if there are none."""
    metadata = table.metadata
    fields = [field for field in wanted.destination.partition_fields if field.column in coming]
    if not fields:
        return None
    number = itertools.count((metadata.last_partition_id or 999) + 1)
    added = [partition_field(field, after, next(number), wanted.table) for field in fields]
    return PartitionSpec(*table.spec().fields, *added, spec_id=1 + max(metadata.specs()))


def _order(table: Table, wanted: TableChanges, after: Schema, coming: Collection[str]) -> SortOrder | None:
    """The sort order of the columns that are there then; None if none of it comes now."""
    if not any(field.column in coming for field in wanted.destination.sort_fields):
        return None
    order_id = 1 + max(order.order_id for order in table.metadata.sort_orders)
    return SortOrder(*declared_order(wanted.destination, after).fields, order_id=order_id)


def _refuse_unwritable(lake: Lake, table: Table, name: str) -> None:
    """PyIceberg sends the changes of any table to a server; metadata of version 3 it does not write itself."""
    catalog = lake.catalog_of(name)
    if table.format_version >= FORMAT_VERSION and catalog.kind != "rest":
        raise Terminal(
            f"table {name} is of format version {table.format_version}; in catalog {catalog.name} its schema can only be changed"
            " by an engine",
            next_step="alter the table with Spark as its records need it, or declare evolve: none",
        )


def said(changes: Sequence[SchemaChange]) -> Iterator[str]:
    """Changes as a log line tells them."""
    words = {"add": "column {} added: {}", "widen": "column {} is {} now", "optional": "column {} may be null now"}
    return (words[change.kind].format(".".join(change.path), shortened(change.type)) for change in changes)
