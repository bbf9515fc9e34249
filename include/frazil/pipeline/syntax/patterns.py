"""Regular expressions of pipeline and capture files. RE2 matches them, through Arrow, in time proportional to the text.

An engine that backtracks may take for ever on a text that a producer chooses. Python's own is only used for groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Annotated, Any, Final, TypeVar, cast

from frazil.error_codes import BAD_TRANSFORM
from frazil.pipeline.syntax.strict import readable

_NAMED_GROUP: Final = re.compile(r"(?<!\\)((?:\\\\)*)\(\?<(?=[A-Za-z])")

_GROUPS: Final = 9
"""Number of the last group that a name can refer to: RE2 has one digit for it."""

_REFERENCE: Final = re.compile(r"\\(?:g<(?P<name>\w+)>|(?P<number>[1-9]\d?))")
"""A reference to a group, in a name: `\\1` or `\\g<year>`."""

_CACHE_SIZE: Final = 10_000
_MAX_CACHED: Final = 1_000
"""Most characters of the arguments of a cached call: names are shorter, and longer texts of a producer must not fill the memory."""

Call = TypeVar("Call", bound=Callable[..., Any])


def cache_short(function: Call) -> Call:
    """Decorate a function of texts: results are cached unless a text is long. A pattern, the first of several, may be long."""
    cached = lru_cache(_CACHE_SIZE)(function)

    @wraps(function)
    def call(*texts: str) -> Any:
        return (cached if max(map(len, texts[1:] or texts)) <= _MAX_CACHED else function)(*texts)

    return cast("Call", call)


def compiled(pattern: str) -> re.Pattern[str]:
    """An expression compiled by Python, to inspect its groups. Java's named groups, `(?<name>…)`, are allowed.

    Raises:
        ValueError: The expression is not valid.
    """
    try:
        return re.compile(_with_python_groups(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error


def refused_because(pattern: str) -> str | None:
    """Why RE2 refuses an expression; None if it does not. It imports Arrow, so don't call it while a DAG is parsed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), compiled(pattern).pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        return (
            f"{pattern!r} is not a regular expression that RE2 takes: {reason}. Look-ahead, look-behind, back-references and"
            " possessive quantifiers are none: to match them can take for ever"
        )
    return None


Expression = Annotated[str, readable(compiled)]
"""A regular expression in Python's or Java's syntax. `frazil validate` also checks that RE2 takes it."""


def refuse_unknown_groups(pattern: str, name: str) -> None:
    """Refuse a name that refers to groups which the expression does not have.

    Raises:
        ValueError: It does, or it has a backslash that is no reference to a group.
    """
    expression = compiled(pattern)
    for group in _REFERENCE.finditer(name):
        number = expression.groupindex.get(group["name"], 0) if group["name"] else int(group["number"])
        if not 0 < number <= expression.groups:
            raise ValueError(f"{name!r} takes up {group[0]}, which {pattern!r} does not have")
        if number > _GROUPS:
            raise ValueError(f"{name!r} takes up {group[0]}, and only the first {_GROUPS} groups can be")
    if "\\" in _REFERENCE.sub("", name):
        raise ValueError(f"{name!r} takes up \\, which {pattern!r} does not have")


@cache_short
def matches(pattern: str, text: str) -> bool:
    """Whether an expression matches a whole text.

    Raises:
        Terminal: RE2 refuses the expression.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        is_match: bool = pc.match_substring_regex(pa.array([text]), _whole(pattern))[0].as_py()
    except pa.ArrowInvalid as error:
        raise BAD_TRANSFORM.terminal(
            str(refused_because(pattern)), next_step="spell it without them; `frazil validate` names the key"
        ) from error
    return is_match


@cache_short
def expanded_name(pattern: str, text: str, name: str) -> str | None:
    """The name with its references replaced by groups of the match; None if the expression does not match the whole text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not matches(pattern, text):
        return None
    groups = compiled(pattern).groupindex
    rewritten = _REFERENCE.sub(lambda group: f"\\{groups[group['name']] if group['name'] else group['number']}", name)
    expanded: str = pc.replace_substring_regex(pa.array([text]), _whole(pattern), rewritten)[0].as_py()
    return expanded


def _with_python_groups(pattern: str) -> str:
    """The expression with Java's named groups in the syntax of Python and RE2."""
    return _NAMED_GROUP.sub(r"\1(?P<", pattern)


def _whole(pattern: str) -> str:
    """The expression in RE2's syntax, anchored so that it matches whole texts, with line breaks."""
    return f"\\A(?s:{_with_python_groups(pattern)})\\z"
