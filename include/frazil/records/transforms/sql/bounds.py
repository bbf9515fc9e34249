"""Limits on DuckDB functions with large results from small input: a record must not exhaust memory.

DuckDB's own bound holds for sorting and grouping, not for what a function returns: `repeat('x', n)` of one record took gigabytes.
So the file says how much at most, before any record is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from frazil.error_codes import BAD_TRANSFORM
from frazil.errors import Terminal

MAX_SIZE: Final = 1_000
"""Largest text or list, in characters or items, that a function may create from a number."""

_MAX_TEXT: Final = 100
"""Characters of a text that a function may repeat, as often as another text is long."""

_NUMBERS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    dict.fromkeys(("repeat", "lpad", "rpad", "list_resize", "array_resize", "bitstring"), (1,))
)
"""Arguments that say how long the result is."""

_REFUSED: Final = frozenset({"list_select", "array_select"})
"""They take an item as often as another list says."""

_TEXTS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "repeat": (0,),
        **dict.fromkeys(("replace", "regexp_replace", "list_resize", "array_resize"), (2,)),
        **dict.fromkeys(
            (
                "levenshtein",
                "editdist3",
                "damerau_levenshtein",
                "jaro_similarity",
                "jaro_winkler_similarity",
            ),
            (0, 1),
        ),
    }
)
"""Arguments that are written, or compared, once for each part of another one."""

_FORMATS: Final = frozenset({"format", "printf"})
_WIDTH: Final = re.compile(r"\d{4,}|%[^a-zA-Z%]*\*|\{[^}]*\{")
"""In a format a width of a thousand or more, or one that is an argument."""

_FIXED: Final = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_temporal,
)
"""Types whose values are all small."""

Node = dict[str, Any]


def refuse_growth(expressions: str, tree: Any, fields: pa.Schema, outer: Collection[str] = ()) -> None:
    """Refuse functions whose result has no bound in size.

    `outer` has the folded names of the parameters of lambdas around the tree.

    Raises:
        Terminal: An argument that sets the size of the result is not bounded, or a lambda uses a large value for each item.
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
                    f"a lambda takes {names[0]}, which may be large, to each item of a list",
                    "name in a lambda its own parameter, and fields that are numbers, booleans or times",
                )
        outer = {*outer, *own}
    for inner in tree.values():
        refuse_growth(expressions, inner, fields, outer)


def _refuse_function(expressions: str, node: Node) -> None:
    name = str(node["function_name"]).lower()
    arguments = [argument["expression"] for argument in node["arguments"]]
    for index in _NUMBERS.get(name, ()):
        if index < len(arguments) and not _is_number(arguments[index]):
            raise _unbounded(
                expressions,
                f"{name} makes as much as its argument {index + 1} says, expected at most {MAX_SIZE:,}",
                f"write a number there, or least(…, {MAX_SIZE})",
            )
    for index in _TEXTS.get(name, ()):
        if index < len(arguments) and not _is_text(arguments[index]):
            raise _unbounded(
                expressions,
                f"{name} takes its argument {index + 1} many times, expected at most {_MAX_TEXT} characters",
                f"write a text there, or left(…, {_MAX_TEXT})",
            )
    if name == "range" and not _is_range(arguments):
        raise _unbounded(
            expressions,
            f"range makes as many numbers as its arguments say, expected at most {MAX_SIZE:,}",
            f"write range(least(…, {MAX_SIZE})), or range with a first number and a step that are written there",
        )
    if name in _REFUSED:
        raise _unbounded(expressions, f"{name} takes an item as often as a list says", "use list_filter, or list[…]")
    if name in _FORMATS and ((form := _text_of(arguments[0])) is None or _WIDTH.search(form)):
        raise _unbounded(
            expressions,
            f"the first argument of {name} says how wide texts are, expected a text with widths below {MAX_SIZE:,}",
            "write the format as a text, without * and without {} in {}",
        )


def _is_number(node: Node) -> bool:
    """Return whether an expression is surely at most `MAX_SIZE`: a literal number, or the least of several with such a
    literal.
    """
    if node.get("class") == "CAST":
        return _is_number(node["child"])
    if node.get("class") == "FUNCTION":
        is_least = str(node["function_name"]).lower() == "least"
        return is_least and any(_is_number(argument["expression"]) for argument in node["arguments"])
    return node.get("class") == "CONSTANT" and _is_below(node, MAX_SIZE)


def _is_range(arguments: list[Node]) -> bool:
    """Return whether numbers from one that is written there, in such steps upwards, end early."""
    first, last, steps = ([], arguments, []) if len(arguments) == 1 else (arguments[:1], arguments[1:2], arguments[2:])
    return (
        all(map(_is_number, last))
        and all(_is_below(node, MAX_SIZE) for node in first)
        and all(_is_below(node, MAX_SIZE, least=1) for node in steps)
    )


def _is_text(node: Node) -> bool:
    """Return whether a text is short: one that is written there, or the left part of any."""
    if node.get("class") == "FUNCTION" and str(node["function_name"]).lower() == "left":
        size = node["arguments"][-1]["expression"]
        return size.get("class") == "CONSTANT" and _is_below(size, _MAX_TEXT, least=0)
    text = _text_of(node)
    return text is not None and len(text) <= _MAX_TEXT


def _is_below(node: Node, most: int, least: int | None = None) -> bool:
    literal = node.get("literal") or {}
    text = str(literal.get("text", ""))
    if node.get("class") != "CONSTANT" or literal.get("kind") != "INTEGER" or not re.fullmatch(r"-?\d{1,9}", text):
        return False
    return abs(int(text)) <= most and (least is None or int(text) >= least)


def _text_of(node: Node) -> str | None:
    literal = node.get("literal") or {}
    is_text = node.get("class") == "CONSTANT" and literal.get("kind") == "STRING"
    return str(literal.get("text", "")) if is_text else None


def _columns(tree: Any) -> Iterator[list[str]]:
    if isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            yield tree["column_names"]
        # A lambda inside is looked at for itself.
        tree = [] if tree.get("class") == "LAMBDA" else list(tree.values())
    if isinstance(tree, list):
        for inner in tree:
            yield from _columns(inner)


def _is_fixed(fields: pa.Schema, names: list[str]) -> bool:
    """Return whether a name is that of a field which contains nothing large."""
    kinds = [field.type for field in fields if field.name.casefold() == names[0].casefold()]
    return bool(kinds) and all(any(test(kind) for test in _FIXED) for kind in kinds)


def _unbounded(expressions: str, why: str, next_step: str) -> Terminal:
    return BAD_TRANSFORM.terminal(f"Sql: {expressions!r}: {why}", next_step=next_step)
