"""A batch of Kafka records becomes rows, dead letters and counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.dead import DeadCode, Reason, Rejection, dead_letters
from frazil.records.json_block import Block, block_decoder, concat_blocks
from frazil.records.kafka import conform
from frazil.records.outcome import FilterReason, Outcomes, count_outcomes
from frazil.records.record_exact import ExactDecoder, Row
from frazil.records.spec import RecordSpec

Dead = dict[int, Reason]
"""Reasons by the record's position in the batch, ascending."""

_NULL_VALUE: Final = "expected a JSON object, found a record without value (a tombstone)"


class Decoder:
    """Decodes the batches of one pipeline. Keeps nothing from batch to batch.

    Args:
        spec: What is wanted of the records.
        batch_number: Goes into the batch column of every row.
        blocks: Whether values may be parsed as blocks where that is exact. Without, the outcome is
            the same, later.

    Raises:
        Terminal: the spec can't be met: a type without a JSON form, a default that does not fit.
    """

    def __init__(self, spec: RecordSpec, batch_number: int, *, blocks: bool = True) -> None:
        self._spec: Final = spec
        self._batch_number: Final = batch_number
        self._row_schema: Final = spec.row_schema
        self._exact: Final = ExactDecoder(spec)
        self._blocks: Final = block_decoder(spec) if blocks else None

    def decode(self, batch: pa.RecordBatch) -> Outcomes:
        """Return the outcomes of `batch` (of `KAFKA_SCHEMA`), in its order.

        No value makes this fail.

        Raises:
            Terminal: the batch has other columns.
        """
        records = conform(batch)
        block = self._decode_block(records.column("value"))
        exact, dead, filtered = self._decode_others(records.column("value"), block)
        merged = _merge(block, exact)
        written = _at(records, merged.positions)
        rows = self._with_kafka_columns(merged.rows, written)
        letters = dead_letters(_at(records, _positions(dead)), list(dead.values()))
        left_out = {FilterReason.TOMBSTONE: _at(records, _positions(filtered))}
        return Outcomes(rows, letters, count_outcomes(records, written, letters, left_out))

    def _decode_block(self, values: pa.BinaryArray) -> Block:
        if self._blocks is None:
            return Block(self._exact.table([]), pa.array([], pa.int64()))
        if not values.null_count:
            return self._blocks.decode(values)
        present = pc.indices_nonzero(values.is_valid()).cast(pa.int64())
        block = self._blocks.decode(values.take(present))
        return Block(block.rows, present.take(block.positions))

    def _decode_others(self, values: pa.BinaryArray, block: Block) -> tuple[Block, Dead, list[int]]:
        """Decide what no block did: rows, dead letters, positions of filtered records."""
        rows: list[Row] = []
        positions: list[int] = []
        dead: Dead = {}
        filtered: list[int] = []
        for position in _others(len(values), block.positions):
            raw = values[position].as_py()
            try:
                if raw is None and self._spec.tombstone == "filter":
                    filtered.append(position)
                    continue
                rows.append(self._row(raw))
                positions.append(position)
            except Rejection as verdict:
                dead[position] = verdict.reason
        return Block(self._exact.table(rows), _positions(positions)), dead, filtered

    def _row(self, raw: bytes | None) -> Row:
        if raw is None:
            raise Rejection(DeadCode.NULL_VALUE, _NULL_VALUE)
        return self._exact.row(raw)

    def _with_kafka_columns(self, rows: pa.RecordBatch, records: pa.RecordBatch) -> pa.RecordBatch:
        if self._spec.kafka_columns is None:
            return rows
        added = [records.column(name) for name in ("topic", "partition", "offset", "timestamp")]
        batch = pa.repeat(pa.scalar(self._batch_number, pa.int64()), len(records))
        return pa.RecordBatch.from_arrays([*rows.columns, *added, batch], schema=self._row_schema)


def _others(size: int, decided: pa.Int64Array) -> list[int]:
    if len(decided) == size:
        return []
    taken = set(decided.to_pylist())
    return [position for position in range(size) if position not in taken]


def _merge(left: Block, right: Block) -> Block:
    """Return the rows of both in the order of their positions."""
    if not len(right.positions) or not len(left.positions):
        return right if len(right.positions) else left
    both = concat_blocks([left, right], left.rows.schema)
    order = pc.sort_indices(both.positions)
    return Block(both.rows.take(order), both.positions.take(order))


def _at(records: pa.RecordBatch, positions: pa.Int64Array) -> pa.RecordBatch:
    """Return the records at ascending `positions`; all of them without a copy."""
    return records if len(positions) == len(records) else records.take(positions)


def _positions(found: Iterable[int]) -> pa.Int64Array:
    return pa.array(list(found), pa.int64())
