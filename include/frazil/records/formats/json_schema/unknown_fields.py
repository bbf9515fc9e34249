"""Fields of JSON values that their schema does not name, so there is no column for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from frazil.records.model.json_text import JsonValue

UnknownFieldFinder = Callable[[JsonValue], Iterator[str]]
"""Yields the names of a value's unknown fields, nested ones as a path."""


def unknown_field_finder(data_type: pa.DataType) -> UnknownFieldFinder | None:
    """Return the finder of fields that a type does not name; None for a type without structs."""
    if pa.types.is_struct(data_type):
        inner = {field.name: unknown_field_finder(field.type) for field in data_type}
        return partial(_of_struct, inner)
    if pa.types.is_list(data_type):
        item = unknown_field_finder(data_type.value_type)
        return item and partial(_of_items, item)
    if pa.types.is_map(data_type):
        item = unknown_field_finder(data_type.item_type)
        return item and partial(_of_map, item)
    return None


def _of_struct(finders: dict[str, UnknownFieldFinder | None], value: JsonValue) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for name, field_value in value.items():
        if name not in finders:
            yield name
        elif (find_in_field := finders[name]) is not None and field_value is not None:
            for path in find_in_field(field_value):
                yield f"{name}.{path}"


def _of_items(find_in_item: UnknownFieldFinder, value: JsonValue) -> Iterator[str]:
    for item in value if isinstance(value, list) else ():
        yield from find_in_item(item)


def _of_map(find_in_item: UnknownFieldFinder, value: JsonValue) -> Iterator[str]:
    """Search the values of a map: an object, or a list of entries as `[key, value]` or `{"key": …, "value": …}`."""
    if isinstance(value, dict):
        for item in value.values():
            yield from find_in_item(item)
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict):
            yield from find_in_item(entry.get("value"))
        elif isinstance(entry, list):
            yield from find_in_item(entry[-1])
