"""Records without a value: in tables with one row per key each deletes the row of its key, as in compacted topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from frazil.batch.changes import DELETE, UPSERT
from frazil.records.casting.fitter import Fitted
from frazil.records.formats.keys import KeyColumns, KeyDecoder
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.frame import Frame, Transform
from frazil.records.model.positions import take_records
from frazil.records.model.rows import Block, in_order, no_rows
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import NOTHING_UNKNOWN
from frazil.records.transforms.chain import chain
from frazil.records.transforms.fields import batch_of
from frazil.records.transforms.kinds.conditions import Filter, When, WithKey
from frazil.records.transforms.kinds.field_sets import ValueToKey
from frazil.records.transforms.kinds.topics_and_headers import RegexRouter, TimestampRouter

Dead = dict[int, Reason]

_LEAVE_OUT: Final = "; leave tombstones out with value.null_value: filter"
_NO_FORMAT: Final = (
    "expected a key that tells which row goes, and the pipeline file does not say how keys are decoded (key)"
)
_NO_KEY: Final = "expected a key that tells which row goes, found a record with neither value nor key"
_MADE_KEY: Final = "expected a key that tells which row goes, and ValueToKey makes the keys of rows from their values"
_NO_IDENTIFIER: Final = "expected identifier columns that tell which row goes, and the table has none"
_NO_ORDER: Final = (
    "expected a value for order_by to tell whether the row is older: a record without value has none; take"
)
"""What keeps a tombstone from deleting a row."""


def _refusal(message: str) -> Reason:
    return Reason(DeadCode.NULL_VALUE, message + _LEAVE_OUT)


class TombstoneDecoder:
    """Decodes the keys of tombstones (records without value), and applies the transforms of keys and topics to them."""

    def __init__(self, spec: RecordSpec, keys: KeyDecoder | None) -> None:
        self._keys: Final = keys
        self._transforms: Final = tuple(transform for transform in spec.transforms if _applies_without_value(transform))
        self._makes_keys: Final = any(isinstance(_unwrapped(transform), ValueToKey) for transform in spec.transforms)

    def frames(self, records: pa.RecordBatch, positions: pa.Int64Array) -> tuple[list[Frame], Dead, list[int]]:
        """Return the tombstones grouped by the schema of their keys, reasons of dead ones, and positions of filtered ones."""
        if self._keys is None or self._makes_keys:
            why = _refusal(_MADE_KEY if self._makes_keys else _NO_FORMAT)
            return [], dict.fromkeys(positions.to_pylist(), why), []
        decoded = self._keys.decode(records, positions)
        dead, filtered, frames = dict(decoded.dead), list[int](), list[Frame]()
        for group in decoded.groups:
            if group.columns is None:
                dead |= dict.fromkeys(group.positions.to_pylist(), _refusal(_NO_KEY))
                continue
            no_fields = batch_of([], len(group.positions))
            transformed = chain(
                self._transforms,
                Frame.from_records(take_records(records, group.positions), group.positions, no_fields, group.columns),
            )
            dead |= transformed.dead
            filtered += transformed.filtered
            frames += [frame for frame in transformed.frames if len(frame)]
        return frames, dead, filtered


class DeletedRowFitter:
    """Fits the keys of tombstones to the identifier columns of a table."""

    def __init__(self, spec: RecordSpec) -> None:
        merge = spec.merge
        self._schema: Final = spec.change_schema
        self._refusal_reason: Final = _refusal_reason(spec)
        self._columns: KeyColumns | None = None
        if merge is None or self._refusal_reason is not None:
            return
        # A tombstone has no value: the record's key fills all identifier columns, under the names of their sources.
        names = {*merge.keys, *spec.of_key}
        self._columns = KeyColumns(replace(spec.only(names), of_key=frozenset(names)))

    def fit(self, frame: Frame) -> Fitted:
        """Return the rows to delete: their key, and null in all other columns."""
        size = len(frame)
        if self._columns is None or frame.key is None:
            why = self._refusal_reason or _refusal(_NO_KEY)
            return Fitted(
                no_rows(self._schema), pa.array([], pa.int64()), dict.fromkeys(range(size), why), NOTHING_UNKNOWN
            )
        fitted = self._columns.fit(frame.key, size)
        key_columns, count = fitted.rows.schema.names, fitted.rows.num_rows
        *names, op = self._schema.names
        arrays = [
            fitted.rows.column(name) if name in key_columns else pa.nulls(count, self._schema.field(name).type)
            for name in names
        ]
        arrays.append(pa.repeat(pa.scalar(DELETE, self._schema.field(op).type), count))
        return replace(fitted, rows=pa.RecordBatch.from_arrays(arrays, schema=self._schema), ignored=NOTHING_UNKNOWN)


def with_deleted(spec: RecordSpec, block: Block, deleted: Sequence[Block]) -> Block:
    """Merge the rows of a block, as upserts, with rows to delete, in the order of their records."""
    filled = [deleted_block for deleted_block in deleted if len(deleted_block.positions)]
    if not filled:
        return block
    schema = spec.change_schema
    ops = pa.repeat(pa.scalar(UPSERT, schema.field(schema.names[-1]).type), block.rows.num_rows)
    rows = pa.RecordBatch.from_arrays([*block.rows.columns, ops], schema=schema)
    return in_order([replace(block, rows=rows), *filled], schema)


def _refusal_reason(spec: RecordSpec) -> Reason | None:
    """Return why no tombstone can delete a row of a table; None if one can."""
    merge = spec.merge
    if merge is None or not merge.keys:
        return _refusal(_NO_IDENTIFIER)
    if merge.order_by is not None and merge.order_by not in {*merge.keys, *spec.of_key}:
        return _refusal(f"{_NO_ORDER} column {merge.order_by} from the key")
    return None


def _unwrapped(transform: Transform) -> Transform:
    while isinstance(transform, When | WithKey):
        transform = transform.transform
    return transform


def _applies_without_value(transform: Transform) -> bool:
    """Return whether a transform also applies to tombstones: it changes keys or topics, or filters records."""
    while isinstance(transform, When):
        transform = transform.transform
    return isinstance(transform, WithKey | RegexRouter | TimestampRouter | Filter)
