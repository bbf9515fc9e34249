"""Converts single values between any Arrow types, exactly. Casts of whole arrays must agree with it.

Fields of structs are matched by name, also from and to maps with text keys. In a text column a nested value becomes compact JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from frazil.records.casting.scalar import FitRules, ValueCast, refuse, scalar_value_cast
from frazil.records.casting.source import NESTED, Kind, is_present, json_form, kind_of, plain_type, unique_members
from frazil.records.json.convert import convert_at, distinct_entries, missing_value
from frazil.records.model.column import type_name
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import compact, describe


class _Member(NamedTuple):
    """A field of a target struct: its name, its index in the source struct (None: it has no such field), and its converter."""

    name: str
    source_index: int | None
    fit: ValueCast


def index_of_name(name: str, names: Sequence[str], *, case_insensitive: bool) -> int | None:
    """Return the index of `name` in `names`, or None. An exact match goes first; of several matches the last one counts.

    The names come with the data, so repeated names must not raise.
    """
    indexes = [index for index, candidate in enumerate(names) if candidate == name]
    if not indexes and case_insensitive:
        indexes = [index for index, candidate in enumerate(names) if candidate.casefold() == name.casefold()]
    return indexes[-1] if indexes else None


class ExactPlan:
    """Makes exact converters, and notes where no value can be converted.

    Attributes:
        problems: Path and message of each pair of types between which no value can be converted.
    """

    def __init__(self, rules: FitRules) -> None:
        self._rules: Final = rules
        self.problems: Final[list[tuple[str, str]]] = []

    def exact(self, source: pa.DataType, target: pa.DataType, path: str) -> ValueCast:
        """Return the converter from one type to another. If there is none, it refuses every value."""
        plain_source = plain_type(source)
        convert = self._converter(plain_source, target, path)
        if convert is not None:
            return convert
        self.problems.append((path, f"expected {type_name(target)}, found {type_name(plain_source)}"))
        return partial(refuse, type_name(target), plain_source)

    def _converter(self, source: pa.DataType, target: pa.DataType, path: str) -> ValueCast | None:
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
        return None if pair[0] in NESTED else scalar_value_cast(source, target, self._rules)

    def field(self, source: pa.DataType, field: pa.Field, path: str) -> ValueCast:
        """Return the converter to a field's type, which also takes null: as null, or with a rejection if the field is required."""
        return partial(
            _null_checked, self.exact(source, field.type, path), None if field.nullable else type_name(field.type)
        )

    def _structs(self, source: pa.StructType, target: pa.StructType, path: str) -> ValueCast:
        names = [field.name for field in source]
        members = [self._member(source, names, field, f"{path}.{field.name}") for field in target]
        matched = {member.source_index for member in members}
        unmatched = (
            [(index, source.field(index)) for index in range(len(names)) if index not in matched]
            if self._rules.strict
            else []
        )
        return partial(_struct, members, unmatched)

    def _member(self, source: pa.StructType, names: list[str], field: pa.Field, path: str) -> _Member:
        index = index_of_name(field.name, names, case_insensitive=self._rules.case_insensitive)
        if index is None and not field.nullable:
            self.problems.append((path, f"expected {type_name(field.type)}, found no such field"))
        kind = pa.null() if index is None else source.field(index).type
        return _Member(field.name, index, self.field(kind, field, path))

    def _maps(self, kind: Kind, source: pa.DataType, target: pa.MapType, path: str) -> ValueCast | None:
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

    def _from_map(self, source: pa.MapType, target: pa.StructType, path: str) -> ValueCast | None:
        if kind_of(plain_type(source.key_type)) is not Kind.TEXT:
            return None
        fields = [(field.name, self.field(source.item_type, field, f"{path}.{field.name}")) for field in target]
        return partial(_map_struct, fields, self._rules)


def _json_text(form: Any, value: Any) -> object:
    return compact(form(value))


def _null_checked(convert: ValueCast, required: str | None, value: Any) -> object:
    if value is not None:
        return convert(value)
    if required is not None:
        raise missing_value(required)
    return None


def unmatched_fields(names: list[str]) -> Rejection:
    """Return the rejection of fields that no column takes."""
    message = f"expected a column for each field, found fields named {describe(', '.join(names))}"
    return Rejection(DeadCode.UNKNOWN_FIELD, message).with_parent(names[0])


def _struct(members: list[_Member], unmatched: list[tuple[int, pa.Field]], value: tuple[Any, ...]) -> object:
    if names := [field.name for index, field in unmatched if is_present(field, value[index])]:
        raise unmatched_fields(names)
    return {name: convert_at(name, fit, None if index is None else value[index]) for name, index, fit in members}


def _list(item: ValueCast, value: list[Any]) -> object:
    return [convert_at(f"[{index}]", item, element) for index, element in enumerate(value)]


def _map(name: Any, key: ValueCast, item: ValueCast, value: list[tuple[Any, Any]]) -> object:
    steps = [f"[{compact(name(raw_key))}]" for raw_key, _ in value]
    return [
        (convert_at(step, key, raw_key), convert_at(step, item, raw_item))
        for step, (raw_key, raw_item) in zip(steps, value, strict=True)
    ]


def _distinct_map(convert: ValueCast, value: list[tuple[Any, Any]]) -> object:
    entries: Any = convert(value)
    return distinct_entries(("", key, item) for key, item in entries)


def keeps_keys_apart(source: pa.MapType, target: pa.MapType) -> bool:
    """Return whether different keys of a map surely stay different. Texts may not: `1` and `1.0` may become one number."""
    kinds = (kind_of(plain_type(source.key_type)), kind_of(target.key_type))
    return kinds[0] is not Kind.TEXT or kinds[1] is Kind.TEXT


def _struct_map(items: list[tuple[str, ValueCast]], value: tuple[Any, ...]) -> object:
    return [
        (name, convert_at(f"[{compact(name)}]", fit, field_value))
        for (name, fit), field_value in zip(items, value, strict=True)
    ]


def _map_struct(fields: list[tuple[str, ValueCast]], rules: FitRules, value: list[tuple[str, Any]]) -> object:
    entries = unique_members(value)
    names = {name: _matching_key(name, entries, rules) for name, _ in fields}
    fields_by_name = {name: convert_at(name, fit, entries.get(names[name])) for name, fit in fields}
    if rules.strict and (unmatched := [name for name in entries if name not in names.values()]):
        raise unmatched_fields(unmatched)
    return fields_by_name


def _matching_key(name: str, entries: dict[str, Any], rules: FitRules) -> str:
    """Return the key of the map whose value becomes the field `name`."""
    if name in entries or not rules.case_insensitive:
        return name
    alike = [key for key in entries if key.casefold() == name.casefold()]
    if len(alike) > 1:
        raise Rejection(DeadCode.DUPLICATE_KEY, f"expected {name} once, found {', '.join(alike)}", name)
    return alike[0] if alike else name
