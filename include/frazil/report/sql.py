"""Small SQL queries on Iceberg tables: PyIceberg reads the needed files and columns, DuckDB computes the result.

The query is parsed first. So only the tables and columns that it names are read, and, with a plain LIMIT, only that many
rows. DuckDB itself has no access to files or networks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frazil.error_codes import BAD_ARGUMENT, NAME_UNKNOWN
from frazil.extras import require
from frazil.iceberg.catalog.table import BranchTable
from frazil.iceberg.errors import translated
from frazil.iceberg.patches.metadata import unreadable
from frazil.project import Project

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from frazil.iceberg.catalog.catalog import Lake
    from frazil.iceberg.catalog.table import Table

DEFAULT_CATALOG = "lake"

METADATA_TABLES = ("snapshots", "history", "files", "partitions", "manifests", "refs", "entries")
"""Metadata tables, `TABLE.snapshots` and so on, by PyIceberg's names."""

_WORD_BEFORE_DOT = re.compile(rb"(\w+)\s*\.")

NameParts = tuple[str, ...]
"""A table's name as written in the query, part by part."""


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """What a query reads.

    Attributes:
        tables: Names of tables as written, in the order of their first use.
        words: Every name that could be a column, case-folded; None if all columns are needed.
        limit: Number of rows that suffices; None if all rows are needed.
        lists_tables: Whether the query is SHOW TABLES.
    """

    tables: tuple[NameParts, ...]
    words: frozenset[str] | None
    limit: int | None
    lists_tables: bool


def query(project: Project, sql: str, *, catalog: str | None = None) -> pa.Table:
    """Run one query.

    Args:
        project: The project, whose settings have the catalog.
        sql: One SELECT (or DESCRIBE, SUMMARIZE, SHOW TABLES) in DuckDB's SQL. Tables are named `namespace.table`;
            `namespace.table.snapshots` and the like read the table's metadata, `namespace.table.branch_audit` a branch,
            `namespace.table.tag_v1` a tag.
        catalog: Name of a catalog in the settings; None: the only one, or `lake`.

    Raises:
        Terminal: The query is not valid, would change something, or names a table that does not exist.
        Retryable: The catalog or the storage can't be read now.
    """
    require("sql", "a query")
    import duckdb

    lake = project.lake(catalog or _default(project))
    with _translated_errors(), duckdb.connect(":memory:") as connection:
        sql = with_quoted_words(connection, sql)
        parsed = parse(connection, sql)
        if parsed.lists_tables:
            return pa.table({"name": pa.array(lake.tables(), pa.string())})
        for number, name in enumerate(parsed.tables):
            _register_rows(connection, name, number, _read(lake, name, parsed))
        # From here on the user's text runs, which may read only the registered rows.
        connection.execute("SET python_enable_replacements = false; SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        return connection.sql(sql).to_arrow_table()


def with_quoted_words(connection: DuckDBPyConnection, sql: str) -> str:
    """Quote SQL keywords before a dot in a query that is not valid: in `default.t`, `default` is a namespace."""
    import duckdb

    [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    if json.loads(text).get("error_type") != "parser":
        return sql
    written = sql.encode()
    for start, kind in reversed(duckdb.tokenize(sql)):
        word = _WORD_BEFORE_DOT.match(written, start) if kind == duckdb.token_type.keyword else None
        if word is not None:
            written = b'%s"%s"%s' % (written[:start], word[1], written[start + len(word[1]) :])
    return written.decode()


def parse(connection: DuckDBPyConnection, sql: str) -> ParsedQuery:
    """Determine which tables and columns a query reads.

    Raises:
        Terminal: It is not valid SQL, not a single statement, or would change something.
    """
    [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree: Mapping[str, Any] = json.loads(text)
    if tree["error"]:
        # DuckDB serializes only queries. For a statement that would change something it says "not implemented".
        reason = "it would change something" if tree.get("error_type") == "not implemented" else tree["error_message"]
        raise BAD_ARGUMENT.terminal(
            f"not a query on tables: {reason}", next_step="write one SELECT: frazil sql only reads tables"
        )
    if len(tree["statements"]) != 1:
        raise BAD_ARGUMENT.terminal(
            f"expected one statement, found {len(tree['statements'])}", next_step="run one statement at a time"
        )
    root = tree["statements"][0]["node"]
    nodes = list(_nodes(root))
    ctes = {cte["key"].casefold() for node in nodes for cte in _ctes(node)}
    base_tables = [node for node in nodes if node.get("type") == "BASE_TABLE"]
    tables = dict.fromkeys(
        name for name in map(_name_parts, base_tables) if len(name) > 1 or name[0].casefold() not in ctes
    )
    lists_tables = any(node.get("show_type") == "SHOW_SPECIAL" for node in nodes)
    return ParsedQuery(tuple(tables), _words(root, nodes, base_tables), _limit(root), lists_tables)


def _nodes(tree: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)


def _ctes(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ctes = node.get("cte_map")
    return list(ctes["map"]) if isinstance(ctes, dict) else []


def _name_parts(node: Mapping[str, Any]) -> NameParts:
    return tuple(part for part in (node["catalog_name"], node["schema_name"], node["table_name"]) if part)


def _words(root: object, nodes: list[Mapping[str, Any]], base_tables: list[Mapping[str, Any]]) -> frozenset[str] | None:
    """Names that may be columns: all strings of the syntax tree, since extra names do no harm. None if all columns are needed."""
    whole_rows = {str(base[key]).casefold() for base in base_tables for key in ("alias", "table_name") if base[key]}
    for node in nodes:
        names = node.get("column_names") if node.get("class") == "COLUMN_REF" else None
        if node.get("class") == "STAR" or node.get("ref_type") == "NATURAL" or "show_type" in node:
            return None
        if names and names[-1].casefold() in whole_rows:
            return None
    return frozenset(_strings(root))


def _strings(tree: object) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree.casefold()
    elif isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _strings(value)


def _limit(root: Mapping[str, Any]) -> int | None:
    """The LIMIT of `SELECT columns FROM one_table LIMIT n`; None for any other query, which needs all rows."""
    if not _is_plain(root) or len(root["modifiers"]) != 1:
        return None
    modifier = root["modifiers"][0]
    counts_rows = modifier["type"] == "LIMIT_MODIFIER" and modifier.get("limit_type", "ROW_COUNT") == "ROW_COUNT"
    limit = modifier["limit"] if counts_rows and not modifier["offset"] else None
    if limit is None or limit["class"] != "CONSTANT":
        return None
    value = limit.get("literal", {}).get("text") or limit.get("value", {}).get("value")
    return int(value) if str(value).isdecimal() else None


def _is_plain(root: Mapping[str, Any]) -> bool:
    """Whether a query only selects columns of one table, without filter, grouping or sampling."""
    if root.get("type") != "SELECT_NODE" or root["from_table"]["type"] != "BASE_TABLE":
        return False
    source = root["from_table"]
    if any(root.get(key) for key in ("where_clause", "group_expressions", "having", "qualify", "sample")):
        return False
    if source.get("sample") or source.get("at_clause"):
        return False
    return all(expression["class"] in ("STAR", "COLUMN_REF") for expression in root["select_list"])


def _read(lake: Lake, written_name: NameParts, parsed: ParsedQuery) -> pa.Table:
    name, suffix = _resolve(lake, written_name)
    table = lake.load_table(name)
    metadata = suffix if suffix in METADATA_TABLES else None
    if suffix is not None and metadata is None:
        table = _table_at_ref(table, name, suffix)
    with translated(f"reading table {name}"):
        if metadata is not None:
            inspected: pa.Table = getattr(table.inspect, metadata)()
            return inspected
        hidden = unreadable(table.schema())
        if unreadable_columns := [
            field for field in hidden if parsed.words is not None and field.casefold() in parsed.words
        ]:
            raise BAD_ARGUMENT.terminal(
                f"table {name}: column {unreadable_columns[0]} is a variant, which only an engine can read",
                next_step="select only its other columns here, and query this one with Spark",
            )
        fields = [field.name for field in table.schema().fields if field.name not in hidden]
        columns = [field for field in fields if parsed.words is None or field.casefold() in parsed.words]
        # A count needs no column, but a scan must have one: take any.
        return table.scan(selected_fields=tuple(columns or fields[:1]), limit=parsed.limit).to_arrow()


def _table_at_ref(table: Table, name: str, suffix: str) -> Table:
    """A table at a branch or tag, which `suffix` names as Spark does: `branch_audit`, `tag_v1`."""
    kind, _, ref = suffix.partition("_")
    snapshot_ref = table.metadata.refs.get(ref)
    if snapshot_ref is None or snapshot_ref.snapshot_ref_type.value != kind:
        refs = sorted(
            f"{present.snapshot_ref_type.value}_{ref_name}" for ref_name, present in table.metadata.refs.items()
        )
        raise NAME_UNKNOWN.terminal(
            f"table {name} has no {kind} {ref}", next_step=f"it has: {', '.join(refs) or 'no snapshots yet'}"
        )
    return BranchTable(table, name, ref)


def _resolve(lake: Lake, written_name: NameParts) -> tuple[str, str | None]:
    """Resolve a name to a table, and to the suffix that names a metadata table, branch or tag; None without a suffix."""
    names = lake.tables()
    by_folded_name = {table.casefold(): table for table in names}
    for start in (0, 1) if written_name[0].casefold() == lake.name.casefold() else (0,):
        parts = ".".join(written_name[start:]).casefold()
        if parts in by_folded_name:
            return by_folded_name[parts], None
        table, _, metadata = parts.rpartition(".")
        if table in by_folded_name and metadata in METADATA_TABLES:
            return by_folded_name[table], metadata
        if table in by_folded_name and metadata.startswith(("branch_", "tag_")):
            kind, _, ref = ".".join(written_name[start:])[len(table) + 1 :].partition("_")
            return by_folded_name[table], f"{kind.casefold()}_{ref}"
    spelled = ".".join(written_name)
    suggestions = get_close_matches(spelled, names, 1)
    raise NAME_UNKNOWN.terminal(
        f"there is no table {spelled} in catalog {lake.name}"
        + (f", did you mean {suggestions[0]}?" if suggestions else ""),
        next_step=f"its tables: {', '.join(names) or 'none yet'}; after a table's name and a dot: {', '.join(METADATA_TABLES)},"
        " branch_NAME, tag_NAME",
    )


def _register_rows(connection: DuckDBPyConnection, written_name: NameParts, number: int, rows: pa.Table) -> None:
    """Let DuckDB find `rows` under a name as written. To DuckDB the first of several parts is a database."""
    connection.register(f"frazil_{number}", rows)
    parts = [_quoted(part) for part in written_name]
    if len(parts) > 1:
        connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {parts[0]}")
        parts = parts if len(parts) > 2 else [parts[0], "main", parts[1]]  # noqa: PLR2004 - database, schema, table
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {parts[0]}.{parts[1]}")
    connection.execute(f"CREATE VIEW {'.'.join(parts)} AS FROM frazil_{number}")


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'


def _default(project: Project) -> str:
    names = list(project.settings.catalogs)
    return names[0] if len(names) == 1 else DEFAULT_CATALOG


@contextmanager
def _translated_errors() -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise BAD_ARGUMENT.terminal(f"the query failed: {error}") from error
