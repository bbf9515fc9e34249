"""Names that a pipeline file, or the schema that it names, declares: those that a letter may tell where payloads are secrets.

The path of a reason leads through the value as it came. Names of fields that nobody declared are part of it, and so are the
keys of maps: they come with the data, and may be as secret as what they name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyarrow import types

from frazil.records.formats.shapes import declared_fields
from frazil.records.model.spec import RecordSpec

HIDDEN: Final = "…"
"""Stands for what is not told: the key of a map, or the rest of a path."""

_KEY: Final = "key"
"""Where the paths of reasons about keys begin."""

_INDEX = re.compile(r"\[\d{1,7}\]")
"""No list is longer, and a longer number may be part of a name."""
_ENTRY = re.compile(r'\["(?:[^"\\]|\\.)*"\]|\[[^\]"{\[]*\]')
"""A map's key, as JSON: a text, or a number or the like."""


@dataclass
class DeclaredNames:
    """What is declared at one place of a value.

    Attributes:
        fields: Names of an object's fields, and what is declared below each.
        items: What is declared of a list's items; None if it is no list.
        entries: What is declared of a map's values; None if it is no map.
    """

    fields: dict[str, DeclaredNames] = field(default_factory=dict)
    items: DeclaredNames | None = None
    entries: DeclaredNames | None = None

    @classmethod
    def of(cls, specs: Iterable[RecordSpec]) -> DeclaredNames:
        """Return the names of all tables of a pipeline."""
        found = cls()
        for spec in specs:
            key = found.below([_KEY])
            for column in spec.column_specs:
                here = key if column.name in spec.of_key else found
                here.below(column.steps).take(column.type)
            for of, known, here in ((spec.format, spec.fields, found), (spec.key, spec.key_fields, key)):
                declared = None if of is None else declared_fields(of, known)
                here.take(pa.struct([] if declared is None else list(declared)))
        return found

    def shown(self, path: str) -> str:
        """Return a path as far as its names are declared: without the keys of maps, and without what follows another name."""
        return "".join(self._steps(path))

    def _steps(self, path: str) -> Iterator[str]:
        here, rest, joint = self, path, ""
        while rest:
            if here.entries is not None and (entry := _ENTRY.match(rest)):
                step, told, inner = entry[0], f"[{HIDDEN}]", here.entries
            elif here.items is not None and (index := _INDEX.match(rest)):
                step, told, inner = index[0], index[0], here.items
            else:
                name = here._name(rest)
                if name is None:
                    yield joint + HIDDEN
                    return
                step, told, inner = name, f"{joint}{name}", here.fields[name]
            yield told
            here, rest = inner, rest[len(step) :]
            joint = "." if rest.startswith(".") else ""
            rest = rest.removeprefix(".")

    def _name(self, rest: str) -> str | None:
        """The longest name that a path goes on with."""
        fits = (name for name in self.fields if rest.startswith(name) and rest[len(name) :][:1] in ("", ".", "["))
        return max(fits, key=len, default=None)

    def below(self, steps: Iterable[str]) -> DeclaredNames:
        """Return what is declared behind names, one below the other; nothing so far is added."""
        here = self
        for step in steps:
            here = here.fields.setdefault(step, DeclaredNames())
        return here

    def take(self, of: pa.DataType) -> None:
        """Add the names of a type."""
        if types.is_struct(of):
            for each in of:
                self.below([each.name]).take(each.type)
        elif types.is_list(of) or types.is_large_list(of):
            self.items = self.items or DeclaredNames()
            self.items.take(of.value_type)
        elif types.is_map(of):
            self.entries = self.entries or DeclaredNames()
            self.entries.take(of.item_type)


NOTHING_DECLARED: Final = DeclaredNames()
