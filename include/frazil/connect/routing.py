"""The key `route` of the pipeline file, which tables are destinations, and Java's regular expressions as Python spells them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from frazil.connect.findings import ConnectorKeys
from frazil.connect.names import per_table
from frazil.pipeline.syntax.patterns import compiled, refused_because

_JAVA_ONLY = re.compile(r"(?<!\\)(?:\\\\)*(?P<part>\\[pPQEhHRXGzk]|&&|\(\?[a-zA-Z]*[dUu])|\[[^\]\\]*\[")


class UnusablePattern(ValueError):
    """A pattern that Python reads differently, or not at all."""


def python_regex(pattern: str) -> str:
    """The same expression for Python, matched from end to end.

    Raises:
        UnusablePattern: It has what only Java has, or is no regular expression.
    """
    if construct := _JAVA_ONLY.search(pattern):
        part = construct["part"] or "["
        raise UnusablePattern(f"Python has no {part} as Java has it: another expression is needed")
    try:
        spelled = compiled(pattern).pattern
    except ValueError as error:
        raise UnusablePattern(str(error)) from error
    if (reason := refused_because(pattern)) is not None:
        raise UnusablePattern(reason)
    return spelled


_DYNAMIC = "iceberg.tables.dynamic-enabled"
_AUTO_CREATE = "iceberg.tables.auto-create-enabled"
_FIELD = "iceberg.tables.route-field"
_TABLE = re.compile(r"[^.\s]+(\.[^.\s]+)+")


@dataclass(frozen=True, slots=True)
class RouteResult:
    """Destinations by name, `route`, None if there is none, and whether records may name further tables, to be made."""

    tables: tuple[str, ...]
    route: dict[str, Any] | None = None
    creates: bool = False

    def name(self, table: str) -> str:
        """The name for a table in the configuration: lower case if records name tables, as the sink reads them."""
        return table.lower() if "field" in (self.route or {}) else table


def translate_route(keys: ConnectorKeys, named: Sequence[str] = ()) -> RouteResult:
    """Translate the connector's routing of records to tables.

    `named` are tables that the user names for a connector whose records name them.
    """
    written = keys.get("iceberg.tables")
    static = list(dict.fromkeys(part.strip() for part in (written or "").split(",") if part.strip()))
    _switch(keys)
    if keys.is_true(_DYNAMIC):
        return _dynamic(keys, static, named)
    if not static:
        keys.say("iceberg.tables", "refused", "no table is named, and dynamic-enabled is not true", "name the tables")
        return RouteResult(())
    if bad := [table for table in static if not _TABLE.fullmatch(table)]:
        message = f"{bad[0]} is no table with its namespace"
        keys.say("iceberg.tables", "refused", message, "write namespace.table")
        return RouteResult(())
    keys.say("iceberg.tables", "carried", "destinations")
    _strangers(keys, static)
    return _static(keys, static) if _FIELD in keys else _everywhere(keys, static)


def _switch(keys: ConnectorKeys) -> None:
    value = (keys.get(_DYNAMIC) or "false").lower()
    if value not in ("true", "false"):
        keys.say(_DYNAMIC, "refused", "neither true nor false")
    elif value == "false":
        keys.say(_DYNAMIC, "carried", "route: the default")


def _dynamic(keys: ConnectorKeys, static: Sequence[str], named: Sequence[str]) -> RouteResult:
    """Each record names its table."""
    if static:
        conflict = "the sink refuses static and dynamic table names together"
        keys.say("iceberg.tables", "refused", conflict, "remove iceberg.tables, or dynamic-enabled")
        return RouteResult(())
    if _FIELD not in keys:
        keys.say(_DYNAMIC, "refused", "records name their table in a field, and iceberg.tables.route-field is missing")
        return RouteResult(())
    mentioned = [table_option[0] for table_option in map(per_table, _per_table_names(keys)) if table_option]
    tables = tuple(dict.fromkeys(table.lower() for table in (*named, *mentioned) if _TABLE.fullmatch(table)))
    creates = keys.is_true(_AUTO_CREATE)
    skipped = "names that are no table are skipped (otherwise: filter) and counted"
    if creates:
        why = f"route.field and route.create: tables are made if route.field.allow lets records name them; {skipped}"
        keys.say(_DYNAMIC, "changed", why, "write under route.field.allow which names records may bring")
    else:
        keys.say(_DYNAMIC, "changed", f"route.field; {skipped}", "list every table under destinations")
    keys.say(_FIELD, "carried", "route.field.name")
    _dynamic_tables(keys)
    allow = [re.escape(table) for table in tables]
    field = {"name": keys.get(_FIELD), "allow": allow, "deny": [], "lower_case": True}
    return RouteResult(tables, {"field": field, "otherwise": "filter"}, creates)


def _dynamic_tables(keys: ConnectorKeys) -> None:
    """Say which keys of tables have no effect: the sink asks for them by the name that it made small."""
    for key in _per_table_names(keys):
        table_option = per_table(key)
        if key.endswith(".route-regex"):
            keys.say(key, "changed", "no effect on dynamic names, there as here")
        elif table_option and table_option[0] != table_option[0].lower():
            small = (
                f"dynamic names are made lower-case, so it has no effect on {table_option[0].lower()}, there as here"
            )
            keys.say(
                key,
                "changed",
                small,
                f"if it is meant, write iceberg.table.{table_option[0].lower()}.{table_option[1]}",
            )


def _static(keys: ConnectorKeys, static: Sequence[str]) -> RouteResult:
    """Static routing: each table takes the records whose routing field matches its expression."""
    expressions: dict[str, str] = {}
    for table in static:
        key = f"iceberg.table.{table}.route-regex"
        pattern = keys.get(key)
        if pattern is None:
            message = f"{table} has no route-regex, so the sink writes nothing to it; it is no destination"
            keys.say("iceberg.tables", "changed", message)
            continue
        try:
            expressions[table] = python_regex(pattern)
            keys.say(key, "carried", "route.static.tables")
        except UnusablePattern as error:
            keys.say(key, "refused", str(error), "write the expression as Python has it")
    if not expressions:
        keys.say(_FIELD, "refused", "no table has a route-regex, so the sink drops every record", "give each table one")
        return RouteResult(())
    keys.say(_FIELD, "carried", "route.static.field; no match is skipped (otherwise: filter) and counted")
    route = {"static": {"field": keys.get(_FIELD), "tables": expressions}, "otherwise": "filter"}
    return RouteResult(tuple(expressions), route)


def _everywhere(keys: ConnectorKeys, static: Sequence[str]) -> RouteResult:
    for key in _per_table_names(keys):
        if key.endswith(".route-regex"):
            keys.say(key, "changed", "no route-field, so it has no effect: every record goes to every table")
    if len(static) > 1:
        keys.note("Every record goes to every destination, as in the sink: there is no route-field.")
    return RouteResult(tuple(static))


def _strangers(keys: ConnectorKeys, static: Sequence[str]) -> None:
    for key in _per_table_names(keys):
        table = per_table(key)
        if table and table[0] not in static:
            similar = get_close_matches(table[0], static, 1, 0.75)
            hint = f"did you mean {similar[0]}?" if similar else None
            keys.say(key, "unknown", f"iceberg.tables does not name {table[0]}, so nothing reads it", hint)


def _per_table_names(keys: ConnectorKeys) -> list[str]:
    return [
        f"iceberg.table.{option}" for option in keys.below("iceberg.table.") if per_table(f"iceberg.table.{option}")
    ]
