"""Columns and tables that records need and that do not exist yet. Schema changes are committed before the data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

ChangeKind = Literal["add", "widen", "optional", "doc", "identifier", "partition", "sort", "property"]


Docs = tuple[tuple[tuple[str, ...], str], ...]
"""Path -> comment, in order."""


@dataclass(frozen=True, slots=True, order=True)
class SchemaChange:
    """One change.

    Attributes:
        path: Names from the top level down, as Iceberg has them: `element` is what a list holds, `key` and `value` what a
            map does. The name of a partition field or property, the columns of an identifier; empty for `sort`.
        kind: `add` makes an optional column or field, at the end of its parent; `widen` gives one a type that holds all
            values of the old one; `optional` lets a required one be null; `doc` sets its comment. Records ask for the first
            three alone, a pipeline file declares the others: `identifier`, a `partition` field, the `sort` order, a `property`.
        type: The type after the change in Iceberg's spelling, such as `struct<a: long>`; the comment; a partition field as files
            have it, empty where it goes; the fields of the sort order. Empty for `optional` and `identifier`, and for a property,
            whose value stays in the file.
        former: Of what is only asked for: names that the field had before, so that it gets no column beside that of another
            record's field which still has one of them.
        position: Of what is only asked for: where the field stands among its neighbours in the records, which orders columns.
        docs: Of `add`: paths of the new column and its fields, each with the comment that the schema of the records has for it. What
            is on record has none: the table shows it.
    """

    path: tuple[str, ...]
    kind: ChangeKind
    type: str = ""
    former: tuple[str, ...] = ()
    position: int = 0
    docs: Docs = ()

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, ".".join(self.path), self.type)))


_LISTED: Final = 10
_SHORTENED: Final = 200


def listed(changes: Sequence[SchemaChange]) -> str:
    """Return changes in a line of bounded length: records decide how many there are, and how long their names."""
    named = ", ".join(shorten(str(change)) for change in changes[:_LISTED])
    return named if len(changes) <= _LISTED else f"{named}, and {len(changes) - _LISTED:,} more"


def shorten(text: str) -> str:
    """Return the beginning of a text in which names of records stand, such as the type of a struct."""
    return text if len(text) <= _SHORTENED else f"{text[:_SHORTENED]}…"


UntypedPaths = Mapping[str, frozenset[tuple[str, ...]]]
"""Table -> paths that no column takes and whose values tell no type, such as `[]`. Another record's may bring a column, which
these values then are of as well. `ANYWHERE` stands for more of them than are counted."""

ANYWHERE: tuple[str, ...] = ()

UNTOLD_NAMED = 100
"""Such paths of a table that are told one by one."""


def bounded(paths: Iterable[tuple[str, ...]]) -> frozenset[tuple[str, ...]]:
    """Paths that show no type, or `ANYWHERE` if there are very many: keys may be data."""
    distinct_paths = frozenset(paths)
    return (
        distinct_paths
        if len(distinct_paths) <= UNTOLD_NAMED and ANYWHERE not in distinct_paths
        else frozenset({ANYWHERE})
    )


REMEMBERED = 20_000
"""Demands for new columns of a table that are carried along, twice as many as it may have: keys may be data."""


def bound_demands(changes: Iterable[SchemaChange]) -> tuple[SchemaChange, ...]:
    """Demands in order, with a limited number of new columns, breadth first."""
    ordered = sorted(changes)
    if len(ordered) <= REMEMBERED:
        return tuple(ordered)
    adds = sorted(
        (change for change in ordered if change.kind == "add"),
        key=lambda change: (len(change.path), change.position, change),
    )
    return tuple(sorted([*adds[:REMEMBERED], *(change for change in ordered if change.kind != "add")]))


Demands = Mapping[str, tuple[SchemaChange, ...]]
"""Table -> what its records need that it does not have, one entry per path and kind, in order."""


NAMES_TOLD: Final = 1_000
"""Names of new tables that staging tells, the first in their order: records may bring millions."""

_FORM = re.compile(r"[\w-]+(\.[\w-]+)+")
_LONGEST: Final = 255

VALUE: Final = "{value}"
"""Stands in a name of tables for the value of the field that routes."""

PLAIN_VALUE: Final = re.compile(r"[\w-]+")
"""Such a value: without a dot it stays in its namespace, and no two of them make one name."""

_OWN: Final = ("__ledger", "__dead_letters")
"""What names of tables that Frazil keeps for itself end with, whichever pipeline they are of."""


def unfit_because(name: str) -> str | None:
    """Why no table can be created with a name that a record carries; None if one can.

    Such a name becomes part of paths and of statements: it has letters, digits, `_` and `-` only.
    """
    if not _FORM.fullmatch(name) or len(name) > _LONGEST:
        return "is not namespace.table, of letters, digits, '_' and '-'"
    if name.endswith(_OWN):
        return "is the name of a table that Frazil keeps for itself"
    return None


def first_names(*parts: tuple[str, ...]) -> tuple[str, ...]:
    """The first names in sorted order, each once. The result does not depend on which task saw which names."""
    return tuple(sorted({name for part in parts for name in part})[:NAMES_TOLD])
