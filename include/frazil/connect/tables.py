"""The key `route` of the pipeline file, and its destinations: partitions, properties and columns, and what the sink
does to tables that is to be done by hand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from frazil.connect.findings import APACHE, ConnectorKeys, per_table
from frazil.pipeline.syntax.patterns import compiled, refused_because
from frazil.pipeline.syntax.strict import BranchName

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
            keys.say(key, "changed", "no effect on dynamic names, as in Kafka Connect")
        elif table_option and table_option[0] != table_option[0].lower():
            small = f"dynamic names are made lower-case, so it has no effect on {table_option[0].lower()}, as in Kafka Connect"
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
            keys.say(key, "refused", str(error), "write the expression in Python's syntax")
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


_TIME_TRANSFORMS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_CALL = re.compile(r"(?P<transform>\w+)\((?P<column>[^,()]+)(?:,\s*(?P<size>\d+)\s*)?\)")
_PARTS = re.compile(r"(?:[^,(]++|\((?:[^()]*\))?)+")
"""Parts between commas outside parentheses, found in linear time."""


def partition_fields(text: str) -> list[str]:
    """The fields of a list of the sink's, in Frazil's spelling.

    Raises:
        ValueError: One is none. The sink then logs an error and creates the table without partitions.
    """
    return [_field(part.strip()) for part in _PARTS.findall(text) if part.strip()]


def column_of(field: str) -> str:
    """The column of a field in Frazil's spelling."""
    return field.rstrip(")").rpartition("(")[2].rpartition(",")[2].strip()


def _field(text: str) -> str:
    if "(" not in text:
        if re.search(r"[\s)]", text):
            raise ValueError(f"{text!r} is no partition field of the sink")
        return text
    match = _CALL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no partition field of the sink")
    transform = _TIME_TRANSFORMS.get(match["transform"].lower(), match["transform"].lower())
    column, size = match["column"].strip(), match["size"]
    if transform in _TIME_TRANSFORMS.values() and size is None and not re.search(r"\s", column):
        return f"{transform}({column})"
    if transform in ("bucket", "truncate") and size is not None and int(size) and not re.search(r"\s", column):
        return f"{transform}({int(size)}, {column})"
    raise ValueError(f"{text!r} is no partition field of the sink")


Columns = Mapping[str, Mapping[str, Any]]
"""Columns of a table: name -> type and options, as the pipeline file has them."""

_NO_KAFKA_COLUMNS = (
    "kafka_columns: false, because tables of the sink have none. To have replay and verify, add the five columns to the"
    " table (docs/reference/destination.md, KafkaColumns) and take that line out."
)
_KAFKA_COLUMNS = (
    "{table} needs the five Kafka columns, which say which record changed a row last. If it is there, add them before the first run:"
    " ALTER TABLE {table} ADD COLUMNS (_kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMP,"
    " _frazil_batch BIGINT). Its rows stay, and are changed by their key."
)
_TIMES = ("time", "timestamp", "timestamptz")
_CREATED = "iceberg.tables.auto-create-props."
_WRITTEN = ("iceberg.tables.write-props.", "iceberg.table.write-props.")


_CDC = "iceberg.tables.cdc-field"
_UPSERT = "iceberg.tables.upsert-mode-enabled"
_WORDS = {
    "insert": ["I", "i", "INSERT", "insert", "C", "c", "CREATE", "create", "R", "r", "READ", "read"],
    "update": ["U", "u", "UPDATE", "update"],
    "delete": ["D", "d", "DELETE", "delete"],
}
"""What the sink reads as an operation, by its first letter, in any case."""


def merging(keys: ConnectorKeys) -> dict[str, Any]:
    """How rows are merged, as destinations say it; nothing if they are appended.

    A field names the operation, which decides then; or each record is the row of its key.
    """
    apache = "; Apache's sink ignores the key, and appends" if keys.get("connector.class") == APACHE else ""
    field, upserts = keys.get(_CDC), keys.is_true(_UPSERT)
    if field is not None:
        why = "write: cdc by this field, merged by Spark; a word that changes.values does not list is a dead letter, where the sink inserts"
        keys.say(_CDC, "changed", f"{why}{apache}", "docs/changes.md")
        keys.say(_UPSERT, "changed", "cdc-field decides, as in the sink")
        return {"write": "cdc", "changes": {"format": "op_column", "op": field, "values": _WORDS}}
    keys.say(
        _UPSERT,
        *(
            ("changed", f"write: upsert, merged by Spark{apache}")
            if upserts
            else ("carried", "off, Frazil's default too")
        ),
    )
    return {"write": "upsert"} if upserts else {}


def listed(keys: ConnectorKeys, routes: RouteResult, write: Mapping[str, Any]) -> RouteResult:
    """The routes; tables whose rows are merged, as `write` says, are listed with their key, none is made by a name in a record."""
    if not write:
        return routes
    if not routes.tables and not keys.is_refused:
        switch = _CDC if _CDC in keys else _UPSERT
        why = "rows are merged by the key of their table, and records alone name the tables"
        keys.say(switch, "refused", why, "name the tables (--table), their columns (--columns) and their id-columns")
    elif routes.creates:
        keys.say(
            _AUTO_CREATE,
            "changed",
            "tables with merged rows must be listed with their key: Frazil creates no others",
            "--table",
        )
    return replace(routes, creates=False)


def destinations(
    keys: ConnectorKeys,
    tables: Sequence[str],
    columns: Mapping[str, Columns],
    absent: Collection[str] = (),
    write: Mapping[str, Any] = MappingProxyType({}),
    *,
    is_preview: bool = False,
) -> list[dict[str, Any]]:
    """The entries of `destinations`. A table whose columns are not known takes those of its records, if the sink creates
    or evolves tables; else `columns` is empty, which validation refuses.

    Tables that the sink writes have no columns for topic, partition and offset; those that are `absent` get them, and so must
    those whose rows are merged, as `write` says.
    """
    properties = _properties(keys)
    _policies(keys)
    entries = []
    for table in tables:
        table_columns = columns.get(table, {})
        identifier = _id_columns(keys, table)
        if not write:
            identifier = _required(keys, table, identifier, table_columns)
        elif not is_preview:
            _refuse_no_key(keys, table, identifier, table_columns, is_absent=table in absent)
        table_columns = {
            name: {**options, "required": True} if name in identifier else options
            for name, options in table_columns.items()
        }
        entry: dict[str, Any] = {"table": table, **_columns(keys, table_columns), **write}
        if fields := _partitions(keys, table, table_columns):
            entry["partition_by"] = fields
        if branch := _branch(keys, table):
            entry["branch"] = branch
        if identifier:
            entry["identifier"] = identifier
        if write and table not in absent:
            keys.note(_KAFKA_COLUMNS.format(table=table))
        elif table not in absent:
            entry["kafka_columns"] = False
            keys.note(_NO_KAFKA_COLUMNS)
        if properties:
            entry["properties"] = properties
        entries.append(entry)
    return entries


def template(keys: ConnectorKeys, tables: Sequence[str]) -> dict[str, Any]:
    """The template of auto-created tables: `route.create`.

    Args:
        keys: The connector's keys.
        tables: Those that are listed. Without any, the namespace of ledger and dead letters is for a person to name.
    """
    defaults = {} if tables else {"namespace": ""}
    (entry,) = destinations(keys, ("*",), {}, ("*",))
    return {**defaults, **{name: option for name, option in entry.items() if name != "table"}}


def _columns(keys: ConnectorKeys, columns: Columns) -> dict[str, Any]:
    declared = {"columns": {name: _column(options) for name, options in columns.items()}}
    if keys.is_true("iceberg.tables.evolve-schema-enabled"):
        return {**(declared if columns else {}), "evolve": "full"}
    return {} if keys.is_true(_AUTO_CREATE) and not columns else declared


def _column(options: Mapping[str, Any]) -> Any:
    """A column, whose numbers count milliseconds where it holds times: that is how the sink reads them."""
    column = {"type": str(options["type"]), **{name: option for name, option in options.items() if name != "type"}}
    if column["type"] in _TIMES:
        column.setdefault("unit", "ms")
    return column["type"] if column.keys() == {"type"} else column


def _partitions(keys: ConnectorKeys, table: str, columns: Columns) -> list[str]:
    table_key = f"iceberg.table.{table}.partition-by"
    key = table_key if table_key in keys else "iceberg.tables.default-partition-by"
    text = keys.get(key)
    if text is None:
        return []
    try:
        fields = partition_fields(text)
    except ValueError as error:
        message = f"{error}; the sink logs an error and creates the table without partitions"
        keys.say(key, "not_supported", message, "write partition_by as it should be")
        return []
    if missing := [field for field in fields if columns and column_of(field) not in columns]:
        keys.say(key, "not_supported", f"{missing[0]}: {table} has no such column", "write partition_by by hand")
        return []
    turned = ", its arguments turned round" if any(field.startswith(("bucket", "truncate")) for field in fields) else ""
    keys.say(key, "carried", f"partition_by{turned}; it counts when the table is created")
    return fields


def _properties(keys: ConnectorKeys) -> dict[str, str]:
    properties = {}
    for name, value in keys.below(_CREATED).items():
        if _writable(keys, _CREATED + name, name, value):
            properties[name] = value
            keys.say(_CREATED + name, "carried", "destinations: properties")
    for prefix in _WRITTEN:
        for name, value in keys.below(prefix).items():
            if _writable(keys, prefix + name, name, value):
                properties[name] = value
                why = "destinations: properties, which are set when a table is created; one that is there has its own"
                keys.say(prefix + name, "changed", why, "ALTER TABLE … SET TBLPROPERTIES")
    return properties


def _writable(keys: ConnectorKeys, key: str, name: str, value: str) -> bool:
    if name == "format-version" and value not in ("1", "2", "3"):
        keys.say(key, "not_supported", "tables are written up to format version 3", "create the table with version 2")
        return False
    if name == "write.format.default" and value.lower() not in ("parquet", "orc"):
        keys.say(
            key, "not_supported", "only Parquet and ORC are written", "set the file format of the table to parquet"
        )
        return False
    if (name, value) == ("format-version", "1") and (_CDC in keys or keys.is_true(_UPSERT)):
        keys.say(key, "not_supported", "rows are merged from format version 2 on", "upgrade the table to version 2")
        return False
    if (name, value.lower()) in (("format-version", "3"), ("write.format.default", "orc")):
        keys.say(key, "changed", "destinations: properties; Spark writes such a table, with an engine of the settings")
    return True


_EVOLVING = {
    _AUTO_CREATE: (
        "a table whose columns are not declared gets those of all its records, not of the first one alone",
        "docs/schema-evolution.md says which types fields get",
    ),
    "iceberg.tables.evolve-schema-enabled": (
        "destinations: evolve: full; a batch changes the table once, before its rows",
        "docs/schema-evolution.md says which types fields get",
    ),
    "iceberg.tables.schema-force-optional": ("columns that records bring may always be null", None),
}


def _policies(keys: ConnectorKeys) -> None:
    for name, (why, see) in _EVOLVING.items():
        if keys.is_true(name):
            keys.say(name, "carried" if see is None else "changed", why, see)
        elif name in keys:
            keys.say(name, "carried", "off" if see is not None else "columns that records add may be null in any case")
    name = "iceberg.tables.replace-null-with-default"
    if name in keys:
        keys.say(
            name, "changed" if keys.is_true(name) else "carried", "a null stays null, even if the schema has a default"
        )


def _own_or_default(keys: ConnectorKeys, table: str, option: str) -> str:
    table_key = f"iceberg.table.{table}.{option}"
    return table_key if table_key in keys else f"iceberg.tables.default-{option}"


def _branch(keys: ConnectorKeys, table: str) -> str | None:
    key = _own_or_default(keys, table, "commit-branch")
    branch = keys.get(key)
    if branch is None:
        return None
    try:
        TypeAdapter(BranchName).validate_python(branch)
    except ValidationError:
        keys.say(
            key,
            "not_supported",
            f"{branch} is a name that only Kafka Connect accepts",
            "rename the branch, and write it by hand",
        )
        return None
    keys.say(key, "carried", "branch; main is Frazil's default too" if branch == "main" else "branch")
    return None if branch == "main" else branch


def _id_columns(keys: ConnectorKeys, table: str) -> list[str]:
    """The columns that the connector names as the key of a table's rows."""
    return [
        name.strip() for name in (keys.get(_own_or_default(keys, table, "id-columns")) or "").split(",") if name.strip()
    ]


def _required(keys: ConnectorKeys, table: str, names: list[str], columns: Columns) -> list[str]:
    """The id-columns of a table that rows are added to, if all are required: else they identify no row."""
    key = _own_or_default(keys, table, "id-columns")
    if loose := [name for name in names if not columns.get(name, {}).get("required")]:
        why = f"{loose[0]} may be null, so it identifies no row; rows are appended"
        keys.say(key, "not_supported", why, "write identifier by hand once its columns are required")
        return []
    keys.say(key, "carried", "identifier; it counts when the table is created")
    return names


def _refuse_no_key(keys: ConnectorKeys, table: str, names: list[str], columns: Columns, *, is_absent: bool) -> None:
    """Refuse merged rows without a key: neither id-columns nor identifier fields name columns of the table."""
    key, switch = _own_or_default(keys, table, "id-columns"), _CDC if _CDC in keys else _UPSERT
    if not columns:
        why = f"rows of {table} are merged by their key, and nothing tells the types of its columns"
        keys.say(switch, "refused", why, "give them: --columns FILE, or --catalog NAME")
    elif missing := [name for name in names if name not in columns]:
        keys.say(key, "refused", f"{missing[0]}: {table} has no such column", "name columns that it has")
    elif not names and is_absent:
        why = f"rows of {table} are merged by their key: there are no id-columns, and no table whose identifier fields tell it"
        keys.say(switch, "refused", why, f"add iceberg.table.{table}.id-columns")
    keys.say(key, "carried", "identifier: the key that rows are merged by; its columns are required")
