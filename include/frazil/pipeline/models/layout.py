"""Keys for the layout of a new table (partition fields and sort order, in Iceberg's syntax), and for how changes are merged into a
table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field, model_validator

from frazil.pipeline.models.value import Column
from frazil.pipeline.syntax.strict import InvalidKey, Model, nearest
from frazil.pipeline.syntax.types import VARIANT, ColumnType, Primitive

if TYPE_CHECKING:
    from frazil.pipeline.models.destination import TableTemplate


TransformName = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"]

_TERM = re.compile(
    r"(?P<column>[^()\s,]+)|(?P<transform>identity|year|month|day|hour)\(\s*(?P<of>[^(),\s]+)\s*\)"
    r"|(?P<sized>bucket|truncate)\(\s*(?P<size>[1-9]\d*)\s*,\s*(?P<sized_of>[^(),\s]+)\s*\)",
    re.IGNORECASE,
)
_SWAPPED = re.compile(r"(?P<sized>bucket|truncate)\(\s*(?P<of>[^(),\s]+)\s*,\s*(?P<size>[1-9]\d*)\s*\)", re.IGNORECASE)
"""A term with its arguments in the wrong order, as in `bucket(id, 16)`."""

_NAMED = re.compile(r"(?P<term>.+?)\s+as\s+(?P<name>[^()\s,]+)", re.IGNORECASE)
_DIRECTED = re.compile(
    r"(?P<term>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?", re.IGNORECASE
)


class PartitionField(Model):
    """One field of a partition spec: a column, or a transform of one."""

    column: str
    transform: TransformName = "identity"
    size: int | None = None
    alias: str | None = None

    @property
    def name(self) -> str:
        """Name of the field in the partition spec."""
        return self.alias or (self.column if self.transform == "identity" else f"{self.column}_{self.transform}")

    def __str__(self) -> str:
        size = "" if self.size is None else f"{self.size}, "
        return self.column if self.transform == "identity" else f"{self.transform}({size}{self.column})"


class SortField(Model):
    """One field of a sort order: a column, or a transform of one."""

    column: str
    transform: TransformName = "identity"
    size: int | None = None
    descending: bool = False
    nulls_first: bool = True


def parse_partition_field(text: str) -> PartitionField:
    """Parse Iceberg's transform syntax: ``document``, ``day(created_at)``, ``bucket(16, id) as shard``, ``truncate(4, name)``.

    Raises:
        ValueError: The text is none of these.
    """
    named = _NAMED.fullmatch(text.strip())
    term, name = (named["term"], named["name"]) if named is not None else (text, None)
    column, transform, size = _parse_term(term, f"{text!r} is no partition field", "day(created_at)")
    return PartitionField(column=column, transform=transform, size=size, alias=name)


def parse_sort_field(text: str) -> SortField:
    """Parse Iceberg's sort syntax: ``id``, ``created_at desc``, ``bucket(16, id) asc nulls last``.

    Without `nulls first` or `nulls last`, nulls come first in ascending and last in descending order.

    Raises:
        ValueError: The text is none of these.
    """
    match = _DIRECTED.fullmatch(text.strip())
    term = match["term"] if match is not None else text
    column, transform, size = _parse_term(term, f"{text!r} is no field of a sort order", "created_at desc nulls last")
    descending = match is not None and (match["direction"] or "").lower() == "desc"
    nulls = (match["nulls"] or "").lower() if match is not None else ""
    nulls_first = nulls == "first" if nulls else not descending
    return SortField(column=column, transform=transform, size=size, descending=descending, nulls_first=nulls_first)


def _parse_term(term: str, complaint: str, example: str) -> tuple[str, TransformName, int | None]:
    """Column, transform, and the number of buckets or the width."""
    match = _TERM.fullmatch(term.strip())
    if match is None:
        swapped = _SWAPPED.fullmatch(term.strip())
        if swapped is not None:
            raise ValueError(
                f"{complaint}; did you mean {swapped['sized'].lower()}({swapped['size']}, {swapped['of']})?"
            )
        raise ValueError(f"{complaint}; examples: document, {example}, bucket(16, id), truncate(4, name)")
    if match["column"]:
        return match["column"], "identity", None
    if match["transform"]:
        return match["of"], match["transform"].lower(), None  # type: ignore[return-value]
    return match["sized_of"], match["sized"].lower(), int(match["size"])  # type: ignore[return-value]


Layout = tuple[tuple[PartitionField, ...], tuple[SortField, ...]]
"""Partition fields and sort fields."""

KAFKA_TYPES = tuple(map(Primitive, ("string", "int", "long", "timestamptz", "long")))
"""Types of the Kafka columns, in their order."""

_TIME = ("year", "month", "day", "hour")
_DAYS = ("date", "timestamp", "timestamptz")
_TYPES = {
    **dict.fromkeys(("year", "month", "day"), _DAYS),
    "hour": ("timestamp", "timestamptz"),
    "bucket": (*("int", "long", "decimal", "time", "string", "uuid", "fixed", "binary"), *_DAYS),
    "truncate": ("int", "long", "decimal", "string", "binary"),
}
"""Types that a transform takes (table specification, "Partition Transforms"); identity takes every type that is not nested."""


def check_layout(table: str, columns: Mapping[str, Column], added: Sequence[str], layout: Layout) -> None:
    """Check a layout against the declared columns of a table, and the Kafka columns (`added`).

    Raises:
        InvalidKey: A field is named twice, or its column does not exist or can't be used.
    """
    partition, order = layout
    types = {name: column.parsed for name, column in columns.items()} | dict(zip(added, KAFKA_TYPES, strict=False))
    terms: Mapping[str, Sequence[PartitionField | SortField]] = {"partition_by": partition, "sort_by": order}
    for key, fields in terms.items():
        for number, field in enumerate(fields):
            if field.column in types:
                _check_type(f"{key}.{number}", field, types[field.column])
            elif columns:  # without declared columns, records add them
                hint = nearest(field.column, types)
                raise InvalidKey(f"{key}.{number}", f"{field.column!r} is not a column of {table}, {hint}")
    _refuse_twice("partition_by", "names a field", (field.name for field in partition))
    _refuse_redundant(partition)
    _refuse_twice("sort_by", "names a column", (f"{field.column} ({field.transform})" for field in order))
    for field in partition:
        if field.name in types and (field.transform != "identity" or field.name != field.column):
            raise InvalidKey(
                "partition_by",
                f"makes a field {field.name}, and {table} has a column of that name; give the field another one,"
                f" such as `… as {field.name}_part`",
            )


def _check_type(key: str, field: PartitionField | SortField, column_type: ColumnType) -> None:
    allowed = _TYPES.get(field.transform)
    if not isinstance(column_type, Primitive) or column_type == VARIANT:
        raise InvalidKey(
            key,
            f"{field.column!r} is {column_type}, which has no order: use a column that is no list, map, struct or variant",
        )
    if allowed is not None and column_type.name not in allowed:
        raise InvalidKey(
            key, f"{field.transform}({field.column}) is for {', '.join(allowed)}; {field.column!r} is {column_type}"
        )


def _refuse_redundant(partition: tuple[PartitionField, ...]) -> None:
    """Refuse two fields with the same column and kind of transform, as Iceberg does: a day implies its month."""
    earlier_fields: dict[object, PartitionField] = {}
    for field in partition:
        kind = "time" if field.transform in _TIME else (field.transform, field.size)
        earlier = earlier_fields.setdefault((field.column, kind), field)
        if earlier is not field:
            raise InvalidKey(
                "partition_by", f"{field.name} adds nothing to {earlier.name}: both partition by {field.column}"
            )


def _refuse_twice(key: str, complaint: str, names: Iterable[str]) -> None:
    repeated_names = [name for name, count in Counter(names).items() if count > 1]
    if repeated_names:
        raise InvalidKey(key, f"{complaint} twice: {repeated_names[0]}")


Write = Literal["append", "upsert", "cdc", "history"]

DELETED: Final = "_frazil_deleted"
"""Column of a table with soft deletes: whether the row was deleted."""

HISTORY_COLUMNS: Final = ("_frazil_op", "_frazil_place")
"""Additional columns of a history table: the kind of change, and its number within the record."""

ENGINE_COLUMNS: Final = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
        "__row_operation",
        "__row_id",
        "__row_from_source",
        "__row_from_target",
        "__original_row_id__file",
        "__original_row_id__pos",
    }
)
"""Names that Iceberg, and Spark during a merge, use for metadata columns: rows can't be merged into a table with such a column."""

FACTS: Final = "_cdc"
"""Name of a struct that is added to the fields of a changed row, for columns that take a fact about the change."""

_UNFIT_KEYS: Final = ("float", "double", "variant")
"""Types that an identifier field can't have, by the table specification or because values can't be compared."""

_UNORDERED: Final = ("boolean", "binary", "uuid", "variant", "float", "double")
"""Types that a column for `order_by` can't have."""


class Words(Model):
    """Which values of the op field, or which names of the field with the row, mean which kind of change."""

    insert: tuple[str, ...] = Field((), description="A row was inserted, or read by a snapshot.")
    update: tuple[str, ...] = Field((), description="A row was changed.")
    delete: tuple[str, ...] = Field((), description="A row was deleted.")
    truncate: tuple[str, ...] = Field((), description="All rows were deleted.")


class Changes(Model):
    """How a record describes a change."""

    format: Literal["debezium", "dms", "maxwell", "canal", "op_column", "envelope"] = Field(
        description="The program that wrote the records: Debezium, AWS DMS, Maxwell or Canal. Or their structure:"
        " `op_column` (one field has the kind of change), `envelope` (the name of the field that holds the row"
        ' is the kind, such as `{"insert": {…}}`).'
    )
    op: str | None = Field(
        None, min_length=1, description="For `op_column`: name or path of the field with the kind of change."
    )
    values: Words | None = Field(
        None,
        description="For `op_column`: the exact values of the op field for each kind of change. For `envelope`: the names"
        " of the fields that hold a row. Any other value or name makes the record a dead letter.",
    )
    row: str | None = Field(
        None,
        min_length=1,
        description="For `op_column`: the field that holds the new row. Without: the value itself is the row.",
    )
    before: str | None = Field(
        None,
        min_length=1,
        description="For `op_column`: the field that holds the old row, for deletes and for changed keys.",
    )

    @model_validator(mode="after")
    def _options_fit(self) -> Changes:
        options = [name for name in ("op", "values", "row", "before") if getattr(self, name) is not None]
        needed = {"op_column": ("op", "values"), "envelope": ("values",)}.get(self.format, ())
        allowed = {"op_column": options, "envelope": ["values"]}.get(self.format, [])
        if foreign := [name for name in options if name not in allowed]:
            raise ValueError(f"{foreign[0]} is not for format {self.format}, which defines it")
        if missing := [name for name in needed if name not in options]:
            raise ValueError(f"format {self.format} needs {missing[0]}")
        if self.values is not None:
            words = [word for kind_words in self.values.model_dump().values() for word in kind_words]
            if not words or len(set(words)) < len(words):
                raise ValueError("values must name some, each for one kind of change")
        if self.format == "envelope" and self.values is not None and self.values.truncate:
            raise ValueError("values.truncate: an envelope holds a row, and a truncate has none")
        return self


_ONLY_MERGED: Final = ("deletes", "merge", "append_history")


def merge_problems(destination: TableTemplate) -> Iterator[str]:
    """Yield the problems of the keys about changes: `write`, `identifier`, `order_by`, `deletes` and others."""
    if not destination.is_merged:
        yield from (
            f"{key} is for write: upsert and cdc" for key in _ONLY_MERGED if key in destination.model_fields_set
        )
    if not destination.is_history and HISTORY_COLUMNS[0] in (*destination.columns, *destination.added_columns):
        yield f"a column has the name {HISTORY_COLUMNS[0]}, which marks the rows of a history table; give it another one, with from: {HISTORY_COLUMNS[0]}"
    if destination.write == "append" and destination.order_by is not None:
        yield "order_by is for write: upsert, cdc and history"
    if destination.write == "cdc" and destination.changes is None:
        yield "write: cdc needs changes: how records describe changes"
    if destination.write not in ("cdc", "history") and destination.changes is not None:
        yield "changes is for write: cdc and history"
    headers = [name for name, column in destination.columns.items() if column.part == "header" and column.required]
    if destination.changes is not None and headers:
        yield f"columns.{headers[0]}.required: a deleted row may have no more than its key, so no header can be required"
    yield from _identifier_problems(destination)
    if destination.is_merged:
        yield from _merged_problems(destination)
    if destination.is_history:
        yield from _history_problems(destination)


def _history_problems(destination: TableTemplate) -> Iterator[str]:
    if not destination.kafka_columns:
        yield "kafka_columns: false, but write: history needs them to tell which change is the later one"
    if not destination.identifier:
        yield "write: history needs identifier, the key of the rows that change; append_history takes the destination's own"
    if destination.evolves != "none":
        yield f"evolve: {destination.evolves}, but write: history has declared columns only"
    if reserved := [name for name in HISTORY_COLUMNS if name in (*destination.columns, *destination.added_columns)]:
        yield f"a column has the name {reserved[0]}, which write: history adds"
    if destination.order_by is not None:
        yield from _order_problems(destination, destination.order_by)


def _identifier_problems(destination: TableTemplate) -> Iterator[str]:
    if len(set(destination.identifier)) < len(destination.identifier):
        yield f"identifier names a column twice: {', '.join(destination.identifier)}"
    for name in destination.identifier:
        column = destination.columns.get(name)
        if column is None:
            yield f"identifier names {name!r}, which is no declared column of {destination.title}{_declaration_hint(destination)}"
        elif not isinstance(column.parsed, Primitive) or column.parsed.name in _UNFIT_KEYS:
            yield f"identifier names {name!r}, of type {column.type}: rows can't be told apart by it"
        elif column.part == "header":
            yield f"identifier names {name!r}, which is a header: a key must be of the value or of the record's key"
        elif not column.required:
            yield f"identifier names {name!r}, which is not required: write required: true in columns.{name}"


def _merged_problems(destination: TableTemplate) -> Iterator[str]:
    if not destination.kafka_columns:
        yield f"kafka_columns: false, but write: {destination.write} needs them to tell which change is the later one"
    if reserved := sorted(ENGINE_COLUMNS.intersection((*destination.columns, *destination.added_columns))):
        yield f"a column has the name {reserved[0]}, which engines give to facts about a row where rows are merged; give it another one, with from: {reserved[0]}"
    if destination.order_by is not None:
        yield from _order_problems(destination, destination.order_by)
    if destination.deletes == "soft":
        if DELETED in (*destination.columns, *destination.added_columns):
            yield f"a column has the name {DELETED}, which deletes: soft adds"
        filled = {*destination.identifier, destination.order_by}
        bare = [name for name, column in destination.columns.items() if column.required and name not in filled]
        if bare and destination.identifier:  # else the table says it
            yield (
                f"columns.{bare[0]}.required: with deletes: soft a row may be known by its key alone; only identifier and"
                " order_by columns can be required"
            )


def _order_problems(destination: TableTemplate, name: str) -> Iterator[str]:
    column = destination.columns.get(name)
    if column is None:
        yield f"order_by names {name!r}, which is no declared column of {destination.title}{_declaration_hint(destination)}"
    elif not isinstance(column.parsed, Primitive) or column.parsed.name in _UNORDERED:
        yield f"order_by names {name!r}, of type {column.type}: its values don't say which change is the later one"
    elif (destination.write == "cdc" and column.part == "key") or (destination.changes and column.part == "header"):
        part = "the key" if column.part == "key" else "a header"
        yield f"order_by names {name!r}, which is of {part}: it must be of the value, which each change has"


def _declaration_hint(destination: TableTemplate) -> str:
    """A hint for a file without declared columns, which still must declare the named one."""
    return "" if destination.columns else ": declare it, records bring the other columns if evolve says so"
