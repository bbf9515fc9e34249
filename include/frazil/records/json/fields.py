"""Which fields of a value the block parser reads, and which keys a value has beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json.carriers import all_of

Leaf = tuple[tuple[str, ...], pa.DataType]
"""Field names from the root to a field, and what it is read as."""

_Tree = dict[str, "pa.DataType | _Tree"]


def fields_read(leaves: Iterable[Leaf]) -> list[pa.Field] | None:
    """Return the fields at the root that hold all leaves; None if a leaf is, or is inside, another one."""
    root: _Tree = {}
    for steps, data_type in leaves:
        inner = root
        for step in steps[:-1]:
            below = inner.setdefault(step, {})
            if not isinstance(below, dict):
                return None
            inner = below
        if not steps or steps[-1] in inner:
            return None
        inner[steps[-1]] = data_type
    return _fields(root)


def _fields(tree: Mapping[str, pa.DataType | _Tree]) -> list[pa.Field]:
    return [pa.field(name, pa.struct(_fields(of)) if isinstance(of, dict) else of) for name, of in tree.items()]


def field_at(rows: pa.RecordBatch, steps: tuple[str, ...]) -> pa.Array:
    """Return the values of a leaf; null where something on the way is."""
    array = rows.column(steps[0])
    for step in steps[1:]:
        array = array.flatten()[array.type.get_field_index(step)]
    return array


NOT_COUNTED: Final = r'\\|"[ \t\r\n]+:'
"""Values in which keys can't be counted: with a backslash, or a blank behind a key."""

_NAME_UNSEEN: Final = re.compile(r'[,:"\\]')


class KeyCount:
    """Proves that a value has no other keys than those that were read, and none of them twice.

    Of values that don't match `NOT_COUNTED`. Without a backslash each quote begins or ends a text, and each key ends in
    `":`; so there are at most as many keys as `":` in a value (a text that begins with a colon makes it more). If there
    are as many as fields that were found, not null, these are all. The block parser refuses a repeated field, so they
    are as many keys. Where all fields are scalars or lists of them, keys with null are counted by their names: between
    two texts there always is a comma or a colon, and no name has one, so that each match is a key.

    Args:
        fields: The fields that are read.
    """

    def __init__(self, fields: list[pa.Field]) -> None:
        names = "|".join(re.escape(field.name) for field in fields)
        flat = not any(pa.types.is_struct(field.type) for field in fields)
        self._nulls: Final = f'"(?:{names})":[ \\t\\r\\n]*null' if flat else None

    def only(self, texts: pa.StringArray, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return which texts have no key but those read into `rows`, which may have columns too many at the end."""
        keys = pc.count_substring(texts, '":')
        found = _found(rows.columns)
        counted = pc.equal(keys, found)
        if self._nulls is None or all_of(counted):
            return counted
        nulls = pc.count_substring_regex(texts, self._nulls)
        return pc.equal(keys, pc.add(found, nulls))


def key_count(fields: list[pa.Field]) -> KeyCount | None:
    """Return the proof for these fields, or None if there is none."""
    names = list(_names(fields))
    if any(_NAME_UNSEEN.search(name) for name in names) or any(_holds_structs(field.type) for field in fields):
        return None
    return KeyCount(fields)


def _found(arrays: list[pa.Array]) -> pa.Int32Array:
    """Return per row how many keys with a value were read."""
    total = None
    for array in arrays:
        here = array.is_valid().cast(pa.int32())
        if pa.types.is_struct(array.type):
            here = pc.add(here, _found(array.flatten()))
        total = here if total is None else pc.add(total, here)
    return total


def _names(fields: Iterable[pa.Field]) -> Iterable[str]:
    for field in fields:
        yield field.name
        if pa.types.is_struct(field.type):
            yield from _names(field.type)


def _holds_structs(data_type: pa.DataType, *, listed: bool = False) -> bool:
    """Return whether a type has structs inside of lists: their keys are not counted per row."""
    if pa.types.is_list(data_type):
        return _holds_structs(data_type.value_type, listed=True)
    if not pa.types.is_struct(data_type):
        return False
    return listed or any(_holds_structs(field.type) for field in data_type)
