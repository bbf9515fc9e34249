"""A merged table that follows its changes, without a catalog: its columns change as demanded, and changes are decoded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from frazil.batch.schema_change import SchemaChange
from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.decoder.decode import Decoder
from frazil.records.evolution.schema_requests import apply_changes, merge_changes
from frazil.records.model.rows import Outcomes
from frazil.run.staging.record_problems import record_problems
from frazil.run.staging.record_spec import record_specs, route_of
from tests.unit.records.cdc.landing import batch_of


@dataclass(frozen=True)
class Grown:
    """The result of changes: the schema changes of each round, the final columns, and the outcomes."""

    rounds: list[dict[str, tuple[SchemaChange, ...]]]
    columns: dict[str, pa.Schema]
    outcomes: Outcomes


def grown(
    declared: Pipeline,
    values: Sequence[object],
    keys: Sequence[object] | None = None,
    columns: dict[str, pa.Schema] | None = None,
) -> Grown:
    """Decode changes until they request no schema change. The file must be valid."""
    assert record_problems(declared) == ()
    columns = dict(
        columns or {destination.table: declared_columns(destination) for destination in declared.destinations}
    )
    batch, rounds = batch_of(values, keys), list[dict[str, tuple[SchemaChange, ...]]]()
    for _ in range(4):
        specs = record_specs(declared, columns)
        outcomes = Decoder(specs, route_of(declared, columns), 7).decode(batch)
        if not outcomes.demands:
            assert all(counts.is_complete for counts in outcomes.counts.values())
            return Grown(rounds, columns, outcomes)
        rounds.append({table: merge_changes(demand, specs[table]) for table, demand in outcomes.demands.items()})
        columns |= {table: apply_changes(columns[table], changes) for table, changes in rounds[-1].items()}
    raise AssertionError(f"the changes never have enough: {rounds}")
