"""Kafka batches and specs for the tests of this folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from frazil.batch.facts import UnknownFields
from frazil.batch.schema_change import SchemaChange
from frazil.records.decoder.decode import Decoder
from frazil.records.model.rows import KAFKA_SCHEMA, Counts
from frazil.records.model.spec import RecordSpec

BATCH_NUMBER = 7
TABLE = "shop.orders"


@dataclass(frozen=True, slots=True)
class OneTableOutcomes:
    """The outcome of a batch of a pipeline of one table: its rows are those of the table, the rest is as `Outcomes` has it."""

    rows: pa.RecordBatch
    dead: pa.RecordBatch
    counts: Counts
    unknown_fields: UnknownFields
    demands: tuple[SchemaChange, ...]


class OneTable:
    """The decoder of a pipeline of one table."""

    def __init__(self, spec: RecordSpec, number: int, *, blocks: bool = True) -> None:
        self._decoder = Decoder({TABLE: spec}, None, number, blocks=blocks)

    def decode(self, batch: pa.RecordBatch) -> OneTableOutcomes:
        """Decode a batch."""
        outcomes = self._decoder.decode(batch)
        rows, demands = outcomes.rows[TABLE], outcomes.demands.get(TABLE, ())
        return OneTableOutcomes(rows, outcomes.dead, outcomes.counts, outcomes.unknown_fields, demands)


def kafka_batch(values: Sequence[bytes | None], sources: Sequence[tuple[str, int]] | None = None) -> pa.RecordBatch:
    """Return records with these values, from `sources` (topic, partition), at offsets from 100 on."""
    size = len(values)
    origins = sources or [("orders", 0)] * size
    columns = {
        "topic": [topic for topic, _ in origins],
        "partition": [partition for _, partition in origins],
        "offset": list(range(100, 100 + size)),
        "timestamp": list(range(size)),
        "timestamp_type": [0] * size,
        "key": [b"key-%d" % index for index in range(size)],
        "value": list(values),
        "headers": [[{"key": "trace", "value": b"\xff"}]] * size,
    }
    arrays = [pa.array(columns[field.name], field.type) for field in KAFKA_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=KAFKA_SCHEMA)


def decode_both(spec: RecordSpec, batch: pa.RecordBatch) -> OneTableOutcomes:
    """Decode with and without blocks, hold both outcomes equal, return one."""
    exact = OneTable(spec, BATCH_NUMBER, blocks=False).decode(batch)
    block = OneTable(spec, BATCH_NUMBER).decode(batch)
    assert block.rows.equals(exact.rows), f"{block.rows.to_pylist()} != {exact.rows.to_pylist()}"
    assert block.dead.equals(exact.dead), f"{block.dead.to_pylist()} != {exact.dead.to_pylist()}"
    assert block.unknown_fields == exact.unknown_fields, f"{block.unknown_fields} != {exact.unknown_fields}"
    assert block.counts == exact.counts
    for outcomes in (block, exact):
        outcomes.rows.validate(full=True)
        outcomes.dead.validate(full=True)
        assert outcomes.rows.schema.equals(spec.row_schema, check_metadata=True)
        assert all(counts.is_complete for counts in outcomes.counts.values())
    return exact


def outcome_of(data_type: pa.DataType, json_value: str, *, nullable: bool = True) -> object:
    """Return what `{"x": json_value}` becomes in a column of a type: its value, or its code."""
    spec = RecordSpec(pa.schema([pa.field("x", data_type, nullable=nullable)]))
    outcomes = decode_both(spec, kafka_batch([f'{{"x": {json_value}}}'.encode()]))
    if outcomes.dead.num_rows:
        return outcomes.dead.column("code")[0].as_py()
    return outcomes.rows.column("x")[0].as_py()
