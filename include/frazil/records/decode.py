"""A batch of Kafka records becomes rows, dead letters and counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.block import Block
from frazil.records.dead import DeadCode, Reason, dead_letters
from frazil.records.formats.catalogue import JSON, open_format
from frazil.records.formats.port import Format
from frazil.records.json.values import JsonValues
from frazil.records.kafka import conform
from frazil.records.outcome import FilterReason, Outcomes, count_outcomes
from frazil.records.shaped import LeftOut, ShapedDecoder
from frazil.records.spec import RecordSpec

Dead = dict[int, Reason]
"""Reasons by the record's position in the batch, ascending."""

Filtered = dict[FilterReason, pa.Int64Array]
"""Positions of the records that were left out on purpose, ascending."""

_NULL_VALUE: Final = Reason(DeadCode.NULL_VALUE, "expected a value, found a record without one (a tombstone)")


class Decoder:
    """Decodes the batches of one pipeline. Keeps nothing from batch to batch but what is costly to make.

    Args:
        spec: What is wanted of the records.
        batch_number: Goes into the batch column of every row.
        blocks: Whether JSON values may be parsed as blocks where that is exact. Without, the outcome is the same, later.

    Raises:
        Terminal: the spec can't be met: a type without a JSON form, a default that does not fit, a schema that is none.
    """

    def __init__(self, spec: RecordSpec, batch_number: int, *, blocks: bool = True) -> None:
        self._spec: Final = spec
        self._batch_number: Final = batch_number
        self._row_schema: Final = spec.row_schema
        self._values: Final = (
            ShapedDecoder(spec, _format(spec, blocks=blocks))
            if spec.is_shaped
            else _Direct(JsonValues(spec, blocks=blocks))
        )

    def decode(self, batch: pa.RecordBatch) -> Outcomes:
        """Return the outcomes of `batch` (of `KAFKA_SCHEMA`), in its order.

        No value makes this fail.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the batch has other columns; the registry refuses; a transform does not fit the fields that it gets.
        """
        records = conform(batch)
        present, dead, filtered = self._screened(records.column("value"))
        block, more, left_out = self._values.decode(records, present)
        dead = dict(sorted((dead | more).items()))
        for reason, places in left_out.items():
            filtered[reason] = pa.concat_arrays([filtered.get(reason, _positions([])), _positions(places)])
        rows = self._with_kafka_columns(block.rows, _at(records, block.positions))
        letters = dead_letters(_at(records, _positions(dead)), list(dead.values()))
        written = _at(records, pc.unique(block.positions))
        others = {reason: _at(records, found) for reason, found in filtered.items() if len(found)}
        return Outcomes(rows, letters, count_outcomes(records, written, letters, others))

    def problems(self, shape: pa.Schema) -> list[str]:
        """Return which columns no value could ever fill, and why, where all values have these fields before transforms.

        Raises:
            Terminal: a transform does not fit the fields that it gets.
        """
        return self._values.problems(shape) if isinstance(self._values, ShapedDecoder) else []

    def _screened(self, values: pa.BinaryArray) -> tuple[pa.Int64Array, Dead, Filtered]:
        """Positions of the values to decode, and what became of records without value or with an empty one."""
        dead: Dead = {}
        filtered: Filtered = {}
        present = pa.repeat(pa.scalar(True), len(values))  # noqa: FBT003  # an Arrow value
        if values.null_count:
            present, absent = values.is_valid(), _where(values.is_null())
            if self._spec.tombstone == "filter":
                filtered[FilterReason.TOMBSTONE] = absent
            else:
                dead = dict.fromkeys(absent.to_pylist(), _NULL_VALUE)
        if self._spec.empty_value == "filter":
            empty = pc.fill_null(pc.equal(pc.binary_length(values), 0), fill_value=False)
            filtered[FilterReason.EMPTY_VALUE] = _where(empty)
            present = pc.and_not(present, empty)
        return _where(present), dead, filtered

    def _with_kafka_columns(self, rows: pa.RecordBatch, records: pa.RecordBatch) -> pa.RecordBatch:
        if self._spec.kafka_columns is None:
            return rows
        added = [records.column(name) for name in ("topic", "partition", "offset", "timestamp")]
        batch = pa.repeat(pa.scalar(self._batch_number, pa.int64()), len(records))
        return pa.RecordBatch.from_arrays([*rows.columns, *added, batch], schema=self._row_schema)


class _Direct:
    """JSON values that are rows at once."""

    def __init__(self, json: JsonValues) -> None:
        self._json: Final = json

    def decode(self, records: pa.RecordBatch, present: pa.Int64Array) -> tuple[Block, Dead, LeftOut]:
        values = records.column("value")
        if len(present) == len(values):
            return *self._json.rows(values), {}
        block, dead = self._json.rows(values.take(present))
        places = present.to_pylist()
        return Block(block.rows, present.take(block.positions)), {places[at]: of for at, of in dead.items()}, {}


def _format(spec: RecordSpec, *, blocks: bool) -> Format:
    if spec.format.name != JSON:
        return open_format(spec.format)
    fields = spec.columns if spec.fields is None else spec.fields
    json = RecordSpec(
        fields, duplicate_keys=spec.duplicate_keys, field_names=spec.field_names, casts=spec.casts, kafka_columns=None
    )
    return JsonValues(json, blocks=blocks)


def _where(mask: pa.BooleanArray) -> pa.Int64Array:
    return pc.indices_nonzero(mask).cast(pa.int64())


def _at(records: pa.RecordBatch, positions: pa.Int64Array) -> pa.RecordBatch:
    """Return the records at ascending `positions`, which may repeat; all of them, each once, without a copy."""
    is_all = len(positions) == len(records) and (not len(records) or _is_strict(positions))
    return records if is_all else records.take(positions)


def _is_strict(positions: pa.Int64Array) -> bool:
    """Whether ascending positions, as many as there are records, are each of them once."""
    return bool(positions[0].as_py() == 0 and positions[-1].as_py() == len(positions) - 1) and len(
        pc.unique(positions)
    ) == len(positions)


def _positions(found: Iterable[int]) -> pa.Int64Array:
    return pa.array(list(found), pa.int64())
