"""The field names that a pipeline file or its schema declares: only these may a dead letter show if payloads are secret.

The path in a reason may contain names of fields that nobody declared, and keys of maps. Both come with the data, and may be
as secret as the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyarrow import types

from frazil.records.model.spec import RecordSpec

HIDDEN: Final = "…"
"""Stands for what is hidden: the key of a map, or the rest of a path."""

_KEY: Final = "key"
_HEADER: Final = "header"
"""Where the paths of reasons about keys and headers begin."""

_INDEX = re.compile(r"\[\d{1,7}\]")
"""No list is longer, and a longer number may be part of a name."""
_ENTRY = re.compile(r'\["(?:[^"\\]|\\.)*"\]|\[[^\]"{\[]*\]')
"""A map's key, as JSON: a text, or a number or the like."""


@dataclass
class DeclaredNames:
    """The names that are declared for one node of a value: an object, a list or a map.

    Attributes:
        fields: Names of an object's fields -> the names declared below each.
        items: The names declared for a list's items; None if it is no list.
        entries: The names declared for a map's values; None if it is no map.
    """

    fields: dict[str, DeclaredNames] = field(default_factory=dict)
    items: DeclaredNames | None = None
    entries: DeclaredNames | None = None

    @classmethod
    def from_specs(cls, specs: Iterable[RecordSpec]) -> DeclaredNames:
        """Return the names of all tables of a pipeline."""
        value_names = cls()
        for spec in specs:
            key_names = value_names.child([_KEY])
            header_names = value_names.child([_HEADER])
            for column in spec.column_specs:
                is_header, is_key = column.name in spec.of_header, column.name in spec.of_key
                names = header_names if is_header else key_names if is_key else value_names
                names.child(column.steps).add_type(column.type)
            for format_spec, json_fields, names in (
                (spec.format, spec.fields, value_names),
                (spec.key, spec.key_fields, key_names),
            ):
                declared = None if format_spec is None else format_spec.declared_fields(json_fields)
                names.add_type(pa.struct([] if declared is None else list(declared)))
        return value_names

    def visible_path(self, path: str) -> str:
        """Return a path with the keys of maps hidden, and with all hidden from the first name that is not declared."""
        return "".join(self._steps(path))

    def _steps(self, path: str) -> Iterator[str]:
        names, rest, joint = self, path, ""
        while rest:
            if names.entries is not None and (entry := _ENTRY.match(rest)):
                step, shown, inner = entry[0], f"[{HIDDEN}]", names.entries
            elif names.items is not None and (index := _INDEX.match(rest)):
                step, shown, inner = index[0], index[0], names.items
            else:
                name = names._longest_name(rest)
                if name is None:
                    yield joint + HIDDEN
                    return
                step, shown, inner = name, f"{joint}{name}", names.fields[name]
            yield shown
            names, rest = inner, rest[len(step) :]
            joint = "." if rest.startswith(".") else ""
            rest = rest.removeprefix(".")

    def _longest_name(self, rest: str) -> str | None:
        """Return the longest declared name that the rest of a path begins with."""
        fits = (name for name in self.fields if rest.startswith(name) and rest[len(name) :][:1] in ("", ".", "["))
        return max(fits, key=len, default=None)

    def child(self, steps: Iterable[str]) -> DeclaredNames:
        """Return the node below a chain of names; missing ones are added, with nothing declared."""
        names = self
        for step in steps:
            names = names.fields.setdefault(step, DeclaredNames())
        return names

    def add_type(self, data_type: pa.DataType) -> None:
        """Add the names of a type."""
        if types.is_struct(data_type):
            for each in data_type:
                self.child([each.name]).add_type(each.type)
        elif types.is_list(data_type) or types.is_large_list(data_type):
            self.items = self.items or DeclaredNames()
            self.items.add_type(data_type.value_type)
        elif types.is_map(data_type):
            self.entries = self.entries or DeclaredNames()
            self.entries.add_type(data_type.item_type)


NOTHING_DECLARED: Final = DeclaredNames()
