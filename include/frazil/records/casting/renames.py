"""Fields that were renamed: the writer schema says which names a field had before, and its values go where they went then.

A column keeps its name, whatever its field is called now: who queries it must not notice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from frazil.records.casting.nested import matching
from frazil.records.casting.source import Kind, as_lists, kind_of, plain, plain_type, window
from frazil.records.casting.unknown_struct_fields import Taker

FORMER: Final = b"frazil.former"
"""Metadata of a field: the names that it had before, as a JSON list, the last one first."""


def with_former(field: pa.Field, names: Iterable[str]) -> pa.Field:
    """Return a field that says which names it had before."""
    found = [name for name in dict.fromkeys(names) if name != field.name]
    return field.with_metadata({**(field.metadata or {}), FORMER: json.dumps(found).encode()}) if found else field


def former_names(field: pa.Field) -> tuple[str, ...]:
    """Return the names that a field had before."""
    found = (field.metadata or {}).get(FORMER)
    return () if found is None else tuple(json.loads(found))


def has_former(fields: Iterable[pa.Field]) -> bool:
    """Return whether any of these fields, or of those inside of them, had another name before."""
    return any(FORMER in (field.metadata or {}) or has_former(_parts(field.type)) for field in fields)


def _parts(of: pa.DataType) -> list[pa.Field]:
    found = plain_type(of)
    match kind_of(found):
        case Kind.STRUCT:
            return list(found)
        case Kind.LIST:
            return [found.value_field]
        case Kind.MAP:
            return [found.item_field]
    return []


def renamed_fields(fields: Sequence[pa.Field], takers: Sequence[Taker], *, any_case: bool) -> list[pa.Field]:
    """Return fields under the names by which columns take them: a former one, where no column takes the name of now.

    A former name that another field has now is that one's.

    Args:
        fields: Fields beside each other.
        takers: The columns.
        any_case: Whether names that differ in case only are the same.
    """
    wanted: dict[str, list[Taker]] = {}
    for steps, to in takers:
        if steps:
            wanted.setdefault(steps[0], []).append((steps[1:], to))
        elif kind_of(to) is Kind.STRUCT:
            for inner in to:
                wanted.setdefault(inner.name, []).append(((), inner.type))
    names = [field.name for field in fields]
    places = {name: matching(name, names, case_insensitive=any_case) for name in wanted}
    homes = {at: name for name, at in places.items() if at is not None}
    free = [name for name, at in places.items() if at is None]
    made = []
    for at, field in enumerate(fields):
        home = homes.get(at)
        if home is None and (home := _former_home(field, free, any_case=any_case)) is not None:
            free.remove(home)
            field = field.with_name(home)  # noqa: PLW2901 - the same field
        of = field.type if home is None else _settled_type(field.type, wanted[home], any_case=any_case)
        made.append(field.with_type(of))
    return made


def _former_home(field: pa.Field, free: list[str], *, any_case: bool) -> str | None:
    found = (matching(name, free, case_insensitive=any_case) for name in former_names(field))
    return next((free[at] for at in found if at is not None), None)


def _settled_type(of: pa.DataType, takers: Sequence[Taker], *, any_case: bool) -> pa.DataType:
    found, kind = plain_type(of), kind_of(plain_type(of))
    if kind is Kind.STRUCT:
        return pa.struct(renamed_fields(list(found), takers, any_case=any_case))
    if kind is Kind.LIST:
        inner = [((), to.value_type) for steps, to in takers if not steps and kind_of(to) is Kind.LIST]
        element = _settled_type(found.value_type, inner, any_case=any_case)
        make = pa.large_list if pa.types.is_large_list(found) else pa.list_
        return make(found.value_field.with_type(element)) if inner else of
    if kind is Kind.MAP:
        inner = [((), to.item_type) for steps, to in takers if not steps and kind_of(to) is Kind.MAP]
        item = _settled_type(found.item_type, inner, any_case=any_case)
        return pa.map_(found.key_field, found.item_field.with_type(item)) if inner else of
    return of


class Settler:
    """Gives values the names by which columns take their fields.

    Args:
        takers: The columns.
        any_case: Whether names that differ in case only are the same.
    """

    def __init__(self, takers: Sequence[Taker], *, any_case: bool) -> None:
        self._takers: Final = takers
        self._any_case: Final = any_case

    def fields(self, schema: pa.Schema) -> pa.Schema:
        """Return the fields of values, settled."""
        if not has_former(schema):
            return schema
        return pa.schema(renamed_fields(list(schema), self._takers, any_case=self._any_case), schema.metadata)

    def values(self, value: pa.RecordBatch) -> pa.RecordBatch:
        """Return values with their fields settled."""
        to = self.fields(value.schema)
        if to is value.schema:
            return value
        columns = [renamed(array, field.type) for array, field in zip(value.columns, to, strict=True)]
        fields = [field.with_type(column.type) for field, column in zip(to, columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, to.metadata))


def renamed(array: pa.Array, of: pa.DataType) -> pa.Array:
    """Return an array with other names for the fields of its structs: those of a type of the same build."""
    if array.type == of:
        return array
    found = plain(array)
    match kind_of(found.type):
        case Kind.STRUCT:
            parts = [renamed(part, field.type) for part, field in zip(found.flatten(), of, strict=True)]
            fields = [field.with_type(part.type) for part, field in zip(parts, of, strict=True)]
            return pa.StructArray.from_arrays(parts, fields=fields, mask=found.is_null())
        case Kind.LIST:
            lists = as_lists(found)
            offsets, first, last = window(lists)
            items = renamed(lists.values.slice(first, last - first), of.value_type)
            made = pa.LargeListArray if pa.types.is_large_list(lists.type) else pa.ListArray
            return made.from_arrays(offsets, items, mask=lists.is_null())
        case Kind.MAP:
            offsets, first, last = window(found)
            items = renamed(found.items.slice(first, last - first), of.item_type)
            return pa.MapArray.from_arrays(offsets, found.keys.slice(first, last - first), items, mask=found.is_null())
    return found
