"""Refuses calls of DuckDB functions that make large results of small input: a record must not exhaust memory.

DuckDB's memory limit holds for sorting and grouping, not for the result of a function: `repeat('x', n)` of one record took
gigabytes. So the expression must contain a bound, which is checked before any record is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from frazil.error_codes import BAD_TRANSFORM
from frazil.errors import Terminal
from frazil.records.transforms.sql.engine import Node

MAX_SIZE: Final = 1_000
"""Most characters of a text, or items of a list, that a function may make from a number."""

_MAX_TEXT: Final = 100
"""Most characters of a text that a function repeats or compares for each part of another argument."""

_SIZED: Final = frozenset({"repeat", "lpad", "rpad", "list_resize", "array_resize", "bitstring"})
"""Functions whose second argument is the length of the result."""

_REFUSED: Final = frozenset({"list_select", "array_select"})
"""Functions that repeat an item as often as another list contains its index."""

_TEXTS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "repeat": (0,),
        **dict.fromkeys(("replace", "regexp_replace", "list_resize", "array_resize"), (2,)),
        **dict.fromkeys(("levenshtein", "editdist3", "damerau_levenshtein"), (0, 1)),
        **dict.fromkeys(("jaro_similarity", "jaro_winkler_similarity"), (0, 1)),
    }
)
"""Functions -> their arguments that are repeated, or compared, for each part of another argument."""

_FORMATS: Final = frozenset({"format", "printf"})
_WIDTH: Final = re.compile(r"\d{4,}|%[^a-zA-Z%]*\*|\{[^}]*\{")
"""Finds, in a format, a width of a thousand or more, or one that is an argument."""

_FIXED: Final = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_temporal,
)
"""Types whose values are all small."""


def refuse_growth(expressions: str, tree: Any, fields: pa.Schema, outer: Collection[str] = ()) -> None:
    """Refuse function calls whose result has no limit in size.

    `outer` has the casefolded names of the parameters of lambdas around the tree.

    Raises:
        Terminal: An argument that sets the size of the result has no limit, or a lambda uses a large value for each item.
    """
    if isinstance(tree, list):
        for inner in tree:
            refuse_growth(expressions, inner, fields, outer)
    if not isinstance(tree, dict):
        return
    if tree.get("class") == "FUNCTION":
        _refuse_function(expressions, tree)
    if tree.get("class") == "LAMBDA":
        own = {names[-1].casefold() for names in _columns(tree["lhs"])}
        for names in _columns(tree["expr"]):
            name = names[0].casefold()
            if name not in own and (name in outer or not _is_fixed(fields, names)):
                raise _unbounded(
                    expressions,
                    f"a lambda uses {names[0]}, which may be large, for each item of a list",
                    "use in a lambda only its own parameter, and fields that are numbers, booleans or times",
                )
        outer = {*outer, *own}
    for inner in tree.values():
        refuse_growth(expressions, inner, fields, outer)


def _refuse_function(expressions: str, node: Node) -> None:
    name = str(node["function_name"]).lower()
    arguments = [argument["expression"] for argument in node["arguments"]]
    if name in _SIZED and len(arguments) > 1 and not _is_small_number(arguments[1]):
        raise _unbounded(
            expressions,
            f"argument 2 of {name} sets the length of the result, expected at most {MAX_SIZE:,}",
            f"write a number there, or least(…, {MAX_SIZE})",
        )
    for index in _TEXTS.get(name, ()):
        if index < len(arguments) and not _is_short_text(arguments[index]):
            raise _unbounded(
                expressions,
                f"{name} repeats its argument {index + 1} many times, expected at most {_MAX_TEXT} characters",
                f"write a text there, or left(…, {_MAX_TEXT})",
            )
    if name == "range" and not _is_short_range(arguments):
        raise _unbounded(
            expressions,
            f"the arguments of range set how many numbers it makes, expected at most {MAX_SIZE:,}",
            f"write range(least(…, {MAX_SIZE})), or numbers for the first one and the step",
        )
    if name in _REFUSED:
        raise _unbounded(expressions, f"{name} repeats items without limit", "use list_filter, or list[…]")
    if name in _FORMATS and ((form := _literal_text(arguments[0])) is None or _WIDTH.search(form)):
        raise _unbounded(
            expressions,
            f"the first argument of {name} sets the width of texts, expected a text with widths below {MAX_SIZE:,}",
            "write the format as a text, without * and without {} in {}",
        )


def _is_small_number(node: Node) -> bool:
    """Return whether a number is surely at most `MAX_SIZE`: it is a literal, or the least of several with such a literal."""
    if node.get("class") == "CAST":
        return _is_small_number(node["child"])
    if node.get("class") == "FUNCTION":
        is_least = str(node["function_name"]).lower() == "least"
        return is_least and any(_is_small_number(argument["expression"]) for argument in node["arguments"])
    return _is_small_literal(node, MAX_SIZE)


def _is_short_range(arguments: list[Node]) -> bool:
    """Return whether a range is surely short: the last number is small, and the others are literals with an ascending step."""
    first, last, steps = ([], arguments, []) if len(arguments) == 1 else (arguments[:1], arguments[1:2], arguments[2:])
    return (
        all(map(_is_small_number, last))
        and all(_is_small_literal(node, MAX_SIZE) for node in first)
        and all(_is_small_literal(node, MAX_SIZE, least=1) for node in steps)
    )


def _is_short_text(node: Node) -> bool:
    """Return whether a text is surely short: it is a literal, or the left part of a text."""
    if node.get("class") == "FUNCTION" and str(node["function_name"]).lower() == "left":
        return _is_small_literal(node["arguments"][-1]["expression"], _MAX_TEXT, least=0)
    text = _literal_text(node)
    return text is not None and len(text) <= _MAX_TEXT


def _is_small_literal(node: Node, most: int, least: int | None = None) -> bool:
    literal = node.get("literal") or {}
    text = str(literal.get("text", ""))
    if node.get("class") != "CONSTANT" or literal.get("kind") != "INTEGER" or not re.fullmatch(r"-?\d{1,9}", text):
        return False
    return abs(int(text)) <= most and (least is None or int(text) >= least)


def _literal_text(node: Node) -> str | None:
    literal = node.get("literal") or {}
    is_text = node.get("class") == "CONSTANT" and literal.get("kind") == "STRING"
    return str(literal.get("text", "")) if is_text else None


def _columns(tree: Any) -> Iterator[list[str]]:
    if isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            yield tree["column_names"]
        # `refuse_growth` checks a lambda inside by itself.
        tree = [] if tree.get("class") == "LAMBDA" else list(tree.values())
    if isinstance(tree, list):
        for inner in tree:
            yield from _columns(inner)


def _is_fixed(fields: pa.Schema, names: list[str]) -> bool:
    """Return whether a name is that of a field whose values are all small."""
    kinds = [field.type for field in fields if field.name.casefold() == names[0].casefold()]
    return bool(kinds) and all(any(test(kind) for test in _FIXED) for kind in kinds)


def _unbounded(expressions: str, why: str, next_step: str) -> Terminal:
    return BAD_TRANSFORM.terminal(f"Sql: {expressions!r}: {why}", next_step=next_step)
