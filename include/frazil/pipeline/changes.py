"""How a destination takes changes: keys that merge rows into a table, and formats that tell of inserts, updates and deletes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field, model_validator

from frazil.pipeline.strict import Model
from frazil.pipeline.types import Primitive

if TYPE_CHECKING:
    from frazil.pipeline.destination import TableTemplate

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
    """What tells the kinds of changes apart: values of the op field, or names of the fields that hold a row."""

    insert: tuple[str, ...] = Field((), description="A row came to be, or was read.")
    update: tuple[str, ...] = Field((), description="A row changed.")
    delete: tuple[str, ...] = Field((), description="A row went.")
    truncate: tuple[str, ...] = Field((), description="All rows went.")


class Changes(Model):
    """How a record tells of a change."""

    format: Literal["debezium", "dms", "maxwell", "canal", "op_column", "envelope"] = Field(
        description="Who wrote the records: Debezium, AWS DMS, Maxwell, Canal. Or what they look like: `op_column`, a field"
        ' says what happened; `envelope`, the row is in a field whose name says so, such as `{"insert": {…}}`.'
    )
    op: str | None = Field(
        None, min_length=1, description="For `op_column`: the field that says what happened, a name or a path."
    )
    values: Words | None = Field(
        None,
        description="For `op_column`: values of the op field, exact, per kind of change. For `envelope`: names of the fields"
        " that hold a row. Any other is a dead letter.",
    )
    row: str | None = Field(
        None,
        min_length=1,
        description="For `op_column`: the field that holds the row as it is now. Without, the row is the value itself.",
    )
    before: str | None = Field(
        None,
        min_length=1,
        description="For `op_column`: the field that holds the row as it was, for deletes and for keys that change.",
    )

    @model_validator(mode="after")
    def _describes_itself(self) -> Changes:
        given = [name for name in ("op", "values", "row", "before") if getattr(self, name) is not None]
        needed = {"op_column": ("op", "values"), "envelope": ("values",)}.get(self.format, ())
        allowed = {"op_column": given, "envelope": ["values"]}.get(self.format, [])
        if strange := [name for name in given if name not in allowed]:
            raise ValueError(f"{strange[0]} is not for format {self.format}, which says so itself")
        if missing := [name for name in needed if name not in given]:
            raise ValueError(f"format {self.format} needs {missing[0]}")
        if self.values is not None:
            words = [word for of in self.values.model_dump().values() for word in of]
            if not words or len(set(words)) < len(words):
                raise ValueError("values must name some, each for one kind of change")
        if self.format == "envelope" and self.values is not None and self.values.truncate:
            raise ValueError("values.truncate: an envelope holds a row, which a truncate has not")
        return self


_ONLY_MERGED: Final = ("deletes", "merge", "append_history")


def merge_problems(of: TableTemplate) -> Iterator[str]:
    """Say what keeps a destination from merging rows by their key, if it wants to."""
    if not of.is_merged:
        yield from (f"{key} is for write: upsert and cdc" for key in _ONLY_MERGED if key in of.model_fields_set)
    if not of.is_history and TOLD[0] in (*of.columns, *of.added_columns):
        yield f"a column has the name {TOLD[0]}, by which changes are told from rows; give it another one, with from: {TOLD[0]}"
    if of.write == "append" and of.order_by is not None:
        yield "order_by is for write: upsert, cdc and history"
    if of.write == "cdc" and of.changes is None:
        yield "write: cdc needs changes: how records tell of changes"
    if of.write not in ("cdc", "history") and of.changes is not None:
        yield "changes is for write: cdc and history"
    yield from _identifier_problems(of)
    if of.is_merged:
        yield from _merged_problems(of)
    if of.is_history:
        yield from _history_problems(of)


def _history_problems(of: TableTemplate) -> Iterator[str]:
    if not of.kafka_columns:
        yield "kafka_columns: false, but write: history needs them to tell which change is the later one"
    if not of.identifier:
        yield "write: history needs identifier, the key of the rows that change; append_history takes the destination's own"
    if of.evolves != "none":
        yield f"evolve: {of.evolves}, but write: history has declared columns only"
    if taken := [name for name in TOLD if name in (*of.columns, *of.added_columns)]:
        yield f"a column has the name {taken[0]}, which write: history adds"
    if of.order_by is not None:
        yield from _order_problems(of, of.order_by)


def _identifier_problems(of: TableTemplate) -> Iterator[str]:
    if len(set(of.identifier)) < len(of.identifier):
        yield f"identifier names a column twice: {', '.join(of.identifier)}"
    for name in of.identifier:
        column = of.columns.get(name)
        if column is None:
            yield f"identifier names {name!r}, which is no declared column of {of.title}{_alone(of)}"
        elif not isinstance(column.parsed, Primitive) or column.parsed.name in _UNFIT_KEYS:
            yield f"identifier names {name!r}, of type {column.type}: rows can't be told apart by it"
        elif not column.required:
            yield f"identifier names {name!r}, which is not required: write required: true in columns.{name}"


def _merged_problems(of: TableTemplate) -> Iterator[str]:
    if not of.kafka_columns:
        yield f"kafka_columns: false, but write: {of.write} needs them to tell which change is the later one"
    if taken := sorted(ENGINE_COLUMNS.intersection((*of.columns, *of.added_columns))):
        yield f"a column has the name {taken[0]}, which engines give to facts about a row where rows are merged; give it another one, with from: {taken[0]}"
    if of.order_by is not None:
        yield from _order_problems(of, of.order_by)
    if of.deletes == "soft":
        if DELETED in (*of.columns, *of.added_columns):
            yield f"a column has the name {DELETED}, which deletes: soft adds"
        filled = {*of.identifier, of.order_by}
        bare = [name for name, column in of.columns.items() if column.required and name not in filled]
        if bare and of.identifier:  # else the table says it
            yield (
                f"columns.{bare[0]}.required: with deletes: soft a row may be known by its key alone; only identifier and"
                " order_by columns can be required"
            )


def _order_problems(of: TableTemplate, name: str) -> Iterator[str]:
    column = of.columns.get(name)
    if column is None:
        yield f"order_by names {name!r}, which is no declared column of {of.title}{_alone(of)}"
    elif not isinstance(column.parsed, Primitive) or column.parsed.name in _UNORDERED:
        yield f"order_by names {name!r}, of type {column.type}: earlier and later can't be told by it"
    elif of.write == "cdc" and column.of == "key":
        yield f"order_by names {name!r}, which is of the key: it must be of the value, which each change has"


def _alone(of: TableTemplate) -> str:
    """What a file may not know that wants its columns found."""
    return "" if of.columns else ": declare it, records bring the other columns if evolve says so"
