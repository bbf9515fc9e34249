"""Change events of AWS DMS and Maxwell: a row each, or none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.records.cdc.images import Parts, image, mapped, one_each
from frazil.records.cdc.order import instants, padded
from frazil.records.cdc.parsed_value import sent_images
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
    **{f"{of}-{what}": None for of in ("table", "database") for what in ("create", "alter", "drop")},
}
"""The words of DDL records among them, which tell of no row."""


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

    def sent(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of a record."""
        now = value.at("data")
        found = sent_images(_DMS_OPS.get(str(value.at("metadata.operation"))), now, value.at("before-image"))
        if found.void:
            return found
        return replace(found, hidden=_before_names(now) if isinstance(now, dict) else frozenset())

    def images(self, value: pa.RecordBatch) -> Images:
        """Take records apart."""
        sent = text_field(_DMS, value, "metadata.operation")
        control = pc.equal(text_field(_DMS, value, "metadata.record-type"), "control")
        op, known = mapped(sent, _DMS_OPS)
        strange = pc.and_not(pc.invert(known), pc.fill_null(control, fill_value=False))
        at = find(value, "metadata.timestamp")
        nothing = pa.nulls(len(op), pa.string())
        facts = {"op": sent, "ts": nothing if at is None else at, "order": nothing}
        now, was = image(_DMS, value, "data"), image(_DMS, value, "before-image")
        message = f"{_DMS}: expected metadata.operation as one of {', '.join(_DMS_OPS)}, found {{}}"
        parts = Parts(_DMS, op, sent, now, was, facts, self.key_in_record)
        return _with_before_columns(one_each(parts, [(strange, message, "metadata.operation")]))


def _before_names(row: Collection[str]) -> frozenset[str]:
    """The columns of a row that say what another one of its columns was."""
    return frozenset(name for name in row if name.startswith(_DMS_BEFORE) and name.removeprefix(_DMS_BEFORE) in row)


def _with_before_columns(images: Images) -> Images:
    """The images, where columns of rows as they are say what these rows were. An image of its own goes first."""
    hidden, before, had = _before_names(images.row), dict(images.before), images.had
    upserts = pc.fill_null(pc.equal(images.op, UPSERT), fill_value=False)
    for name in sorted(hidden):
        to, (_, values) = name.removeprefix(_DMS_BEFORE), images.row[name]
        field = pa.field(to, values.type)
        known = before.get(to)
        if known is None:
            before[to] = field, values
        elif known[1].type == values.type and not pa.types.is_nested(values.type):
            before[to] = field, pc.coalesce(known[1], values)
        had = pc.or_(had, pc.and_(upserts, values.is_valid()))
    return replace(images, before=before, had=had, hidden=hidden)


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

    def sent(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of a record."""
        return sent_images(_MAXWELL_OPS.get(str(value.at("type"))), value.at("data"), value.at("old"))

    def images(self, value: pa.RecordBatch) -> Images:
        """Take records apart."""
        sent = text_field(_MAXWELL, value, "type")
        op, known = mapped(sent, _MAXWELL_OPS)
        facts = {"op": sent, "ts": instants(_MAXWELL, value, "ts", "s"), "order": _position(value)}
        now, was = image(_MAXWELL, value, "data"), image(_MAXWELL, value, "old")
        message = f"{_MAXWELL}: expected type as one of {', '.join(_MAXWELL_OPS)}, found {{}}"
        parts = Parts(_MAXWELL, op, sent, now, was, facts, self.key_in_record)
        return one_each(parts, [(pc.invert(known), message, "type")])


def _position(value: pa.RecordBatch) -> pa.StringArray:
    """`master.000006:800911`, which Maxwell sends with output_binlog_position, as text that sorts; null without."""
    found = pc.extract_regex(text_field(_MAXWELL, value, "position"), r"^(?P<file>.+):(?P<at>[0-9]+)$")
    place = padded(_MAXWELL, "position", found.field("at"))
    within = find(value, "xoffset")
    offset = padded(_MAXWELL, "xoffset", pa.nulls(len(place), pa.string()) if within is None else within)
    joined = pc.binary_join_element_wise(found.field("file"), place, pc.fill_null(offset, ""), ":")
    return pc.if_else(found.is_valid(), joined, pa.scalar(None, pa.string()))
