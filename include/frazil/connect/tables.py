"""Routing and destinations of a connector: the key `route` of the pipeline file, and each table with its columns, partitions,
properties, branch and key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from frazil.connect.findings import APACHE, ConnectorKeys, Outcome, per_table
from frazil.pipeline.syntax.patterns import compiled, refused_because
from frazil.pipeline.syntax.strict import BranchName

_JAVA_ONLY = re.compile(r"(?<!\\)(?:\\\\)*(?P<part>\\[pPQEhHRXGzk]|&&|\(\?[a-zA-Z]*[dUu])|\[[^\]\\]*\[")


class UnusablePattern(ValueError):
    """A regular expression that Python reads differently than Java, or not at all."""


def python_regex(pattern: str) -> str:
    """A Java expression in Python's syntax, which matches whole texts.

    Raises:
        UnusablePattern: The pattern has syntax that only Java has, or is no regular expression.
    """
    if construct := _JAVA_ONLY.search(pattern):
        part = construct["part"] or "["
        raise UnusablePattern(f"Python does not read {part} as Java does: another expression is needed")
    try:
        expression = compiled(pattern).pattern
    except ValueError as error:
        raise UnusablePattern(str(error)) from error
    if (reason := refused_because(pattern)) is not None:
        raise UnusablePattern(reason)
    return expression


_DYNAMIC = "iceberg.tables.dynamic-enabled"
_AUTO_CREATE = "iceberg.tables.auto-create-enabled"
_FIELD = "iceberg.tables.route-field"
_TABLE = re.compile(r"[^.\s]+(\.[^.\s]+)+")


@dataclass(frozen=True, slots=True)
class RouteResult:
    """The routing of records.

    Attributes:
        tables: The destinations.
        route: The key `route` of the pipeline file, None if it needs none.
        creates: Whether records may name tables that do not exist yet.
    """

    tables: tuple[str, ...]
    route: dict[str, Any] | None = None
    creates: bool = False

    def name(self, table: str) -> str:
        """The destination's name for a table: in lower case if records name tables, because the sink does so."""
        return table.lower() if "field" in (self.route or {}) else table


def translate_route(keys: ConnectorKeys, named: Sequence[str] = ()) -> RouteResult:
    """Translate the connector's routing of records to tables.

    `named` are tables that the user lists for a connector whose records name their table.
    """
    written = keys.get("iceberg.tables") or ""
    static = list(dict.fromkeys(part.strip() for part in written.split(",") if part.strip()))
    if keys.is_true(_DYNAMIC):
        return _dynamic(keys, static, named)
    keys.report(_DYNAMIC, "carried", "route: the default")
    if not static:
        keys.report(
            "iceberg.tables", "refused", "no table is named, and dynamic-enabled is not true", "name the tables"
        )
        return RouteResult(())
    if bad := [table for table in static if not _TABLE.fullmatch(table)]:
        message = f"{bad[0]} is not a table with its namespace"
        keys.report("iceberg.tables", "refused", message, "write namespace.table")
        return RouteResult(())
    keys.report("iceberg.tables", "carried", "destinations")
    _report_other_tables(keys, static)
    return _static(keys, static) if _FIELD in keys else _to_every_table(keys, static)


def _dynamic(keys: ConnectorKeys, static: Sequence[str], named: Sequence[str]) -> RouteResult:
    """Each record names its table."""
    if static:
        conflict = "the sink refuses static and dynamic table names together"
        keys.report("iceberg.tables", "refused", conflict, "remove iceberg.tables, or dynamic-enabled")
        return RouteResult(())
    if _FIELD not in keys:
        keys.report(
            _DYNAMIC, "refused", "records name their table in a field, and iceberg.tables.route-field is missing"
        )
        return RouteResult(())
    configured = [table for _, table, _ in _per_table_keys(keys)]
    tables = tuple(dict.fromkeys(table.lower() for table in (*named, *configured) if _TABLE.fullmatch(table)))
    creates = keys.is_true(_AUTO_CREATE)
    skipped = "records that name no table are skipped (otherwise: filter) and counted"
    if creates:
        why = f"route.field and route.create: a table is created if route.field.allow lets records name it; {skipped}"
        keys.report(_DYNAMIC, "changed", why, "write under route.field.allow which tables records may name")
    else:
        keys.report(_DYNAMIC, "changed", f"route.field; {skipped}", "list every table under destinations")
    keys.report(_FIELD, "carried", "route.field.name")
    _dynamic_tables(keys)
    allow = [re.escape(table) for table in tables]
    field = {"name": keys.get(_FIELD), "allow": allow, "deny": [], "lower_case": True}
    return RouteResult(tables, {"field": field, "otherwise": "filter"}, creates)


def _dynamic_tables(keys: ConnectorKeys) -> None:
    """Report keys of single tables without effect: the sink looks them up by the table's name in lower case."""
    for key, table, option in _per_table_keys(keys):
        lowered = table.lower()
        if option == "route-regex":
            keys.report(key, "changed", "no effect on dynamic names, as in Kafka Connect")
        elif table != lowered:
            why = f"dynamic names are made lower-case, so it has no effect on {lowered}, as in Kafka Connect"
            keys.report(key, "changed", why, f"if this table is meant, write iceberg.table.{lowered}.{option}")


def _static(keys: ConnectorKeys, static: Sequence[str]) -> RouteResult:
    """Each table takes the records whose routing field matches its expression."""
    expressions: dict[str, str] = {}
    for table in static:
        key = f"iceberg.table.{table}.route-regex"
        pattern = keys.get(key)
        if pattern is None:
            message = f"{table} has no route-regex, so the sink writes nothing to it; it becomes no destination"
            keys.report("iceberg.tables", "changed", message)
            continue
        try:
            expressions[table] = python_regex(pattern)
            keys.report(key, "carried", "route.static.tables")
        except UnusablePattern as error:
            keys.report(key, "refused", str(error), "write the expression in Python's syntax")
    if not expressions:
        keys.report(
            _FIELD, "refused", "no table has a route-regex, so the sink drops every record", "give each table one"
        )
        return RouteResult(())
    keys.report(_FIELD, "carried", "route.static.field; no match is skipped (otherwise: filter) and counted")
    route = {"static": {"field": keys.get(_FIELD), "tables": expressions}, "otherwise": "filter"}
    return RouteResult(tuple(expressions), route)


def _to_every_table(keys: ConnectorKeys, static: Sequence[str]) -> RouteResult:
    for key, _, option in _per_table_keys(keys):
        if option == "route-regex":
            keys.report(key, "changed", "no route-field, so it has no effect: every record goes to every table")
    if len(static) > 1:
        keys.note("Every record goes to every destination, as in the sink: there is no route-field.")
    return RouteResult(tuple(static))


def _report_other_tables(keys: ConnectorKeys, static: Sequence[str]) -> None:
    """Report keys of tables that the connector does not list."""
    for key, table, _ in _per_table_keys(keys):
        if table not in static:
            similar = get_close_matches(table, static, 1, 0.75)
            hint = f"did you mean {similar[0]}?" if similar else None
            keys.report(key, "unknown", f"iceberg.tables does not name {table}, so nothing reads it", hint)


def _per_table_keys(keys: ConnectorKeys) -> Iterator[tuple[str, str, str]]:
    """The keys that are about one table, each with table and option."""
    for key in (f"iceberg.table.{rest}" for rest in keys.below("iceberg.table.")):
        if table_option := per_table(key):
            yield key, *table_option


_TIME_TRANSFORMS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_CALL = re.compile(r"(?P<transform>\w+)\((?P<column>[^,()]+)(?:,\s*(?P<size>\d+)\s*)?\)")
_PARTS = re.compile(r"(?:[^,(]++|\((?:[^()]*\))?)+")
"""Parts between commas outside parentheses, found in linear time."""


def _partition_field(text: str) -> str:
    """A partition field of the sink in Frazil's syntax.

    Raises:
        ValueError: It is none. The sink then logs an error and creates the table without partitions.
    """
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
"""Columns of a table: name -> type and options, in the form of the pipeline file."""

_NO_KAFKA_COLUMNS = (
    "kafka_columns: false, because tables of the sink have none. To have replay and verify, add the five columns to the"
    " table (docs/reference/destination.md, KafkaColumns) and remove that line."
)
_KAFKA_COLUMNS = (
    "{table} needs the five Kafka columns, which name the record that changed a row last. If it exists, add them before the first run:"
    " ALTER TABLE {table} ADD COLUMNS (_kafka_topic STRING, _kafka_partition INT, _kafka_offset BIGINT, _kafka_timestamp TIMESTAMP,"
    " _frazil_batch BIGINT). Its rows stay, and are changed by their key."
)
_TIMES = ("time", "timestamp", "timestamptz")
_CREATED = "iceberg.tables.auto-create-props."
_WRITTEN = ("iceberg.tables.write-props.", "iceberg.table.write-props.")

_CDC = "iceberg.tables.cdc-field"
_UPSERT = "iceberg.tables.upsert-mode-enabled"
_OPERATIONS = {
    "insert": ["I", "i", "INSERT", "insert", "C", "c", "CREATE", "create", "R", "r", "READ", "read"],
    "update": ["U", "u", "UPDATE", "update"],
    "delete": ["D", "d", "DELETE", "delete"],
}
"""Words for operations: the sink looks only at the first letter, in upper or lower case."""


def merging(keys: ConnectorKeys) -> dict[str, Any]:
    """The keys of a destination that tell how rows are merged; empty if rows are appended.

    Either a field of the record names the operation, or each record replaces the row with its key.
    """
    apache = "; Apache's sink ignores the key, and appends" if keys.get("connector.class") == APACHE else ""
    field, upserts = keys.get(_CDC), keys.is_true(_UPSERT)
    if field is not None:
        why = "write: cdc by this field, merged by Spark; a word that changes.values does not list is a dead letter, where the sink inserts"
        keys.report(_CDC, "changed", f"{why}{apache}", "docs/changes.md")
        keys.report(_UPSERT, "changed", "cdc-field decides, as in the sink")
        return {"write": "cdc", "changes": {"format": "op_column", "op": field, "values": _OPERATIONS}}
    if upserts:
        keys.report(_UPSERT, "changed", f"write: upsert, merged by Spark{apache}")
        return {"write": "upsert"}
    keys.report(_UPSERT, "carried", "off, Frazil's default too")
    return {}


def require_listed_tables(keys: ConnectorKeys, routes: RouteResult, write: Mapping[str, Any]) -> RouteResult:
    """The routes, without tables that records create if rows are merged: such tables must be listed with their key."""
    if not write:
        return routes
    if not routes.tables and not keys.is_refused:
        switch = _CDC if _CDC in keys else _UPSERT
        why = "rows are merged by the key of their table, but only records name the tables"
        keys.report(switch, "refused", why, "name the tables (--table), their columns (--columns) and their id-columns")
    elif routes.creates:
        why = "tables with merged rows must be listed with their key: Frazil creates no others"
        keys.report(_AUTO_CREATE, "changed", why, "--table")
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
    """The entries of `destinations`.

    Args:
        keys: The connector's keys.
        tables: The destinations. One without columns gets those of its records, if the sink creates or evolves tables; else
            its `columns` are empty, which validation refuses.
        columns: Columns by table.
        absent: Tables that Frazil will create, with Kafka columns. Tables of the sink have none.
        write: How rows are merged (see `merging`), which needs Kafka columns; empty if they are appended.
        is_preview: Whether columns are still to be read from the catalog.
    """
    properties = _properties(keys)
    _policies(keys)
    entries = []
    for table in tables:
        table_columns = columns.get(table, {})
        identifier = _id_columns(keys, table)
        if not write:
            identifier = _identifier(keys, table, identifier, table_columns)
        elif not is_preview:
            _require_key(keys, table, identifier, table_columns, is_absent=table in absent)
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
    """The template of auto-created tables: the key `route.create`.

    If no table is listed, a person must fill in the namespace of ledger and dead letters.
    """
    blank = {} if tables else {"namespace": ""}
    (entry,) = destinations(keys, ("*",), {}, ("*",))
    return {**blank, **{name: option for name, option in entry.items() if name != "table"}}


def _columns(keys: ConnectorKeys, columns: Columns) -> dict[str, Any]:
    declared = {"columns": {name: _column(options) for name, options in columns.items()}}
    if keys.is_true("iceberg.tables.evolve-schema-enabled"):
        return {**(declared if columns else {}), "evolve": "full"}
    return {} if keys.is_true(_AUTO_CREATE) and not columns else declared


def _column(options: Mapping[str, Any]) -> Any:
    """A column. In columns of times, numbers are milliseconds, because the sink reads them so."""
    column = {"type": str(options["type"]), **{name: option for name, option in options.items() if name != "type"}}
    if column["type"] in _TIMES:
        column.setdefault("unit", "ms")
    return column["type"] if column.keys() == {"type"} else column


def _partitions(keys: ConnectorKeys, table: str, columns: Columns) -> list[str]:
    key = _own_or_default(keys, table, "partition-by")
    text = keys.get(key)
    if text is None:
        return []
    try:
        fields = [_partition_field(part.strip()) for part in _PARTS.findall(text) if part.strip()]
    except ValueError as error:
        message = f"{error}; the sink logs an error and creates the table without partitions"
        keys.report(key, "not_supported", message, "write partition_by by hand")
        return []
    field_columns = {field: field.rstrip(")").rpartition("(")[2].rpartition(",")[2].strip() for field in fields}
    if missing := [field for field, column in field_columns.items() if columns and column not in columns]:
        keys.report(key, "not_supported", f"{missing[0]}: {table} has no such column", "write partition_by by hand")
        return []
    swapped = any(field.startswith(("bucket", "truncate")) for field in fields)
    message = f"partition_by{', with swapped arguments' if swapped else ''}; it counts when the table is created"
    keys.report(key, "carried", message)
    return fields


def _properties(keys: ConnectorKeys) -> dict[str, str]:
    properties = {}
    for name, value in keys.below(_CREATED).items():
        if _writable(keys, _CREATED + name, name, value):
            properties[name] = value
            keys.report(_CREATED + name, "carried", "destinations: properties")
    for prefix in _WRITTEN:
        for name, value in keys.below(prefix).items():
            if _writable(keys, prefix + name, name, value):
                properties[name] = value
                why = "destinations: properties, which are set when a table is created; an existing table keeps its own"
                keys.report(prefix + name, "changed", why, "ALTER TABLE … SET TBLPROPERTIES")
    return properties


def _writable(keys: ConnectorKeys, key: str, name: str, value: str) -> bool:
    if name == "format-version" and value not in ("1", "2", "3"):
        keys.report(
            key, "not_supported", "tables are written up to format version 3", "create the table with version 2"
        )
        return False
    if name == "write.format.default" and value.lower() not in ("parquet", "orc"):
        by_hand = "set the file format of the table to parquet"
        keys.report(key, "not_supported", "only Parquet and ORC are written", by_hand)
        return False
    if (name, value) == ("format-version", "1") and (_CDC in keys or keys.is_true(_UPSERT)):
        keys.report(key, "not_supported", "rows are merged from format version 2 on", "upgrade the table to version 2")
        return False
    if (name, value.lower()) in (("format-version", "3"), ("write.format.default", "orc")):
        keys.report(
            key, "changed", "destinations: properties; Spark writes such a table, with an engine of the settings"
        )
    return True


_EVOLVING = {
    _AUTO_CREATE: (
        "a table without declared columns gets the fields of all its records, not only of the first one",
        "docs/schema-evolution.md says which types fields get",
    ),
    "iceberg.tables.evolve-schema-enabled": (
        "destinations: evolve: full; a batch changes the table once, before its rows",
        "docs/schema-evolution.md says which types fields get",
    ),
    "iceberg.tables.schema-force-optional": ("columns that records bring may always be null", None),
}


def _policies(keys: ConnectorKeys) -> None:
    for name, (why, by_hand) in _EVOLVING.items():
        if keys.is_true(name):
            keys.report(name, "carried" if by_hand is None else "changed", why, by_hand)
        else:
            keys.report(name, "carried", "off" if by_hand else "columns that records add may be null in any case")
    name = "iceberg.tables.replace-null-with-default"
    outcome: Outcome = "changed" if keys.is_true(name) else "carried"
    keys.report(name, outcome, "a null stays null, even if the schema has a default")


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
        message = f"{branch} is a name that only Kafka Connect accepts"
        keys.report(key, "not_supported", message, "rename the branch, and write it by hand")
        return None
    keys.report(key, "carried", "branch; main is Frazil's default too" if branch == "main" else "branch")
    return None if branch == "main" else branch


def _id_columns(keys: ConnectorKeys, table: str) -> list[str]:
    """The columns that the connector names as the key of a table's rows."""
    names = keys.get(_own_or_default(keys, table, "id-columns")) or ""
    return [name.strip() for name in names.split(",") if name.strip()]


def _identifier(keys: ConnectorKeys, table: str, names: list[str], columns: Columns) -> list[str]:
    """The key `identifier` of a table with appended rows: its id-columns if all are required; else empty."""
    key = _own_or_default(keys, table, "id-columns")
    if nullable := [name for name in names if not columns.get(name, {}).get("required")]:
        why = f"{nullable[0]} may be null, so it identifies no row; rows are appended"
        keys.report(key, "not_supported", why, "write identifier by hand once its columns are required")
        return []
    keys.report(key, "carried", "identifier; it counts when the table is created")
    return names


def _require_key(keys: ConnectorKeys, table: str, names: list[str], columns: Columns, *, is_absent: bool) -> None:
    """Refuse merged rows without a key: neither id-columns nor identifier fields name columns of the table."""
    key, switch = _own_or_default(keys, table, "id-columns"), _CDC if _CDC in keys else _UPSERT
    if not columns:
        why = f"rows of {table} are merged by their key, and the types of its columns are unknown"
        keys.report(switch, "refused", why, "give them: --columns FILE, or --catalog NAME")
    elif missing := [name for name in names if name not in columns]:
        keys.report(key, "refused", f"{missing[0]}: {table} has no such column", "name columns that it has")
    elif not names and is_absent:
        why = f"rows of {table} are merged by their key, and neither id-columns nor an existing table name it"
        keys.report(switch, "refused", why, f"add iceberg.table.{table}.id-columns")
    keys.report(key, "carried", "identifier: the key that rows are merged by; its columns are required")
