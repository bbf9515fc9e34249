r"""The JSON objects that fit some fields, as one regular expression: what a good value surely looks like.

RE2 matches it in linear time, as fast as a search for single mistakes. A value that matches has, at every level that is
read, each known name only with a value of its type, plain numbers for decimals, and no NaN; commas and colons stand where
they must. A separator may be a bracket where a comma is due, and names may repeat: both are left to the block parser.

Names are told apart by their text, so a name with an escape does not match; nor does nesting below `LEVELS` in fields
that are not read. On a valid JSON document the expression can be read in one way only: each token decides the next step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

LEVELS: Final = 2
"""Levels of objects and lists inside of a field that is not read. Each doubles its part of the expression."""

MAX_SIZE: Final = 40_000
"""Characters of an expression that RE2 still compiles within its memory, with room to spare."""

_B: Final = r"[ \t\r\n]*"
_PLAIN: Final = r'"\\\x00-\x1f'
_TEXT: Final = rf'"(?:[^{_PLAIN}]|\\["\\/bfnrtu])*"'
_INTEGER: Final = "-?(?:0|[1-9][0-9]{0,17})"
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"


def _double() -> str:
    """Return numbers that a double surely holds: fractions of up to 17 digits, up to 15 of them before the point."""
    rest = r"(?:\.[0-9]{1,2})?"
    for digits in range(14, 0, -1):
        rest = rf"(?:\.[0-9]{{1,{17 - digits}}}|[0-9]{rest})?"
    scientific = r"[0-9](?:\.[0-9]{1,14})?[eE][-+]?[0-9]{1,2}|[0-9](?:\.[0-9]{1,16})?[eE]-[0-9]{1,2}"
    return rf"-?(?:0(?:\.0{{0,20}}[0-9]{{1,17}})?|[1-9]{rest}|{scientific})"


SURE_DOUBLE: Final = _double()

_SCALARS: Final = {pa.int64(): _INTEGER, pa.float64(): SURE_DOUBLE, pa.bool_(): "true|false", pa.string(): _TEXT}
"""What carriers are, apart from decimals."""

LONGEST_NAME: Final = 64
"""Characters of a field's name: an expression is nested once for each, and memory for that is limited too."""

_UNSEEN: Final = re.compile(r'["\\\x00-\x1f]')


def grammar(fields: Iterable[pa.Field]) -> str | None:
    """Return the expression for objects with these fields, or None if there is none of a reasonable size."""
    try:
        found = f"^{_B}{_members(fields)}$"
    except _NoGrammarError:
        return None
    return found if len(found) <= MAX_SIZE else None


class _NoGrammarError(Exception):
    """A name is too long or can't be written without an escape, or a type has no form here."""


def _members(fields: Iterable[pa.Field]) -> str:
    """Return an object with at least one field: known ones with their types, others with anything."""
    known = {field.name: _typed(field.type) for field in fields}
    if any(len(name) > LONGEST_NAME or _UNSEEN.search(name) for name in known):
        raise _NoGrammarError
    by_form: dict[str, list[str]] = {}
    for name, form in known.items():
        by_form.setdefault(form, []).append(re.escape(name))
    typed = [f'(?:{"|".join(names)})"{_B}:{_B}{form}' for form, names in by_form.items()]
    other = f"{_other(list(known))}{_B}:{_B}{_anything(LEVELS)}"
    member = f'"(?:{"|".join([*typed, other])})'
    return rf"(?:[{{,]{_B}{member}{_B})+\}}"


def _typed(data_type: pa.DataType) -> str:
    return f"(?:null|{_form(data_type)})"


def _form(data_type: pa.DataType) -> str:
    if (scalar := _SCALARS.get(data_type)) is not None:
        return scalar
    if pa.types.is_decimal(data_type):
        return _decimal(data_type)
    if pa.types.is_list(data_type):
        return _list(_typed(data_type.value_type))
    if pa.types.is_struct(data_type):
        return rf"\{{{_B}\}}|{_members(data_type)}"
    raise _NoGrammarError


def _decimal(data_type: pa.Decimal128Type) -> str:
    whole = max(1, data_type.precision - data_type.scale)  # JSON writes a zero before the point
    fraction = rf"(?:\.[0-9]{{1,{data_type.scale}}})?" if data_type.scale else ""
    return f"-?(?:0|[1-9][0-9]{{0,{whole - 1}}}){fraction}"


def _list(item: str) -> str:
    return rf"\[{_B}\]|(?:[\[,]{_B}{item}{_B})+\]"


def _anything(levels: int) -> str:
    scalar = f"{_TEXT}|{_NUMBER}|true|false|null"
    if not levels:
        return f"(?:{scalar})"
    inner = _anything(levels - 1)
    member = f"{_TEXT}{_B}:{_B}{inner}"
    return rf"(?:{scalar}|{_list(inner)}|\{{{_B}\}}|(?:[{{,]{_B}{member}{_B})+\}})"


def _other(words: list[str]) -> str:
    """Return any end of a name, with its quote, that is none of these ends."""
    heads = sorted({word[0] for word in words if word})
    choices = [f'[^{_PLAIN}{"".join(map(re.escape, heads))}][^{_PLAIN}]*"']
    choices += [re.escape(head) + _other([word[1:] for word in words if word.startswith(head)]) for head in heads]
    if "" not in words:
        choices.append('"')
    return f"(?:{'|'.join(choices)})"
