"""The table of the docs: every row of it is decoded, by the way that a pipeline file takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.syntax.types import PRIMITIVES
from frazil.records.formats.catalogue import FORMATS
from frazil.records.model.format import Framing, WriterSchema
from frazil.run.staging.record_spec import record_spec
from tests.unit.records.formats.case import COLUMN, Case
from tests.unit.records.formats.cases import cases
from tests.unit.records.formats.matrix import KINDS, matrix
from tests.unit.records.kafka_batches import OneTable, kafka_batch


@dataclass(frozen=True)
class OneSchema:
    """A registry that knows the schema of the case."""

    text: str
    framing: Framing = "confluent"

    def schema(self, schema_id: object) -> WriterSchema | None:
        """Return the schema, whatever the kind of the id."""
        return WriterSchema("JSON", self.text) if schema_id == 1 else None


def shown(value: Any) -> str:
    """A value of the table, as the docs show it."""
    if isinstance(value, pa.MapScalar):
        pairs = zip(value.values.field(0), value.values.field(1), strict=True) if value.is_valid else ()
        return "{" + ", ".join(f"{shown(key)}: {shown(member)}" for key, member in pairs) + "}"
    if isinstance(value, pa.ListScalar) and value.is_valid:
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, pa.StructScalar) and value.is_valid:
        return "{" + ", ".join(f"{name}: {shown(value[name])}" for name in value) + "}"
    if pa.types.is_floating(value.type) and value.is_valid:
        return str(value.cast(pa.string()))
    return _plain(value.as_py())


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.group}: {case.sent} as {case.declared}")
def test_each_value_becomes_what_the_docs_say(case: Case) -> None:
    """Each value becomes what the docs say, parsed as a block or one by one."""
    destination = {"table": "shop.orders", "columns": {COLUMN: dict(case.column)}}
    pipeline = Pipeline.model_validate(
        {
            "name": "orders",
            "source": {"topics": ["orders"]},
            "value": dict(case.value),
            "destinations": [destination],
        }
    )
    columns = declared_columns(pipeline.destinations[0])
    schemas = {} if case.schema is None else {str(case.value["registry"]): OneSchema(case.schema)}
    spec = record_spec(pipeline, columns, schemas)
    for blocks in (True, False):
        outcomes = OneTable(spec, 1, blocks=blocks).decode(kafka_batch([case.data] * 3))
        results = [shown(value) for value in outcomes.rows.column(COLUMN)] + outcomes.dead.column("code").to_pylist()
        assert results == [case.result] * 3


def test_every_format_and_type_is_in_the_docs() -> None:
    """Every format has cases, and no pair of a format and a column type is without; a variant takes whole values only."""
    assert {str(case.value.get("format", "json")) for case in cases()} == set(FORMATS)
    assert set(PRIMITIVES) - {"variant"} | {case.kind for case in cases()} == set(KINDS)
    assert [pair for pair, ways in matrix(cases()).items() if not ways] == []
