"""Checks of single keywords of JSON Schema: whether a value, with numbers as `Number`, is surely valid by one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final

from frazil.records.json.number import Number
from frazil.records.json.text import JsonValue

Check = Callable[[Any], bool]
"""Whether a value is surely valid. False says nothing."""

_LONGEST: Final = 18
"""Characters of numbers that are compared here: exact, and fast."""

_INTEGER: Final = re.compile(r"-?[0-9]+")
_PLAIN: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


class UncheckedError(Exception):
    """The schema says something that only the validator knows to judge."""


def always(_: JsonValue) -> bool:
    """Any value is valid."""
    return True


def never(_: JsonValue) -> bool:
    """No value is known to be valid."""
    return False


def all_of(checks: tuple[Check, ...], value: JsonValue) -> bool:
    """Return whether a value passes each check."""
    for check in checks:  # noqa: SIM110 - a generator takes twice as long
        if not check(value):
            return False
    return True


def any_of(checks: tuple[Check, ...], value: JsonValue) -> bool:
    """Return whether a value passes one check at least."""
    for check in checks:  # noqa: SIM110
        if check(value):
            return True
    return False


def items(check: Check, value: JsonValue) -> bool:
    """Return whether each item of a list passes; any other value does."""
    return not isinstance(value, list) or _each(check, value)


def _each(check: Check, items: list[JsonValue]) -> bool:
    for item in items:  # noqa: SIM110
        if not check(item):
            return False
    return True


def members(fields: dict[str, Check], required: tuple[str, ...], others: Check | None, value: JsonValue) -> bool:
    """Return whether an object has what is required, and its fields pass their checks or that of others."""
    if not isinstance(value, dict):
        return True
    for name in required:
        if name not in value:
            return False
    for name, item in value.items():
        check = fields.get(name, others)
        if check is not None and not check(item):
            return False
    return True


def type_names(types: str | list[str]) -> list[str]:
    """Return the types of `type`, which may be one name or several."""
    return [types] if isinstance(types, str) else types


def _type(types: str | list[str]) -> Check:
    names = type_names(types)
    if not _TYPES.keys() >= set(names):
        raise UncheckedError
    return _TYPES[names[0]] if len(names) == 1 else partial(any_of, tuple(_TYPES[name] for name in names))


def _is_integer(value: JsonValue) -> bool:
    return type(value) is Number and len(value) <= _LONGEST and _INTEGER.fullmatch(value) is not None


_TYPES: Final[Mapping[str, Check]] = {
    "string": lambda value: type(value) is str,
    "number": lambda value: type(value) is Number,
    "integer": _is_integer,
    "boolean": lambda value: value is True or value is False,
    "null": lambda value: value is None,
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
}


def _enum(values: list[Any]) -> Check:
    texts = frozenset(value for value in values if type(value) is str)
    numbers = frozenset(str(value) for value in values if type(value) is int)
    return partial(
        _is_one_of, texts, numbers, tuple(value for value in values if value is None or value is True or value is False)
    )


def _is_one_of(
    texts: frozenset[str], numbers: frozenset[str], words: tuple[bool | None, ...], value: JsonValue
) -> bool:
    if type(value) is str:
        return value in texts
    if type(value) is Number:
        return str(value) in numbers
    return any(value is word for word in words)


def _size(kind: type[Any], is_enough: Callable[[int, Any], bool], bound: int | Decimal) -> Check:
    # A `Number` is a text of its own class, so types are compared, not looked up.
    return lambda value: type(value) is not kind or is_enough(len(value), bound)


def _number(is_enough: Callable[[Decimal, Any], bool], bound: int | Decimal) -> Check:
    if not isinstance(bound, int | Decimal):  # a draft's own meaning, such as true for exclusive
        raise UncheckedError
    return lambda value: (
        type(value) is not Number
        or (len(value) <= _LONGEST and _PLAIN.fullmatch(value) is not None and is_enough(Decimal(value), bound))
    )


def _pattern(pattern: str) -> Check:
    search = re.compile(pattern).search
    return lambda value: type(value) is not str or search(value) is not None


def _at_least(found: Any, bound: Any) -> bool:
    return bool(found >= bound)


def _at_most(found: Any, bound: Any) -> bool:
    return bool(found <= bound)


def _above(found: Any, bound: Any) -> bool:
    return bool(found > bound)


def _below(found: Any, bound: Any) -> bool:
    return bool(found < bound)


SIMPLE: Final[Mapping[str, Callable[[Any], Check]]] = {
    "type": _type,
    "enum": _enum,
    "const": lambda value: _enum([value]),
    "pattern": _pattern,
    "minLength": partial(_size, str, _at_least),
    "maxLength": partial(_size, str, _at_most),
    "minItems": partial(_size, list, _at_least),
    "maxItems": partial(_size, list, _at_most),
    "minProperties": partial(_size, dict, _at_least),
    "maxProperties": partial(_size, dict, _at_most),
    "minimum": partial(_number, _at_least),
    "maximum": partial(_number, _at_most),
    "exclusiveMinimum": partial(_number, _above),
    "exclusiveMaximum": partial(_number, _below),
}
"""Keywords that need to know nothing else: what makes the check of one from what it says."""
