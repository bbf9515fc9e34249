"""Change events that the pipeline file describes: a field says what happened, or the name of the field that holds the row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_codes import FIELDS_UNFIT
from frazil.records.cdc.images import SingleChanges, has_image, image_columns, image_struct, map_ops, single_images
from frazil.records.cdc.parsed_value import images_for_op
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.transforms.cdc.change import choose_image, failures
from frazil.records.transforms.fields import find

_OP_COLUMN: Final = "op_column"
_ENVELOPE: Final = "envelope"


@dataclass(frozen=True, slots=True)
class OpColumn:
    """A field says what happened.

    Attributes:
        op: Its name or path.
        words: What its values mean, as an `Op`.
        row: The field that holds the row as it is; None: the value itself is the row.
        before: The field that holds the row as it was, if any does.
        key_in_record: Whether all key columns are of the record's key.
    """

    op: str
    words: Mapping[str, str]
    row: str | None = None
    before: str | None = None
    key_in_record: bool = False

    @property
    def text_casts(self) -> bool:
        """Values have types of their own."""
        return False

    @property
    def _change_fields(self) -> frozenset[str]:
        """The fields that describe the change, where they are fields of the row itself."""
        paths = [self.op, *([] if self.before is None else [self.before])]
        return frozenset(path.partition(".")[0] for path in paths) if self.row is None else frozenset()

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of a record."""
        op, row = value.get(self.op), value.whole if self.row is None else value.get(self.row)
        word = {True: "true", False: "false"}.get(op) if isinstance(op, bool) else str(op)
        images = images_for_op(self.words.get(word or ""), row, None if self.before is None else value.get(self.before))
        return replace(images, hidden=self._change_fields)

    def images(self, value: pa.RecordBatch) -> Images:
        """Take records apart."""
        source_ops = _op_texts(self.op, find(value, self.op), value.num_rows)
        op, is_known = map_ops(source_ops, self.words)
        after = _whole_value(value) if self.row is None else image_struct(_OP_COLUMN, value, self.row, nested=True)
        before = None if self.before is None else image_struct(_OP_COLUMN, value, self.before, nested=True)
        changes = SingleChanges(_OP_COLUMN, op, source_ops, after, before, op_facts(source_ops), self.key_in_record)
        message = f"{_OP_COLUMN}: expected one of {', '.join(self.words)}, found {{}}"
        return replace(
            single_images(changes, [(pc.invert(is_known), message, self.op)], before_has_deleted=True),
            hidden=self._change_fields,
        )


@dataclass(frozen=True, slots=True)
class Envelope:
    """The row is in a field whose name says what happened: `{"insert": {…}}`.

    Attributes:
        words: What the names mean, as an `Op`.
        key_in_record: Whether all key columns are of the record's key.
    """

    words: Mapping[str, str]
    key_in_record: bool = False

    @property
    def text_casts(self) -> bool:
        """Values have types of their own."""
        return False

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the row of a record."""
        images = [images_for_op(op, value.get(name), None) for name, op in self.words.items()]
        upserted, deleted = (
            tuple(row for named_images in images for row in named_images.current_rows),
            tuple(row for named_images in images for row in named_images.past_rows),
        )
        # A value with several rows is ambiguous: none of them counts.
        return (
            ParsedImages(upserted, deleted)
            if len(upserted) + len(deleted) == 1
            else ParsedImages(ignored_rows=(*upserted, *deleted))
        )

    def images(self, value: pa.RecordBatch) -> Images:
        """Take records apart."""
        size = value.num_rows
        rows = {name: image_struct(_ENVELOPE, value, name) for name in self.words}
        is_present = {name: has_image(values, size) for name, values in rows.items()}
        count = reduce(pc.add, [values.cast(pa.int8()) for values in is_present.values()])
        source_ops = pa.nulls(size, pa.string())
        row = image_columns(None)
        for name, values in rows.items():
            source_ops = pc.if_else(is_present[name], name, source_ops)
            fields = image_columns(values)
            row = choose_image(f"changes.format {_ENVELOPE}", row, fields, is_present[name]) if row else fields
        op, _ = map_ops(source_ops, self.words)
        listed = ", ".join(self.words)
        verdicts = [
            (pc.not_equal(count, 1), f"{_ENVELOPE}: expected one of {listed} with a row, found none or several", "")
        ]
        failed = failures(verdicts, pa.repeat(pa.scalar(value=True), size))
        no_row = pa.repeat(pa.scalar(value=False), size)
        return Images(pa.arange(0, size), op, row, {}, no_row, op_facts(source_ops), failed)


def op_facts(source_ops: pa.StringArray) -> dict[str, pa.Array]:
    """Return the facts about changes whose op is all that is known."""
    no_text = pa.nulls(len(source_ops), pa.string())
    return {"op": source_ops, "ts": no_text, "order": no_text}


def _whole_value(value: pa.RecordBatch) -> pa.StructArray:
    return pa.StructArray.from_arrays(value.columns, fields=list(value.schema))


def _op_texts(path: str, values: pa.Array | None, size: int) -> pa.StringArray:
    """The op field as text: numbers and flags as JSON writes them."""
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(size, pa.string())
    data_type = values.type
    if not (pa.types.is_string(data_type) or pa.types.is_integer(data_type) or pa.types.is_boolean(data_type)):
        raise FIELDS_UNFIT.terminal(
            f"changes.op: expected {path} as string, long or boolean, found {data_type}",
            next_step="declare it so under value.fields, or name another field",
        )
    return values.cast(pa.string())
