"""Changes of a table as the statements that would make them in Spark SQL with Iceberg's extensions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from frazil.batch.schema_change import SchemaChange
from frazil.pipeline.models.pipeline_file import Destination
from frazil.pipeline.settings.catalogs import refused_properties
from frazil.pipeline.syntax.types import ColumnType, ListOf, MapOf, Primitive, StructOf, parse_type

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPARK_NAMES: Final[Mapping[str, str]] = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
"""Types that Spark calls otherwise. It has no time, uuid and fixed: those keep Iceberg's name."""


def alter_statements(
    destination: Destination, changes: Iterable[SchemaChange], hidden: Callable[[str], str] = str
) -> Iterator[str]:
    """One statement for each change, in their order. `hidden` puts references in place of values, before these are quoted."""
    table = _path(destination.table.split("."))
    return (f"ALTER TABLE {table} {_clause(change, destination, hidden)}" for change in changes)


def _clause(change: SchemaChange, destination: Destination, hidden: Callable[[str], str]) -> str:
    path, text = _path(change.path), change.type
    match change.kind:
        case "add":
            clause = f"ADD COLUMN {path} {_spark_type(parse_type(text))}"
        case "widen":
            clause = f"ALTER COLUMN {path} TYPE {_spark_type(parse_type(text))}"
        case "optional":
            clause = f"ALTER COLUMN {path} DROP NOT NULL"
        case "doc":
            clause = f"ALTER COLUMN {path} COMMENT {_text(hidden(text))}"
        case "identifier":
            clause = f"SET IDENTIFIER FIELDS {', '.join(_path([name]) for name in change.path)}"
        case "partition":
            clause = f"ADD PARTITION FIELD {text}" if text else f"DROP PARTITION FIELD {path}"
        case "sort":
            clause = f"WRITE LOCALLY ORDERED BY {text}" if text else "WRITE UNORDERED"
        case _:
            (name,) = change.path
            # What the settings had to allow may be more than a description of the table.
            value = "…" if any(refused_properties([name], ())) else destination.properties.get(name, "")
            clause = f"SET TBLPROPERTIES ({_text(name)} = {_text(hidden(value))})"
    return clause


def _path(names: Iterable[str]) -> str:
    return ".".join(name if _WORD.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in names)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _spark_type(column_type: ColumnType) -> str:
    match column_type:
        case ListOf(element):
            return f"array<{_spark_type(element)}>"
        case MapOf(key, value):
            return f"map<{_spark_type(key)}, {_spark_type(value)}>"
        case StructOf(fields):
            return f"struct<{', '.join(f'{_path([name])}: {_spark_type(inner)}' for name, inner in fields)}>"
        case Primitive(name):
            return _SPARK_NAMES.get(name, str(column_type))
