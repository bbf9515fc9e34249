"""What DuckDB is asked: SQL expressions checked, made one statement, and known by their columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from frazil.errors import Terminal
from frazil.records.fit.source import Kind, kind_of
from frazil.records.kafka import TIMESTAMP
from frazil.records.transforms.fields import repeated
from frazil.records.transforms.sql_bounds import refuse_growth
from frazil.records.transforms.sql_engine import RELATION, ask, connection, said
from frazil.records.transforms.sql_parse import (
    Node,
    condition_of,
    in_order,
    parsed,
    refuse_moments,
    text,
    walk,
    written,
)
from frazil.records.transforms.sql_types import port_type, quoted

if TYPE_CHECKING:
    import duckdb

_DEEPEST: Final = 61
"""Levels of a field that Arrow hands over to DuckDB, which is a struct's field there."""

_STAR_PARTS: Final = ("columns", "replace_list", "rename_list", "qualified_exclude_list")
"""Of a `*`: with one of them it makes more than it finds, or it can't be told what it finds."""

ROW: Final = "_frazil_row"
ADDED: Final = pa.schema(
    [
        ("_kafka_topic", pa.string()),
        ("_kafka_partition", pa.int32()),
        ("_kafka_offset", pa.int64()),
        ("_kafka_timestamp", TIMESTAMP),
        ("_kafka_key", pa.string()),
        (ROW, pa.int64()),
    ]
)
"""Columns beside the fields; `*` does not stand for them."""


class UnfitShape(Terminal):
    """The expressions are sound, and the fields are not those that they speak of."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked statement.

    Attributes:
        statement: Returns `ROW` and the columns.
        trial: Returns `ROW` of rows on which `statement` fails, perhaps not of all; None if there is nothing to try.
        schema: The columns, without `ROW`.
        sources: Per column the field that it is, untouched; None if it is computed.
        star: The place of the column before which a `*` was left out; None if there was none.
    """

    statement: str
    trial: str | None
    schema: pa.Schema
    sources: tuple[str | None, ...]
    star: int | None = None


@lru_cache(maxsize=64)
def named_columns(select: str, where: str | None) -> frozenset[str] | None:
    """Return what expressions name, folded: fields that they read, and columns that they make; None if any field matters.

    Fields with other names merely pass through a `*`.
    """
    try:
        items = parsed(select, f"SELECT {select}")
        nodes = list(walk([items, [] if where is None else condition_of(where)]))
    except Terminal:
        return None
    stars = [node for node in nodes if node.get("class") == "STAR"]
    made = [item for item in items if item["class"] != "STAR"]
    if stars and not (
        len(stars) == 1
        and stars[0] in items
        and not any(stars[0][part] for part in (*_STAR_PARTS, "exclude_list", "relation_name"))
        and all(item["alias"] or item["class"] == "COLUMN_REF" for item in made)
    ):
        return None
    columns = [node["column_names"] for node in nodes if node.get("class") == "COLUMN_REF"]
    if any(names[0].lower() == RELATION for names in columns) or any(
        node.get("class") == "POSITIONAL_REFERENCE" for node in nodes
    ):
        return None
    names = [name for names in columns for name in names]
    return frozenset(name.casefold() for name in (*names, *(item["alias"] for item in made), *ADDED.names))


@lru_cache(maxsize=64)
def plan(select: str, where: str | None, fields: pa.Schema, *, with_star: bool = True) -> Plan:
    """Check expressions against fields.

    Args:
        select: What stands between SELECT and FROM.
        where: A condition.
        fields: The fields.
        with_star: Whether a `*` stands for them; without, it is left out.

    Raises:
        Terminal: the expressions are no list of plain expressions, or give a type or names that tables don't have.
        UnfitShape: they don't fit the fields.
    """
    refuse_names(fields)
    _refuse_depth(fields)
    items = parsed(select, f"SELECT {select}")
    star = None
    if not with_star:
        star = next((at for at, item in enumerate(items) if item["class"] == "STAR"), None)
        items = [item for item in items if item["class"] != "STAR"]
    condition = None if where is None else condition_of(where)
    for expressions, nodes in ((select, items), (where or "", [condition] if condition is not None else [])):
        refuse_moments(expressions, nodes, fields.names)
        refuse_growth(expressions, nodes, pa.schema([*fields, *ADDED]))
    trial = _trial(items, condition)
    sources = _sources(items, fields)
    names = fields.names
    for node in walk(items):
        if node.get("class") == "STAR":
            node["exclude_list"] += [n for n in ADDED.names if n.lower() not in _lowered(node["exclude_list"])]
    inner = _statement(items, None if condition is None else in_order(condition))
    if condition is not None:
        _refuse_no_boolean(condition, pa.schema([*fields, *ADDED]))
    statement, columns = _typed(inner, pa.schema([*fields, *ADDED]))
    known = sources if sources is not None and len(sources) == len(columns) else [None] * len(columns)
    schema = pa.schema(
        [
            column if source is None else fields.field(names.index(source)).with_name(column.name)
            for column, source in zip(columns, known, strict=True)
        ]
    )
    return Plan(statement, trial, schema, tuple(known), star)


def refuse_names(fields: pa.Schema) -> None:
    """Refuse fields that are one to DuckDB.

    Raises:
        UnfitShape: names differ in case only, or are those of columns beside the fields.
    """
    lowered = _lowered([*fields.names, *ADDED.names])
    if twice := repeated(lowered):
        raise UnfitShape(
            f"Sql: expected names that differ by more than case, found {twice} twice",
            next_step="rename one with ReplaceField first",
        )


def _refuse_depth(fields: pa.Schema) -> None:
    deep = next((field.name for field in fields if _levels(field.type) > _DEEPEST), None)
    if deep is not None:
        raise UnfitShape(
            f"Sql: expected fields of at most {_DEEPEST} levels, found more in {deep}",
            next_step="use HoistField behind Sql, or less often",
        )


def _levels(of: pa.DataType) -> int:
    match kind_of(of):
        case Kind.STRUCT:
            return 1 + max((_levels(field.type) for field in of), default=0)
        case Kind.LIST:
            return 1 + _levels(of.value_type)
        case Kind.MAP:
            return 2 + _levels(of.item_type)
    return 0


def _lowered(names: list[str]) -> list[str]:
    return [name.lower() for name in names]


def _sources(items: list[Node], fields: pa.Schema) -> list[str | None] | None:
    """Return per column the field that it merely names; None if it can't be told how many columns there are."""
    by_name = {name.lower(): name for name in fields.names}
    found: list[str | None] = []
    for item in items:
        if item["class"] != "STAR":
            if any(node.get("class") == "STAR" for node in walk(item)):
                return None
            named = item["column_names"] if item["class"] == "COLUMN_REF" else []
            found.append(by_name.get(named[0].lower()) if len(named) == 1 else None)
        elif any(item[part] for part in _STAR_PARTS):
            return None
        else:
            left_out = _lowered(item["exclude_list"])
            found += [name for name in fields.names if name.lower() not in left_out]
    return found


def _statement(items: list[Node], condition: Node | None) -> str:
    template = f"SELECT {ROW} FROM {RELATION}"  # noqa: S608 - two constants
    tree = json.loads(ask("SELECT json_serialize_sql(?)", template)[0][0])
    node = tree["statements"][0]["node"]
    node["select_list"] += items
    node["where_clause"] = condition
    return written(tree)


def _trial(items: list[Node], condition: Node | None) -> str | None:
    """Return the question on which rows an expression fails, each for itself."""
    tried = [item for item in items if item["class"] not in {"STAR", "COLUMN_REF", "CONSTANT"}]
    tried += [pair["value"] for item in items if item["class"] == "STAR" for pair in item["replace_list"]]
    texts = [text(item) for item in tried if not any(node.get("class") == "STAR" for node in walk(item))]
    fails = " OR ".join(f"TRY(({tested}) IS NULL) IS NULL" for tested in texts) or "false"
    if condition is not None:
        asked = text(in_order(condition))
        fails = f"CASE WHEN TRY({asked}) IS NULL THEN true WHEN {asked} THEN {fails} ELSE false END"
    elif not texts:
        return None
    return f"SELECT {ROW} FROM {RELATION} WHERE {fails}"  # noqa: S608 - its parts were parsed and checked


def _refuse_no_boolean(condition: Node, fields: pa.Schema) -> None:
    with _empty(fields) as opened:
        ((_, kind, *_),) = opened.sql(f"SELECT {text(condition)} FROM {RELATION}").description  # noqa: S608 - checked
    if str(kind) not in {"BOOLEAN", '"NULL"'}:
        raise Terminal(f"Sql: expected where as BOOLEAN, found {kind}", next_step="write a comparison")


def _typed(inner: str, fields: pa.Schema) -> tuple[str, pa.Schema]:
    """Return the statement that casts what `inner` returns, and its columns."""
    with _empty(fields) as opened:
        described = [(str(c[0]), c[1]) for c in opened.sql(inner).description]
        casts = [f"CAST({quoted(name)} AS {port_type(kind, name)}) AS {quoted(name)}" for name, kind in described[1:]]
        if twice := repeated(_lowered([name for name, _ in described])):
            raise Terminal(f"Sql: two columns are named {twice}", next_step="give them names with AS")
        statement = f"SELECT {', '.join([ROW, *casts])} FROM ({inner})"  # noqa: S608 - its parts were parsed and checked
        schema = opened.sql(statement).to_arrow_table().schema
    return statement, schema.remove(0)


@contextmanager
def _empty(fields: pa.Schema) -> Iterator[duckdb.DuckDBPyConnection]:
    """Have a relation without rows, and DuckDB's errors as ours."""
    import duckdb

    opened = connection()
    try:
        opened.register(RELATION, pa.Table.from_batches([], fields))
        yield opened
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.NotImplementedException) as e:
        raise UnfitShape(f"Sql: {said(e)}", next_step="correct the expressions, or the fields of the values") from e
    except duckdb.Error as e:
        raise Terminal(f"Sql: {said(e)}", next_step="correct the expressions") from e
    finally:
        with suppress(duckdb.Error):
            opened.unregister(RELATION)
