"""Values of any Arrow type to another, one by one: the judge of what a column may take.

Structs go by field name, also from and to maps of text; anything nested becomes compact JSON in a text column.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from frazil.records.casting.scalar import Exact, FitRules, refuse, scalar_exact
from frazil.records.casting.source import NESTED, Kind, is_sent, kind_of, plain_type
from frazil.records.casting.text import json_form, unique
from frazil.records.casting.type_names import spelled
from frazil.records.json.convert_map import distinct
from frazil.records.json.convert_nested import missing, storage_type
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_text import compact, describe


class _Member(NamedTuple):
    """A field of a target struct: where the source has it (None: nowhere), and what makes it."""

    name: str
    at: int | None
    fit: Exact


def matching(name: str, names: Sequence[str], *, case_insensitive: bool) -> int | None:
    """Return where `name` is among `names`, or None. Of several the exact one counts, else the last.

    The names come with the data: whatever they are, it is no reason to stop.
    """
    found = [at for at, other in enumerate(names) if other == name]
    if not found and case_insensitive:
        found = [at for at, other in enumerate(names) if other.casefold() == name.casefold()]
    return found[-1] if found else None


class ExactPlan:
    """Makes exact converters, and keeps what can never fit.

    Attributes:
        problems: Path and verdict of each pair of types that no value gets through.
    """

    def __init__(self, rules: FitRules) -> None:
        self._rules: Final = rules
        self.problems: Final[list[tuple[str, str]]] = []

    def exact(self, source: pa.DataType, target: pa.DataType, path: str) -> Exact:
        """Return the converter from one type to another; impossible ones refuse each value."""
        found = plain_type(source)
        convert = self._converter(found, target, path)
        if convert is not None:
            return convert
        self.problems.append((path, f"expected {spelled(target)}, found {spelled(found)}"))
        return partial(refuse, str(target), found)

    def _converter(self, source: pa.DataType, target: pa.DataType, path: str) -> Exact | None:
        pair = (kind_of(source), kind_of(target))
        if pair[0] in NESTED and pair[1] is Kind.TEXT:
            return partial(_json_text, json_form(source))
        if pair == (Kind.STRUCT, Kind.STRUCT):
            return self._structs(source, target, path)
        if pair == (Kind.LIST, Kind.LIST) and not pa.types.is_fixed_size_list(target):
            return partial(_list, self.field(source.value_type, target.value_field, f"{path}[]"))
        if pair[1] is Kind.MAP:
            return self._maps(pair[0], source, target, path)
        if pair == (Kind.MAP, Kind.STRUCT):
            return self._from_map(source, target, path)
        return None if pair[0] in NESTED else scalar_exact(source, target, self._rules)

    def field(self, source: pa.DataType, field: pa.Field, path: str) -> Exact:
        """Return the converter to a field's type, which also takes null where the field does."""
        return partial(_null_checked, self.exact(source, field.type, path), None if field.nullable else str(field.type))

    def _structs(self, source: pa.StructType, target: pa.StructType, path: str) -> Exact:
        names = [field.name for field in source]
        members = [self._member(source, names, field, f"{path}.{field.name}") for field in target]
        taken = {member.at for member in members}
        others = [(at, source.field(at)) for at in range(len(names)) if at not in taken] if self._rules.strict else []
        return partial(_struct, members, others)

    def _member(self, source: pa.StructType, names: list[str], field: pa.Field, path: str) -> _Member:
        at = matching(field.name, names, case_insensitive=self._rules.case_insensitive)
        if at is None and not field.nullable:
            self.problems.append((path, f"expected {spelled(field.type)}, found no such field"))
        kind = pa.null() if at is None else source.field(at).type
        return _Member(field.name, at, self.field(kind, field, path))

    def _maps(self, kind: Kind, source: pa.DataType, target: pa.MapType, path: str) -> Exact | None:
        if kind is Kind.MAP:
            key = self.exact(source.key_type, target.key_type, f"{path}[key]")
            item = self.field(source.item_type, target.item_field, f"{path}[]")
            convert = partial(_map, json_form(source.key_type), key, item)
            return convert if keeps_keys_apart(source, target) else partial(_distinct_map, convert)
        if kind is not Kind.STRUCT or kind_of(target.key_type) is not Kind.TEXT:
            return None
        items = [
            (field.name, self.field(field.type, target.item_field, f"{path}[{compact(field.name)}]"))
            for field in source
        ]
        return partial(_struct_map, items)

    def _from_map(self, source: pa.MapType, target: pa.StructType, path: str) -> Exact | None:
        if kind_of(plain_type(source.key_type)) is not Kind.TEXT:
            return None
        fields = [(field.name, self.field(source.item_type, field, f"{path}.{field.name}")) for field in target]
        return partial(_map_struct, fields, self._rules)


def _json_text(form: Any, value: Any) -> object:
    return compact(form(value))


def _null_checked(convert: Exact, required: str | None, value: Any) -> object:
    if value is not None:
        return convert(value)
    if required is not None:
        raise missing(required)
    return None


def _step(step: str, convert: Exact, value: Any) -> object:
    try:
        return convert(value)
    except Rejection as e:
        raise e.within(step) from e


def unknown(names: list[str]) -> Rejection:
    """Return the verdict on fields that nothing takes."""
    message = f"expected a column for each field, found fields named {describe(', '.join(names))}"
    return Rejection(DeadCode.UNKNOWN_FIELD, message).within(names[0])


def _struct(members: list[_Member], others: list[tuple[int, pa.Field]], value: tuple[Any, ...]) -> object:
    if found := [field.name for at, field in others if is_sent(field, value[at])]:
        raise unknown(found)
    return {name: _step(name, fit, None if at is None else value[at]) for name, at, fit in members}


def _list(item: Exact, value: list[Any]) -> object:
    return [_step(f"[{at}]", item, found) for at, found in enumerate(value)]


def _map(name: Any, key: Exact, item: Exact, value: list[tuple[Any, Any]]) -> object:
    steps = [f"[{compact(name(found))}]" for found, _ in value]
    return [(_step(step, key, found), _step(step, item, of)) for step, (found, of) in zip(steps, value, strict=True)]


def _distinct_map(convert: Exact, value: list[tuple[Any, Any]]) -> object:
    entries: Any = convert(value)
    return distinct(("", key, item) for key, item in entries)


def keeps_keys_apart(source: pa.MapType, target: pa.MapType) -> bool:
    """Return whether different keys surely stay different: texts don't, `1` and `1.0` may be one number."""
    kinds = (kind_of(plain_type(source.key_type)), kind_of(target.key_type))
    return kinds[0] is not Kind.TEXT or kinds[1] is Kind.TEXT


def _struct_map(items: list[tuple[str, Exact]], value: tuple[Any, ...]) -> object:
    return [(name, _step(f"[{compact(name)}]", fit, found)) for (name, fit), found in zip(items, value, strict=True)]


def _map_struct(fields: list[tuple[str, Exact]], rules: FitRules, value: list[tuple[str, Any]]) -> object:
    found = unique(value)
    names = {name: _entry(name, found, rules) for name, _ in fields}
    made = {name: _step(name, fit, found.get(names[name])) for name, fit in fields}
    if rules.strict and (others := [name for name in found if name not in names.values()]):
        raise unknown(others)
    return made


def _entry(name: str, found: dict[str, Any], rules: FitRules) -> str:
    """Return the key of a map that stands for a field."""
    if name in found or not rules.case_insensitive:
        return name
    alike = [other for other in found if other.casefold() == name.casefold()]
    if len(alike) > 1:
        raise Rejection(DeadCode.DUPLICATE_KEY, f"expected {name} once, found {', '.join(alike)}", name)
    return alike[0] if alike else name


def build(rows: list[object], target: pa.DataType) -> pa.Array:
    """Return converted values as an array of exactly the target type."""
    return pa.array(rows, storage_type(target)).cast(target)
