"""Names in the words of a failure: exceptions, conditions, places in Frazil's code. Words around them may quote records. No pyspark here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_MOST: Final = 12
"""Names that a message repeats."""

_NAMED: Final = re.compile(
    r"""
    \b(?:java|javax|org|com|io|software|scala|py4j|pyspark|pyarrow|pyiceberg|duckdb|frazil)\.(?:[a-z]\w*\.)*[A-Z][\w$]*(?:Exception|Error|Failure)\b
    | ^pyarrow\.lib\.Arrow\w+
    | ^[A-Z]\w*(?:Error|Exception)(?=:|$)       # of Python, where a traceback names it
    | \bSQLSTATE:\ [0-9A-Z]{5}\b
    | (?<=Exception:\ )\[[A-Z][A-Z_]+(?:\.[A-Z_]+)*\]
    | (?<=/)frazil/[\w/]+\.py",\ line\ \d+
    | \bstatus(?:\ code)?:?\ \d{3}\b
    | (?i:No\ space\ left\ on\ device|Access\ Denied|Connection\ refused|Permission\ denied|Too\ many\ open\ files
      | password\ authentication\ failed|Java\ heap\ space|GC\ overhead\ limit\ exceeded|exceeding\ memory\ limits
      | insufficient\ memory\ for\ the\ Java|ExecutorLostFailure|database\ is\ locked|timed\ out|was\ cancelled|stopped\ SparkContext)
    """,
    re.VERBOSE | re.MULTILINE,
)

_OF_SUBMIT: Final = ("Error: ", 'Exception in thread "main" ')
"""Begin what spark-submit itself says of its arguments, before any record is read."""


def names_in(text: str) -> Iterator[str]:
    """The first names in a text, each once."""
    found = dict.fromkeys(match[0].replace('", line ', ":") for match in _NAMED.finditer(text))
    yield from list(found)[:_MOST]


def shown_lines(lines: list[str]) -> list[str]:
    """What the end of a job's log says without the values that it may quote."""
    own = [line[:500] for line in lines if line.startswith(_OF_SUBMIT)]
    names = ", ".join(names_in("\n".join(lines)))
    return [*own, *([names] if names else [])]
