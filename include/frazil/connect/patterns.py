"""Java's regular expressions, as Python spells them."""

from __future__ import annotations

import re

_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")
_JAVA_ONLY = re.compile(r"(?<!\\)(?:\\\\)*(?P<part>\\[pPQEhHRXGzk]|&&|\(\?[a-zA-Z]*[dUu])|\[[^\]\\]*\[")


class UnusablePattern(ValueError):
    """A pattern that Python reads differently, or not at all."""


def python_regex(pattern: str) -> str:
    """The same expression for Python, matched from end to end.

    Raises:
        UnusablePattern: It has what only Java has, or is no regular expression.
    """
    if found := _JAVA_ONLY.search(pattern):
        part = found["part"] or "["
        raise UnusablePattern(f"Python has no {part} as Java has it: another expression is needed")
    spelled = _NAMED_GROUP.sub("(?P<", pattern)
    try:
        re.compile(spelled)
    except (re.error, RecursionError, OverflowError) as error:
        raise UnusablePattern(f"not a regular expression: {error}") from error
    return spelled
