"""Matches fields with columns by name: a renamed field goes to the column of its former name, and fields that no column takes are found.

So a column keeps its name when its field is renamed, and queries go on working.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.nested import index_of_name
from frazil.records.casting.source import Kind, as_lists, child_fields, kind_of, plain, plain_type, present_mask
from frazil.records.json.intermediate_types import list_window
from frazil.records.model.rows import UnknownFieldPairs

ColumnTarget = tuple[tuple[str, ...], pa.DataType]
"""The path of names to the field that a column reads, from the level at hand, and the type that the field becomes."""


@dataclass(frozen=True, slots=True)
class UnmatchedFields:
    """Fields in values of one type that no column takes.

    Attributes:
        unmatched: Indexes of the fields of a struct that no column takes.
        inner: Such fields nested in other fields of the struct, by index of the outer field.
        items: Such fields in the items of a list, or in the values of a map.
        is_map: Whether the fields of the struct become entries of a map: then their names are data, not part of a path.
    """

    unmatched: tuple[int, ...] = ()
    inner: tuple[tuple[int, UnmatchedFields], ...] = ()
    items: UnmatchedFields | None = None
    is_map: bool = False

    def find_pairs(self, array: pa.Array, rows: pa.Int64Array, path: str) -> Iterator[UnknownFieldPairs]:
        """Yield the rows that have such fields, with the paths of the fields.

        Args:
            array: The values.
            rows: The row of each value; several values may be of one row.
            path: Names from the root to the values, with a dot at the end.
        """
        values = plain(array)
        if self.items is not None:
            yield from self.items.find_pairs(*_items(values, rows), path)
            return
        if not (self.unmatched or self.inner):
            return
        children = values.flatten()
        for index in self.unmatched:
            field = values.type.field(index)
            field_rows = rows.filter(present_mask(field, children[index]))
            yield UnknownFieldPairs(
                field_rows, pa.repeat(pa.scalar(f"{path}{field.name}", pa.string()), len(field_rows))
            )
        for index, inner in self.inner:
            yield from inner.find_pairs(
                children[index], rows, path if self.is_map else f"{path}{values.type.field(index).name}."
            )


def find_unmatched_fields(
    source: pa.DataType, targets: Sequence[ColumnTarget], *, any_case: bool
) -> UnmatchedFields | None:
    """Return the fields in values of a type that no column takes; None if there are none."""
    plain_data_type, kind = plain_type(source), kind_of(plain_type(source))
    if kind is Kind.STRUCT:
        return _unmatched_of_struct(plain_data_type, targets, any_case=any_case)
    if kind not in {Kind.LIST, Kind.MAP} or any(
        steps or kind_of(column_type) is not kind for steps, column_type in targets
    ):
        return None
    item_targets = [((), _item_type(column_type)) for _, column_type in targets]
    items = find_unmatched_fields(_item_type(plain_data_type), item_targets, any_case=any_case)
    return None if items is None else UnmatchedFields(items=items)


def _item_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a list's items, or of a map's values."""
    return data_type.item_type if kind_of(data_type) is Kind.MAP else data_type.value_type


def _unmatched_of_struct(
    source: pa.StructType, targets: Sequence[ColumnTarget], *, any_case: bool
) -> UnmatchedFields | None:
    names = [field.name for field in source]
    targets_by_index: dict[int, list[ColumnTarget]] = {}
    for steps, target_type in targets:
        if not steps and kind_of(target_type) is Kind.MAP:
            for position in range(len(names)):
                targets_by_index.setdefault(position, []).append(((), target_type.item_type))
            continue
        if not steps and kind_of(target_type) is not Kind.STRUCT:
            return None  # the column takes the whole struct as JSON text
        named_targets = (
            [(steps[0], (steps[1:], target_type))]
            if steps
            else [(field.name, ((), field.type)) for field in target_type]
        )
        for name, target in named_targets:
            index = index_of_name(name, names, case_insensitive=any_case)
            if index is not None:
                targets_by_index.setdefault(index, []).append(target)
    inner = [
        (index, find_unmatched_fields(source.field(index).type, fields, any_case=any_case))
        for index, fields in sorted(targets_by_index.items())
    ]
    unmatched = tuple(index for index in range(len(names)) if index not in targets_by_index)
    nested = tuple((index, fields) for index, fields in inner if fields is not None)
    is_map = any(not steps and kind_of(target_type) is Kind.MAP for steps, target_type in targets)
    return UnmatchedFields(unmatched, nested, is_map=is_map) if unmatched or nested else None


def _items(values: pa.Array, rows: pa.Int64Array) -> tuple[pa.Array, pa.Int64Array]:
    """Return the items of lists, or the values of maps, and the row of each."""
    lists = values if pa.types.is_map(values.type) else as_lists(values)
    offsets, first, last = list_window(lists)
    items = (lists.items if pa.types.is_map(lists.type) else lists.values).slice(first, last - first)
    parents = pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), pa.nulls(len(items))))
    if lists.null_count:  # a null list may have items in its buffers, which belong to no row
        is_valid = lists.is_valid().take(parents)
        items, parents = items.filter(is_valid), parents.filter(is_valid)
    return items, rows.take(parents)


FORMER: Final = b"frazil.former"
"""Metadata of a field: the names that it had before, as a JSON list, the last one first."""


def with_former(field: pa.Field, names: Iterable[str]) -> pa.Field:
    """Return a field whose metadata lists its former names."""
    former = [name for name in dict.fromkeys(names) if name != field.name]
    return field.with_metadata({**(field.metadata or {}), FORMER: json.dumps(former).encode()}) if former else field


def former_names(field: pa.Field) -> tuple[str, ...]:
    """Return the former names of a field."""
    encoded = (field.metadata or {}).get(FORMER)
    return () if encoded is None else tuple(json.loads(encoded))


def has_former(fields: Iterable[pa.Field]) -> bool:
    """Return whether any of these fields, or a field nested in them, has a former name."""
    return any(FORMER in (field.metadata or {}) or has_former(child_fields(plain_type(field.type))) for field in fields)


def renamed_fields(fields: Sequence[pa.Field], targets: Sequence[ColumnTarget], *, any_case: bool) -> list[pa.Field]:
    """Return fields with the names that columns read: a former name, if no column reads the present one.

    A former name that another field has now belongs to that other field.
    """
    targets_by_name: dict[str, list[ColumnTarget]] = {}
    for steps, target_type in targets:
        if steps:
            targets_by_name.setdefault(steps[0], []).append((steps[1:], target_type))
        elif kind_of(target_type) is Kind.STRUCT:
            for inner in target_type:
                targets_by_name.setdefault(inner.name, []).append(((), inner.type))
    names = [field.name for field in fields]
    indexes = {name: index_of_name(name, names, case_insensitive=any_case) for name in targets_by_name}
    names_by_index = {index: name for name, index in indexes.items() if index is not None}
    unread_names = [name for name, index in indexes.items() if index is None]
    new_fields = []
    for index, field in enumerate(fields):
        column_name = names_by_index.get(index)
        if column_name is None and (column_name := _former_name(field, unread_names, any_case=any_case)) is not None:
            unread_names.remove(column_name)
            field = field.with_name(column_name)  # noqa: PLW2901 - the same field
        field_type = (
            field.type
            if column_name is None
            else _renamed_type(field.type, targets_by_name[column_name], any_case=any_case)
        )
        new_fields.append(field.with_type(field_type))
    return new_fields


def _former_name(field: pa.Field, unread_names: list[str], *, any_case: bool) -> str | None:
    indexes = (index_of_name(name, unread_names, case_insensitive=any_case) for name in former_names(field))
    return next((unread_names[index] for index in indexes if index is not None), None)


def _renamed_type(data_type: pa.DataType, targets: Sequence[ColumnTarget], *, any_case: bool) -> pa.DataType:
    plain_data_type, kind = plain_type(data_type), kind_of(plain_type(data_type))
    if kind is Kind.STRUCT:
        return pa.struct(renamed_fields(list(plain_data_type), targets, any_case=any_case))
    if kind not in {Kind.LIST, Kind.MAP}:
        return data_type
    item_targets = [
        ((), _item_type(target_type)) for steps, target_type in targets if not steps and kind_of(target_type) is kind
    ]
    if not item_targets:
        return data_type
    item_type = _renamed_type(_item_type(plain_data_type), item_targets, any_case=any_case)
    if kind is Kind.MAP:
        return pa.map_(plain_data_type.key_field, plain_data_type.item_field.with_type(item_type))
    make = pa.large_list if pa.types.is_large_list(plain_data_type) else pa.list_
    return make(plain_data_type.value_field.with_type(item_type))


def renamed_schema(schema: pa.Schema, targets: Sequence[ColumnTarget], *, any_case: bool) -> pa.Schema:
    """Return the schema of values with the names that columns read."""
    if not has_former(schema):
        return schema
    return pa.schema(renamed_fields(list(schema), targets, any_case=any_case), schema.metadata)


def renamed_values(value: pa.RecordBatch, targets: Sequence[ColumnTarget], *, any_case: bool) -> pa.RecordBatch:
    """Return values whose fields have the names that columns read."""
    schema = renamed_schema(value.schema, targets, any_case=any_case)
    if schema is value.schema:
        return value
    columns = [rename_struct_fields(array, field.type) for array, field in zip(value.columns, schema, strict=True)]
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, schema.metadata))


def rename_struct_fields(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return an array whose structs have the field names of a type, which must have the same structure."""
    if array.type == data_type:
        return array
    plain_array = plain(array)
    match kind_of(plain_array.type):
        case Kind.STRUCT:
            children = [
                rename_struct_fields(child, field.type)
                for child, field in zip(plain_array.flatten(), data_type, strict=True)
            ]
            fields = [field.with_type(child.type) for child, field in zip(children, data_type, strict=True)]
            return pa.StructArray.from_arrays(children, fields=fields, mask=plain_array.is_null())
        case Kind.LIST:
            lists = as_lists(plain_array)
            offsets, first, last = list_window(lists)
            items = rename_struct_fields(lists.values.slice(first, last - first), data_type.value_type)
            list_class = pa.LargeListArray if pa.types.is_large_list(lists.type) else pa.ListArray
            return list_class.from_arrays(offsets, items, mask=lists.is_null())
        case Kind.MAP:
            offsets, first, last = list_window(plain_array)
            items = rename_struct_fields(plain_array.items.slice(first, last - first), data_type.item_type)
            return pa.MapArray.from_arrays(
                offsets, plain_array.keys.slice(first, last - first), items, mask=plain_array.is_null()
            )
    return plain_array
