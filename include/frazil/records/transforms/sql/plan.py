"""Plans of SQL expressions: checks them, combines them into one statement for DuckDB, and describes its columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from frazil.error_codes import BAD_TRANSFORM, FIELDS_UNFIT
from frazil.errors import Terminal
from frazil.records.casting.source import Kind, kind_of
from frazil.records.model.rows import TIMESTAMP
from frazil.records.transforms.fields import first_duplicate
from frazil.records.transforms.sql.bounds import refuse_growth
from frazil.records.transforms.sql.engine import (
    RELATION,
    Node,
    connection,
    expression_message,
    expression_sql,
    left_to_right,
    parse_condition,
    parse_select_list,
    query,
    refuse_clock,
    to_sql,
    walk,
)

if TYPE_CHECKING:
    import duckdb

_MAX_LEVELS: Final = 61
"""Most levels of a field: Arrow hands over types of up to 63 levels, and for DuckDB the field is part of a struct."""

_STAR_PARTS: Final = ("columns", "replace_list", "rename_list", "qualified_exclude_list")
"""Parts of a `*` that change which columns it stands for, in ways that `_sources` does not follow."""

ROW: Final = "_frazil_row"
HEADERS: Final = "_kafka_headers"
EXTRA_COLUMNS: Final = pa.schema(
    [
        ("_kafka_topic", pa.string()),
        ("_kafka_partition", pa.int32()),
        ("_kafka_offset", pa.int64()),
        ("_kafka_timestamp", TIMESTAMP),
        ("_kafka_key", pa.string()),
        (HEADERS, pa.map_(pa.string(), pa.string())),
        (ROW, pa.int64()),
    ]
)
"""Columns that expressions can read besides the fields; `*` does not stand for them."""


class UnfitShape(Terminal):
    """The expressions are valid, but don't fit the fields of these records."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked statement.

    Attributes:
        statement: A query for `ROW` and the columns.
        trial: A query for `ROW` of rows on which `statement` fails, perhaps not all of them; None if nothing can fail.
        schema: The columns, without `ROW`.
        sources: Per column, the field that it passes through unchanged; None if it is computed.
        star: Index among the columns at which the fields belong that an omitted `*` stands for; None if none was omitted.
    """

    statement: str
    trial: str | None
    schema: pa.Schema
    sources: tuple[str | None, ...]
    star: int | None = None


@lru_cache(maxsize=64)
def named_columns(select: str, where: str | None) -> frozenset[str] | None:
    """Return the casefolded names of fields that expressions read and of columns that they output; None if every field matters.

    Other fields merely pass through a `*`.
    """
    try:
        items, nodes = _parse(select, where)
    except Terminal:
        return None
    stars = [node for node in nodes if node.get("class") == "STAR"]
    explicit_items = [item for item in items if item["class"] != "STAR"]
    if stars and not (
        len(stars) == 1
        and stars[0] in items
        and not any(stars[0][part] for part in (*_STAR_PARTS, "exclude_list", "relation_name"))
        and all(item["alias"] or item["class"] == "COLUMN_REF" for item in explicit_items)
    ):
        return None
    columns = [node["column_names"] for node in nodes if node.get("class") == "COLUMN_REF"]
    if any(names[0].lower() == RELATION for names in columns) or _has_positional_reference(nodes):
        return None
    names = [name for names in columns for name in names]
    return frozenset(
        name.casefold() for name in (*names, *(item["alias"] for item in explicit_items), *EXTRA_COLUMNS.names)
    )


@lru_cache(maxsize=64)
def reads_headers(select: str, where: str | None) -> bool:
    """Return whether expressions may read `HEADERS`: that column is costly to build."""
    _, nodes = _parse(select, where)
    names = {name.lower() for node in nodes if node.get("class") == "COLUMN_REF" for name in node["column_names"]}
    return not names.isdisjoint((HEADERS, RELATION)) or _has_positional_reference(nodes)


def _parse(select: str, where: str | None) -> tuple[list[Node], list[Node]]:
    """Return the expressions of `select`, and all nodes of `select` and `where`."""
    items = parse_select_list(select, f"SELECT {select}")
    return items, list(walk([items, [] if where is None else parse_condition(where)]))


def _has_positional_reference(nodes: list[Node]) -> bool:
    return any(node.get("class") == "POSITIONAL_REFERENCE" for node in nodes)


@lru_cache(maxsize=64)
def plan(select: str, where: str | None, fields: pa.Schema, *, with_star: bool = True) -> Plan:
    """Return the plan of expressions for values with `fields`. Without `with_star` a `*` is left out of it.

    Raises:
        Terminal: An expression is not allowed, or its type or name is one that tables don't have.
        UnfitShape: The expressions don't fit the fields.
    """
    refuse_names(fields)
    _refuse_depth(fields)
    items = parse_select_list(select, f"SELECT {select}")
    star = None
    if not with_star:
        star = next((index for index, item in enumerate(items) if item["class"] == "STAR"), None)
        items = [item for item in items if item["class"] != "STAR"]
    condition = None if where is None else parse_condition(where)
    all_fields = pa.schema([*fields, *EXTRA_COLUMNS])
    for expressions, nodes in ((select, items), (where or "", [condition] if condition is not None else [])):
        refuse_clock(expressions, nodes, fields.names)
        refuse_growth(expressions, nodes, all_fields)
    trial = _trial(items, condition)
    sources = _sources(items, fields)
    names = fields.names
    for node in walk(items):
        if node.get("class") == "STAR":
            node["exclude_list"] += [n for n in EXTRA_COLUMNS.names if n.lower() not in _lowered(node["exclude_list"])]
    inner = _statement(items, None if condition is None else left_to_right(condition))
    if condition is not None:
        _require_boolean(condition, all_fields)
    statement, columns = _cast_columns(inner, all_fields)
    column_sources = sources if sources is not None and len(sources) == len(columns) else [None] * len(columns)
    schema = pa.schema(
        [
            column if source is None else fields.field(names.index(source)).with_name(column.name)
            for column, source in zip(columns, column_sources, strict=True)
        ]
    )
    return Plan(statement, trial, schema, tuple(column_sources), star)


def refuse_names(fields: pa.Schema) -> None:
    """Refuse fields that DuckDB can't tell apart.

    Raises:
        UnfitShape: Names differ in case only, or are those of `EXTRA_COLUMNS`.
    """
    lowered = _lowered([*fields.names, *EXTRA_COLUMNS.names])
    if duplicate := first_duplicate(lowered):
        raise UnfitShape(
            f"Sql: expected names that differ by more than case, found {duplicate} twice",
            code=FIELDS_UNFIT,
            next_step="rename one with ReplaceField first",
        )


def _refuse_depth(fields: pa.Schema) -> None:
    deep = next((field.name for field in fields if _levels(field.type) > _MAX_LEVELS), None)
    if deep is not None:
        raise UnfitShape(
            f"Sql: expected fields of at most {_MAX_LEVELS} levels, found more in {deep}",
            code=FIELDS_UNFIT,
            next_step="use HoistField after Sql, or less often",
        )


def _levels(data_type: pa.DataType) -> int:
    match kind_of(data_type):
        case Kind.STRUCT:
            return 1 + max((_levels(field.type) for field in data_type), default=0)
        case Kind.LIST:
            return 1 + _levels(data_type.value_type)
        case Kind.MAP:
            return 2 + _levels(data_type.item_type)
    return 0


def _lowered(names: list[str]) -> list[str]:
    return [name.lower() for name in names]


def _sources(items: list[Node], fields: pa.Schema) -> list[str | None] | None:
    """Return, per column, the field that it passes through, None if it is computed. Return None if `*` is not traceable."""
    by_name = {name.lower(): name for name in fields.names}
    sources: list[str | None] = []
    for item in items:
        if item["class"] != "STAR":
            if any(node.get("class") == "STAR" for node in walk(item)):
                return None
            named = item["column_names"] if item["class"] == "COLUMN_REF" else []
            sources.append(by_name.get(named[0].lower()) if len(named) == 1 else None)
        elif any(item[part] for part in _STAR_PARTS):
            return None
        else:
            left_out = _lowered(item["exclude_list"])
            sources += [name for name in fields.names if name.lower() not in left_out]
    return sources


def _statement(items: list[Node], condition: Node | None) -> str:
    template = f"SELECT {ROW} FROM {RELATION}"  # noqa: S608 - two constants
    tree = json.loads(query("SELECT json_serialize_sql(?)", template)[0][0])
    node = tree["statements"][0]["node"]
    node["select_list"] += items
    node["where_clause"] = condition
    return to_sql(tree)


def _trial(items: list[Node], condition: Node | None) -> str | None:
    """Return the query for rows on which an expression fails; None if no expression can fail."""
    expressions = [item for item in items if item["class"] not in {"STAR", "COLUMN_REF", "CONSTANT"}]
    expressions += [pair["value"] for item in items if item["class"] == "STAR" for pair in item["replace_list"]]
    texts = [
        expression_sql(item) for item in expressions if not any(node.get("class") == "STAR" for node in walk(item))
    ]
    fails = " OR ".join(f"TRY(({expression}) IS NULL) IS NULL" for expression in texts) or "false"
    if condition is not None:
        condition_sql = expression_sql(left_to_right(condition))
        fails = f"CASE WHEN TRY({condition_sql}) IS NULL THEN true WHEN {condition_sql} THEN {fails} ELSE false END"
    elif not texts:
        return None
    return f"SELECT {ROW} FROM {RELATION} WHERE {fails}"  # noqa: S608 - its parts were parsed and checked


def _require_boolean(condition: Node, fields: pa.Schema) -> None:
    with _empty_relation(fields) as database:
        ((_, kind, *_),) = database.sql(f"SELECT {expression_sql(condition)} FROM {RELATION}").description  # noqa: S608 - checked
    if str(kind) not in {"BOOLEAN", '"NULL"'}:
        raise BAD_TRANSFORM.terminal(f"Sql: expected where as BOOLEAN, found {kind}", next_step="write a comparison")


def _cast_columns(inner: str, fields: pa.Schema) -> tuple[str, pa.Schema]:
    """Return the statement that casts the columns of `inner` to types of tables, and its columns."""
    with _empty_relation(fields) as database:
        described = [(str(c[0]), c[1]) for c in database.sql(inner).description]
        casts = [
            f"CAST({quote_identifier(name)} AS {cast_type(kind, name)}) AS {quote_identifier(name)}"
            for name, kind in described[1:]
        ]
        if duplicate := first_duplicate(_lowered([name for name, _ in described])):
            raise BAD_TRANSFORM.terminal(f"Sql: two columns are named {duplicate}", next_step="give them names with AS")
        statement = f"SELECT {', '.join([ROW, *casts])} FROM ({inner})"  # noqa: S608 - its parts were parsed and checked
        schema = database.sql(statement).to_arrow_table().schema
    return statement, schema.remove(0)


@contextmanager
def _empty_relation(fields: pa.Schema) -> Iterator[duckdb.DuckDBPyConnection]:
    """Register a relation without rows, and translate DuckDB's errors."""
    database = connection()
    import duckdb

    try:
        database.register(RELATION, pa.Table.from_batches([], fields))
        yield database
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.NotImplementedException) as e:
        raise UnfitShape(
            f"Sql: {expression_message(e)}",
            code=BAD_TRANSFORM,
            next_step="correct the expressions, or the fields of the values",
        ) from e
    except duckdb.Error as e:
        raise BAD_TRANSFORM.terminal(f"Sql: {expression_message(e)}", next_step="correct the expressions") from e
    finally:
        with suppress(duckdb.Error):
            database.unregister(RELATION)


_TABLE_TYPES: Final = frozenset(
    ("boolean", "integer", "bigint", "float", "double", "varchar", "blob", "date", "time", "timestamp", "uuid")
)
"""Types of DuckDB that tables have, too."""

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
    """Return the SQL name of the type that a column is cast to. Each value keeps its meaning, or the cast fails.

    Raises:
        Terminal: No column of a table contains such values: an interval, for example.
    """
    name = str(kind.id)
    if name in _TABLE_TYPES:
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
