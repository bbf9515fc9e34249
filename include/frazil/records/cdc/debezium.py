"""Change events of Debezium (MySQL, Postgres, SQL Server, Oracle, MongoDB), and what all change formats share: images of rows
before and after a change, ops, times and log positions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.model.format import Columns
from frazil.records.model.json_number import JsonObject, JsonValue
from frazil.records.transforms.fields import find, require_type, typed_field
from frazil.records.transforms.kinds.change_events import RowCheck, choose_image, failures, read_instants, text_field
from frazil.records.transforms.kinds.nested import children

_DIGITS: Final = 20
"""Digits of the largest unsigned 64-bit number."""


class SingleChangeFormat:
    """Base of the formats with one change per value: an operation code, the row after the change, and the row before.

    Attributes:
        name: Name of the format.
        ops: Operation code of the source -> `Op`; None if it changes no row.
        paths: Paths of the operation code, of the row after the change, and of the row before.
        text_casts: Whether all values of rows come as text.
        before_has_deleted: Whether the deleted row may be the image before; else it is always the image after.
        no_op_hint: End of the message about a value without an operation code.
        key_in_record: Whether all key columns come from the record's key, so that a delete needs no image.
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
        """Find the images in a parsed value."""
        op, after, before = (value.get(path) for path in self.paths)
        return images_for_op(self.ops.get(str(op)), after, before)

    def images(self, value: pa.RecordBatch) -> Images:
        """Split values into row images and operations."""
        op, after, before = self.paths
        source_ops = text_field(self.name, value, op)
        after_rows, before_rows = image_struct(self.name, value, after), image_struct(self.name, value, before)
        message = f"{self.name}: expected {op} as one of {', '.join(self.ops)}, found {{}}"
        undefined_ops = self.is_unknown(source_ops, value)
        checks = [
            (pc.and_(undefined_ops, source_ops.is_null()), message + self.no_op_hint, op),
            (undefined_ops, message, op),
        ]
        return self.single_images(source_ops, after_rows, before_rows, self.facts(source_ops, value), checks)

    def is_unknown(self, source_ops: pa.StringArray, value: pa.RecordBatch) -> pa.BooleanArray:  # noqa: ARG002 - a subclass's
        """Return which values have an unknown operation code."""
        return pc.invert(map_ops(source_ops, self.ops)[1])

    def facts(self, source_ops: pa.StringArray, value: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the facts about each change: op, ts and order."""
        raise NotImplementedError

    def single_images(
        self,
        source_ops: pa.StringArray,
        after: pa.StructArray | None,
        before: pa.StructArray | None,
        facts: Mapping[str, pa.Array],
        checks: Iterable[RowCheck],
    ) -> Images:
        """Return the images of values with one change each; `checks` find values that fail."""
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
        no_row: RowCheck = (lacks_row, f"{self.name}: expected the row for op {{}}, found none", "")
        failed = failures([*checks, no_row], values=source_ops)
        has_before = pc.and_(upserts, has_image(before, size))
        return Images(pa.arange(0, size), op, row, image_columns(before), has_before, facts, failed)


def image_struct(format_name: str, fields: pa.RecordBatch, name: str, *, nested: bool = False) -> pa.StructArray | None:
    """Return the field of a row's image, a struct; None if there is no such field.

    Raises:
        Terminal: The field is no struct.
    """
    step = f"declare {name} as struct under value.fields, or correct changes.format"
    return typed_field(f"changes.format {format_name}", fields, name, ("struct", "struct"), step, nested=nested)


def image_columns(values: pa.StructArray | None) -> Columns:
    """Return the fields of an image, with their values: null in rows where the image is null. `values` None: no fields."""
    if values is None:
        return {}
    # A change without the image that it needs fails. So the image adds no nulls to changes that continue.
    declared = pa.field("image", values.type, nullable=False)
    return {child.name: (child, child_values) for child, child_values in children(declared, values)}


def has_image(values: pa.Array | None, size: int) -> pa.BooleanArray:
    """Return, per value, whether it has an image."""
    return pa.repeat(value=False, size=size) if values is None else values.is_valid()


def has_op(ops: pa.StringArray, *words: str) -> pa.BooleanArray:
    """Return, per op, whether it is one of these words; never null."""
    return pc.is_in(ops, value_set=pa.array(words, pa.string()))


def map_ops(values: pa.StringArray, ops: Mapping[str, str | None]) -> tuple[pa.StringArray, pa.BooleanArray]:
    """Return, per operation code, its `Op` (null if it changes no row), and whether the code is known."""
    indices = pc.index_in(values, value_set=pa.array(list(ops), pa.string()))
    return pa.array(list(ops.values()), pa.string()).take(indices), indices.is_valid()


def op_facts(source_ops: pa.StringArray) -> dict[str, pa.Array]:
    """Return the facts about changes without time and order."""
    no_text = pa.nulls(len(source_ops), pa.string())
    return {"op": source_ops, "ts": no_text, "order": no_text}


def images_for_op(op: str | None, after: JsonValue, before: JsonValue) -> ParsedImages:
    """Return the images of a parsed value: a row, or a list of rows, after the change and before it."""
    rows, before_rows = tuple(_objects(after)), tuple(_objects(before))
    if op == UPSERT:
        return ParsedImages(rows, before_rows)
    all_rows = (*rows, *before_rows)
    return ParsedImages((), all_rows) if op == DELETE else ParsedImages(ignored_rows=all_rows)


def _objects(parsed: JsonValue) -> list[JsonObject]:
    candidates: Sequence[JsonValue] = parsed if isinstance(parsed, list) else [parsed]
    return [candidate for candidate in candidates if isinstance(candidate, dict)]


def sortable_positions(format_name: str, path: str, values: pa.Array) -> pa.StringArray:
    """Return positions in a source's log as texts that sort like them: numbers, even if sent as text, get leading zeros.

    Raises:
        Terminal: The positions are neither numbers nor texts.
    """
    kind, step = ("number or text", "integer", "string", "null"), f"declare {path} as long under value.fields"
    texts = require_type(f"changes.format {format_name}", path, values, kind, step).cast(pa.string())
    is_number = pc.match_substring_regex(texts, "^[0-9]+$")
    return pc.if_else(is_number, pc.utf8_lpad(texts, _DIGITS, "0"), texts)


def change_times(format_name: str, value: pa.RecordBatch, path: str, unit: str) -> pa.TimestampArray:
    """Return the times of changes from a field with numbers since 1970, or timestamps; null if they are out of range.

    Raises:
        Terminal: The field is neither.
    """
    step = f"declare {path} as long under value.fields"
    return read_instants(f"changes.format {format_name}", value, path, unit, step)[0]


_NAME: Final = "debezium"

_UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What Debezium's Postgres connector sends in place of a large value that an update did not change (TOAST)."""

_UNAVAILABLE_BYTES: Final = [*_UNAVAILABLE.encode()]
"""The same for a list of numbers: one number per byte."""

_UNAVAILABLE_TEXTS: Final = (
    _UNAVAILABLE,
    f'{{"{_UNAVAILABLE}":"{_UNAVAILABLE}"}}',
    base64.b64encode(_UNAVAILABLE.encode()).decode(),
    f'["{_UNAVAILABLE}"]',
    json.dumps(_UNAVAILABLE_BYTES, separators=(",", ":")),
)
"""The same as a text: for a text, an hstore (JSON text), bytes, and for lists of texts and of numbers."""

_NOT_SENT: Final = (
    f"{_NAME}: expected a value, found {_UNAVAILABLE}: the update did not change this large value, and the image before does"
    " not have it; REPLICA IDENTITY FULL of the table sends it each time"
)

_NO_KEY: Final = (
    f"{_NAME}: expected before, the deleted row, found none: a table of Postgres with REPLICA IDENTITY NOTHING does not say which"
    " row went; give it another one, or take the identifier columns from the key (part: key)"
)

_ORDERS: Final[Sequence[tuple[str, ...]]] = (
    ("source.lsn",),
    ("source.file", "source.pos", "source.row"),
    ("source.change_lsn", "source.event_serial_no"),
    ("source.commit_lsn",),
    ("source.commit_scn", "source.scn"),
    ("source.scn", "source.scn"),
    ("source.ts_ms", "source.ord"),
)
"""Fields with the position of a change in the log: of Postgres, MySQL, SQL Server, Oracle, and MongoDB or any other.

The first group whose first field exists counts. In snapshots of SQL Server and Oracle all rows have the position of the snapshot.
"""


@dataclass(frozen=True, slots=True)
class Debezium(SingleChangeFormat):
    """Envelopes with op, before, after and source.

    Args:
        key_in_record: Whether all key columns come from the record's key, so that a delete needs no image.
        used_fields: Fields of a row that columns take; None: perhaps all. A value that was not sent matters only in these.
    """

    name: ClassVar = _NAME
    ops: ClassVar = {"c": UPSERT, "r": UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE, "m": None}
    """Create, read (snapshot), update, delete, truncate, and message of the log."""
    paths: ClassVar = ("op", "after", "before")
    before_has_deleted: ClassVar = True
    no_op_hint: ClassVar = "; values of Kafka Connect with schema and payload need value.format: json-envelope"

    key_in_record: bool = False
    used_fields: frozenset[str] | None = None

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the images in a parsed envelope."""
        return replace(SingleChangeFormat.find_images(self, value), is_left_out=_is_left_out)

    def facts(self, source_ops: pa.StringArray, value: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return op, time and log position of each change."""
        return {"op": source_ops, "ts": change_times(_NAME, value, "ts_ms", "ms"), "order": _order(value)}

    def single_images(
        self,
        source_ops: pa.StringArray,
        after: pa.StructArray | None,
        before: pa.StructArray | None,
        facts: Mapping[str, pa.Array],
        checks: Iterable[RowCheck],
    ) -> Images:
        """Return the images of envelopes; a value that was not sent comes from the image before."""
        op, _ = map_ops(source_ops, self.ops)
        filled, not_sent = _fill_unavailable(after, before)
        own_checks = [
            (pc.and_(mask, has_op(op, UPSERT)), _NOT_SENT, f"after.{name}")
            for name, mask in not_sent.items()
            if self.used_fields is None or name in self.used_fields
        ]
        if not self.key_in_record:
            own_checks.insert(0, (pc.and_not(has_op(op, DELETE), has_image(before, len(op))), _NO_KEY, "before"))
        return SingleChangeFormat.single_images(self, source_ops, filled, before, facts, [*checks, *own_checks])


def _is_left_out(item: JsonValue) -> bool:
    if isinstance(item, str):
        return item in _UNAVAILABLE_TEXTS
    return item in ([_UNAVAILABLE], [str(byte) for byte in _UNAVAILABLE_BYTES])  # numbers are their texts


def _is_unavailable(values: pa.Array) -> pa.BooleanArray:
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return pc.is_in(values, value_set=pa.array(_UNAVAILABLE_TEXTS, pa.string()).cast(data_type))
    element_type = data_type.value_type if pa.types.is_list(data_type) else pa.null()
    if pa.types.is_string(element_type):
        return pc.or_(
            _lists_equal(values, [_UNAVAILABLE]), _lists_equal(values, [str(byte) for byte in _UNAVAILABLE_BYTES])
        )
    if pa.types.is_integer(element_type) or pa.types.is_floating(element_type) or pa.types.is_decimal(element_type):
        return _lists_equal(values, _UNAVAILABLE_BYTES)
    return pa.repeat(value=False, size=len(values))


def _lists_equal(lists: pa.ListArray, items: Sequence[str | int]) -> pa.BooleanArray:
    """Return, per list, whether it has exactly these items; never null."""
    is_equal = pc.fill_null(pc.equal(pc.list_value_length(lists), len(items)), fill_value=False)
    for index, item in enumerate(items):
        if not is_equal.true_count:
            break
        is_same_item = pc.equal(pc.list_element(lists.filter(is_equal), index), item)
        is_equal = pc.replace_with_mask(is_equal, is_equal, pc.fill_null(is_same_item, fill_value=False))
    return is_equal


def _fill_unavailable(
    after: pa.StructArray | None, before: pa.StructArray | None
) -> tuple[pa.StructArray | None, dict[str, pa.BooleanArray]]:
    """Return rows after the change, with values that were not sent taken from `before`; and, by field, which rows lack theirs."""
    old_columns, not_sent, columns = image_columns(before), dict[str, pa.BooleanArray](), list[pa.Array]()
    for name, (_, values) in image_columns(after).items():
        is_unavailable = _is_unavailable(values)
        if not is_unavailable.true_count:
            columns.append(values)
            continue
        old_values = (
            old_columns[name][1]
            if name in old_columns and old_columns[name][1].type == values.type
            else pa.nulls(len(values), values.type)
        )
        # A value too large to be sent is not null. So if it is null in `before`, that image has the key alone.
        has_old_value = pc.and_not(old_values.is_valid(), _is_unavailable(old_values))
        not_sent[name] = pc.and_not(is_unavailable, has_old_value)
        columns.append(pc.if_else(is_unavailable, old_values, values))
    if after is None or not columns:
        return after, not_sent
    fields = [child.with_nullable(nullable=True) for child in after.type]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=after.is_null()), not_sent


def _order(value: pa.RecordBatch) -> pa.StringArray:
    """Return the position of each change in the source's log, as text that sorts in log order."""
    orders = []
    for paths in _ORDERS:
        first, *more = (find(value, path) for path in paths)
        if first is None:
            continue
        parts = [sortable_positions(_NAME, paths[0], first)]
        parts += [
            pc.fill_null(sortable_positions(_NAME, path, values), "")
            for path, values in zip(paths[1:], more, strict=True)
            if values is not None
        ]
        orders.append(pc.binary_join_element_wise(*parts, ":"))
    return pc.coalesce(*orders) if orders else pa.nulls(value.num_rows, pa.string())
