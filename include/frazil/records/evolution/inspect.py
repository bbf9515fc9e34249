"""What one JSON object needs that its table does not have, and how it is written anew where its fields must move.

The decoder decides what a value becomes; this only tells which columns it would need. A field that no column may be made
for is kept, with all that is in it, in the column for rescued fields.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from frazil.records.casting.source import Kind, kind_of
from frazil.records.evolution.infer import infer, tells, wider_scalar
from frazil.records.evolution.schema_requests import Asked, Path, rescued_from, room
from frazil.records.evolution.types import NOTHING, held_names, placeable, settled, variant_name
from frazil.records.json.convert import Converter
from frazil.records.json.convert_nested import converter
from frazil.records.model.column import Reading
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import Number
from frazil.records.model.json_text import JsonValue
from frazil.records.model.spec import RecordSpec

EVOLVABLE: Final = frozenset(
    {DeadCode.WRONG_TYPE, DeadCode.OUT_OF_RANGE, DeadCode.LOSSY_CAST, DeadCode.MISSING_REQUIRED}
)
"""Reasons that another schema may undo."""

_COUNTED: Final = 100
"""Fields of one object that are counted because no column takes them: keys may be data."""

Object = dict[str, JsonValue]


class _Plan:
    """One column, or part of one: how its values are held against its type."""

    def __init__(self, of: pa.Field, reading: Reading, *, has_default: bool = False) -> None:
        self.name: Final = of.name
        self.type: Final = of.type
        self.required: Final = not of.nullable and not has_default
        self.kind: Final = kind_of(of.type)
        self.parts: Final = {_key(each.name, reading.fold): _Plan(each, reading) for each in _parts(of.type)}
        self.convert: Final[Converter | None] = None if self.parts else converter(of.type, reading)
        self.reading: Final = reading

    @property
    def has_structs(self) -> bool:
        return self.kind is Kind.STRUCT or any(part.has_structs for part in self.parts.values())


def _parts(of: pa.DataType) -> list[pa.Field]:
    match kind_of(of):
        case Kind.STRUCT:
            return list(of)
        case Kind.LIST:
            return [of.value_field.with_name("element")]
        case Kind.MAP:
            return [of.item_field.with_name("value")]
    return []


def _key(name: str, fold: object) -> str:
    return name if fold is None else name.casefold()


@dataclass
class Seen:
    """What was seen of one object.

    Attributes:
        asked: What it needs.
        rest: Fields at the top that are kept as they are, in the column for rescued fields.
        kept: Paths of the fields that no column takes, because of which they are.
        others: Fields at the top that are not null and tell no type.
        is_dead: Whether it can't be a row, whatever columns there are.
        is_moved: Whether fields of it were moved to other names.
        fits: Whether its values surely fit the columns that they have.
    """

    asked: Asked
    rest: set[str] = field(default_factory=set)
    kept: set[Path] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    is_dead: bool = False
    is_moved: bool = False
    fits: bool = False

    def keep(self, top: str, path: Path) -> None:
        """Note that a field at the top is kept as it is, because of one that no column takes."""
        self.rest.add(top)
        if len(self.kept) < _COUNTED:
            self.kept.add(path)


class Look:
    """Looks at JSON objects.

    Args:
        spec: What is wanted of them, with an evolution.
    """

    def __init__(self, spec: RecordSpec) -> None:
        if spec.evolution is None:
            raise ValueError("a table that does not evolve asks for nothing")
        self._evolution: Final = spec.evolution
        self._fold: Final = spec.fold
        columns = [column for column in spec.column_specs if column.name != spec.rescued_column]
        self._columns: Final = {
            _key(column.name, self._fold): _Plan(
                spec.columns.field(column.name), column.reading, has_default=column.has_default
            )
            for column in columns
            if column.steps == (column.name,)
        }
        self._taken: Final = {_key(column.steps[0], self._fold) for column in columns if column.steps}
        self._occupied: Final = {
            _key(name, self._fold) for name in (*spec.columns.names, *spec.evolution.reserved, spec.rescued_column)
        }
        self._of_key: Final = {_key(name, self._fold) for name in spec.key_names}
        self._takes_all: Final = bool(spec.whole_columns)
        self._room: Final = room(spec)
        self._held: Final = held_names(spec.columns)
        self._rescued_from: Final = {_key(name, self._fold) for name in rescued_from(spec)}
        self.has_structs: Final = any(of.has_structs for of in self._columns.values())
        """Whether there are fields beside those at the top."""

    def at(self, value: Object, *, is_row: bool = False) -> Seen:
        """Look at an object; its fields that have a column for another type are moved there.

        Args:
            value: The object.
            is_row: Whether its values surely fit the columns that they have.
        """
        seen = Seen(Asked(self._fold is not None), fits=is_row)
        self._fields(value, self._columns, (), None, seen)
        if seen.is_dead:
            seen.asked = Asked(self._fold is not None)
        return seen

    def has(self, name: str) -> bool:
        """Return whether a field at the top has a column."""
        return _key(name, self._fold) in self._taken

    def _fields(self, value: Object, plans: dict[str, _Plan], path: Path, top: str | None, seen: Seen) -> None:
        last = {_key(name, self._fold): name for name in value}
        for position, (key, name) in enumerate(last.items()):
            item, plan = value[name], plans.get(key)
            if item is None:
                continue
            if plan is None:
                self._unknown(name, item, path, top, seen, position)
            elif not self._fits(item, plan, (*path, plan.name), top or name, seen):
                self._incompatible(value, name, plan, plans, path, top=top, seen=seen)
        for key, plan in plans.items():
            if plan.required and value.get(last.get(key, "")) is None and self._evolution.relaxes(*path, plan.name):
                seen.asked.optional.add((*path, plan.name))

    def _unknown(self, name: str, item: JsonValue, path: Path, top: str | None, seen: Seen, position: int) -> None:
        key = _key(name, self._fold)
        if top is None and (
            self._takes_all or key in self._of_key or (key in self._taken and key not in self._columns)
        ):
            return
        if top is None and key in self._occupied:
            if tells(item):
                seen.keep(name, (name,))
            else:
                seen.others.add(name)
            return
        can_have = placeable(name, self._evolution.max_name_length, self._held)
        fits = self._room and not seen.asked.is_full and can_have
        if not fits and tells(item):
            seen.keep(top or name, (*path, name))
            return
        found, is_whole = infer(item, len(path) + 1, self._evolution, fold=self._fold)
        if not is_whole:
            seen.keep(top or name, (*path, name))
        if found == NOTHING:
            seen.asked.tells_nothing((*path, name))
            seen.others.update([name] if top is None and is_whole else [])
        else:
            seen.asked.add((*path, name), found, position=position)

    def _fits(self, item: JsonValue, plan: _Plan, path: Path, top: str, seen: Seen) -> bool:
        """Hold a value against a column; what would make it fit is asked for. Return whether it fits then."""
        if plan.convert is not None:
            return self._scalar_fits(item, plan, path, seen)
        if plan.kind is Kind.STRUCT:
            if isinstance(item, dict):
                self._fields(item, plan.parts, path, top, seen)
            return isinstance(item, dict)
        (part,) = plan.parts.values()
        if plan.kind is Kind.LIST:
            return isinstance(item, list) and self._items_fit(item, part, path, top, seen)
        if not isinstance(item, dict):  # a list of entries is a map as well: the decoder decides
            return isinstance(item, list)
        return self._items_fit(list(item.values()), part, path, top, seen)

    def _items_fit(self, items: list[JsonValue], part: _Plan, path: Path, top: str, seen: Seen) -> bool:
        # All are looked at: what a value asks for must not depend on the order of its parts.
        fits = [item is None or self._fits(item, part, (*path, part.name), top, seen) for item in items]
        return all(fits)

    def _scalar_fits(self, item: JsonValue, plan: _Plan, path: Path, seen: Seen) -> bool:
        if seen.fits:
            return True
        try:
            if plan.convert is not None:
                plan.convert(item)
        except Rejection as e:
            if e.reason.code not in EVOLVABLE:
                seen.is_dead = True
                return True
            wider = wider_scalar(item, plan.type) if isinstance(item, Number) and self._evolution.widens else None
            if wider is None:
                return False
            seen.asked.widen(path, wider)
        return True

    def _incompatible(  # noqa: PLR0913 - all say where it is
        self,
        value: Object,
        name: str,
        plan: _Plan,
        plans: dict[str, _Plan],
        path: Path,
        *,
        top: str | None,
        seen: Seen,
    ) -> None:
        """Keep a value with the rescued fields, or move it to the column for its type; else the object is dead."""
        may_be_null = not plan.required or self._evolution.relaxes(*path, plan.name)
        if may_be_null and _key(top or name, self._fold) in self._rescued_from:
            seen.keep(top or name, (*path, name))
            for spelling in [of for of in value if _key(of, self._fold) == _key(name, self._fold)]:
                del value[spelling]
            return
        evidence, is_whole = infer(value[name], len(path) + 1, self._evolution, fold=self._fold)
        found = settled(evidence)
        may_move = self._evolution.on_incompatible == "variant_column" and may_be_null
        if not (may_move and is_whole) or found in {NOTHING, plan.type}:
            seen.is_dead = True
            return
        other = variant_name(plan.name, found)
        key = _key(other, self._fold)
        if any(_key(each, self._fold) == key for each in value) or (not path and key in self._occupied - plans.keys()):
            seen.is_dead = True
        elif key not in plans and self._room and not _exceeds(value[name], found, plan.reading):
            seen.asked.add((*path, other), found)
        elif key not in plans or not self._fits(
            value[name], plans[key], (*path, plans[key].name), path[0] if path else name, seen
        ):
            seen.is_dead = True
        else:
            value[plans[key].name] = value.pop(name)
            seen.is_moved = True


def _exceeds(item: JsonValue, of: pa.DataType, reading: Reading) -> bool:
    """Return whether a value has a number that even a column of its own type can't take: none would help."""
    try:
        converter(of, reading)(item)
    except Rejection as e:
        return e.reason.code is DeadCode.OUT_OF_RANGE
    return False
