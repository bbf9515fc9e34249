"""Which values the block parser may see at all.

pyarrow.json takes NaN, Infinity and text for a decimal, has no limit on nesting, and lands wrong
decimals in silence: 0 for 0.89E-725, other digits for numbers that overflow 128 bits. The exact
decoder does none of this. Such values are excluded by proof: the search below can't miss one (it
may exclude good values, which costs time and nothing else).

The rest of the search is a guess that keeps the block parser from failing: a whole block fails with
one bad value, so values that look bad (cut off, a text where a number is due) are better decoded
apart from the start.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.dead import MAX_DEPTH
from frazil.records.json.grammar import LEVELS, grammar

_NO_NUMBER: Final = r"[:,\[]\s*-?(?:NaN|Inf(?:inity)?)\s*[,\]}]"
"""A value of JSON stands behind one of these three and before one of those three."""

_NO_FIELDS: Final = r"^\s*\{\s*\}$"
"""Nothing to put a comma behind: see BlockDecoder."""

_NO_DOUBLE: Final = r"[:,\[]\s*-?(?:[0-9]{16}|[1-9][0-9.]{18}|0\.0*[1-9][0-9]{17}|0\.0{99}|[0-9.]{17}[0-9.]*[eE]|[0-9.]+[eE][-+]?[0-9]{3})"
"""Each number that a double may not hold, and more, whatever its field is."""

_TWO_DOCUMENTS: Final = r"\}[ \t\r\n]*\{"
"""Nothing but a text holds this in one document. Two of them have as many brackets as one that is nested deeply."""

_BACKSLASH: Final = r"\\"
"""Without it a field's name stands in the bytes as it is: a search by name can't miss it."""

_TEXTS_AND_OTHERS: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"|[^"\[\]{}]+'
_INNERMOST: Final = r"(?:\{\}|\[\])+"

_FEW: Final = 50
"""If fewer than one value in so many does not fit the grammar, the exact decoder takes them all."""

_GUESSED_NAMES: Final = 100
"""Guesses cost a little for each name; in wider tables they are left out."""


class Screen:
    """Tells plain values from those that only the exact decoder may see.

    Args:
        fields: The fields of the value, nested ones inside, as they are named in JSON and with the types they are read as.
        excluded: Patterns of more values that only the exact decoder may see.
    """

    def __init__(self, fields: list[pa.Field], excluded: Iterable[str] = ()) -> None:
        named = list(_walk(fields))
        excluded = list(excluded)
        self._grammar: Final = grammar(fields)
        self._excluded: Final = "|".join(excluded)
        no_doubles = [_NO_DOUBLE] if any(map(_has_doubles, fields)) else []
        parts = [_NO_NUMBER, _NO_FIELDS, *excluded, *_decimal_proofs(named), *no_doubles, *_guesses(named)]
        self._pattern: Final = "|".join(parts)

    def plain(self, texts: pa.StringArray) -> pa.BooleanArray:
        """Return which values may be parsed as a block: of texts without blanks at the end."""
        if self._grammar is None:
            return self._looks_plain(texts)
        fits = pc.fill_null(pc.match_substring_regex(texts, self._grammar), fill_value=False)
        if self._excluded:
            fits = pc.and_not(fits, pc.fill_null(pc.match_substring_regex(texts, self._excluded), fill_value=False))
        others = pc.indices_nonzero(pc.invert(fits))
        if len(others) * _FEW <= len(texts):
            return fits
        # Many may still be good: nested more deeply than the grammar knows.
        unfit = texts.take(others)
        one = pc.invert(pc.match_substring_regex(unfit, _TWO_DOCUMENTS))
        good = others.filter(
            pc.fill_null(pc.and_(pc.and_(_nested(unfit), one), self._looks_plain(unfit)), fill_value=False)
        )
        return pc.or_(fits, pc.is_in(pa.array(range(len(texts)), pa.uint64()), value_set=good))

    def _looks_plain(self, texts: pa.StringArray) -> pa.BooleanArray:
        closed = pc.ends_with(texts, "}")
        strange = pc.match_substring_regex(texts, self._pattern)
        return pc.fill_null(pc.and_not(pc.and_(closed, _shallow(texts)), strange), fill_value=False)


def _nested(texts: pa.StringArray) -> pa.BooleanArray:
    """Return which texts may be nested more deeply than the grammar knows, going by their brackets."""
    brackets = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
    return pc.fill_null(pc.greater(brackets, LEVELS + 1), fill_value=False)


def _shallow(texts: pa.StringArray) -> pa.BooleanArray:
    short = pc.less_equal(pc.binary_length(texts), MAX_DEPTH)
    if pc.all(short).as_py() in {True, None}:
        return short
    brackets = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
    few = pc.less_equal(brackets, MAX_DEPTH)
    many = pc.indices_nonzero(pc.invert(few))
    if not len(many):
        return few
    deep = pc.fill_null(_deep(texts.take(many)), fill_value=True)
    return pc.invert(pc.is_in(pa.array(range(len(texts)), pa.uint64()), value_set=many.filter(deep)))


def _deep(texts: pa.StringArray) -> pa.BooleanArray:
    """Return which texts are nested too deeply, or no documents: one level is taken away at a time, from inside."""
    left = pc.replace_substring_regex(texts, _TEXTS_AND_OTHERS, "")
    for _ in range(MAX_DEPTH):
        left = pc.replace_substring_regex(left, _INNERMOST, "")
        if not pc.any(pc.greater(pc.binary_length(left), 0)).as_py():
            break
    return pc.greater(pc.binary_length(left), 0)


def _has_doubles(field: pa.Field) -> bool:
    of = field.type
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return _has_doubles(of.value_field)
    return any(map(_has_doubles, of)) if pa.types.is_struct(of) else bool(pa.types.is_floating(of))


def _walk(fields: list[pa.Field]) -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        yield field.name, field.type
        inner = field.type
        while pa.types.is_list(inner) or pa.types.is_large_list(inner):
            inner = inner.value_type
        if pa.types.is_struct(inner):
            yield from _walk(list(inner))


def _named(names: list[str], value: str) -> str:
    return f'"(?:{"|".join(re.escape(name) for name in names)})"\\s*:\\s*{value}'


def _decimal_proofs(named: list[tuple[str, pa.DataType]]) -> list[str]:
    """Return patterns of every value of a decimal field but plain digits that surely fit."""
    types = [data_type for _, data_type in named if pa.types.is_decimal(data_type)]
    proofs = [
        _named([name for name, data_type in named if data_type == wanted], _no_plain(wanted))
        for wanted in dict.fromkeys(types)
    ]
    return [_BACKSLASH, *proofs] if proofs else []


def _no_plain(decimal: pa.Decimal128Type) -> str:
    whole = max(1, decimal.precision - decimal.scale)  # JSON writes a zero before the point
    too_long = rf"-?[0-9]{{{whole + 1}}}|-?[0-9]+\.[0-9]{{{decimal.scale + 1}}}"
    return rf'(?:"|{too_long}|-?[0-9.]+[eE])'


def _guesses(named: list[tuple[str, pa.DataType]]) -> Iterator[str]:
    """Return patterns of values with a wrong beginning, one per kind of value."""
    # A name used twice may have two kinds.
    uses = Counter(name for name, _ in named)
    groups: dict[str, list[str]] = {}
    for name, data_type in named:
        if uses[name] == 1 and len(uses) <= _GUESSED_NAMES:
            groups.setdefault(_wrong_start(data_type), []).append(name)
    for start, names in groups.items():
        yield _named(names, start)


def _wrong_start(data_type: pa.DataType) -> str:
    if pa.types.is_integer(data_type):
        return r"(?:[^-0-9n\s]|-?[0-9]+[.eE]|-?[0-9]{20})"
    if pa.types.is_floating(data_type) or pa.types.is_decimal(data_type):
        return r"[^-0-9n\s]"
    if pa.types.is_boolean(data_type):
        return r"[^tfn\s]"
    if pa.types.is_struct(data_type):
        return r"[^{n\s]"
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return r"[^\[n\s]"
    return r'[^"n\s]'
