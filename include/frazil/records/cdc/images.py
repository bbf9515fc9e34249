"""Shared parts of change formats: row images in Arrow values and parsed JSON, ops, and times and log positions of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, UPSERT
from frazil.records.model.changes import Images, Object, ParsedImages, ParsedValue
from frazil.records.model.frame import Columns
from frazil.records.model.json_number import JsonValue
from frazil.records.model.kafka_schema import TIMESTAMP
from frazil.records.transforms.fields import require_type, typed_field
from frazil.records.transforms.kinds.change_events import Verdict, choose_image, failures, text_field
from frazil.records.transforms.kinds.nested import children

_DIGITS: Final = 20
"""An unsigned 64-bit number has so many."""

_MICROS: Final = {"s": 1_000_000, "ms": 1_000}


class SingleChangeFormat:
    """Base of the formats with one change per value: an operation code, the row after the change, and the row before.

    Attributes:
        name: Name of the format.
        ops: Operation code of the source -> `Op`; None: the change affects no row.
        op, after, before: Paths of the operation code and of the rows. Without a row before, `after` has the deleted row.
        text_casts: Values have types of their own.
        before_has_deleted: Whether deletes also have the row before the change.
        no_op_hint: Ends the message about a value without an operation code.
        key_in_record: Whether all key columns are of the record's key, so that a delete needs no image.
    """

    __slots__ = ()

    name: ClassVar[str]
    ops: ClassVar[Mapping[str, str | None]]
    paths: ClassVar[tuple[str, str, str]]
    text_casts: ClassVar[bool] = False
    before_has_deleted: ClassVar[bool] = False
    no_op_hint: ClassVar[str] = ""
    key_in_record: bool

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of a value."""
        op, after, before = (value.get(path) for path in self.paths)
        return images_for_op(self.ops.get(str(op)), after, before)

    def images(self, value: pa.RecordBatch) -> Images:
        """Take values apart."""
        op, after, before = self.paths
        source_ops = text_field(self.name, value, op)
        after_rows, before_rows = image_struct(self.name, value, after), image_struct(self.name, value, before)
        message = f"{self.name}: expected {op} as one of {', '.join(self.ops)}, found {{}}"
        undefined_ops = self.is_unknown(source_ops, value)
        verdicts = [
            (pc.and_(undefined_ops, source_ops.is_null()), message + self.no_op_hint, op),
            (undefined_ops, message, op),
        ]
        return self.single_images(source_ops, after_rows, before_rows, self.facts(source_ops, value), verdicts)

    def is_unknown(self, source_ops: pa.StringArray, value: pa.RecordBatch) -> pa.BooleanArray:  # noqa: ARG002 - for formats that look further
        """Return which values have an unknown operation code."""
        return pc.invert(map_ops(source_ops, self.ops)[1])

    def facts(self, source_ops: pa.StringArray, value: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the facts about each change."""
        raise NotImplementedError

    def single_images(
        self,
        source_ops: pa.StringArray,
        after: pa.StructArray | None,
        before: pa.StructArray | None,
        facts: Mapping[str, pa.Array],
        verdicts: Iterable[Verdict],
    ) -> Images:
        """Return the images of values that each hold one change; those that `verdicts` tell of fail."""
        size = len(source_ops)
        op, _ = map_ops(source_ops, self.ops)
        upserts, deletes = has_op(op, UPSERT), has_op(op, DELETE)
        deleted_before = before if self.before_has_deleted else None
        takes_before = pc.and_(deletes, has_image(deleted_before, size))
        owner = f"changes.format {self.name}"
        row = choose_image(owner, image_columns(after), image_columns(deleted_before), takes_before)
        lacks_row = pc.and_not(upserts, has_image(after, size))
        if not self.key_in_record:
            lacks_row = pc.or_(lacks_row, pc.and_not(pc.and_not(deletes, has_image(after, size)), takes_before))
        no_row: Verdict = (lacks_row, f"{self.name}: expected the row for op {{}}, found none", "")
        failed = failures([*verdicts, no_row], pa.repeat(pa.scalar(value=True), size), source_ops)
        had = pc.and_(upserts, has_image(before, size))
        return Images(pa.arange(0, size), op, row, image_columns(before), had, facts, failed)


def image_struct(format_name: str, fields: pa.RecordBatch, name: str, *, nested: bool = False) -> pa.StructArray | None:
    """Return a struct that contains a row, or None if there is no such field.

    Raises:
        Terminal: It is no struct.
    """
    step = f"declare {name} as struct under value.fields, or correct changes.format"
    return typed_field(f"changes.format {format_name}", fields, name, ("struct", "struct"), step, nested=nested)


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


def has_op(ops: pa.StringArray, *words: str) -> pa.BooleanArray:
    """Return which ops are one of these, never null."""
    return pc.is_in(ops, value_set=pa.array(words, pa.string()))


def map_ops(values: pa.StringArray, ops: Mapping[str, str | None]) -> tuple[pa.StringArray, pa.BooleanArray]:
    """Return the `Op` for each operation code of a source, null where no row changes, and which codes are known."""
    indices = pc.index_in(values, value_set=pa.array(list(ops), pa.string()))
    return pa.array(list(ops.values()), pa.string()).take(indices), indices.is_valid()


def op_facts(source_ops: pa.StringArray) -> dict[str, pa.Array]:
    """Return the facts about changes whose op is all that is known."""
    no_text = pa.nulls(len(source_ops), pa.string())
    return {"op": source_ops, "ts": no_text, "order": no_text}


def images_for_op(op: str | None, after: JsonValue, before: JsonValue) -> ParsedImages:
    """Return the images of a value with a row, or a list of rows, after the change and one before it."""
    rows, before_rows = tuple(_objects(after)), tuple(_objects(before))
    if op == UPSERT:
        return ParsedImages(rows, before_rows)
    all_rows = (*rows, *before_rows)
    return ParsedImages((), all_rows) if op == DELETE else ParsedImages(ignored_rows=all_rows)


def _objects(parsed: JsonValue) -> list[Object]:
    candidates: Sequence[JsonValue] = parsed if isinstance(parsed, list) else [parsed]
    return [candidate for candidate in candidates if isinstance(candidate, dict)]


def sortable_positions(format_name: str, path: str, values: pa.Array) -> pa.StringArray:
    """Return positions in a source's log as texts that sort like them: numbers, also those sent as text, get leading zeros.

    Raises:
        Terminal: They are neither numbers nor texts.
    """
    kind, step = ("number or text", "integer", "string", "null"), f"declare {path} as long under value.fields"
    texts = require_type(f"changes.format {format_name}", path, values, kind, step).cast(pa.string())
    is_number = pc.match_substring_regex(texts, "^[0-9]+$")
    return pc.if_else(is_number, pc.utf8_lpad(texts, _DIGITS, "0"), texts)


def read_instants(format_name: str, value: pa.RecordBatch, path: str, unit: str) -> pa.TimestampArray:
    """Return the instants of a field that contains numbers since 1970, or timestamps; null where they are out of range.

    Raises:
        Terminal: It is neither.
    """
    kind, step = ("long", "integer", "timestamp"), f"declare {path} as long under value.fields"
    values = typed_field(f"changes.format {format_name}", value, path, kind, step)
    if values is None:
        return pa.nulls(value.num_rows, TIMESTAMP)
    if pa.types.is_timestamp(values.type):
        return values.cast(TIMESTAMP)
    micros, limit = _MICROS[unit], pa.scalar(2**63 // _MICROS[unit] - 1, pa.int64())
    wide = values.cast(pa.int64())
    inside = pc.and_(pc.less_equal(wide, limit), pc.greater_equal(wide, pc.negate(limit)))
    return pc.multiply(pc.if_else(inside, wide, None), pa.scalar(micros, pa.int64())).cast(TIMESTAMP)
