"""Change events of AWS DMS and Maxwell: each changes one row, or none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.records.cdc.images import SingleChanges, image_struct, map_ops, single_images
from frazil.records.cdc.order import read_instants, sortable_positions
from frazil.records.cdc.parsed_value import images_for_op
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.transforms.cdc.change import text_field
from frazil.records.transforms.fields import find

_DMS: Final = "dms"
_DMS_OPS: Final = {"load": UPSERT, "insert": UPSERT, "update": UPSERT, "delete": DELETE, "truncate-table": TRUNCATE}
_DMS_BEFORE: Final = "BI_"
"""Begins the names of columns that the rule `add-before-image-columns` of a task adds to `data`."""

_MAXWELL: Final = "maxwell"
_MAXWELL_OPS: Final = {
    "insert": UPSERT,
    "update": UPSERT,
    "bootstrap-insert": UPSERT,
    "delete": DELETE,
    "bootstrap-start": None,
    "bootstrap-complete": None,
    **{f"{scope}-{action}": None for scope in ("table", "database") for action in ("create", "alter", "drop")},
}
"""The last ones are DDL, which changes no row."""


@dataclass(frozen=True, slots=True)
class Dms:
    """Records with data, metadata and, where the task sends one, before-image. Or data has columns `BI_*` for the row as it was.

    Attributes:
        key_in_record: Whether all key columns are of the record's key.
    """

    key_in_record: bool = False

    @property
    def text_casts(self) -> bool:
        """Values have types of their own."""
        return False

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of a record."""
        row = value.get("data")
        images = images_for_op(_DMS_OPS.get(str(value.get("metadata.operation"))), row, value.get("before-image"))
        if images.ignored_rows:
            return images
        return replace(images, hidden=_before_names(row) if isinstance(row, dict) else frozenset())

    def images(self, value: pa.RecordBatch) -> Images:
        """Take records apart."""
        source_ops = text_field(_DMS, value, "metadata.operation")
        control = pc.equal(text_field(_DMS, value, "metadata.record-type"), "control")
        op, is_known = map_ops(source_ops, _DMS_OPS)
        is_unknown = pc.and_not(pc.invert(is_known), pc.fill_null(control, fill_value=False))
        timestamps = find(value, "metadata.timestamp")
        no_text = pa.nulls(len(op), pa.string())
        facts = {"op": source_ops, "ts": no_text if timestamps is None else timestamps, "order": no_text}
        after, before = image_struct(_DMS, value, "data"), image_struct(_DMS, value, "before-image")
        message = f"{_DMS}: expected metadata.operation as one of {', '.join(_DMS_OPS)}, found {{}}"
        changes = SingleChanges(_DMS, op, source_ops, after, before, facts, self.key_in_record)
        return _with_before_columns(single_images(changes, [(is_unknown, message, "metadata.operation")]))


def _before_names(row: Collection[str]) -> frozenset[str]:
    """Return the columns of a row that hold an earlier value of another one of its columns."""
    return frozenset(name for name in row if name.startswith(_DMS_BEFORE) and name.removeprefix(_DMS_BEFORE) in row)


def _with_before_columns(images: Images) -> Images:
    """Return the images with `BI_*` columns taken as the row before the change, where a before-image has no value."""
    hidden, before, had = _before_names(images.row), dict(images.before), images.has_before
    upserts = pc.fill_null(pc.equal(images.op, UPSERT), fill_value=False)
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
class Maxwell:
    """Records with type, data and, for updates, those fields of old that changed.

    Attributes:
        key_in_record: Whether all key columns are of the record's key.
    """

    key_in_record: bool = False

    @property
    def text_casts(self) -> bool:
        """Values have types of their own."""
        return False

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of a record."""
        return images_for_op(_MAXWELL_OPS.get(str(value.get("type"))), value.get("data"), value.get("old"))

    def images(self, value: pa.RecordBatch) -> Images:
        """Take records apart."""
        source_ops = text_field(_MAXWELL, value, "type")
        op, is_known = map_ops(source_ops, _MAXWELL_OPS)
        facts = {"op": source_ops, "ts": read_instants(_MAXWELL, value, "ts", "s"), "order": _position(value)}
        after, before = image_struct(_MAXWELL, value, "data"), image_struct(_MAXWELL, value, "old")
        message = f"{_MAXWELL}: expected type as one of {', '.join(_MAXWELL_OPS)}, found {{}}"
        changes = SingleChanges(_MAXWELL, op, source_ops, after, before, facts, self.key_in_record)
        return single_images(changes, [(pc.invert(is_known), message, "type")])


def _position(value: pa.RecordBatch) -> pa.StringArray:
    """`master.000006:800911`, which Maxwell sends with output_binlog_position, as text that sorts; null without."""
    binlog_position = pc.extract_regex(text_field(_MAXWELL, value, "position"), r"^(?P<file>.+):(?P<at>[0-9]+)$")
    log_offset = sortable_positions(_MAXWELL, "position", binlog_position.field("at"))
    row_offset = find(value, "xoffset")
    offset = sortable_positions(
        _MAXWELL, "xoffset", pa.nulls(len(log_offset), pa.string()) if row_offset is None else row_offset
    )
    joined = pc.binary_join_element_wise(binlog_position.field("file"), log_offset, pc.fill_null(offset, ""), ":")
    return pc.if_else(binlog_position.is_valid(), joined, pa.scalar(None, pa.string()))
