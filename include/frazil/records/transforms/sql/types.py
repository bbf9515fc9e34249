"""Types that DuckDB returns, as types that decoded records have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from frazil.error_codes import BAD_TRANSFORM

_UNCHANGED: Final = {
    "boolean",
    "integer",
    "bigint",
    "float",
    "double",
    "varchar",
    "blob",
    "date",
    "time",
    "timestamp",
    "uuid",
}
_CAST_TO: Final = {
    "tinyint": "INTEGER",
    "smallint": "INTEGER",
    "utinyint": "INTEGER",
    "usmallint": "INTEGER",
    "uinteger": "BIGINT",
    "ubigint": "DECIMAL(20,0)",
    "hugeint": "DECIMAL(38,0)",
    "uhugeint": "DECIMAL(38,0)",
    "timestamp_s": "TIMESTAMP",
    "timestamp_ms": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMP WITH TIME ZONE",
    "enum": "VARCHAR",
}


def cast_type(kind: Any, column: str) -> str:
    """Return the SQL name of the type that a column is cast to; every value keeps its meaning, or the cast fails.

    Raises:
        Terminal: no column of a table holds such values (an interval, say).
    """
    name = str(kind.id)
    if name in _UNCHANGED:
        return name.upper()
    if name == "decimal":
        return str(kind)
    if (nested := _NESTED.get(name)) is not None:
        return nested(kind, column)
    if (cast_name := _CAST_TO.get(name)) is not None:
        return cast_name
    raise BAD_TRANSFORM.terminal(
        f"Sql: column {column} is of type {kind}, which no table has", next_step=f"cast {column} to another type"
    )


def quote_identifier(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _struct(kind: Any, column: str) -> str:
    fields = ", ".join(f"{quote_identifier(name)} {cast_type(child, column)}" for name, child in kind.children)
    return f"STRUCT({fields})"


def _list(kind: Any, column: str) -> str:
    return f"{cast_type(kind.children[0][1], column)}[]"


def _map(kind: Any, column: str) -> str:
    key, value = (cast_type(child, column) for _, child in kind.children)
    return f"MAP({key}, {value})"


_NESTED: Final[dict[str, Callable[[Any, str], str]]] = {"struct": _struct, "list": _list, "array": _list, "map": _map}
