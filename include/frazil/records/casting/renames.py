"""Renamed fields: the writer schema lists former names of a field, and its values go to the column of a former name.

So a column keeps its name when its field is renamed, and queries keep working.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from frazil.records.casting.nested import index_of_name
from frazil.records.casting.source import Kind, as_lists, child_fields, kind_of, plain, plain_type
from frazil.records.casting.unknown_struct_fields import ColumnTarget
from frazil.records.json.intermediate_types import list_window

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
    """Return fields under the names that columns read: a former name, if no column reads the present one.

    A former name that is the present name of another field belongs to the other field.
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
    if kind is Kind.LIST:
        inner_targets = [
            ((), target_type.value_type)
            for steps, target_type in targets
            if not steps and kind_of(target_type) is Kind.LIST
        ]
        element = _renamed_type(plain_data_type.value_type, inner_targets, any_case=any_case)
        make = pa.large_list if pa.types.is_large_list(plain_data_type) else pa.list_
        return make(plain_data_type.value_field.with_type(element)) if inner_targets else data_type
    if kind is Kind.MAP:
        inner_targets = [
            ((), target_type.item_type)
            for steps, target_type in targets
            if not steps and kind_of(target_type) is Kind.MAP
        ]
        item = _renamed_type(plain_data_type.item_type, inner_targets, any_case=any_case)
        return (
            pa.map_(plain_data_type.key_field, plain_data_type.item_field.with_type(item))
            if inner_targets
            else data_type
        )
    return data_type


def renamed_schema(schema: pa.Schema, targets: Sequence[ColumnTarget], *, any_case: bool) -> pa.Schema:
    """Return the schema of values with fields renamed to the names that columns read."""
    if not has_former(schema):
        return schema
    return pa.schema(renamed_fields(list(schema), targets, any_case=any_case), schema.metadata)


def renamed_values(value: pa.RecordBatch, targets: Sequence[ColumnTarget], *, any_case: bool) -> pa.RecordBatch:
    """Return values with fields renamed to the names that columns read."""
    schema = renamed_schema(value.schema, targets, any_case=any_case)
    if schema is value.schema:
        return value
    columns = [rename_struct_fields(array, field.type) for array, field in zip(value.columns, schema, strict=True)]
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, schema.metadata))


def rename_struct_fields(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return an array with the fields of its structs renamed to those of a type, which must have the same structure."""
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
