"""What a pipeline wants of records that change rows: plain data, since it travels to executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, OP, PLACE, UPSERT

if TYPE_CHECKING:
    from frazil.records.changes.images import Images
    from frazil.records.changes.sent import Sent, SentImages


OP_FIELD: Final = pa.field(OP, pa.string())
"""What happens to a row."""

FACTS: Final = "_cdc"
"""Struct beside the fields of a changed row: op, ts and order of the change, for columns that take one of them."""


class ChangeFormat(Protocol):
    """How values tell of changes."""

    @property
    def text_casts(self) -> bool:
        """Whether all values of rows come as text."""

    def sent(self, value: Sent) -> SentImages:
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
