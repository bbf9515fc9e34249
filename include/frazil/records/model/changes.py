"""Change events (CDC): how a pipeline merges them, and the common form that each change format brings them to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, OP, PLACE, UPSERT
from frazil.records.model.dead_letter import Reason
from frazil.records.model.format import Columns
from frazil.records.model.json_number import JsonValue

OP_FIELD: Final = pa.field(OP, pa.string())
"""Operation on a row: an `Op`."""

FACTS: Final = "_cdc"
"""Struct beside the fields of a changed row: op, ts and order of the change, for columns that take one of them."""


@dataclass(frozen=True, slots=True)
class Images:
    """Row changes in the order of their records, as before and after images.

    Attributes:
        value_positions: int64, per change the position of its value, ascending. A value may have no change, or several.
        op: string, per change an `Op`, or null if nothing happens to a row.
        row: Fields of the row after the change; of a deleted row, before it.
        before: Fields of updated rows before the change.
        has_before: Where `before` has a row.
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


Object = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ParsedValue:
    """A parsed JSON value of a change event.

    With `fold` names that differ in case only are the same field.
    """

    whole: Object
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
        sought = name.casefold()
        return next((item for key, item in reversed(node.items()) if key.casefold() == sought), None)


def nothing_left_out(_item: JsonValue) -> bool:
    """The default of `ParsedImages.is_left_out`: the format marks no value as not sent."""
    return False


@dataclass(frozen=True, slots=True)
class ParsedImages:
    """The before and after images in one value.

    Attributes:
        current_rows: Rows after an insert or update. Their fields become columns.
        past_rows: Deleted rows, and rows before an update. Only their key counts.
        ignored_rows: Rows of a value that describes no change. Nothing of them counts.
        is_left_out: Returns whether a field's value stands for one that was not sent.
        hidden: Names of fields beside those of the row that describe the change. They become columns only if declared.
    """

    current_rows: tuple[Object, ...] = ()
    past_rows: tuple[Object, ...] = ()
    ignored_rows: tuple[Object, ...] = ()
    is_left_out: Callable[[JsonValue], bool] = field(default=nothing_left_out)
    hidden: frozenset[str] = frozenset()


class ChangeFormat(Protocol):
    """How values describe changes of rows."""

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
        order_by: Column that orders changes of the same key; None: the offset does.
        deleted: Column that marks deleted rows; None: they are deleted from the table.
        changes: How values describe changes; None: each value is a current row (an upsert).
        shape: Schema of the JSON values where tables evolve with their records: then each table decodes the values for
            itself. A row also has the column for rescued fields.
    """

    keys: tuple[str, ...]
    order_by: str | None = None
    deleted: str | None = None
    changes: ChangeFormat | None = None
    shape: pa.Schema | None = None

    @property
    def fields(self) -> list[pa.Field]:
        """Fields that staged rows need for the merge: the mark of soft deletes, which is a column of the table, op and place."""
        mark = [] if self.deleted is None else [pa.field(self.deleted, pa.bool_())]
        return [*mark, OP_FIELD, pa.field(PLACE, pa.int32())]


def merge_columns(merge: MergeSpec, rows: pa.RecordBatch, positions: pa.Int64Array) -> list[pa.Array]:
    """Return the columns that the merge needs: the mark of soft deletes if there is one, op, and place."""
    size = rows.num_rows
    op = rows.column(OP) if OP in rows.schema.names else pa.repeat(pa.scalar(UPSERT, pa.string()), size)
    # The place of a row is its index among the rows of its record.
    first = pc.index_in(positions, value_set=positions)
    place = pc.subtract(pa.arange(0, size).cast(pa.int32()), first)
    deleted = [] if merge.deleted is None else [pc.equal(op, DELETE)]
    return [*deleted, op, place]
