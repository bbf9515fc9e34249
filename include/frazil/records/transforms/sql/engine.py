"""The DuckDB that runs SQL expressions: one database in memory per process and thread, shut off from everything outside."""

from __future__ import annotations

import os
import re
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from frazil.extras import require
from frazil.records import pa

if TYPE_CHECKING:
    import duckdb

RELATION: Final = "records"
MEMORY_BYTES: Final = 512 * 2**20
"""Memory of a database, unless its user says another: DuckDB's own bound is 80 % of the machine's, for each task of it."""

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
"""Of these the name of the error takes twenty, so that a value shows no more than eighty of its characters."""

_QUOTED: Final = re.compile(r"""'[^']*'|"[^"]*\"""")
_QUOTED_CHARACTERS: Final = 40


def connection(memory: int = MEMORY_BYTES) -> duckdb.DuckDBPyConnection:
    """Return this thread's database of a size in memory: one thread, no files, no network, no extensions to load."""
    return _connection(os.getpid(), threading.get_ident(), memory)


def forget_connection() -> None:
    """Open a new database next time: after an internal error the old one answers nothing more."""
    _connection.cache_clear()


@lru_cache(maxsize=16)
def _connection(_process: int, _thread: int, memory: int) -> duckdb.DuckDBPyConnection:
    require("sql", "an SQL expression")
    import duckdb

    database = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": f"{memory}B"})
    for setting in _SETTINGS:
        database.execute(setting)
    return database


def ask(question: str, *parameters: str) -> list[tuple[Any, ...]]:
    """Return all rows of the answer."""
    return connection().execute(question, list(parameters)).fetchall()


def run(statement: str, rows: pa.Table, memory: int = MEMORY_BYTES) -> pa.Table:
    """Run a statement on rows.

    Raises:
        duckdb.Error: it failed on some row.
    """
    database = connection(memory)
    # A reader, not a table: DuckDB would push conditions down to Arrow, which compares NaN otherwise.
    database.register(RELATION, rows.to_reader())
    try:
        return database.sql(statement).to_arrow_table()
    finally:
        database.unregister(RELATION)


def expression_message(error: Exception) -> str:
    """Return DuckDB's message about an expression in one line."""
    return _cut(_line(error), _MESSAGE_CHARACTERS)


def row_message(error: Exception) -> str:
    """Return DuckDB's message about a row in one line, with little of the row's values."""
    return _cut(_QUOTED.sub(lambda match: _cut(match[0], _QUOTED_CHARACTERS), _line(error)), _ROW_MESSAGE_CHARACTERS)


def _line(error: Exception) -> str:
    return " ".join(str(error).split("\n\nLINE ")[0].split())


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}…"
