"""Finds the schema changes that a table needs for values of an Arrow schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa

from frazil.records.casting.nested import ExactPlan
from frazil.records.casting.renames import former_names
from frazil.records.casting.scalar import FitRules
from frazil.records.casting.source import Kind, docs_of, kind_of, plain_type
from frazil.records.evolution.schema_requests import Inspector, Path, SchemaRequests
from frazil.records.evolution.types import (
    MAX_PRECISION,
    NO_TYPE,
    can_name_column,
    column_type,
    leaf_paths,
    select_leaves,
    variant_name,
    without_positions,
)
from frazil.records.model.column import ColumnSpec
from frazil.records.model.spec import RecordSpec


@dataclass
class SchemaInspection:
    """The result of inspecting one schema.

    Attributes:
        requests: The schema changes that all its values need.
        range_requests: Widenings that are needed only if a value is out of its column's range.
        rescued_paths: Top-level fields that go unchanged to the column for rescued fields -> the paths of the fields without a
            column that are the cause.
        untyped_fields: Top-level fields without a column and without a known type, such as `[]`.
        fields: The fields, with the names of the columns that take them.
    """

    requests: SchemaRequests
    range_requests: SchemaRequests
    rescued_paths: dict[str, set[Path]] = field(default_factory=dict)
    untyped_fields: set[str] = field(default_factory=set)
    fields: tuple[pa.Field, ...] = ()


class SchemaInspector(Inspector):
    """Inspects schemas."""

    def __init__(self, spec: RecordSpec, rules: FitRules) -> None:
        super().__init__(spec)
        self._rules: Final = rules
        self._inferred_rules: Final = replace(rules, number_texts=True, json_texts=True)
        self._declares: Final = spec.declares
        # JSON has no schema: an inferred long does not mean that a value exceeds an int column. Widen only if one does.
        self._is_json: Final = spec.format.name == "json"
        self._columns: Final = {
            self._key(column.name): spec.columns.field(column.name)
            for column in self._column_specs
            if column.steps == (column.name,)
        }
        self._by_name: Final[dict[str, ColumnSpec]] = {column.name: column for column in self._column_specs}
        self._column_type: Final = partial(column_type, as_text=self._evolution.as_text)

    def inspect(self, schema: pa.Schema) -> SchemaInspection:
        """Inspect a schema."""
        folds = self._fold is not None
        inspection = SchemaInspection(SchemaRequests(folds), SchemaRequests(folds))
        inspection.fields = tuple(self._renamed_fields(list(schema), self._columns, (), None, inspection))
        return inspection

    def _renamed_fields(
        self,
        source: Sequence[pa.Field],
        columns: dict[str, pa.Field],
        path: Path,
        top_field: str | None,
        inspection: SchemaInspection,
    ) -> list[pa.Field]:
        """Inspect sibling fields; return them under the names of their columns."""
        names = {self._key(source_field.name) for source_field in source}
        for position, source_field in enumerate(source):
            if self._key(source_field.name) not in columns:
                self._inspect_unknown(source_field, names, path, top_field, inspection, position)
        return [
            self._renamed_field(source_field, names, columns, path, top_field, inspection) for source_field in source
        ]

    def _renamed_field(
        self,
        source_field: pa.Field,
        names: set[str],
        columns: dict[str, pa.Field],
        path: Path,
        top_field: str | None,
        inspection: SchemaInspection,
    ) -> pa.Field:
        column = columns.get(self._key(source_field.name))
        if column is None:
            return source_field
        fitting = self._fitting(
            source_field.type, column.type, (*path, column.name), top_field or source_field.name, inspection
        )
        if fitting is not None:
            return source_field.with_type(fitting)
        whole_type = self._type_if_whole(source_field.type, path)
        may_be_null = column.nullable or self._evolution.relaxes(*path, column.name)
        may_move = self._evolution.on_incompatible == "variant_column" and may_be_null
        if not may_move or whole_type is None or whole_type in {NO_TYPE, column.type}:
            return source_field
        variant = variant_name(column.name, whole_type)
        key = self._key(variant)
        if key in names or (not path and key in self._reserved_names - columns.keys()):
            return source_field
        if (variant_column := columns.get(key)) is not None:
            moved = self._fitting(
                source_field.type,
                variant_column.type,
                (*path, variant_column.name),
                top_field or source_field.name,
                inspection,
            )
            return source_field if moved is None else pa.field(variant_column.name, moved)
        if self._column_budget:
            inspection.requests.add((*path, variant), whole_type)
        return source_field

    def _inspect_unknown(
        self,
        source_field: pa.Field,
        names: set[str],
        path: Path,
        top_field: str | None,
        inspection: SchemaInspection,
        position: int,
    ) -> None:
        key = self._key(source_field.name)
        if top_field is None and self._needs_no_column(key, self._columns):
            return
        full_type = self._column_type(source_field.type)
        if self._is_json:  # fields of several values, sorted by name: they have no order to keep
            full_type, position = without_positions(full_type), 0
        if top_field is None and key in self._reserved_names:
            if full_type == NO_TYPE:
                inspection.untyped_fields.add(source_field.name)
            else:
                inspection.rescued_paths.setdefault(source_field.name, set()).add((source_field.name,))
            return
        pruned = self._pruned(full_type, path)
        if pruned == NO_TYPE and kind_of(plain_type(source_field.type)) is not Kind.NULL:
            inspection.requests.add_untyped((*path, source_field.name))
        if pruned == NO_TYPE and full_type == NO_TYPE:
            inspection.untyped_fields.update([source_field.name] if top_field is None else [])
            return
        may_add = self._may_add(source_field.name)
        if pruned != full_type or not may_add:
            inspection.rescued_paths.setdefault(top_field or source_field.name, set()).add((*path, source_field.name))
        if may_add and pruned != NO_TYPE:
            former = [name for name in former_names(source_field) if self._key(name) not in names]
            docs = docs_of(source_field, path)
            inspection.requests.add((*path, source_field.name), pruned, former, position=position, docs=docs)

    def _type_if_whole(self, source_type: pa.DataType, path: Path) -> pa.DataType | None:
        """Return the column type for a whole value; None if it is too deep, or no column can have its names."""
        whole_type = self._column_type(source_type)
        return whole_type if self._pruned(whole_type, path) == whole_type else None

    def _pruned(self, data_type: pa.DataType, path: Path) -> pa.DataType:
        """Return a type without the leaves that are too deep or have a name that no column can have."""
        deepest, longest = self._evolution.max_depth - len(path) - 1, self._evolution.max_name_length
        selected = (
            leaf
            for leaf in leaf_paths(data_type)
            if len(leaf) <= deepest and all(can_name_column(name, longest) for name in leaf)
        )
        return select_leaves(data_type, frozenset(selected))

    def _fitting(
        self, source_type: pa.DataType, column: pa.DataType, path: Path, top_field: str, inspection: SchemaInspection
    ) -> pa.DataType | None:
        """Return a type with its fields renamed to the columns that take them; None if the column can't take values of the type."""
        source, fitting = plain_type(source_type), None
        match kind_of(source), kind_of(column):
            case Kind.NULL, _:
                fitting = source_type  # the element of `[]`, or a field that is null in all records
            case Kind.STRUCT, Kind.STRUCT:
                inner = {self._key(each.name): each for each in column}
                fitting = pa.struct(self._renamed_fields(list(source), inner, path, top_field, inspection))
            case Kind.STRUCT, Kind.MAP if kind_of(column.key_type) is Kind.TEXT:
                fitting = self._entries(source, column, path, top_field, inspection)
            case Kind.LIST, Kind.LIST:
                element = self._fitting(source.value_type, column.value_type, (*path, "element"), top_field, inspection)
                fitting = None if element is None else _list_like(source, source.value_field.with_type(element))
            case Kind.MAP, Kind.MAP:
                value = self._fitting(source.item_type, column.item_type, (*path, "value"), top_field, inspection)
                fitting = None if value is None else pa.map_(source.key_field, source.item_field.with_type(value))
            case _:
                fitting = self._leaf_fitting(source_type, column, path, inspection)
        return fitting

    def _entries(
        self, source: pa.StructType, column: pa.MapType, path: Path, top_field: str, inspection: SchemaInspection
    ) -> pa.DataType | None:
        """Return the type of a struct whose fields become entries of a map, with their names as keys; None if an entry can't."""
        value_path = (*path, "value")
        values = [self._fitting(entry.type, column.item_type, value_path, top_field, inspection) for entry in source]
        if None in values:
            return None
        return pa.struct([entry.with_type(value) for entry, value in zip(source, values, strict=True)])

    def _leaf_fitting(
        self, source_type: pa.DataType, column: pa.DataType, path: Path, inspection: SchemaInspection
    ) -> pa.DataType | None:
        """Return the type if the column, perhaps widened, can take its values by a cast; else None. Request the widening."""
        source = plain_type(source_type)
        if self._evolution.widens and (wider := _widened_type(source, column)) is not None:
            (inspection.range_requests if self._is_json else inspection.requests).widen(path, wider)
            return source_type
        plan = ExactPlan(self._rules if self._declares(path[0]) else self._inferred_rules)
        plan.exact(source, column, "")
        narrows = self._evolution.on_incompatible == "variant_column" and _narrows(source, column)
        return None if plan.problems or narrows else source_type

    def relaxable(self) -> list[str]:
        """Return the names of required columns without a default that may become optional."""
        return [
            column.name
            for column in self._columns.values()
            if not (column.nullable or self._by_name[column.name].has_default) and self._evolution.relaxes(column.name)
        ]


def _list_like(source: pa.DataType, element: pa.Field) -> pa.DataType:
    return pa.large_list(element) if pa.types.is_large_list(source) else pa.list_(element)


def _widened_type(source: pa.DataType, column: pa.DataType) -> pa.DataType | None:
    """Return the type that a column must be widened to for all values of a type; None if it need not, or can't, be widened."""
    if kind_of(source) not in {Kind.INT, Kind.FLOAT, Kind.DECIMAL}:
        return None
    source_column = column_type(source)
    if (column, source_column) in _WIDER_COLUMNS:
        return source_column
    if (
        not (pa.types.is_decimal128(source_column) and pa.types.is_decimal128(column))
        or source_column.scale > column.scale
    ):
        return None
    digits = source_column.precision - source_column.scale + column.scale
    return pa.decimal128(digits, column.scale) if column.precision < digits <= MAX_PRECISION else None


_WIDER_COLUMNS: Final = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}
"""Pairs of a column type and the wider one that holds all its values."""

_NARROWING: Final = {
    (Kind.INT, Kind.INT),
    (Kind.FLOAT, Kind.INT),
    (Kind.FLOAT, Kind.FLOAT),
    (Kind.DECIMAL, Kind.INT),
    (Kind.DECIMAL, Kind.DECIMAL),
}


def _narrows(source: pa.DataType, column: pa.DataType) -> bool:
    """Return whether a column can hold only some of the numbers of a type."""
    if (kind_of(source), kind_of(column)) not in _NARROWING or (source_column := column_type(source)) == NO_TYPE:
        return False
    if kind_of(source) is not Kind.DECIMAL or kind_of(column) is Kind.INT:
        return source_column != column and (source_column, column) not in _WIDER_COLUMNS
    exceeds_whole_digits = source_column.precision - source_column.scale > column.precision - column.scale
    return bool(exceeds_whole_digits or source_column.scale > column.scale)
