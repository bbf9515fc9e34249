"""Change events that the pipeline file describes: a field says what happened, or the name of the field that holds the row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.cdc.images import (
    SingleChangeFormat,
    has_image,
    image_columns,
    image_struct,
    images_for_op,
    map_ops,
    op_facts,
)
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.transforms.cdc.change import choose_image, failures
from frazil.records.transforms.fields import typed_field

_ENVELOPE: Final = "envelope"


@dataclass(frozen=True, slots=True)
class OpColumn(SingleChangeFormat):
    """A field says what happened.

    Attributes:
        op: Its name or path.
        words: What its values mean, as an `Op`.
        row: The field that holds the row as it is; None: the value itself is the row.
        before: The field that holds the row as it was, if any does.
        key_in_record: Whether all key columns are of the record's key.
    """

    name: ClassVar = "op_column"
    before_has_deleted: ClassVar = True

    op: str
    words: Mapping[str, str]
    row: str | None = None
    before: str | None = None
    key_in_record: bool = False

    @property
    def ops(self) -> Mapping[str, str | None]:  # type: ignore[override]
        """The operation of each word."""
        return self.words

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
        kind, step = (
            ("string, long or boolean", "string", "integer", "boolean"),
            "declare it so under value.fields, or name another field",
        )
        # Numbers and flags become texts as JSON writes them.
        ops = typed_field("changes.op", value, self.op, kind, step)
        source_ops = pa.nulls(len(value), pa.string()) if ops is None else ops.cast(pa.string())
        is_unknown = pc.invert(map_ops(source_ops, self.ops)[1])
        after = value.to_struct_array() if self.row is None else image_struct(self.name, value, self.row, nested=True)
        before = None if self.before is None else image_struct(self.name, value, self.before, nested=True)
        message = f"{self.name}: expected one of {', '.join(self.words)}, found {{}}"
        images = self.single_images(source_ops, after, before, op_facts(source_ops), [(is_unknown, message, self.op)])
        return replace(images, hidden=self._change_fields)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The row is in a field whose name says what happened: `{"insert": {…}}`."""

    text_casts: ClassVar = False

    words: Mapping[str, str]
    key_in_record: bool = False

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
