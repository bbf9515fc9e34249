"""Groups JSON values with undeclared fields, so that each group is decoded at once: its values agree about each field's type.

Values of a group need not have the same fields: those that have different subsets of a few fields form one group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

Path = tuple[str, ...]
"""Names of a field and of the objects around it, outermost first."""

_MAX_COMPARED_GROUPS: Final = 64
"""A value is compared with so many groups at most: the newest of those with the same exact fields."""

_MAX_CACHED: Final = 10_000
"""The most paths or types in a cache: if keys are data, each record may bring new ones."""

_PATH_SEPARATOR: Final = "\0"
"""Separates the names of a path where no flattening joins them with a delimiter."""

_NULL: Final = pa.null()


class FieldTraits(NamedTuple):
    """How the field at a path is treated.

    Attributes:
        name: Its casefolded name: the path, joined.
        is_opened: Whether an object there is flattened: its fields become fields of the record.
        takes_column: Whether the field may have its column's type, because no transform reads it.
        takes_whole: Whether no transform reads the fields inside before its column takes it.
    """

    name: str
    is_opened: bool
    takes_column: bool
    takes_whole: bool


@dataclass(frozen=True)
class Agreement:
    """The fields in which values of a group may differ, without an effect on their rows.

    Attributes:
        exact: Casefolded names of fields for which transforms or columns treat null and absent differently; None: all fields.
        closed: Casefolded names of columns whose type differs among the tables.
        delimiter: Joins the names of flattened objects; None: objects are not flattened.
        depth: The number of object levels that are flattened; None: all.
    """

    exact: frozenset[str] | None = None
    closed: frozenset[str] = frozenset()
    delimiter: str | None = None
    depth: int | None = None
    _traits_by_path: dict[Path, FieldTraits] = field(default_factory=dict, compare=False)

    def traits(self, path: Path) -> FieldTraits:
        """Return how the field at a path is treated."""
        if (traits := self._traits_by_path.get(path)) is None:
            if len(self._traits_by_path) >= _MAX_CACHED:
                self._traits_by_path.clear()
            traits = self._traits_by_path[path] = self._compute_traits(path)
        return traits

    def spelled_name(self, path: Path) -> str:
        """Return the name that a path has after flattening, not casefolded."""
        return (_PATH_SEPARATOR if self.delimiter is None else self.delimiter).join(path)

    def _compute_traits(self, path: Path) -> FieldTraits:
        name = self.spelled_name(path).casefold()
        is_free = self.exact is not None and name not in self.exact
        joins = self.delimiter is not None
        is_opened = is_free and joins and (self.depth is None or len(path) <= self.depth)
        return FieldTraits(name, is_opened, is_free and name not in self.closed, is_free and not joins)


EXACT: Final = Agreement()
"""Values of a group have the very same fields, because transforms may read any of them."""


Fields = dict[str, tuple[Path, pa.DataType]]
"""Paths and types of fields by casefolded name."""


@dataclass
class Leaves:
    """The types of a value's fields by path, and the paths of its opened objects, whose fields are listed one by one."""

    types: dict[Path, pa.DataType] = field(default_factory=dict)
    opened: set[Path] = field(default_factory=set)


@dataclass
class Group:
    """The positions of values that are decoded together, and their fields."""

    fields: Fields
    opened: set[Path]
    positions: list[int]

    @property
    def type(self) -> pa.StructType:
        """The type of the values."""
        tree: dict[str, object] = {}
        for path in sorted(self.opened):
            _insert(tree, path, {})
        for path, field_type in self.fields.values():
            _insert(tree, path, field_type)
        return _struct_from_tree(tree)


class ShapeGroups:
    """Collects values into groups that agree about the type of each field.

    `common_type` returns the type that holds two values of one field, or None. `most_fields` limits the fields of a group whose
    values have different fields.
    """

    def __init__(
        self,
        agreement: Agreement,
        common_type: Callable[[pa.DataType, pa.DataType], pa.DataType | None],
        most_fields: int,
    ) -> None:
        self._agreement: Final = agreement
        self._common_type: Final = common_type
        self._most_fields: Final = most_fields
        self._by_exact: Final[dict[object, list[Group]]] = {}
        self.groups: Final[list[Group]] = []

    def add(self, leaves: Leaves, position: int) -> bool:
        """Add a value to a group that it agrees with, or else to a new group; return whether it started a new group.

        Fields that transforms read must be the very same in a group. Otherwise a value would get nulls for the fields of other
        values, and some transforms (`Explode`, `ReplaceField`) treat null and absent differently.
        """
        traits = self._agreement.traits
        fields = {traits(path).name: (path, field_type) for path, field_type in leaves.types.items()}
        exact = self._agreement.exact
        has_spellings = len(fields) < len(leaves.types)
        if (
            has_spellings
        ):  # the names of some fields differ in case only: such a value shares a group with its like alone
            fields = {self._agreement.spelled_name(path): (path, kind) for path, kind in leaves.types.items()}
        if exact is None or has_spellings:
            key: object = frozenset(fields.values()), frozenset(leaves.opened)
            groups = self._by_exact.setdefault(key, [])
            if groups:
                groups[0].positions.append(position)
                return False
        else:
            key = frozenset((name, *fields[name]) for name in exact if name in fields)
            groups = self._by_exact.setdefault(key, [])
            for group in reversed(groups[-_MAX_COMPARED_GROUPS:]):
                if self._join_if_agreed(group, fields, leaves.opened):
                    group.positions.append(position)
                    return False
        groups.append(Group(fields, leaves.opened, [position]))
        self.groups.append(groups[-1])
        return True

    def drop_last(self) -> None:
        """Remove the group that the last `add` started, with its value."""
        last = self.groups.pop()
        for key, groups in self._by_exact.items():
            if groups and groups[-1] is last:
                groups.pop()
                if not groups:
                    del self._by_exact[key]
                return

    def _join_if_agreed(self, group: Group, fields: Fields, opened: set[Path]) -> bool:
        """Add a value's fields to those of a group if they agree; return whether they do."""
        traits = self._agreement.traits
        # An object in another spelling would be read by the group's spelling, and found empty.
        if (other_objects := opened - group.opened) and {traits(path).name for path in other_objects} & {
            traits(path).name for path in group.opened
        }:
            return False
        wider: Fields = {}
        for name, (path, field_type) in fields.items():
            shared_type = self._shared_type(group, name, path, field_type)
            if shared_type is None:
                return False
            if path not in group.opened:  # else it is null for an opened object, whose fields are absent then
                wider[name] = path, shared_type
        group_fields = group.fields
        replaced_nulls = group_fields.keys() & {traits(path).name for path in other_objects}
        width = len(group_fields) + sum(1 for name in wider if name not in group_fields)
        is_too_wide = width > max(self._most_fields, len(fields), len(group_fields))
        if is_too_wide or any(group_fields[name][1] != _NULL for name in replaced_nulls):
            return False
        for name in replaced_nulls:
            del group_fields[name]
        group_fields.update(wider)
        group.opened |= opened
        return True

    def _shared_type(self, group: Group, name: str, path: Path, field_type: pa.DataType) -> pa.DataType | None:
        """Return the type that holds a field of a group and of a value; None if they don't agree."""
        group_field = group.fields.get(name)
        if group_field is None:
            return field_type if field_type == _NULL or path not in group.opened else None
        if group_field[0] != path:
            return None
        return field_type if group_field[1] == field_type else self._common_type(group_field[1], field_type)


class NestedTypes:
    """Caches struct and list types: a list may contain millions of objects, and Arrow is slow to build and compare types."""

    def __init__(self) -> None:
        # Keys hold the ids of types. The cache keeps these types alive, so that no id is used again.
        self._cache: Final[dict[tuple[str | int, ...], tuple[pa.DataType, list[tuple[str, pa.DataType]]]]] = {}

    def object_of(self, fields: list[tuple[str, pa.DataType]]) -> pa.StructType:
        """Return the type of objects with these fields."""
        key = tuple(part for name, field_type in fields for part in (name, id(field_type)))
        cached = self._cache.get(key)
        return self._remember(key, sorted_struct(fields), fields) if cached is None else cached[0]

    def list_of(self, element: pa.DataType) -> pa.ListType:
        """Return the type of lists with these elements."""
        key = (id(element),)
        cached = self._cache.get(key)
        return self._remember(key, pa.list_(element), [("", element)]) if cached is None else cached[0]

    def _remember(
        self, key: tuple[str | int, ...], nested_type: pa.DataType, parts: list[tuple[str, pa.DataType]]
    ) -> pa.DataType:
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[key] = nested_type, parts
        return nested_type


def sorted_struct(fields: Iterable[tuple[str, pa.DataType]]) -> pa.StructType:
    """Return the type of objects with these fields."""
    return pa.struct(
        [pa.field(name, field_type) for name, field_type in sorted(fields, key=lambda named_type: named_type[0])]
    )


def _insert(tree: dict[str, object], path: Path, child: object) -> None:
    *outer_names, name = path
    for outer_name in outer_names:
        tree = tree[outer_name]  # type: ignore[assignment]
    tree[name] = child


def _struct_from_tree(tree: dict[str, object]) -> pa.StructType:
    return sorted_struct(
        (name, _struct_from_tree(child) if isinstance(child, dict) else child) for name, child in tree.items()
    )
