"""Collects the schema changes that records request, and merges those of all tasks: their order makes no difference.

`Inspector` is the base of the code that finds these changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from frazil.batch.schema_change import MOST_UNTYPED_PATHS, SchemaChange
from frazil.records.casting.nested import index_of_name
from frazil.records.casting.source import NESTED, Kind, child_fields, kind_of
from frazil.records.evolution.infer import FieldBudget, Widest, widest
from frazil.records.evolution.types import (
    can_name_column,
    leaf_paths,
    list_of,
    map_of,
    order_key,
    position_of,
    read_type,
    reserved_file_names,
    select_leaves,
    struct_of,
    type_from_evidence,
    with_position,
    write_type,
)
from frazil.records.model.spec import RecordSpec

Path = tuple[str, ...]

_MIN_REQUESTS: Final = 500
"""So many nested sibling fields, and so many others, a task may request at least, however few columns may still be added."""


@dataclass
class RequestedField:
    """A column or nested field that records request.

    Attributes:
        path: Its path in the table.
        widest: The types of its values.
        former: Names that the field had before. Its own name is one of them if a record has no former name for it.
        position: Its lowest position among its siblings in any record.
        docs: Path -> comment, of the field and the fields inside it. Of several comments the one that sorts first counts.
    """

    path: Path
    widest: Widest
    former: set[str] = field(default_factory=set)
    position: int = 0
    docs: dict[Path, str] = field(default_factory=dict)


@dataclass
class SchemaRequests:
    """The schema changes that records of one table have requested so far.

    Attributes:
        fold: Whether names that differ in case only are the same field.
        adds: Casefolded path of a missing column or field -> the request.
        widens: Path of an existing column or field -> the wider type.
        optional: Paths of existing columns and fields that must become nullable.
        untyped_paths: Paths without a column whose values show no type, so that none is requested. At most one more than is reported.
        budget: Limits the requested columns and fields; those beyond are ignored.
    """

    fold: bool = False
    adds: dict[Path, RequestedField] = field(default_factory=dict)
    widens: dict[Path, pa.DataType] = field(default_factory=dict)
    optional: set[Path] = field(default_factory=set)
    untyped_paths: set[Path] = field(default_factory=set)
    budget: FieldBudget = field(default_factory=FieldBudget)

    def __bool__(self) -> bool:
        return bool(self.adds or self.widens or self.optional)

    @property
    def is_full(self) -> bool:
        """Whether no further column or field can be requested."""
        return self.budget.remaining <= 0

    def clear(self) -> None:
        """Forget all requests."""
        self.adds.clear()
        self.widens.clear()
        self.optional.clear()
        self.untyped_paths.clear()
        self.budget = FieldBudget()

    def add(
        self,
        path: Path,
        data_type: pa.DataType,
        former: Iterable[str] = (),
        *,
        position: int = 0,
        docs: Iterable[tuple[Path, str]] = (),
    ) -> None:
        """Request a column or field. Of several spellings of its name the one that sorts first counts."""
        key = self._key(path)
        if (request := self.adds.get(key)) is None:
            if not self.budget.take():
                return
            request = self.adds[key] = RequestedField(path, Widest(self.fold, self.budget), position=position)
        request.path = min(request.path, path)
        request.position = min(request.position, position)
        request.widest.add(data_type)
        request.former.update(tuple(former) or path[-1:])
        for described, doc in docs:
            if request.widest.has(described[len(path) :]):  # else the budget left the field out
                described_key = self._key(described)
                request.docs[described_key] = min(doc, request.docs.get(described_key, doc))

    def add_untyped(self, path: Path) -> None:
        """Remember a path whose value has no type."""
        if len(self.untyped_paths) <= MOST_UNTYPED_PATHS:
            self.untyped_paths.add(path)

    def _key(self, path: Path) -> Path:
        return tuple(name.casefold() for name in path) if self.fold else path

    def widen(self, path: Path, data_type: pa.DataType) -> None:
        """Request a wider type for an existing column or field."""
        self.widens[path] = widest(self.widens[path], data_type) if path in self.widens else data_type

    def add_all(self, requests: SchemaRequests) -> None:
        """Add the requests of another collection to this one."""
        for request in requests.adds.values():
            self.add(
                request.path,
                request.widest.type,
                request.former,
                position=request.position,
                docs=request.docs.items(),
            )
        for path, data_type in requests.widens.items():
            self.widen(path, data_type)
        self.optional |= requests.optional
        for path in requests.untyped_paths:
            self.add_untyped(path)

    def demands(self, spec: RecordSpec) -> tuple[SchemaChange, ...]:
        """Return the requests of a task as schema changes, in order, to be merged with those of other tasks.

        Only the merged requests decide which fields get columns: if a struct with many fields turns out to be a string, other fields
        get its columns. So a task drops only fields that can't get a column in any case. Of sibling fields it keeps the first nested
        ones and the first others, of each as many as columns may still be added.
        """
        limit = max(column_budget(spec), _MIN_REQUESTS) + 1  # one more shows that fields are left out
        counts: Counter[tuple[Path, bool]] = Counter()
        changes = self._changes_of_columns()
        for request in sorted(self.adds.values(), key=_column_order):
            data_type, is_rescued = request.widest.type, request.path == (spec.rescued_column,)
            group = request.path[:-1], kind_of(data_type) in NESTED
            if is_rescued or counts[group] < limit:
                former = tuple(sorted(request.former)) if request.former - {*request.path[-1:]} else ()
                fewer = _with_fewer_fields(data_type, limit)
                widest, depth = Widest(self.fold).add(fewer), len(request.path)
                docs = tuple(sorted((path, doc) for path, doc in request.docs.items() if widest.has(path[depth:])))
                changes.append(SchemaChange(request.path, "add", write_type(fewer), former, request.position, docs))
                # A renamed field may be the same column as another one; the column for rescued fields needs no budget.
                counts[group] += not former and not is_rescued
        return tuple(sorted(changes))

    def _changes_of_columns(self) -> list[SchemaChange]:
        """Return the changes of existing columns."""
        widened = [SchemaChange(path, "widen", write_type(data_type)) for path, data_type in self.widens.items()]
        return [*(SchemaChange(path, "optional") for path in self.optional), *widened]

    def changes(self, spec: RecordSpec) -> tuple[SchemaChange, ...]:
        """Return the changes of the table, in order: as many new columns as it may have, and one that rescues the other fields."""
        if not self:
            return ()
        adds = self._by_oldest_name()
        docs = {path: tuple(sorted(request.docs.items())) for path, request in adds.items()}
        rescued_path = (spec.rescued_column,)
        rescued_request = adds.pop(rescued_path, None)
        # Breadth first: shallow leaves go first; of equal depth, the first fields of all structs, then the second ones.
        ordered_leaves = [(leaf, orders) for request in adds.values() for leaf, orders in _leaf_orders(request)]
        ordered_leaves.sort(key=lambda leaf: (len(leaf[0]), leaf[1][::-1]))
        selected = frozenset(leaf for leaf, _ in ordered_leaves[: column_budget(spec)])
        fitting = {
            request.path: select_leaves(request.widest.type, selected, request.path) for request in adds.values()
        }
        has_others = len(selected) < len(ordered_leaves)
        if rescued_request is not None or (has_others and spec.rescued_column not in spec.columns.names):
            fitting[rescued_path] = pa.string()
        added = [
            SchemaChange(path, "add", write_type(type_from_evidence(data_type)), docs=docs.get(path, ()))
            for path, data_type in fitting.items()
            if data_type != pa.null()
        ]
        return (*sorted(self._changes_of_columns()), *added)

    def _by_oldest_name(self) -> dict[Path, RequestedField]:
        """Return the requests by path, in the order of columns, with the requests of a renamed field merged into one.

        A field that is also requested under a former name gets only the column of that name.
        """
        merged = SchemaRequests(self.fold)
        for request in self.adds.values():
            oldest = self._oldest(request)
            merged.add(oldest.path, request.widest.type, position=oldest.position, docs=oldest.docs.items())
        return {request.path: request for request in sorted(merged.adds.values(), key=_column_order)}

    def _oldest(self, request: RequestedField) -> RequestedField:
        """Return the request for a field's oldest name. In a circle (renamed, and back) the name that sorts first counts."""
        visited = [self._key(request.path)]
        # If a field's own name is in `former`, a record knows no other name: only a column of this name takes its value.
        while request.path[-1] not in request.former:
            former_keys = (self._key((*request.path[:-1], name)) for name in sorted(request.former))
            former_key = next((key for key in former_keys if key in self.adds), None)
            if former_key is None:
                break
            if former_key in visited:
                return self.adds[min(visited[visited.index(former_key) :])]
            visited.append(former_key)
            request = self.adds[former_key]
        return request


def _column_order(request: RequestedField) -> tuple[Path, tuple[bool, int, str]]:
    """Return the sort key of requested columns: siblings have the order of their fields in the records."""
    return request.path[:-1], order_key(request.path[-1], request.position)


def _leaf_orders(request: RequestedField) -> Iterator[tuple[Path, tuple[tuple[bool, int, str], ...]]]:
    """Yield the path of each leaf, with the sort key of each name on the path among its siblings."""
    outer_orders = tuple((False, 0, name) for name in request.path[:-1])
    yield from _leaf_orders_of_type(
        request.widest.type, request.path, (*outer_orders, order_key(request.path[-1], request.position))
    )


def _leaf_orders_of_type(
    data_type: pa.DataType, path: Path, orders: tuple[tuple[bool, int, str], ...]
) -> Iterator[tuple[Path, tuple[tuple[bool, int, str], ...]]]:
    children = child_fields(data_type)
    if not children:
        yield path, orders
    for index, child in enumerate(children):
        order = order_key(child.name, position_of(child, index))
        yield from _leaf_orders_of_type(child.type, (*path, child.name), (*orders, order))


def _with_fewer_fields(data_type: pa.DataType, limit: int) -> pa.DataType:
    """Return a type with fewer fields: of siblings, the first nested ones and the first others, at most `limit` of each."""
    match kind_of(data_type):
        case Kind.STRUCT:
            counts: Counter[bool] = Counter()
            fields = []
            for index, child in enumerate(data_type):
                is_nested = kind_of(child.type) in NESTED
                counts[is_nested] += 1
                if counts[is_nested] <= limit:
                    fields.append(
                        with_position(child.with_type(_with_fewer_fields(child.type, limit)), position_of(child, index))
                    )
            return struct_of(fields)
        case Kind.LIST:
            return list_of(_with_fewer_fields(data_type.value_type, limit))
        case Kind.MAP:
            return map_of(data_type.key_type, _with_fewer_fields(data_type.item_type, limit))
    return data_type


def column_budget(spec: RecordSpec) -> int:
    """Return how many leaf columns records may still add to a table."""
    if spec.evolution is None:
        return 0
    used = sum(
        1 for column in spec.of_value.columns if column.name != spec.rescued_column for _ in leaf_paths(column.type)
    )
    return max(0, spec.evolution.max_columns - used)


class Inspector:
    """Base of the inspections of JSON objects and of Arrow schemas: which names a table has, and which columns it may get."""

    def __init__(self, spec: RecordSpec) -> None:
        if spec.evolution is None:
            raise ValueError("the table does not evolve")
        self._evolution: Final = spec.evolution
        self._fold: Final = spec.fold
        self._column_specs: Final = [column for column in spec.column_specs if column.name != spec.rescued_column]
        self._source_fields: Final = {self._key(column.steps[0]) for column in self._column_specs if column.steps}
        occupied = (*spec.columns.names, *spec.evolution.reserved, spec.rescued_column)
        self._reserved_names: Final = {self._key(name) for name in occupied}
        self._known_names: Final = {self._key(name) for name in spec.known_names}
        self._takes_all: Final = bool(spec.whole_columns)
        self._column_budget: Final = column_budget(spec)
        self._reserved_file_names: Final = reserved_file_names(spec.columns)

    def _key(self, name: str) -> str:
        return name if self._fold is None else name.casefold()

    def has_column(self, name: str) -> bool:
        """Return whether some column takes a top-level field, or a part of it."""
        return self._key(name) in self._source_fields

    def _needs_no_column(self, key: str, columns: Container[str]) -> bool:
        """Return whether a top-level field that is not one of these columns is taken anyway: whole, in parts, or elsewhere."""
        is_taken_in_parts = key in self._source_fields and key not in columns
        return self._takes_all or key in self._known_names or is_taken_in_parts

    def _may_add(self, name: str) -> bool:
        """Return whether the table may get a column of this name."""
        max_length = self._evolution.max_name_length
        return self._column_budget > 0 and can_name_column(name, max_length, self._reserved_file_names)


def rescued_labels(spec: RecordSpec, paths: Iterable[Path]) -> list[str]:
    """Return the labels under which rescued fields are counted."""
    return [f"{spec.rescued_column}: {'.'.join(path)}" for path in sorted(paths)]


def rescuing_columns(spec: RecordSpec) -> set[str]:
    """Return the columns that become null, and their value rescued, if it has another type."""
    if spec.evolution is None or spec.evolution.on_incompatible != "rescue" or spec.whole_columns:
        return set()
    # The author of the pipeline file chose the types of declared columns, and of fields of which a declared column takes a part.
    declared = {steps[0] for name, steps in spec.sources.items() if steps}
    names = (column.name for column in spec.column_specs if column.steps == (column.name,))
    return {name for name in names if not spec.declares(name)} - declared - {spec.rescued_column}


def has_column(columns: pa.Schema, path: Path, *, fold: bool) -> bool:
    """Return whether a table has a column at a path. `ANYWHERE`, the empty path, always has one."""
    data_type: pa.DataType = pa.struct(list(columns))
    for name in path:
        match kind_of(data_type):
            case Kind.LIST:
                data_type = data_type.value_type
            case Kind.MAP:
                data_type = data_type.item_type
            case Kind.STRUCT:
                index = index_of_name(name, [field.name for field in data_type], case_insensitive=fold)
                if index is None:
                    return False
                data_type = data_type.field(index).type
            case _:
                return False
    return True


def merge_changes(changes: Iterable[SchemaChange], spec: RecordSpec) -> tuple[SchemaChange, ...]:
    """Merge the changes that the tasks of a batch request: one change per path, with the widest type, in order."""
    requests = SchemaRequests(spec.fold is not None)
    for change in changes:
        if change.kind == "add":
            requests.add(change.path, read_type(change.type), change.former, position=change.position, docs=change.docs)
        elif change.kind == "widen":
            requests.widen(change.path, read_type(change.type))
        else:
            requests.optional.add(change.path)
    return requests.changes(spec)


def apply_changes(columns: pa.Schema, changes: Iterable[SchemaChange]) -> pa.Schema:
    """Return the columns of a table after changes."""
    fields = list(columns)
    for change in changes:
        fields = _apply_to_fields(fields, change.path, change)
    return pa.schema(fields, columns.metadata)


def _apply_to_fields(fields: list[pa.Field], path: Path, change: SchemaChange) -> list[pa.Field]:
    name, *rest = path
    if not rest and change.kind == "add":
        return [*fields, pa.field(name, read_type(change.type))]
    return [_apply_to_field(column, tuple(rest), change) if column.name == name else column for column in fields]


def _apply_to_field(column: pa.Field, rest: Path, change: SchemaChange) -> pa.Field:
    if not rest:
        optional = change.kind == "optional"
        return column.with_nullable(nullable=True) if optional else column.with_type(read_type(change.type))
    return column.with_type(_apply_to_type(column.type, rest, change))


def _apply_to_type(data_type: pa.DataType, rest: Path, change: SchemaChange) -> pa.DataType:
    match kind_of(data_type):
        case Kind.LIST:
            return pa.list_(_apply_to_field(data_type.value_field, rest[1:], change))
        case Kind.MAP:
            return pa.map_(data_type.key_type, _apply_to_field(data_type.item_field, rest[1:], change))
    return pa.struct(_apply_to_fields(list(data_type), rest, change))
