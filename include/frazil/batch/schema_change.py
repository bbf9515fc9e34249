"""Changes of schemas and new tables that records need. They are committed before the data."""

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
    """One change of a table. A change that records need is a demand until it is committed.

    Attributes:
        path: Names from the top level down, as Iceberg has them: `element` is an item of a list, `key` and `value` are those of
            a map. For a partition field or property its name, for an identifier its columns; empty for `sort`.
        kind: `add` makes an optional column or field, at the end of its parent; `widen` gives it a type that holds all values of
            the old type; `optional` lets a required one be null; `doc` sets its comment. Records need only the first three. A
            pipeline file declares the others: `identifier`, a `partition` field, the `sort` order, a `property`.
        type: The type after the change in Iceberg's spelling, such as `struct<a: long>`. For `doc` the comment; for `partition`
            the field as pipeline files write it, empty to drop it; for `sort` the fields. Empty for other kinds.
        former: Earlier names of the field, only of a demand: records that still use one of them must get no second column.
        position: Place of the field among its neighbours in the records, only of a demand: it orders new columns.
        docs: Of a demand to `add`: paths of the new column and its fields, each with its comment in the records' schema.
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
    """Return changes as a line of bounded length, because records choose their number and names."""
    first = ", ".join(shorten(str(change)) for change in changes[:_LISTED])
    return first if len(changes) <= _LISTED else f"{first}, and {len(changes) - _LISTED:,} more"


def shorten(text: str) -> str:
    """Return the beginning of a text with names that records choose, such as the type of a struct."""
    return text if len(text) <= _SHORTENED else f"{text[:_SHORTENED]}…"


UntypedPaths = Mapping[str, frozenset[tuple[str, ...]]]
"""Table -> paths without a column whose values show no type, such as `[]`. If another record brings the column, these values
belong into it, too."""

ANYWHERE: tuple[str, ...] = ()
"""Stands in `UntypedPaths` for more paths than are listed."""

MOST_UNTYPED_PATHS = 100
"""Paths in `UntypedPaths` that a table may list."""


def bound_paths(paths: Iterable[tuple[str, ...]]) -> frozenset[tuple[str, ...]]:
    """Untyped paths, or `ANYWHERE` if there are too many: the keys of some records are data."""
    distinct_paths = frozenset(paths)
    is_short = len(distinct_paths) <= MOST_UNTYPED_PATHS and ANYWHERE not in distinct_paths
    return distinct_paths if is_short else frozenset({ANYWHERE})


MOST_DEMANDS = 20_000
"""Demands for new columns that are kept for a table, twice as many as it may have columns: the keys of some records are data."""


def bound_demands(changes: Iterable[SchemaChange]) -> tuple[SchemaChange, ...]:
    """Demands in order, with a limited number of new columns, outer ones first."""
    ordered = sorted(changes)
    if len(ordered) <= MOST_DEMANDS:
        return tuple(ordered)
    adds = sorted(
        (change for change in ordered if change.kind == "add"),
        key=lambda change: (len(change.path), change.position, change),
    )
    return tuple(sorted([*adds[:MOST_DEMANDS], *(change for change in ordered if change.kind != "add")]))


Demands = Mapping[str, tuple[SchemaChange, ...]]
"""Table -> changes that its records need, one per path and kind, in order."""


MOST_NEW_TABLES: Final = 1_000
"""Names of new tables that staging reports, the first in sorted order: records may bring millions."""

_TABLE_NAME = re.compile(r"[\w-]+(\.[\w-]+)+")
_LONGEST_NAME: Final = 255

VALUE: Final = "{value}"
"""Placeholder in a table's name for the value of the routing field."""

PLAIN_VALUE: Final = re.compile(r"[\w-]+")
"""Values that may replace `VALUE`: without a dot, a value can't lead to another namespace or to another value's table."""

_RESERVED_ENDINGS: Final = ("__ledger", "__dead_letters")
"""Endings of names of tables that Frazil keeps for its pipelines."""


def table_name_problem(name: str) -> str | None:
    """Why no table may be created with a name out of a record; None if one may.

    The name becomes part of paths and of statements, so it has letters, digits, `_` and `-` only.
    """
    if not _TABLE_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        return "is not namespace.table, of letters, digits, '_' and '-'"
    if name.endswith(_RESERVED_ENDINGS):
        return "is the name of a table that Frazil keeps for itself"
    return None


def first_names(*parts: tuple[str, ...]) -> tuple[str, ...]:
    """The first names in sorted order, each once, so that the result does not depend on which task read which names."""
    return tuple(sorted({name for part in parts for name in part})[:MOST_NEW_TABLES])
