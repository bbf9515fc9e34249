"""Change events of Debezium: MySQL, Postgres, SQL Server, Oracle, MongoDB."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.records.cdc.images import (
    SingleChangeFormat,
    has_image,
    has_op,
    image_columns,
    map_ops,
    read_instants,
    sortable_positions,
)
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.model.json_number import JsonValue
from frazil.records.transforms.fields import find
from frazil.records.transforms.kinds.change_events import Verdict

_NAME: Final = "debezium"

_UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What Debezium's Postgres connector sends for a large value that an update did not touch (TOAST)."""

_UNAVAILABLE_BYTES: Final = [*_UNAVAILABLE.encode()]
"""The same for a list of numbers: each byte is one."""

_UNAVAILABLE_TEXTS: Final = (
    _UNAVAILABLE,
    f'{{"{_UNAVAILABLE}":"{_UNAVAILABLE}"}}',
    base64.b64encode(_UNAVAILABLE.encode()).decode(),
    f'["{_UNAVAILABLE}"]',
    json.dumps(_UNAVAILABLE_BYTES, separators=(",", ":")),
)
"""The same in a column of texts: of a text, of a value of type hstore (JSON text), of bytes, of lists of texts and numbers."""

_NOT_SENT: Final = (
    f"{_NAME}: expected a value, found {_UNAVAILABLE}: the update did not touch this large value, and the image before does"
    " not hold it; REPLICA IDENTITY FULL of the table sends it each time"
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
"""Places in the log of Postgres, MySQL, SQL Server, Oracle, and MongoDB or any other: the first that is there counts.

Rows that SQL Server's and Oracle's snapshots read have the place of the snapshot alone.
"""


@dataclass(frozen=True, slots=True)
class Debezium(SingleChangeFormat):
    """Envelopes with op, before, after and source.

    Args:
        key_in_record: Whether all key columns are of the record's key, so that a delete needs no image.
        used_fields: Fields of a row that columns take; None: any may be. A value that was not sent matters in those only.
    """

    name: ClassVar = _NAME
    ops: ClassVar = {"c": UPSERT, "r": UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE, "m": None}
    """Debezium, data change events: create, read (snapshot), update, delete, truncate, and message of the log."""
    paths: ClassVar = ("op", "after", "before")
    before_has_deleted: ClassVar = True
    no_op_hint: ClassVar = "; values of Kafka Connect with schema and payload need value.format: json-envelope"

    key_in_record: bool = False
    used_fields: frozenset[str] | None = None

    def find_images(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of an envelope."""
        return replace(SingleChangeFormat.find_images(self, value), is_left_out=_is_left_out)

    def facts(self, source_ops: pa.StringArray, value: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return op, time and place in the log."""
        return {"op": source_ops, "ts": read_instants(_NAME, value, "ts_ms", "ms"), "order": _order(value)}

    def single_images(
        self,
        source_ops: pa.StringArray,
        after: pa.StructArray | None,
        before: pa.StructArray | None,
        facts: Mapping[str, pa.Array],
        verdicts: Iterable[Verdict],
    ) -> Images:
        """Take the images of envelopes; values that were not sent come from the image before."""
        op, _ = map_ops(source_ops, self.ops)
        filled, not_sent = _fill_unavailable(after, before)
        further = [
            (pc.and_(mask, has_op(op, UPSERT)), _NOT_SENT, f"after.{name}")
            for name, mask in not_sent.items()
            if self.used_fields is None or name in self.used_fields
        ]
        if not self.key_in_record:
            further.insert(0, (pc.and_not(has_op(op, DELETE), has_image(before, len(op))), _NO_KEY, "before"))
        return SingleChangeFormat.single_images(self, source_ops, filled, before, facts, [*verdicts, *further])


def _is_left_out(item: JsonValue) -> bool:
    if isinstance(item, str):
        return item in _UNAVAILABLE_TEXTS
    return item in ([_UNAVAILABLE], [str(byte) for byte in _UNAVAILABLE_BYTES])  # numbers are their texts


def _is_unavailable(values: pa.Array) -> pa.BooleanArray:
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return pc.is_in(values, value_set=pa.array(_UNAVAILABLE_TEXTS, pa.string()).cast(data_type))
    no_row = pa.repeat(pa.scalar(value=False), len(values))
    if not pa.types.is_list(data_type):
        return no_row
    element_type = data_type.value_type
    if pa.types.is_string(element_type):
        return pc.or_(
            _lists_equal(values, [_UNAVAILABLE]), _lists_equal(values, [str(byte) for byte in _UNAVAILABLE_BYTES])
        )
    if pa.types.is_integer(element_type) or pa.types.is_floating(element_type) or pa.types.is_decimal(element_type):
        return _lists_equal(values, _UNAVAILABLE_BYTES)
    return no_row


def _lists_equal(lists: pa.ListArray, sought: Sequence[str | int]) -> pa.BooleanArray:
    """Return which lists hold exactly these items."""
    is_equal = pc.fill_null(pc.equal(pc.list_value_length(lists), len(sought)), fill_value=False)
    for index, item in enumerate(sought):
        if not is_equal.true_count:
            break
        is_same_item = pc.equal(pc.list_element(lists.filter(is_equal), index), item)
        is_equal = pc.replace_with_mask(is_equal, is_equal, pc.fill_null(is_same_item, fill_value=False))
    return is_equal


def _fill_unavailable(
    after: pa.StructArray | None, before: pa.StructArray | None
) -> tuple[pa.StructArray | None, dict[str, pa.BooleanArray]]:
    """Return rows after the change, with values that were not sent taken from `before`; and, by field, where it has none."""
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
        # A value too large to be sent is not null. A null in `before` means an image that holds the key alone.
        has_old_value = pc.and_not(old_values.is_valid(), _is_unavailable(old_values))
        not_sent[name] = pc.and_not(is_unavailable, has_old_value)
        columns.append(pc.if_else(is_unavailable, old_values, values))
    if after is None or not columns:
        return after, not_sent
    fields = [child.with_nullable(nullable=True) for child in after.type]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=after.is_null()), not_sent


def _order(value: pa.RecordBatch) -> pa.StringArray:
    """Position of a change in the source's log, as text that sorts in log order."""
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
