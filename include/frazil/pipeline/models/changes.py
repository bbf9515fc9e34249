"""Keys for change data capture: how changes are merged into a table, and the formats of change events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field, model_validator

from frazil.pipeline.syntax.strict import Model
from frazil.pipeline.syntax.types import Primitive

if TYPE_CHECKING:
    from frazil.pipeline.models.destination import TableTemplate

Write = Literal["append", "upsert", "cdc", "history"]

DELETED: Final = "_frazil_deleted"
"""Column of a table with soft deletes: whether the row was deleted."""

TOLD: Final = ("_frazil_op", "_frazil_place")
"""Columns of a log of changes: what happened to the row, and which of its record's rows it is."""

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
"""Names that Iceberg, and Spark while it merges, give to facts about a row: a table with such a column of its own is merged no more."""

FACTS: Final = "_cdc"
"""Struct beside the fields of a changed row, for columns that take a fact about the change."""

_OWN: Final = ("op_column", "envelope")
"""Formats that the file describes itself."""

_UNFIT_KEYS: Final = ("float", "double", "variant")
"""Types that no identifier field may have (table specification), or that can't be compared."""

_UNORDERED: Final = ("boolean", "binary", "uuid", "variant", "float", "double")


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
    def _describes_itself(self) -> Changes:
        options = [name for name in ("op", "values", "row", "before") if getattr(self, name) is not None]
        needed = {"op_column": ("op", "values"), "envelope": ("values",)}.get(self.format, ())
        allowed = {"op_column": options, "envelope": ["values"]}.get(self.format, [])
        if strange := [name for name in options if name not in allowed]:
            raise ValueError(f"{strange[0]} is not for format {self.format}, which defines it")
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
    """Say what keeps a destination from merging rows by their key, if it wants to."""
    if not destination.is_merged:
        yield from (
            f"{key} is for write: upsert and cdc" for key in _ONLY_MERGED if key in destination.model_fields_set
        )
    if not destination.is_history and TOLD[0] in (*destination.columns, *destination.added_columns):
        yield f"a column has the name {TOLD[0]}, by which changes are told from rows; give it another one, with from: {TOLD[0]}"
    if destination.write == "append" and destination.order_by is not None:
        yield "order_by is for write: upsert, cdc and history"
    if destination.write == "cdc" and destination.changes is None:
        yield "write: cdc needs changes: how records tell of changes"
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
    if reserved := [name for name in TOLD if name in (*destination.columns, *destination.added_columns)]:
        yield f"a column has the name {reserved[0]}, which write: history adds"
    if destination.order_by is not None:
        yield from _order_problems(destination, destination.order_by)


def _identifier_problems(destination: TableTemplate) -> Iterator[str]:
    if len(set(destination.identifier)) < len(destination.identifier):
        yield f"identifier names a column twice: {', '.join(destination.identifier)}"
    for name in destination.identifier:
        column = destination.columns.get(name)
        if column is None:
            yield f"identifier names {name!r}, which is no declared column of {destination.title}{_alone(destination)}"
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
        yield f"order_by names {name!r}, which is no declared column of {destination.title}{_alone(destination)}"
    elif not isinstance(column.parsed, Primitive) or column.parsed.name in _UNORDERED:
        yield f"order_by names {name!r}, of type {column.type}: earlier and later can't be told by it"
    elif (destination.write == "cdc" and column.part == "key") or (destination.changes and column.part == "header"):
        part = "the key" if column.part == "key" else "a header"
        yield f"order_by names {name!r}, which is of {part}: it must be of the value, which each change has"


def _alone(destination: TableTemplate) -> str:
    """What a file whose columns are inferred may leave out."""
    return "" if destination.columns else ": declare it, records bring the other columns if evolve says so"
