"""SQL text for Spark operations that have no API: names and literals are quoted only here.

Everything else names columns, types and values by Spark's Column API, which parses none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from frazil.maintain.procedures import Argument, Before, ZOrder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SQL_SETTINGS: Final[Mapping[str, str]] = {
    # Spark replaces `${env:NAME}` in every text that it parses, quoted names included, by a variable of its process.
    "spark.sql.variable.substitute": "false",
    # A backslash in a literal escapes, as `quote_text` takes it to.
    "spark.sql.parser.escapedStringLiterals": "false",
}
"""What makes a name or a value in SQL text mean itself. Each session of Frazil has these, whatever its engine's `conf` says."""

_CASE: Final = "spark.sql.caseSensitive"
"""Iceberg tells `id` and `ID` apart, and so do records; databases do not."""


def configure_quoting(spark: SparkSession) -> None:
    """Set a session's options so that quoted names and literals are taken literally."""
    for key, value in SQL_SETTINGS.items():
        spark.conf.set(key, value)
    spark.conf.set(_CASE, "false")  # as databases have it: a session may be one that an earlier job wrote with


def prepare_writer(spark: SparkSession) -> None:
    """Set the options of a session that writes tables, so that column names are taken literally too."""
    configure_quoting(spark)
    spark.conf.set(_CASE, "true")


def quote_name(*names: str) -> str:
    """A name of one or several parts."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def quote_text(value: str) -> str:
    """A literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def literal(value: Argument) -> str:
    """An argument of a procedure."""
    match value:
        case bool():
            literal_text = str(value).lower()
        case int():
            literal_text = str(value)
        case datetime():
            literal_text = _instant(value)
        case str():
            literal_text = quote_text(value)
        case tuple():
            literal_text = f"array({', '.join(map(quote_text, value))})"
        case Before():
            literal_text = quote_text(f"{quote_name(*value.column)} < {_bound(value)}")
        case ZOrder():
            literal_text = quote_text(f"zorder({', '.join(quote_name(name) for name in value.columns)})")
        case _:
            literal_text = f"map({', '.join(quote_text(part) for pair in value.items() for part in pair)})"
    return literal_text


def _bound(value: Before) -> str:
    if value.type == "date":
        return f"DATE '{value.instant:%Y-%m-%d}'"
    if value.type == "timestamp":
        return f"TIMESTAMP_NTZ '{value.instant:%Y-%m-%d %H:%M:%S}'"
    return _instant(value.instant)


def _instant(value: datetime) -> str:
    return f"TIMESTAMP '{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC'"
