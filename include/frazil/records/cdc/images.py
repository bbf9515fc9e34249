"""Images of changed rows in Arrow values: the op, and the row after and before the change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, UPSERT
from frazil.error_codes import FIELDS_UNFIT
from frazil.records.model.changes import Images
from frazil.records.model.frame import Columns
from frazil.records.transforms.cdc.change import Verdict, choose_image, failures
from frazil.records.transforms.fields import find
from frazil.records.transforms.kinds.nested import children


def image_struct(format_name: str, fields: pa.RecordBatch, name: str, *, nested: bool = False) -> pa.StructArray | None:
    """Return a struct that holds a row, or None if there is no such field.

    Raises:
        Terminal: It is no struct.
    """
    values = find(fields, name, nested=nested)
    if values is None or pa.types.is_null(values.type):
        return None
    if not pa.types.is_struct(values.type):
        raise FIELDS_UNFIT.terminal(
            f"changes.format {format_name}: expected {name} as struct, found {values.type}",
            next_step=f"declare {name} as struct under value.fields, or correct changes.format",
        )
    return values


def image_columns(values: pa.StructArray | None) -> Columns:
    """Return the fields of an image, with their values; a null image has nulls. Without an image there are no fields."""
    if values is None:
        return {}
    # A change without the image that it needs fails. So an image adds no nulls of its own to the other changes.
    declared = pa.field("image", values.type, nullable=False)
    return {child.name: (child, child_values) for child, child_values in children(declared, values)}


def has_image(values: pa.Array | None, size: int) -> pa.BooleanArray:
    """Return, per value, whether it has an image."""
    return pa.repeat(pa.scalar(value=False), size) if values is None else values.is_valid()


def map_ops(values: pa.StringArray, ops: Mapping[str, str | None]) -> tuple[pa.StringArray, pa.BooleanArray]:
    """Return the `Op` for each word of a source, null where nothing happens to a row, and which words are known."""
    indices = pc.index_in(values, value_set=pa.array(list(ops), pa.string()))
    return pa.array(list(ops.values()), pa.string()).take(indices), indices.is_valid()


@dataclass(frozen=True, slots=True)
class SingleChanges:
    """The parts of values that each hold one change.

    Attributes:
        format: Name of the format, for messages.
        op: The `Op`, or null if nothing happens to a row.
        source_op: The source's word for it.
        after: The row after the change; also the deleted row, if the format has no image before.
        before: The row before the change.
        facts: The facts about each change.
        key_in_record: Whether all key columns are of the record's key, so that a delete needs no image.
    """

    format: str
    op: pa.StringArray
    source_op: pa.StringArray
    after: pa.StructArray | None
    before: pa.StructArray | None
    facts: Mapping[str, pa.Array]
    key_in_record: bool

    @property
    def upserts(self) -> pa.BooleanArray:
        """Which changes are inserts or updates."""
        return pc.fill_null(pc.equal(self.op, UPSERT), fill_value=False)

    @property
    def deletes(self) -> pa.BooleanArray:
        """Which changes are deletes."""
        return pc.fill_null(pc.equal(self.op, DELETE), fill_value=False)


def single_images(changes: SingleChanges, verdicts: Iterable[Verdict], *, before_has_deleted: bool = False) -> Images:
    """Return the images of values that each hold one change."""
    size = len(changes.op)
    has_after, has_before = has_image(changes.after, size), has_image(changes.before, size)
    deleted_before = changes.before if before_has_deleted else None
    takes_before = pc.and_(changes.deletes, has_image(deleted_before, size))
    row = choose_image(
        f"changes.format {changes.format}", image_columns(changes.after), image_columns(deleted_before), takes_before
    )
    lacks_row = pc.and_not(changes.upserts, has_after)
    if not changes.key_in_record:
        lacks_row = pc.or_(lacks_row, pc.and_not(pc.and_not(changes.deletes, has_after), takes_before))
    no_row: Verdict = (lacks_row, f"{changes.format}: expected the row for op {{}}, found none", "")
    failed = failures([*verdicts, no_row], pa.repeat(pa.scalar(value=True), size), changes.source_op)
    had = pc.and_(changes.upserts, has_before)
    return Images(pa.arange(0, size), changes.op, row, image_columns(changes.before), had, changes.facts, failed)
