"""Changes of a table's schema that records ask for: decided before the data, on record, carried out once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

ChangeKind = Literal["add", "widen", "optional"]


@dataclass(frozen=True, slots=True, order=True)
class SchemaChange:
    """One change.

    Attributes:
        path: Names from the top level down, as Iceberg has them: `element` is what a list holds, `key` and `value` what a
            map does.
        kind: `add` makes an optional column or field, at the end of its parent; `widen` gives one a type that holds all
            values of the old one; `optional` lets a required one be null.
        type: The type after the change in Iceberg's spelling, such as `struct<a: long>`; empty for `optional`.
        former: Of what is only asked for: names that the field had before, so that it gets no column beside that of another
            record's field which still has one of them.
    """

    path: tuple[str, ...]
    kind: ChangeKind
    type: str = ""
    former: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, ".".join(self.path), self.type)))


Untold = Mapping[str, frozenset[tuple[str, ...]]]
"""Table -> paths that no column takes and whose values tell no type, such as `[]`. Another record's may bring a column, which
these values then are of as well. `ANYWHERE` stands for more of them than are counted."""

ANYWHERE: tuple[str, ...] = ()

UNTOLD_NAMED = 100
"""Such paths of a table that are told one by one."""


def bounded(paths: Iterable[tuple[str, ...]]) -> frozenset[tuple[str, ...]]:
    """Paths that tell no type, or `ANYWHERE` if there are very many: keys may be data."""
    found = frozenset(paths)
    return found if len(found) <= UNTOLD_NAMED and ANYWHERE not in found else frozenset({ANYWHERE})


Demands = Mapping[str, tuple[SchemaChange, ...]]
"""Table -> what its records need that it does not have, one entry per path and kind, in order."""
