"""Change events of Canal, AWS DMS and Maxwell, and those whose fields the pipeline file describes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.error_codes import FIELDS_UNFIT
from frazil.records.cdc.debezium import (
    SingleChangeFormat,
    change_times,
    has_image,
    has_op,
    image_columns,
    image_struct,
    images_for_op,
    map_ops,
    op_facts,
    sortable_positions,
)
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.model.column import type_name
from frazil.records.model.rows import mask_without
from frazil.records.transforms.fields import find, typed_field
from frazil.records.transforms.kinds.change_events import RowCheck, choose_image, failures, text_field

_NAME: Final = "canal"
_OPS: Final = {"INSERT": UPSERT, "UPDATE": UPSERT, "DELETE": DELETE, "TRUNCATE": TRUNCATE}


@dataclass(frozen=True, slots=True)
class Canal:
    """Records with type, a list of rows in data and, for updates, the changed fields of each row in old.

    All values come as text. DDL changes no row, except TRUNCATE.
    """

    text_casts: ClassVar = True

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the images in a parsed message."""
        return images_for_op(_OPS.get(str(value.get("type"))), value.get("data"), value.get("old"))

    def images(self, value: pa.RecordBatch) -> Images:
        """Split messages into row images and operations."""
        source_ops = text_field(_NAME, value, "type")
        op, is_known = map_ops(source_ops, _OPS)
        kind, step = ("boolean", "boolean"), "declare it as boolean"
        ddl = typed_field(f"changes.format {_NAME}", value, "isDdl", kind, step, nested=False)
        is_ddl = pc.fill_null(pa.nulls(len(op), pa.bool_()) if ddl is None else ddl, fill_value=False)
        data, old = _row_lists(value, "data"), _row_lists(value, "old")
        changes_rows = has_op(op, UPSERT, DELETE)
        lengths = pc.fill_null(pc.list_value_length(data), 0)
        has_other_length = pc.fill_null(pc.not_equal(pc.list_value_length(old), lengths), fill_value=False)
        unknown_type = f"{_NAME}: expected type INSERT, UPDATE or DELETE, found {{}}"
        checks: list[RowCheck] = [
            (pc.and_not(pc.invert(is_known), is_ddl), unknown_type, "type"),
            (pc.and_(changes_rows, pc.equal(lengths, 0)), f"{_NAME}: expected the rows of {{}}, found none", "data"),
            (pc.and_(changes_rows, has_other_length), f"{_NAME}: expected as many rows in old as in data", "old"),
        ]
        failed = failures(checks, values=source_ops)
        has_rows = pc.and_(changes_rows, mask_without(len(op), failed))
        statements = pc.indices_nonzero(has_rows).cast(pa.int64())
        messages, rows, old_rows = _split_statements(statements, data.take(statements), old.take(statements))
        truncates = pc.indices_nonzero(has_op(op, TRUNCATE)).cast(pa.int64())
        if len(truncates):
            messages, rows, old_rows = _with_truncates(messages, rows, old_rows, truncates)
        ops = op.take(messages)
        has_before = pc.and_(old_rows.is_valid(), pc.equal(ops, UPSERT))
        no_order = pa.nulls(len(messages), pa.string())
        timestamps = change_times(_NAME, value, "es", "ms")
        facts = {"op": source_ops.take(messages), "ts": timestamps.take(messages), "order": no_order}
        return Images(messages, ops, image_columns(rows), image_columns(old_rows), has_before, facts, failed)


def _row_lists(value: pa.RecordBatch, name: str) -> pa.ListArray:
    """Return the rows in a field of each message, null if it has none."""
    values = find(value, name, nested=False)
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(value.num_rows, pa.list_(pa.struct([])))
    if not (pa.types.is_list(values.type) and pa.types.is_struct(values.type.value_type)):
        raise FIELDS_UNFIT.terminal(
            f"changes.format {_NAME}: expected {name} as a list of structs, found {type_name(values.type)}",
            next_step=f"declare {name} as list<struct<…>> under value.fields",
        )
    return values


def _split_statements(
    statements: pa.Int64Array, data: pa.ListArray, old: pa.ListArray
) -> tuple[pa.Int64Array, pa.StructArray, pa.StructArray]:
    """Split statements into rows: per row, its message, the row after the change, and the row before."""
    parent_indices = pc.list_parent_indices(data)
    has_old = old.is_valid().take(parent_indices)
    old_indices = pc.subtract(pc.cumulative_sum(has_old.cast(pa.int64())), pa.scalar(1, pa.int64()))
    aligned_indices = pc.if_else(has_old, old_indices, pa.scalar(None, pa.int64()))
    return statements.take(parent_indices), pc.list_flatten(data), pc.list_flatten(old).take(aligned_indices)


def _with_truncates(
    messages: pa.Int64Array, rows: pa.StructArray, old_rows: pa.StructArray, truncates: pa.Int64Array
) -> tuple[pa.Int64Array, pa.StructArray, pa.StructArray]:
    """Add truncate messages, which have no row, so that all messages keep their order."""
    all_messages = pa.concat_arrays([messages, truncates])
    order = pc.array_sort_indices(all_messages)
    images = (
        pa.concat_arrays([values, pa.nulls(len(truncates), values.type)]).take(order) for values in (rows, old_rows)
    )
    return all_messages.take(order), *images


_DMS_BEFORE: Final = "BI_"
"""Prefix of the columns that the rule `add-before-image-columns` of a DMS task adds to `data`."""


@dataclass(frozen=True, slots=True)
class Dms(SingleChangeFormat):
    """Records with data and metadata. The row before is in before-image or in columns `BI_*` of data, if the DMS task sends it."""

    name: ClassVar = "dms"
    ops: ClassVar = {"load": UPSERT, "insert": UPSERT, "update": UPSERT, "delete": DELETE, "truncate-table": TRUNCATE}
    paths: ClassVar = ("metadata.operation", "data", "before-image")

    key_in_record: bool = False

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the images in a parsed record."""
        images, row = SingleChangeFormat.find_images(self, value), value.get("data")
        if images.ignored_rows:
            return images
        return replace(images, hidden=_before_names(row) if isinstance(row, dict) else frozenset())

    def images(self, value: pa.RecordBatch) -> Images:
        """Split records into row images and operations."""
        return _with_before_columns(SingleChangeFormat.images(self, value))

    def is_unknown(self, source_ops: pa.StringArray, value: pa.RecordBatch) -> pa.BooleanArray:
        """Return which values have an unknown operation code. Control records have their own codes, which change no row."""
        control = pc.equal(text_field(self.name, value, "metadata.record-type"), "control")
        is_unknown = SingleChangeFormat.is_unknown(self, source_ops, value)
        return pc.and_not(is_unknown, pc.fill_null(control, fill_value=False))

    def facts(self, source_ops: pa.StringArray, value: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return op and time of each change."""
        timestamps = find(value, "metadata.timestamp")
        return op_facts(source_ops) | ({} if timestamps is None else {"ts": timestamps})


def _before_names(row: Collection[str]) -> frozenset[str]:
    """Return the columns of a row that have the value before the change of another column of it."""
    return frozenset(name for name in row if name.startswith(_DMS_BEFORE) and name.removeprefix(_DMS_BEFORE) in row)


def _with_before_columns(images: Images) -> Images:
    """Return the images with values of `BI_*` columns in the row before the change, if the before-image lacks them."""
    hidden, before, has_before = _before_names(images.row), dict(images.before), images.has_before
    upserts = has_op(images.op, UPSERT)
    for name in sorted(hidden):
        column_name, (_, values) = name.removeprefix(_DMS_BEFORE), images.row[name]
        field = pa.field(column_name, values.type)
        earlier = before.get(column_name)
        if earlier is None:
            before[column_name] = field, values
        elif earlier[1].type == values.type and not pa.types.is_nested(values.type):
            before[column_name] = field, pc.coalesce(earlier[1], values)
        has_before = pc.or_(has_before, pc.and_(upserts, values.is_valid()))
    return replace(images, before=before, has_before=has_before, hidden=hidden)


@dataclass(frozen=True, slots=True)
class Maxwell(SingleChangeFormat):
    """Records with type, data and, for updates, the changed fields in old."""

    name: ClassVar = "maxwell"
    ops: ClassVar = {
        "insert": UPSERT,
        "update": UPSERT,
        "bootstrap-insert": UPSERT,
        "delete": DELETE,
        "bootstrap-start": None,
        "bootstrap-complete": None,
        # DDL changes no row.
        **{f"{scope}-{action}": None for scope in ("table", "database") for action in ("create", "alter", "drop")},
    }
    paths: ClassVar = ("type", "data", "old")

    key_in_record: bool = False

    def facts(self, source_ops: pa.StringArray, value: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return op, time and log position of each change."""
        return {"op": source_ops, "ts": change_times(self.name, value, "ts", "s"), "order": _position(value)}


def _position(value: pa.RecordBatch) -> pa.StringArray:
    """Return log positions as text that sorts: `master.000006:800911`, which Maxwell sends with output_binlog_position."""
    position = pc.extract_regex(text_field(Maxwell.name, value, "position"), r"^(?P<file>.+):(?P<offset>[0-9]+)$")
    log_offset = sortable_positions(Maxwell.name, "position", position.field("offset"))
    row_offset = find(value, "xoffset")
    if row_offset is None:
        row_offset = pa.nulls(len(log_offset), pa.string())
    row_offset = pc.fill_null(sortable_positions(Maxwell.name, "xoffset", row_offset), "")
    joined = pc.binary_join_element_wise(position.field("file"), log_offset, row_offset, ":")
    return pc.if_else(position.is_valid(), joined, pa.scalar(None, pa.string()))


_ENVELOPE: Final = "envelope"


@dataclass(frozen=True, slots=True)
class OpColumn(SingleChangeFormat):
    """Changes with an operation code in a field.

    Attributes:
        op: Name or path of that field.
        words: Value of that field -> `Op`.
        row: The field that contains the row after the change; None: the value itself is the row.
        before: The field that contains the row before the change; None: there is none.
        key_in_record: Whether all key columns come from the record's key.
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
        """The words with their operations."""
        return self.words

    @property
    def _change_fields(self) -> frozenset[str]:
        """The fields of the row that describe the change."""
        paths = [self.op, *([] if self.before is None else [self.before])]
        return frozenset(path.partition(".")[0] for path in paths) if self.row is None else frozenset()

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the images in a parsed record."""
        op, row = value.get(self.op), value.whole if self.row is None else value.get(self.row)
        word = {True: "true", False: "false"}.get(op) if isinstance(op, bool) else str(op)
        images = images_for_op(self.words.get(word or ""), row, None if self.before is None else value.get(self.before))
        return replace(images, hidden=self._change_fields)

    def images(self, value: pa.RecordBatch) -> Images:
        """Split records into row images and operations."""
        kind = ("string, long or boolean", "string", "integer", "boolean")
        step = "declare it so under value.fields, or name another field"
        # Numbers and booleans become texts as JSON writes them.
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
    """Changes whose row is in a field named like the operation: `{"insert": {…}}`."""

    text_casts: ClassVar = False

    words: Mapping[str, str]
    key_in_record: bool = False

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the image in a parsed record."""
        images = [images_for_op(op, value.get(name), None) for name, op in self.words.items()]
        upserted = tuple(row for named_images in images for row in named_images.current_rows)
        deleted = tuple(row for named_images in images for row in named_images.past_rows)
        if len(upserted) + len(deleted) == 1:
            return ParsedImages(upserted, deleted)
        return ParsedImages(ignored_rows=(*upserted, *deleted))  # a value with several rows is ambiguous

    def images(self, value: pa.RecordBatch) -> Images:
        """Split records into row images and operations."""
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
        message = f"{_ENVELOPE}: expected one of {', '.join(self.words)} with a row, found none or several"
        failed = failures([(pc.not_equal(count, 1), message, "")])
        has_before = pa.repeat(value=False, size=size)
        return Images(pa.arange(0, size), op, row, {}, has_before, op_facts(source_ops), failed)
