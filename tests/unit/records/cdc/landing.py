"""Change records through a pipeline file to the rows that are staged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.decoder.decode import Decoder
from frazil.records.model.rows import KAFKA_SCHEMA, Outcomes
from frazil.run.staging.record_problems import record_problems
from frazil.run.staging.record_spec import record_specs, route_of
from tests.unit.records.kafka_batches import kafka_batch

TABLE = "shop.customers"
COLUMNS: Mapping[str, Any] = {"id": {"type": "long", "required": True}, "name": "string"}


def pipeline(more: Mapping[str, Any] | None = None, **options: Any) -> Pipeline:
    """A pipeline file with one destination that changes are merged into."""
    destination = {"table": TABLE, "write": "cdc", "identifier": ["id"], "columns": COLUMNS} | options
    named = {"name": "customers", "source": {"topics": ["orders"]}, "destinations": [destination]}
    return Pipeline.model_validate(named | dict(more or {}))


def landed(
    declared: Pipeline, values: Sequence[object], keys: Sequence[object] | None = None, first_offset: int = 100
) -> Outcomes:
    """Decode values, and keys, in JSON; None is null. The file must be valid."""
    assert record_problems(declared) == ()
    columns = {destination.table: declared_columns(destination) for destination in declared.destinations}
    specs = record_specs(declared, columns)
    outcomes = Decoder(specs, route_of(declared, columns), 7).decode(batch_of(values, keys, first_offset))
    assert all(counts.is_complete for counts in outcomes.counts.values())
    return outcomes


def batch_of(values: Sequence[object], keys: Sequence[object] | None = None, first_offset: int = 100) -> pa.RecordBatch:
    """Records with values, and keys, in JSON; None is null."""
    batch = kafka_batch([_json(value) for value in values])
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["offset"] = pa.array(range(first_offset, first_offset + len(values)), pa.int64())
    if keys is not None:
        columns["key"] = pa.array([_json(key) for key in keys], pa.binary())
    return pa.RecordBatch.from_arrays([columns[field.name] for field in KAFKA_SCHEMA], schema=KAFKA_SCHEMA)


def ops_of(outcomes: Outcomes, *columns: str, table: str = TABLE) -> list[tuple[Any, ...]]:
    """The changes of rows: op, then the given columns."""
    names = ["_frazil_op", *(columns or ("id", "name"))]
    return [tuple(row[name] for name in names) for row in outcomes.rows[table].to_pylist()]


def refused(outcomes: Outcomes) -> list[str]:
    """Messages of dead letters."""
    messages: list[str] = outcomes.dead.column("message").to_pylist()
    return messages


def filtered(outcomes: Outcomes) -> dict[str, int]:
    """How many records were left out on purpose, by reason."""
    found: dict[str, int] = {}
    for counts in outcomes.counts.values():
        for reason, count in counts.filtered.items():
            found[reason.value] = found.get(reason.value, 0) + count
    return found


def _json(value: object) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
