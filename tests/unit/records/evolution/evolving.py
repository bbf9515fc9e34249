"""A table that follows its records, without a catalog: its columns change as demanded, and records are decoded again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from frazil.batch.schema_change import SchemaChange
from frazil.records.decoder.decode import Decoder
from frazil.records.evolution.schema_requests import apply_changes, merge_changes
from frazil.records.model.format import Frame, Transformed
from frazil.records.model.rows import Outcomes
from frazil.records.model.spec import Evolution, KafkaColumns, RecordSpec
from tests.unit.records.kafka_batches import kafka_batch

TABLE = "a.t"


@dataclass(frozen=True)
class Landed:
    """The result of records: the spec with the final columns, changes per round, and outcomes per task."""

    spec: RecordSpec
    rounds: list[tuple[SchemaChange, ...]]
    tasks: list[Outcomes]

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """Types of the columns at last."""
        return {column.name: column.type for column in self.spec.columns}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows without the Kafka columns."""
        return [row for task in self.tasks for row in task.rows[TABLE].select(self.spec.columns.names).to_pylist()]

    def row(self, task: int, index: int) -> dict[str, Any] | None:
        """The row of one record; None if it is dead."""
        rows = [row for row in self.tasks[task].rows[TABLE].to_pylist() if row["_kafka_offset"] == 100 + index]
        dead = self.tasks[task].dead.column("offset").to_pylist().count(100 + index)
        assert len(rows) + dead == 1
        return rows[0] if rows else None

    @property
    def codes(self) -> list[str]:
        """Codes of the dead letters."""
        return [code for task in self.tasks for code in task.dead.column("code").to_pylist()]


def spec(columns: Sequence[pa.Field] = (), evolution: Evolution | None = None, **options: Any) -> RecordSpec:
    """How records become rows of a table that follows them."""
    followed = replace(evolution or Evolution(), reserved=frozenset(field.name for field in KafkaColumns().fields))
    options = {"declared": frozenset(column.name for column in columns)} | options
    return RecordSpec(pa.schema(columns), evolution=followed, **options)


@dataclass(frozen=True)
class Untouched:
    """A transform that changes nothing, so that values are decoded for transforms."""

    def apply(self, frame: Frame) -> Transformed:
        """Return the frame."""
        return Transformed(frame)


def transformed(spec: RecordSpec) -> RecordSpec:
    """The same with a transform before the columns."""
    return replace(spec, infers=True, fields=spec.columns, transforms=(Untouched(),))


def land(tasks: Sequence[Sequence[object]], spec: RecordSpec, *, blocks: bool = True) -> Landed:
    """Decode the values of some tasks, and as often again as they ask for something.

    Args:
        tasks: Values: bytes, or what JSON can say.
        spec: How they become rows.
        blocks: Whether JSON is parsed in blocks.
    """
    rounds: list[tuple[SchemaChange, ...]] = []
    batches = [kafka_batch([each if isinstance(each, bytes) else _json(each) for each in task]) for task in tasks]
    for _ in range(6):
        outcomes = [Decoder({TABLE: spec}, None, 1, blocks=blocks).decode(batch) for batch in batches]
        changes = merge_changes((change for task in outcomes for change in task.demands.get(TABLE, ())), spec)
        if not changes:
            assert not any(task.demands for task in outcomes)
            return Landed(spec, rounds, outcomes)
        rounds.append(changes)
        columns = apply_changes(spec.columns, changes)
        spec = replace(spec, columns=columns, fields=columns if spec.infers else spec.fields)
    raise AssertionError(f"the records never have enough: {rounds}")


def land_still(value: bytes, spec: RecordSpec) -> Outcomes:
    """Decode one value for a table that does not evolve."""
    return Decoder({TABLE: spec}, None, 1).decode(kafka_batch([value]))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
