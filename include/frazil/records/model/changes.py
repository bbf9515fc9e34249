"""Records that change rows: what a pipeline asks of them, and the form that every format of changes brings them to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, OP, PLACE, UPSERT
from frazil.records.model.dead_letter import Reason
from frazil.records.model.json_text import JsonValue

OP_FIELD: Final = pa.field(OP, pa.string())
"""What happens to a row."""

FACTS: Final = "_cdc"
"""Struct beside the fields of a changed row: op, ts and order of the change, for columns that take one of them."""


Column = tuple[pa.Field, pa.Array]
Columns = Mapping[str, Column]
"""Fields of rows by name, with their values."""


@dataclass(frozen=True, slots=True)
class Images:
    """Changes of rows, in the order in which they came.

    Attributes:
        of: int64, per change the value that tells of it, ascending; a value may tell of none, or of several.
        op: string, per change an `Op`, or null if nothing happens to a row.
        row: Fields of the row as it is; of a deleted one, as it was.
        before: Fields of updated rows as they were.
        had: Where `before` has something.
        facts: The facts about each change: op, ts, order.
        failed: Reasons by value.
        hidden: Fields of `row` that tell of the change: no columns, unless the file declares them.
    """

    of: pa.Int64Array
    op: pa.StringArray
    row: Columns
    before: Columns
    had: pa.BooleanArray
    facts: Mapping[str, pa.Array]
    failed: Mapping[int, Reason] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()


Object = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class ParsedValue:
    """A value, as it was sent.

    Attributes:
        whole: All of it.
        fold: Whether names that differ in case only are the same field.
    """

    whole: Object
    fold: bool = False

    def at(self, path: str) -> JsonValue:
        """Return what is at a name or path; None if there is nothing."""
        found = self._field(self.whole, path)
        if found is not None or "." not in path:
            return found
        here: JsonValue = self.whole
        for step in path.split("."):
            here = self._field(here, step)
        return here

    def _field(self, of: JsonValue, name: str) -> JsonValue:
        if not isinstance(of, dict):
            return None
        if not self.fold:
            return of.get(name)
        sought = name.casefold()
        return next((item for key, item in reversed(of.items()) if key.casefold() == sought), None)


def all_is_sent(_item: JsonValue) -> bool:
    """Whether a format has words for a value that it leaves out: this one has none."""
    return False


@dataclass(frozen=True, slots=True)
class ParsedImages:
    """The images in a value.

    Attributes:
        now: Rows as they are after an insert or update: what they hold becomes columns.
        others: Deleted rows, and rows as they were: of these the key counts.
        void: Rows in a value that tells of none: nothing of them counts.
        is_left_out: Tells a value that was not sent from others.
        hidden: Names of fields that tell of the change where those of the row are: no columns, unless the file declares them.
    """

    now: tuple[Object, ...] = ()
    others: tuple[Object, ...] = ()
    void: tuple[Object, ...] = ()
    is_left_out: Callable[[JsonValue], bool] = field(default=all_is_sent)
    hidden: frozenset[str] = frozenset()


class ChangeFormat(Protocol):
    """How values tell of changes."""

    @property
    def text_casts(self) -> bool:
        """Whether all values of rows come as text."""

    def sent(self, value: ParsedValue) -> ParsedImages:
        """Find the images in a value that is JSON."""

    def images(self, value: pa.RecordBatch) -> Images:
        """Take values apart.

        Raises:
            Terminal: A part of them has another type than the format has.
        """


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """How rows are merged into their table.

    Attributes:
        keys: Columns that identify a row.
        order_by: Column that says which of two changes of a key is the later one; None: the offset.
        deleted: Column that marks deleted rows; None: they go.
        changes: How values tell of changes; None: each is a row as it is now.
        shape: What JSON values hold that tell of changes of this table, where tables follow their records: each decodes
            them for itself then. A row has the column for rescued fields, too.
    """

    keys: tuple[str, ...]
    order_by: str | None = None
    deleted: str | None = None
    changes: ChangeFormat | None = None
    shape: pa.Schema | None = None

    @property
    def fields(self) -> list[pa.Field]:
        """What staged rows carry beside the columns and where they are from; the mark is a column of the table."""
        mark = [] if self.deleted is None else [pa.field(self.deleted, pa.bool_())]
        return [*mark, OP_FIELD, pa.field(PLACE, pa.int32())]


def merge_columns(merge: MergeSpec, rows: pa.RecordBatch, positions: pa.Int64Array) -> list[pa.Array]:
    """Return the columns that tell what happens to rows: the mark of soft deletes if there is one, op, and place.

    Args:
        merge: How rows are merged.
        rows: Decoded rows; without a column for what happens, each is a row as it is.
        positions: Of the records that rows came from, ascending.
    """
    size = rows.num_rows
    op = rows.column(OP) if OP in rows.schema.names else pa.repeat(pa.scalar(UPSERT, pa.string()), size)
    first = pc.index_in(positions, value_set=positions)
    place = pc.subtract(pa.arange(0, size).cast(pa.int32()), first)
    deleted = [] if merge.deleted is None else [pc.equal(op, DELETE)]
    return [*deleted, op, place]
