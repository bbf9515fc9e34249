"""Regular expressions of pipeline and capture files: RE2 matches them, through Arrow, in time by the length of the text.

What backtracks may take longer than anybody waits, on a text that a producer chooses. Python's own only counts groups here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Final

from frazil.error_codes import BAD_TRANSFORM
from frazil.pipeline.syntax.strict import readable

_NAMED_GROUP: Final = re.compile(r"(?<!\\)((?:\\\\)*)\(\?<(?=[A-Za-z])")

_GROUPS: Final = 9
"""As many groups can be taken up: RE2 has one digit for them."""

_REFERENCE: Final = re.compile(r"\\(?:g<(?P<name>\w+)>|(?P<number>[1-9]\d?))")
"""A group as a name takes it up: `\\1` or `\\g<year>`."""

_REMEMBERED: Final = 10_000


def compiled(pattern: str) -> re.Pattern[str]:
    """An expression compiled by Python, for its groups. Java's named groups, `(?<name>…)`, become Python's.

    Raises:
        ValueError: The expression is not valid.
    """
    try:
        return re.compile(_spelled(pattern))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error


def refused_because(pattern: str) -> str | None:
    """Why RE2 does not take an expression; None if it does. Not asked while a DAG is parsed: it needs Arrow."""
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
"""A regular expression, as Python spells it, or Java. `frazil validate` asks RE2 for it, too."""


def refuse_unknown_groups(pattern: str, name: str) -> None:
    """Refuse a name that refers to groups which the expression does not have.

    Raises:
        ValueError: It does, or has a backslash that is no group.
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


@lru_cache(maxsize=_REMEMBERED)
def matches(pattern: str, text: str) -> bool:
    """Whether an expression matches a whole text.

    Raises:
        Terminal: RE2 does not take it.
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


@lru_cache(maxsize=_REMEMBERED)
def taken_up(pattern: str, text: str, name: str) -> str | None:
    """A name with group references replaced, if the expression matches the whole text; else None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not matches(pattern, text):
        return None
    groups = compiled(pattern).groupindex
    rewritten = _REFERENCE.sub(lambda group: f"\\{groups[group['name']] if group['name'] else group['number']}", name)
    filled_in: str = pc.replace_substring_regex(pa.array([text]), _whole(pattern), rewritten)[0].as_py()
    return filled_in


def _spelled(pattern: str) -> str:
    """An expression with Java's named groups as Python and RE2 spell them."""
    return _NAMED_GROUP.sub(r"\1(?P<", pattern)


def _whole(pattern: str) -> str:
    return f"\\A(?s:{_spelled(pattern)})\\z"
