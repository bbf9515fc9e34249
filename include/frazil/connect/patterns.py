"""Java's regular expressions, as Python spells them."""

from __future__ import annotations

import re

from frazil.pipeline.patterns import compiled, refused_because

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
    try:
        spelled = compiled(pattern).pattern
    except ValueError as error:
        raise UnusablePattern(str(error)) from error
    if (reason := refused_because(pattern)) is not None:
        raise UnusablePattern(reason)
    return spelled
