"""Change events of AWS DMS and Maxwell: each changes one row, or none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.records.cdc.images import SingleChangeFormat, has_op, op_facts, read_instants, sortable_positions
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.transforms.cdc.change import text_field
from frazil.records.transforms.fields import find

_DMS_BEFORE: Final = "BI_"
"""Begins the names of columns that the rule `add-before-image-columns` of a task adds to `data`."""


@dataclass(frozen=True, slots=True)
class Dms(SingleChangeFormat):
    """Records with data, metadata and, where the task sends one, before-image. Or data has columns `BI_*` for the row as it was."""

    name: ClassVar = "dms"
    ops: ClassVar = {"load": UPSERT, "insert": UPSERT, "update": UPSERT, "delete": DELETE, "truncate-table": TRUNCATE}
    paths: ClassVar = ("metadata.operation", "data", "before-image")

    key_in_record: bool = False

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of a record."""
        images, row = SingleChangeFormat.find_images(self, value), value.get("data")
        if images.ignored_rows:
            return images
        return replace(images, hidden=_before_names(row) if isinstance(row, dict) else frozenset())

    def images(self, value: pa.RecordBatch) -> Images:
        """Take records apart."""
        return _with_before_columns(SingleChangeFormat.images(self, value))

    def is_unknown(self, op: pa.StringArray, value: pa.RecordBatch) -> pa.BooleanArray:
        """Records that control the task have ops of their own, which change no row."""
        control = pc.equal(text_field(self.name, value, "metadata.record-type"), "control")
        return pc.and_not(SingleChangeFormat.is_unknown(self, op, value), pc.fill_null(control, fill_value=False))

    def facts(self, source_ops: pa.StringArray, value: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return op and time."""
        timestamps = find(value, "metadata.timestamp")
        return op_facts(source_ops) | ({} if timestamps is None else {"ts": timestamps})


def _before_names(row: Collection[str]) -> frozenset[str]:
    """Return the columns of a row that hold an earlier value of another one of its columns."""
    return frozenset(name for name in row if name.startswith(_DMS_BEFORE) and name.removeprefix(_DMS_BEFORE) in row)


def _with_before_columns(images: Images) -> Images:
    """Return the images with `BI_*` columns taken as the row before the change, where a before-image has no value."""
    hidden, before, had = _before_names(images.row), dict(images.before), images.has_before
    upserts = has_op(images.op, UPSERT)
    for name in sorted(hidden):
        column_name, (_, values) = name.removeprefix(_DMS_BEFORE), images.row[name]
        field = pa.field(column_name, values.type)
        earlier = before.get(column_name)
        if earlier is None:
            before[column_name] = field, values
        elif earlier[1].type == values.type and not pa.types.is_nested(values.type):
            before[column_name] = field, pc.coalesce(earlier[1], values)
        had = pc.or_(had, pc.and_(upserts, values.is_valid()))
    return replace(images, before=before, has_before=had, hidden=hidden)


@dataclass(frozen=True, slots=True)
class Maxwell(SingleChangeFormat):
    """Records with type, data and, for updates, those fields of old that changed."""

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
        """Return op, time and place in the log."""
        return {"op": source_ops, "ts": read_instants(self.name, value, "ts", "s"), "order": _position(value)}


def _position(value: pa.RecordBatch) -> pa.StringArray:
    """`master.000006:800911`, which Maxwell sends with output_binlog_position, as text that sorts; null without."""
    binlog_position = pc.extract_regex(text_field(Maxwell.name, value, "position"), r"^(?P<file>.+):(?P<at>[0-9]+)$")
    log_offset = sortable_positions(Maxwell.name, "position", binlog_position.field("at"))
    row_offset = find(value, "xoffset")
    offset = sortable_positions(
        Maxwell.name, "xoffset", pa.nulls(len(log_offset), pa.string()) if row_offset is None else row_offset
    )
    joined = pc.binary_join_element_wise(binlog_position.field("file"), log_offset, pc.fill_null(offset, ""), ":")
    return pc.if_else(binlog_position.is_valid(), joined, pa.scalar(None, pa.string()))
