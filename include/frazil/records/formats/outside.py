"""Fields of JSON values that their schema does not name: the columns made of the schema have no place for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from frazil.records.json.text import JsonValue

Outside = Callable[[JsonValue], Iterator[str]]
"""Yields the names of such fields, those inside of structs by their path."""


def outside(data_type: pa.DataType) -> Outside | None:
    """Return what finds them in a value that became a type by the names of its fields; None if it has no struct."""
    if pa.types.is_struct(data_type):
        inner = {field.name: outside(field.type) for field in data_type}
        return partial(_of_struct, inner)
    if pa.types.is_list(data_type):
        item = outside(data_type.value_type)
        return item and partial(_of_items, item)
    if pa.types.is_map(data_type):
        item = outside(data_type.item_type)
        return item and partial(_of_map, item)
    return None


def _of_struct(inner: dict[str, Outside | None], value: JsonValue) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for name, held in value.items():
        if name not in inner:
            yield name
        elif (below := inner[name]) is not None and held is not None:
            for path in below(held):
                yield f"{name}.{path}"


def _of_items(item: Outside, value: JsonValue) -> Iterator[str]:
    for held in value if isinstance(value, list) else ():
        yield from item(held)


def _of_map(item: Outside, value: JsonValue) -> Iterator[str]:
    """Of an object, or of a list of entries: each is a list of key and value, or an object with fields of these names."""
    if isinstance(value, dict):
        for held in value.values():
            yield from item(held)
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict):
            yield from item(entry.get("value"))
        elif isinstance(entry, list):
            yield from item(entry[-1])
