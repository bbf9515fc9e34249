"""DuckDB, which parses and runs SQL expressions: one database in memory per process and thread, without files or network.

It also checks expressions: one row in, one row out, the same result whenever a record is read.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from frazil.error_codes import BAD_TRANSFORM
from frazil.errors import Terminal
from frazil.extras import require
from frazil.records import pa

if TYPE_CHECKING:
    import duckdb


RELATION: Final = "records"
MEMORY_BYTES: Final = 512 * 2**20
"""Default memory limit of a database, in bytes. DuckDB's own limit is 80 % of the machine's memory, and each task has a database."""

_SETTINGS: Final = (
    "SET temp_directory = ''",  # in memory alone: what does not fit fails, and spills to no disk
    "SET TimeZone = 'UTC'",
    "SET arrow_lossless_conversion = true",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
_MESSAGE_CHARACTERS: Final = 300
_ROW_MESSAGE_CHARACTERS: Final = 100
"""The name of the error takes about twenty of them, so that no more than eighty characters of a value are shown."""

_QUOTED: Final = re.compile(r"""'[^']*'|"[^"]*\"""")
_QUOTED_CHARACTERS: Final = 40


def connection(memory: int = MEMORY_BYTES) -> duckdb.DuckDBPyConnection:
    """Return this thread's database with a memory limit: it has one thread, no files, no network and no extensions."""
    return _connection(os.getpid(), threading.get_ident(), memory)


def forget_connections() -> None:
    """Open new databases from now on: after an internal error a database refuses all statements."""
    _connection.cache_clear()


@lru_cache(maxsize=16)
def _connection(_process: int, _thread: int, memory: int) -> duckdb.DuckDBPyConnection:
    require("sql", "an SQL expression")
    import duckdb

    database = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": f"{memory}B"})
    for setting in _SETTINGS:
        database.execute(setting)
    return database


def query(statement: str, *parameters: str) -> list[tuple[Any, ...]]:
    """Return all rows of a query that reads no records."""
    return connection().execute(statement, list(parameters)).fetchall()


def run(statement: str, rows: pa.Table, memory: int = MEMORY_BYTES) -> pa.Table:
    """Return the result of a statement on rows.

    Raises:
        duckdb.Error: The statement fails on some row.
    """
    database = connection(memory)
    # A reader, not a table: DuckDB would push conditions on a table down to Arrow, which compares NaN in another way.
    database.register(RELATION, rows.to_reader())
    try:
        return database.sql(statement).to_arrow_table()
    finally:
        database.unregister(RELATION)


def expression_message(error: Exception) -> str:
    """Return DuckDB's message about an expression in one line."""
    return _cut(_line(error), _MESSAGE_CHARACTERS)


def row_message(error: Exception) -> str:
    """Return DuckDB's message about a row in one line, with values cut short."""
    return _cut(_QUOTED.sub(lambda match: _cut(match[0], _QUOTED_CHARACTERS), _line(error)), _ROW_MESSAGE_CHARACTERS)


def _line(error: Exception) -> str:
    return " ".join(str(error).split("\n\nLINE ")[0].split())


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}…"


Node = dict[str, Any]
"""Part of a statement's tree, as DuckDB serialises it."""

_REFUSED_CLASSES: Final = {"WINDOW": "a window function", "SUBQUERY": "a subquery", "PARAMETER": "a parameter"}
_SETTING_FUNCTIONS: Final = (
    *("current_setting", "getvariable", "current_schema", "current_schemas", "current_database", "in_search_path"),
)
"""Functions that read settings. Their results never change, because no expression can change a setting."""

_CLOCK_KEYWORDS: Final = ("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp")
"""Clock functions that SQL writes without parentheses, like a column."""

_CLOCK_FUNCTIONS: Final = (
    *("ago", "current_localtime", "current_localtimestamp", "pg_conf_load_time", "pg_postmaster_start_time"),
)
"""Clock functions that DuckDB declares to be constant."""

_EMPTY_PARTS: Final = ("modifiers", "where_clause", "group_expressions", "having", "qualify", "sample")


def parse_condition(where: str) -> Node:
    """Return the condition in `where`.

    Raises:
        Terminal: It is not exactly one condition.
    """
    items = parse_select_list(where, f"SELECT (\n{where}\n)")
    if len(items) != 1 or items[0]["class"] == "STAR":
        raise _refusal(where, "it is not one condition")
    return items[0]


def left_to_right(condition: Node) -> Node:
    """Return a condition that DuckDB evaluates from left to right, with false in place of null.

    DuckDB reorders the parts of a bare condition, and stops at the first part that decides: whether a row fails would depend on its
    plan. Within CASE the parts keep their order, and TRY evaluates the same parts as the statement.
    """
    return parse_condition(f"CASE WHEN ({expression_sql(condition)}) THEN true ELSE false END")


def parse_select_list(expressions: str, statement: str) -> list[Node]:
    """Return the expressions of a select list, all of which make one row of one row.

    Raises:
        Terminal: They can't be parsed, or are not such expressions.
    """
    tree = json.loads(query("SELECT json_serialize_sql(?)", statement)[0][0])
    if tree.get("error"):
        raise _refusal(expressions, str(tree.get("error_message")))
    if len(tree["statements"]) != 1:
        raise _refusal(expressions, "it is several statements")
    node = tree["statements"][0]["node"]
    if node["type"] != "SELECT_NODE" or node["from_table"]["type"] != "EMPTY" or node["cte_map"]["map"]:
        raise _refusal(expressions, "it is more than expressions")
    if any(node[part] for part in _EMPTY_PARTS):
        raise _refusal(expressions, "it is more than expressions")
    items: list[Node] = node["select_list"]
    for inner in walk(items):
        _refuse_expression(expressions, inner)
    return items


def _refuse_expression(expressions: str, node: Node) -> None:
    if (what := _REFUSED_CLASSES.get(str(node.get("class")))) is not None:
        raise _refusal(expressions, f"it has {what}")
    if node.get("class") == "STAR" and node["expr"] is not None:
        raise _refusal(expressions, "it takes columns by a pattern, which would take Kafka's too; name them, or use *")
    name = str(node.get("function_name", "")).lower()
    if (reason := _refused_functions().get(name)) is not None:
        raise _refusal(expressions, f"{name} can't be used: {reason}")


def refuse_clock(expressions: str, items: list[Node], fields: Collection[str]) -> None:
    """Refuse the time of day: a record must have the same result whenever it is read.

    A field that is named like a keyword of SQL takes precedence over it, and is allowed.

    Raises:
        Terminal: A keyword means the time of day, or `age` has one argument, so that it counts from the time of day.
    """
    field_names = {name.lower() for name in fields}
    for node in walk(items):
        names = node["column_names"] if node.get("class") == "COLUMN_REF" else []
        word = names[0].lower() if len(names) == 1 else ""
        if word in _CLOCK_KEYWORDS and word not in field_names:
            raise _refusal(expressions, f"{word} can't be used: {_CHANGES}")
        if node.get("function_name", "").lower() == "age" and len(node["arguments"]) <= 1:
            raise _refusal(expressions, f"age with one argument can't be used: {_CHANGES}")


def _refusal(expressions: str, why: str) -> Terminal:
    return BAD_TRANSFORM.terminal(
        f"Sql: {expressions!r}: {why}",
        next_step="write expressions over the fields of one record, as between SELECT and FROM",
    )


def walk(tree: Any) -> Iterator[Node]:
    """Yield all nodes of a tree."""
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for inner in tree:
            yield from walk(inner)


_CHANGES: Final = "it has another result each time"


@lru_cache(maxsize=1)
def _refused_functions() -> dict[str, str]:
    """Return the functions that can't be used -> why."""
    rows = query(
        "SELECT DISTINCT function_name, function_type FROM duckdb_functions() "
        "WHERE function_type = 'aggregate' OR stability IN ('VOLATILE', 'CONSISTENT_WITHIN_QUERY')"
    )
    refused = {
        name: "it is an aggregate, over several rows" if kind == "aggregate" else _CHANGES
        for name, kind in rows
        if name not in {"error", *_SETTING_FUNCTIONS}  # error(…) makes the record a dead letter, always the same one
    }
    refused |= dict.fromkeys((*_CLOCK_KEYWORDS, *_CLOCK_FUNCTIONS), _CHANGES)
    return refused | dict.fromkeys(("unnest", "generate_series"), "it makes several rows of one")


def expression_sql(item: Node) -> str:
    """Return an expression as SQL, without its alias."""
    tree = json.loads(query("SELECT json_serialize_sql('SELECT 1')")[0][0])
    tree["statements"][0]["node"]["select_list"] = [{**item, "alias": ""}]
    return to_sql(tree).removeprefix("SELECT ")


def to_sql(tree: Node) -> str:
    """Return a tree as SQL."""
    return str(query("SELECT json_deserialize_sql(?::JSON)", json.dumps(tree))[0][0])
