"""What values tell of rows: what happened, and the images of the row as it is and as it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, UPSERT
from frazil.errors import Terminal
from frazil.records.model.changes import Columns, Images
from frazil.records.transforms.cdc.change import Verdict, choose_image, failures
from frazil.records.transforms.fields import find
from frazil.records.transforms.flatten import children


def image(format_name: str, fields: pa.RecordBatch, name: str, *, nested: bool = False) -> pa.StructArray | None:
    """Return a struct that holds a row, or None if there is no such field.

    Raises:
        Terminal: It is no struct.
    """
    values = find(fields, name, nested=nested)
    if values is None or pa.types.is_null(values.type):
        return None
    if not pa.types.is_struct(values.type):
        raise Terminal(
            f"changes.format {format_name}: expected {name} as struct, found {values.type}",
            next_step=f"declare {name} as struct under value.fields, or correct changes.format",
        )
    return values


def columns_of_image(values: pa.StructArray | None) -> Columns:
    """Return the fields of an image; of none, none. What a null image holds is null."""
    if values is None:
        return {}
    # Changes without the image they need fail, so an image adds no nulls of its own to those that go on.
    declared = pa.field("image", values.type, nullable=False)
    return {of.name: (of, inner) for of, inner in children(declared, values)}


def there(values: pa.Array | None, size: int) -> pa.BooleanArray:
    """Return where there is an image."""
    return pa.repeat(pa.scalar(value=False), size) if values is None else values.is_valid()


def mapped(values: pa.StringArray, words: Mapping[str, str | None]) -> tuple[pa.StringArray, pa.BooleanArray]:
    """Return what words mean, and which are known. A word may mean nothing."""
    at = pc.index_in(values, value_set=pa.array(list(words), pa.string()))
    return pa.array(list(words.values()), pa.string()).take(at), at.is_valid()


@dataclass(frozen=True, slots=True)
class Parts:
    """What values that each tell of one change are made of.

    Attributes:
        format: Name of the format, for messages.
        op: What happens, as an `Op`, or null.
        sent: What was sent for it.
        now: The row as it is; where `was` has no deleted row, also that.
        was: The row as it was.
        facts: The facts about each change.
        key_in_record: Whether all key columns are of the record's key, so that a delete needs no image.
    """

    format: str
    op: pa.StringArray
    sent: pa.StringArray
    now: pa.StructArray | None
    was: pa.StructArray | None
    facts: Mapping[str, pa.Array]
    key_in_record: bool

    @property
    def upserts(self) -> pa.BooleanArray:
        """Where a row is told as it is."""
        return pc.fill_null(pc.equal(self.op, UPSERT), fill_value=False)

    @property
    def deletes(self) -> pa.BooleanArray:
        """Where a row went."""
        return pc.fill_null(pc.equal(self.op, DELETE), fill_value=False)


def one_each(parts: Parts, verdicts: Iterable[Verdict], *, told_before: bool = False) -> Images:
    """Return the images of values that each tell of one change.

    Args:
        parts: What they are made of.
        verdicts: What else is wrong with values.
        told_before: Whether deleted rows are told as they were.
    """
    size = len(parts.op)
    has_now, has_was = there(parts.now, size), there(parts.was, size)
    gone = parts.was if told_before else None
    takes_gone = pc.and_(parts.deletes, there(gone, size))
    row = choose_image(
        f"changes.format {parts.format}", columns_of_image(parts.now), columns_of_image(gone), takes_gone
    )
    bare = pc.and_not(parts.upserts, has_now)
    if not parts.key_in_record:
        bare = pc.or_(bare, pc.and_not(pc.and_not(parts.deletes, has_now), takes_gone))
    lost: Verdict = (bare, f"{parts.format}: expected the row for op {{}}, found none", "")
    failed = failures([*verdicts, lost], pa.repeat(pa.scalar(value=True), size), parts.sent)
    had = pc.and_(parts.upserts, has_was)
    return Images(pa.arange(0, size), parts.op, row, columns_of_image(parts.was), had, parts.facts, failed)
