"""Which JSON values, whose fields nobody declared, are decoded together: those that agree about the type of each field.

Each field is looked up once, by its path: values with ever other ones of a few fields are one group, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

Path = tuple[str, ...]
"""Names of a field and of the objects around it, outermost first."""

_LAST: Final = 64
"""Groups, the last ones of those with the same exact fields, among which that of a value is sought."""

_PLACES: Final = 10_000
"""Paths of which the place is remembered: keys that are data have ever new ones."""

_BETWEEN: Final = "\0"
"""Between the names of a path that nothing joins."""

_NULL: Final = pa.null()


class Place(NamedTuple):
    """What is known of a field by its path.

    Attributes:
        name: Its folded name, whose parts are joined.
        is_opened: Whether fields of an object there become fields of their own.
        takes_column: Whether only its column matters to it.
        takes_whole: Whether nothing looks into it before its column takes it.
    """

    name: str
    is_opened: bool
    takes_column: bool
    takes_whole: bool


@dataclass(frozen=True)
class Agreement:
    """What values that are decoded together may differ in without anybody seeing it.

    Attributes:
        exact: Folded names of fields that are not the same to what comes behind if they are null or not there; None: all.
        closed: Folded names of columns of which tables differ.
        delimiter: What joins the names of paths where objects become fields of their own; None: they stay objects.
        depth: So many levels of objects do; None: all.
    """

    exact: frozenset[str] | None = None
    closed: frozenset[str] = frozenset()
    delimiter: str | None = None
    depth: int | None = None
    _places: dict[Path, Place] = field(default_factory=dict, compare=False)

    def place(self, path: Path) -> Place:
        """Return what is known of a field by its path."""
        if (found := self._places.get(path)) is None:
            if len(self._places) >= _PLACES:
                self._places.clear()
            found = self._places[path] = self._place(path)
        return found

    def _place(self, path: Path) -> Place:
        name = (_BETWEEN if self.delimiter is None else self.delimiter).join(path).casefold()
        is_free = self.exact is not None and name not in self.exact
        joins = self.delimiter is not None
        is_opened = is_free and joins and (self.depth is None or len(path) <= self.depth)
        return Place(name, is_opened, is_free and name not in self.closed, is_free and not joins)


EXACT: Final = Agreement()
"""All fields are looked at: values have the very same ones."""


Fields = dict[str, tuple[Path, pa.DataType]]
"""Paths and types of fields by folded name."""


@dataclass
class Leaves:
    """The fields of a value: types by path, those in open objects one by one, and the paths of these objects."""

    types: dict[Path, pa.DataType] = field(default_factory=dict)
    opened: set[Path] = field(default_factory=set)


@dataclass
class Group:
    """Values that are decoded together.

    Attributes:
        fields: What they have.
        opened: Paths of the objects around these fields.
        positions: Of the values.
    """

    fields: Fields
    opened: set[Path]
    positions: list[int]

    @property
    def type(self) -> pa.StructType:
        """The type of the values."""
        top: dict[str, object] = {}
        for path in sorted(self.opened):
            _put(top, path, {})
        for path, of in self.fields.values():
            _put(top, path, of)
        return _built(top)


class ShapeGroups:
    """Puts values together that agree.

    Args:
        agreement: What they may differ in.
        both: The type of two values of one field, None if they don't agree.
        most_fields: Of values of several shapes.
    """

    def __init__(
        self,
        agreement: Agreement,
        both: Callable[[pa.DataType, pa.DataType], pa.DataType | None],
        most_fields: int,
    ) -> None:
        self._agreement: Final = agreement
        self._both: Final = both
        self._most_fields: Final = most_fields
        self._by_exact: Final[dict[object, list[Group]]] = {}
        self.all: Final[list[Group]] = []

    def put(self, leaves: Leaves, position: int) -> bool:
        """Put a value to those that it agrees with, or return whether it is the first of its group.

        Fields that transforms look at must be the very same ones: a value would get nulls from its neighbours, which `Explode`
        or a renamed field tells apart from nothing.
        """
        place = self._agreement.place
        fields = {place(path).name: (path, of) for path, of in leaves.types.items()}
        exact = self._agreement.exact
        if exact is None or len(fields) < len(
            leaves.types
        ):  # names that differ in case only: no value with others joins
            key: object = frozenset(leaves.types.items()), frozenset(leaves.opened)
            groups = self._by_exact.setdefault(key, [])
            if groups:
                groups[0].positions.append(position)
                return False
        else:
            key = frozenset((name, *fields[name]) for name in exact if name in fields)
            groups = self._by_exact.setdefault(key, [])
            for group in reversed(groups[-_LAST:]):
                if self._agree(group, fields, leaves.opened):
                    group.positions.append(position)
                    return False
        groups.append(Group(fields, leaves.opened, [position]))
        self.all.append(groups[-1])
        return True

    def drop_last(self) -> None:
        """Leave out the value that was the first of its group just now."""
        last = self.all.pop()
        for key, groups in self._by_exact.items():
            if groups and groups[-1] is last:
                groups.pop()
                if not groups:
                    del self._by_exact[key]
                return

    def _agree(self, group: Group, fields: Fields, opened: set[Path]) -> bool:
        """Add fields to those of a group, if they agree."""
        wider: Fields = {}
        for name, (path, of) in fields.items():
            both = self._shared(group, name, path, of)
            if both is None:
                return False
            if path not in group.opened:  # a null object is nothing
                wider[name] = path, both
        known = group.fields
        objects = known.keys() & {self._agreement.place(path).name for path in opened - group.opened}
        is_too_wide = len(known.keys() | wider.keys()) > max(self._most_fields, len(fields), len(known))
        if is_too_wide or any(known[name][1] != _NULL for name in objects):
            return False
        for name in objects:
            del known[name]
        known.update(wider)
        group.opened |= opened
        return True

    def _shared(self, group: Group, name: str, path: Path, of: pa.DataType) -> pa.DataType | None:
        """Return the type of a field in a group and in a value, None if they don't agree."""
        known = group.fields.get(name)
        if known is None:
            return of if of == _NULL or path not in group.opened else None
        if known[0] != path:
            return None
        return of if known[1] == of else self._both(known[1], of)


class NestedTypes:
    """Makes types of objects and lists, each once: a list may have millions of objects, and Arrow takes long to make, or to compare, a type."""

    def __init__(self) -> None:
        # Types stand for themselves by their ids, which stay theirs as long as they are held here.
        self._made: Final[dict[tuple[str | int, ...], tuple[pa.DataType, list[tuple[str, pa.DataType]]]]] = {}

    def object_of(self, fields: list[tuple[str, pa.DataType]]) -> pa.StructType:
        """Return the type of objects with these fields."""
        key = tuple(part for name, of in fields for part in (name, id(of)))
        found = self._made.get(key)
        return self._keep(key, struct_of(fields), fields) if found is None else found[0]

    def list_of(self, element: pa.DataType) -> pa.ListType:
        """Return the type of lists with these elements."""
        key = (id(element),)
        found = self._made.get(key)
        return self._keep(key, pa.list_(element), [("", element)]) if found is None else found[0]

    def _keep(self, key: tuple[str | int, ...], made: pa.DataType, parts: list[tuple[str, pa.DataType]]) -> pa.DataType:
        if len(self._made) >= _PLACES:
            self._made.clear()
        self._made[key] = made, parts
        return made


def struct_of(fields: Iterable[tuple[str, pa.DataType]]) -> pa.StructType:
    """Return the type of objects with these fields."""
    return pa.struct([pa.field(name, of) for name, of in sorted(fields, key=lambda each: each[0])])


def _put(top: dict[str, object], path: Path, of: object) -> None:
    *outer, name = path
    for step in outer:
        top = top[step]  # type: ignore[assignment]
    top[name] = of


def _built(fields: dict[str, object]) -> pa.StructType:
    return struct_of((name, _built(of) if isinstance(of, dict) else of) for name, of in fields.items())
