"""Change events (CDC): how a pipeline merges them, and the common form to which each change format converts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, OP, PLACE, UPSERT
from frazil.records.model.dead_letter import Reason
from frazil.records.model.format import Columns
from frazil.records.model.json_number import JsonObject, JsonValue

OP_FIELD: Final = pa.field(OP, pa.string())
"""Operation on a row: an `Op`."""

FACTS: Final = "_cdc"
"""Name of the struct that is added to the fields of a row: op, ts and order of the change, for columns that take them."""


@dataclass(frozen=True, slots=True)
class Images:
    """Row changes in the order of their records, as before and after images.

    Attributes:
        value_positions: int64, per change the position of its value, ascending. A value may have no change, or several.
        op: string, per change an `Op`, or null if it changes no row.
        row: Fields of the row after the change; of a deleted row, before the change.
        before: Fields of updated rows before the change.
        has_before: Whether `before` has a row for the change.
        facts: Facts about each change: op, ts, order.
        failed: Reasons by position of the value.
        hidden: Fields of `row` that describe the change. They become columns only if the pipeline file declares them.
    """

    value_positions: pa.Int64Array
    op: pa.StringArray
    row: Columns
    before: Columns
    has_before: pa.BooleanArray
    facts: Mapping[str, pa.Array]
    failed: Mapping[int, Reason] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ParsedValue:
    """A parsed JSON value of a change event. With `fold`, names that differ in case only are the same field."""

    whole: JsonObject
    fold: bool = False

    def get(self, path: str) -> JsonValue:
        """Return the value at a field name or dotted path; None if there is none."""
        field_value = self._field(self.whole, path)
        if field_value is not None or "." not in path:
            return field_value
        node: JsonValue = self.whole
        for step in path.split("."):
            node = self._field(node, step)
        return node

    def _field(self, node: JsonValue, name: str) -> JsonValue:
        if not isinstance(node, dict):
            return None
        if not self.fold:
            return node.get(name)
        folded = name.casefold()
        return next((item for key, item in reversed(node.items()) if key.casefold() == folded), None)


@dataclass(frozen=True, slots=True)
class ParsedImages:
    """The before and after images in one value.

    Attributes:
        current_rows: Rows after an insert or update. Their fields become columns.
        past_rows: Deleted rows, and rows before an update. Only their key matters.
        ignored_rows: Rows of a value that describes no change. None of their fields matters.
        is_left_out: Returns whether a field's value only marks a value that was not sent.
        hidden: Names of fields that describe the change, not the row. They become columns only if declared.
    """

    current_rows: tuple[JsonObject, ...] = ()
    past_rows: tuple[JsonObject, ...] = ()
    ignored_rows: tuple[JsonObject, ...] = ()
    is_left_out: Callable[[JsonValue], bool] = field(default=lambda _item: False)
    hidden: frozenset[str] = frozenset()


class ChangeFormat(Protocol):
    """Reads changes of rows from values."""

    @property
    def text_casts(self) -> bool:
        """Whether all values of rows come as text."""

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the before and after images in one JSON value."""

    def images(self, value: pa.RecordBatch) -> Images:
        """Split values into row images and operations.

        Raises:
            Terminal: A field of the envelope has another type than the format defines.
        """


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """How rows are merged into their table.

    Attributes:
        keys: Columns that identify a row.
        order_by: Column that orders changes of the same key; None: the offset orders them.
        deleted: Column that marks deleted rows; None: they are deleted from the table.
        changes: How values describe changes; None: each value is a row to upsert.
        shape: Schema of the JSON values, with the column for rescued fields in each row, if tables evolve with their records. Then
            the values are decoded for each table.
    """

    keys: tuple[str, ...]
    order_by: str | None = None
    deleted: str | None = None
    changes: ChangeFormat | None = None
    shape: pa.Schema | None = None

    @property
    def fields(self) -> list[pa.Field]:
        """Fields that staged rows need for the merge: `deleted`, which is a column of the table, op and place."""
        mark = [] if self.deleted is None else [pa.field(self.deleted, pa.bool_())]
        return [*mark, OP_FIELD, pa.field(PLACE, pa.int32())]


def merge_columns(merge: MergeSpec, rows: pa.RecordBatch, positions: pa.Int64Array) -> list[pa.Array]:
    """Return the columns of `MergeSpec.fields`."""
    size = rows.num_rows
    op = rows.column(OP) if OP in rows.schema.names else pa.repeat(pa.scalar(UPSERT, pa.string()), size)
    # The place of a row is its index among the rows of its record.
    first = pc.index_in(positions, value_set=positions)
    place = pc.subtract(pa.arange(0, size).cast(pa.int32()), first)
    deleted = [] if merge.deleted is None else [pc.equal(op, DELETE)]
    return [*deleted, op, place]
