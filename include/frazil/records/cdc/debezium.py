"""Change events of Debezium: MySQL, Postgres, SQL Server, Oracle, MongoDB."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.records.cdc.images import Parts, columns_of_image, image, mapped, one_each, there
from frazil.records.cdc.order import instants, padded
from frazil.records.cdc.parsed_value import sent_images
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.model.json_text import JsonValue
from frazil.records.transforms.cdc.change import Verdict, text_field
from frazil.records.transforms.fields import find

_NAME: Final = "debezium"
_OPS: Final = {"c": UPSERT, "r": UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE, "m": None}
"""Debezium, data change events: create, read (snapshot), update, delete, truncate, and message of the log."""

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
    " row went; give it another one, or take the identifier columns from the key (of: key)"
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
class Debezium:
    """Envelopes with op, before, after and source.

    Args:
        key_in_record: Whether all key columns are of the record's key, so that a delete needs no image.
        taken: Fields of a row that columns take; None: any may be. A value that was not sent matters in those only.
    """

    key_in_record: bool = False
    taken: frozenset[str] | None = None

    @property
    def text_casts(self) -> bool:
        """Values have types of their own."""
        return False

    def sent(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of an envelope."""
        found = sent_images(_OPS.get(str(value.at("op"))), value.at("after"), value.at("before"))
        return replace(found, is_left_out=_is_left_out)

    def images(self, value: pa.RecordBatch) -> Images:
        """Take envelopes apart."""
        sent = text_field(_NAME, value, "op")
        op, known = mapped(sent, _OPS)
        after, before = image(_NAME, value, "after"), image(_NAME, value, "before")
        whole, lost = _filled(after, before)
        facts = {"op": sent, "ts": instants(_NAME, value, "ts_ms", "ms"), "order": _order(value)}
        parts = Parts(_NAME, op, sent, whole, before, facts, self.key_in_record)
        verdicts: list[Verdict] = [
            (pc.invert(known), f"{_NAME}: expected op as one of c, r, u, d, t, m, found {{}}", "op")
        ]
        if not self.key_in_record:
            verdicts.append((pc.and_not(parts.deletes, there(before, len(op))), _NO_KEY, "before"))
        needed = {name: mask for name, mask in lost.items() if self.taken is None or name in self.taken}
        verdicts += [(pc.and_(mask, parts.upserts), _NOT_SENT, f"after.{name}") for name, mask in needed.items()]
        return one_each(parts, verdicts, told_before=True)


def _is_left_out(item: JsonValue) -> bool:
    if isinstance(item, str):
        return item in _UNAVAILABLE_TEXTS
    return item in ([_UNAVAILABLE], [str(of) for of in _UNAVAILABLE_BYTES])  # numbers are their texts


def _is_unavailable(values: pa.Array) -> pa.BooleanArray:
    of = values.type
    if pa.types.is_string(of) or pa.types.is_binary(of):
        return pc.is_in(values, value_set=pa.array(_UNAVAILABLE_TEXTS, pa.string()).cast(of))
    nothing = pa.repeat(pa.scalar(value=False), len(values))
    if not pa.types.is_list(of):
        return nothing
    kind = of.value_type
    if pa.types.is_string(kind):
        return pc.or_(_holds(values, [_UNAVAILABLE]), _holds(values, [str(of) for of in _UNAVAILABLE_BYTES]))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _holds(values, _UNAVAILABLE_BYTES)
    return nothing


def _holds(lists: pa.ListArray, sought: Sequence[str | int]) -> pa.BooleanArray:
    """Which lists have these items."""
    found = pc.fill_null(pc.equal(pc.list_value_length(lists), len(sought)), fill_value=False)
    for at, item in enumerate(sought):
        if not found.true_count:
            break
        same = pc.equal(pc.list_element(lists.filter(found), at), item)
        found = pc.replace_with_mask(found, found, pc.fill_null(same, fill_value=False))
    return found


def _filled(
    after: pa.StructArray | None, before: pa.StructArray | None
) -> tuple[pa.StructArray | None, dict[str, pa.BooleanArray]]:
    """The row as it is, with values that were not sent again taken from the row as it was; and where that has none."""
    old, lost, columns = columns_of_image(before), dict[str, pa.BooleanArray](), list[pa.Array]()
    for name, (_, values) in columns_of_image(after).items():
        missing = _is_unavailable(values)
        if not missing.true_count:
            columns.append(values)
            continue
        was = old[name][1] if name in old and old[name][1].type == values.type else pa.nulls(len(values), values.type)
        # A value too large to be sent is not null: a null before is that of an image that holds the key alone.
        known = pc.and_not(was.is_valid(), _is_unavailable(was))
        lost[name] = pc.and_not(missing, known)
        columns.append(pc.if_else(missing, was, values))
    if after is None or not columns:
        return after, lost
    fields = [of.with_nullable(nullable=True) for of in after.type]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=after.is_null()), lost


def _order(value: pa.RecordBatch) -> pa.StringArray:
    """Where in the source's log a change is, as text that sorts as the log does."""
    orders = []
    for paths in _ORDERS:
        first, *more = (find(value, path) for path in paths)
        if first is None:
            continue
        parts = [padded(_NAME, paths[0], first)]
        parts += [
            pc.fill_null(padded(_NAME, path, of), "")
            for path, of in zip(paths[1:], more, strict=True)
            if of is not None
        ]
        orders.append(pc.binary_join_element_wise(*parts, ":"))
    return pc.coalesce(*orders) if orders else pa.nulls(value.num_rows, pa.string())
