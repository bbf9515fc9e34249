"""Demands come together: of many records, of the tasks of a batch. In whatever order, the outcome is the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from frazil.batch.schema_change import UNTOLD_NAMED, SchemaChange
from frazil.records.casting.nested import matching
from frazil.records.casting.source import NESTED, Kind, kind_of
from frazil.records.evolution.types import (
    leaves,
    list_of,
    map_of,
    only,
    order_key,
    parts_of,
    placed,
    position_of,
    read_type,
    settled,
    spelled,
    struct_of,
)
from frazil.records.evolution.widest import Room, Widest, widest
from frazil.records.model.spec import RecordSpec

Path = tuple[str, ...]

_KEPT: Final = 500
"""Fields of one object, with and without parts, that a task asks for at least, however little room there is."""


@dataclass
class Added:
    """A column or field that is asked for.

    Attributes:
        path: Where it is to be.
        met: The types that were met there.
        former: Names that the field had before, and its own if a record has it that tells of no other.
        position: Where it stands among its neighbours, in the record where it stands first.
    """

    path: Path
    met: Widest
    former: set[str] = field(default_factory=set)
    position: int = 0


@dataclass
class Asked:
    """What was asked for so far.

    Attributes:
        fold: Whether names that differ in case only are the same field.
        adds: Path of a column or field that is not there, folded -> what is asked for.
        widens: Path of one that is -> the wider type.
        optional: Paths of those that must take null.
        untold: Paths without a column whose values tell no type: nothing is asked for. One more than are told at most.
        room: For the columns and fields; what is beyond is not asked for.
    """

    fold: bool = False
    adds: dict[Path, Added] = field(default_factory=dict)
    widens: dict[Path, pa.DataType] = field(default_factory=dict)
    optional: set[Path] = field(default_factory=set)
    untold: set[Path] = field(default_factory=set)
    room: Room = field(default_factory=Room)

    def __bool__(self) -> bool:
        return bool(self.adds or self.widens or self.optional)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another column or field."""
        return self.room.left <= 0

    def clear(self) -> None:
        """Forget everything."""
        self.adds.clear()
        self.widens.clear()
        self.optional.clear()
        self.untold.clear()
        self.room = Room()

    def add(self, path: Path, of: pa.DataType, former: Iterable[str] = (), *, position: int = 0) -> None:
        """Ask for a column or field. Of names that differ in case only, where they are one, the first in order counts."""
        key = self._key(path)
        if (added := self.adds.get(key)) is None:
            if not self.room.take():
                return
            added = self.adds[key] = Added(path, Widest(self.fold, self.room), position=position)
        added.path = min(added.path, path)
        added.position = min(added.position, position)
        added.met.take(of)
        added.former.update(tuple(former) or path[-1:])

    def tells_nothing(self, path: Path) -> None:
        """Remember a path whose value tells no type."""
        if len(self.untold) <= UNTOLD_NAMED:
            self.untold.add(path)

    def _key(self, path: Path) -> Path:
        return tuple(name.casefold() for name in path) if self.fold else path

    def widen(self, path: Path, of: pa.DataType) -> None:
        """Ask for a wider type."""
        self.widens[path] = widest(self.widens[path], of) if path in self.widens else of

    def take(self, other: Asked) -> None:
        """Ask for all that another one asks for."""
        for added in other.adds.values():
            self.add(added.path, added.met.type, added.former, position=added.position)
        for path, of in other.widens.items():
            self.widen(path, of)
        self.optional |= other.optional
        for path in other.untold:
            self.tells_nothing(path)

    def demands(self, spec: RecordSpec) -> tuple[SchemaChange, ...]:
        """Return all of it, in order, for whoever puts the demands of all tasks together.

        Which fields get columns is told by all demands, not by those of one task: a struct with many fields may turn out to
        be a text, and leave room for others. So only fields are left out that have no room whatever others ask: of those
        beside each other the first ones without parts may get columns, and the first ones with parts.
        """
        most = max(room(spec), _KEPT) + 1  # one more tells that there are others
        counts: Counter[tuple[Path, bool]] = Counter()
        changes = self._others()
        for added in sorted(self.adds.values(), key=_place):
            of, is_rescued = added.met.type, added.path == (spec.rescued_column,)
            group = added.path[:-1], kind_of(of) in NESTED
            if is_rescued or counts[group] < most:
                former = tuple(sorted(added.former)) if added.former - {*added.path[-1:]} else ()
                type_ = spelled(_fewer(of, most))
                changes.append(SchemaChange(added.path, "add", type_, former, added.position))
                # One that had other names may turn out to be another one's field, and the rescued one has its own room.
                counts[group] += not former and not is_rescued
        return tuple(sorted(changes))

    def _others(self) -> list[SchemaChange]:
        found = [SchemaChange(path, "optional") for path in self.optional]
        return [*found, *(SchemaChange(path, "widen", spelled(of)) for path, of in self.widens.items())]

    def changes(self, spec: RecordSpec) -> tuple[SchemaChange, ...]:
        """Return the changes, in order: columns as many as the table may have, and one for the fields beyond."""
        if not self:
            return ()
        adds = self._settled()
        rescued = (spec.rescued_column,)
        asks_for_rescued = adds.pop(rescued, None)
        # Breadth first: what lies less deep goes first, then the first fields of each struct, then the second ones.
        every = [(leaf, places) for added in adds.values() for leaf, places in _leaves(added)]
        every.sort(key=lambda leaf: (len(leaf[0]), leaf[1][::-1]))
        kept = frozenset(leaf for leaf, _ in every[: room(spec)])
        fitting = {added.path: only(added.met.type, kept, added.path) for added in adds.values()}
        if (len(kept) < len(every) and rescued[0] not in spec.columns.names) or asks_for_rescued is not None:
            fitting[rescued] = pa.string()
        found = [SchemaChange(path, "add", spelled(settled(of))) for path, of in fitting.items() if of != pa.null()]
        return (*sorted(self._others()), *found)

    def _settled(self) -> dict[Path, Added]:
        """What is asked for by path, in the order of the records.

        A field that is also asked for under a name that it had before has that name alone.
        """
        whole = Asked(self.fold)
        for added in self.adds.values():
            oldest = self._oldest(added)
            whole.add(oldest.path, added.met.type, position=oldest.position)
        return {added.path: added for added in sorted(whole.adds.values(), key=_place)}

    def _oldest(self, added: Added) -> Added:
        """Follow former names; where they lead round in a circle (renamed, and back), the first in order counts."""
        seen = [self._key(added.path)]
        while added.path[-1] not in added.former:  # else a record has it that would not find it under another name
            before = (self._key((*added.path[:-1], name)) for name in sorted(added.former))
            found = next((key for key in before if key in self.adds), None)
            if found is None:
                break
            if found in seen:
                return self.adds[min(seen[seen.index(found) :])]
            seen.append(found)
            added = self.adds[found]
        return added


def _place(added: Added) -> tuple[Path, tuple[bool, int, str]]:
    """What the columns that are asked for are ordered by: those beside each other by their order in the records."""
    return added.path[:-1], order_key(added.path[-1], added.position)


def _leaves(added: Added) -> Iterator[tuple[Path, tuple[tuple[bool, int, str], ...]]]:
    """Yield the path of each leaf, and for each of its names what orders it among its neighbours."""
    above = tuple((False, 0, name) for name in added.path[:-1])
    yield from _leaves_of(added.met.type, added.path, (*above, order_key(added.path[-1], added.position)))


def _leaves_of(
    of: pa.DataType, path: Path, places: tuple[tuple[bool, int, str], ...]
) -> Iterator[tuple[Path, tuple[tuple[bool, int, str], ...]]]:
    parts = parts_of(of)
    if not parts:
        yield path, places
    for index, part in enumerate(parts):
        place = order_key(part.name, position_of(part, index))
        yield from _leaves_of(part.type, (*path, part.name), (*places, place))


def _fewer(of: pa.DataType, most: int) -> pa.DataType:
    """Return a type with no more fields beside each other: the first without parts, and the first with parts."""
    match kind_of(of):
        case Kind.STRUCT:
            counts: Counter[bool] = Counter()
            fields = []
            for index, each in enumerate(of):
                is_nested = kind_of(each.type) in NESTED
                counts[is_nested] += 1
                if counts[is_nested] <= most:
                    fields.append(placed(each.with_type(_fewer(each.type, most)), position_of(each, index)))
            return struct_of(fields)
        case Kind.LIST:
            return list_of(_fewer(of.value_type, most))
        case Kind.MAP:
            return map_of(of.key_type, _fewer(of.item_type, most))
    return of


def room(spec: RecordSpec) -> int:
    """How many columns records may still bring a table to."""
    if spec.evolution is None:
        return 0
    has = sum(1 for column in spec.of_value.columns if column.name != spec.rescued_column for _ in leaves(column.type))
    return max(0, spec.evolution.max_columns - has)


def rescued_names(spec: RecordSpec, paths: Iterable[Path]) -> list[str]:
    """Return what fields are counted as that have no column of their own, and are kept in the one for rescued fields."""
    return [f"{spec.rescued_column}: {'.'.join(path)}" for path in sorted(paths)]


def rescued_from(spec: RecordSpec) -> set[str]:
    """Return the columns whose place a value of another type leaves null, and is kept with the rescued fields."""
    if spec.evolution is None or spec.evolution.on_incompatible != "rescue" or spec.whole_columns:
        return set()
    # Whoever declares a column means its type, also where it takes a part of a field that has a column of its own.
    declared = {steps[0] for name, steps in spec.sources.items() if steps}
    names = (of.name for of in spec.column_specs if of.steps == (of.name,))
    return {name for name in names if not spec.declares(name)} - declared - {spec.rescued_column}


def has(columns: pa.Schema, path: Path, *, fold: bool) -> bool:
    """Return whether a table with these columns has one at a path; of `ANYWHERE` it may."""
    of: pa.DataType = pa.struct(list(columns))
    for name in path:
        match kind_of(of):
            case Kind.LIST:
                of = of.value_type
            case Kind.MAP:
                of = of.item_type
            case Kind.STRUCT:
                at = matching(name, [field.name for field in of], case_insensitive=fold)
                if at is None:
                    return False
                of = of.field(at).type
            case _:
                return False
    return True


def together(changes: Iterable[SchemaChange], spec: RecordSpec) -> tuple[SchemaChange, ...]:
    """Return one list of the changes that the tasks of a batch ask for: of each path the widest type, all in order.

    Args:
        changes: Of one table, as `Staged.demands` has them.
        spec: How records become rows of the table, as the tasks had it.
    """
    asked = Asked(spec.fold is not None)
    for change in changes:
        if change.kind == "add":
            asked.add(change.path, read_type(change.type), change.former, position=change.position)
        elif change.kind == "widen":
            asked.widen(change.path, read_type(change.type))
        else:
            asked.optional.add(change.path)
    return asked.changes(spec)


def changed(columns: pa.Schema, changes: Iterable[SchemaChange]) -> pa.Schema:
    """Return the columns that a table has after changes.

    Args:
        columns: What it has before.
        changes: What is changed, as `together` returns it.
    """
    fields = list(columns)
    for change in changes:
        fields = _changed_fields(fields, change.path, change)
    return pa.schema(fields, columns.metadata)


def _changed_fields(fields: list[pa.Field], path: Path, change: SchemaChange) -> list[pa.Field]:
    name, *rest = path
    if not rest and change.kind == "add":
        return [*fields, pa.field(name, read_type(change.type))]
    return [_changed_field(of, tuple(rest), change) if of.name == name else of for of in fields]


def _changed_field(of: pa.Field, rest: Path, change: SchemaChange) -> pa.Field:
    if not rest:
        optional = change.kind == "optional"
        return of.with_nullable(nullable=True) if optional else of.with_type(read_type(change.type))
    return of.with_type(_changed_type(of.type, rest, change))


def _changed_type(of: pa.DataType, rest: Path, change: SchemaChange) -> pa.DataType:
    match kind_of(of):
        case Kind.LIST:
            return pa.list_(_changed_field(of.value_field, rest[1:], change))
        case Kind.MAP:
            return pa.map_(of.key_type, _changed_field(of.item_field, rest[1:], change))
    return pa.struct(_changed_fields(list(of), rest, change))
