"""Transforms get the texts of declared JSON fields as they get those of any other format."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.staging.record_problems import record_problems
from frazil.run.staging.record_spec import record_spec
from tests.unit.records.kafka_batches import OneTable, kafka_batch

ENVELOPE = {"op": "string", "after": "struct<id: string>", "source": "struct<db: string, table: string>"}
CHANGE = b'{"op": "c", "after": {"id": "a"}, "source": {"db": "shop", "table": "orders"}}'
TEXTS = b'{"op": "c", "after": "{\\"id\\": \\"a\\"}", "source": {"db": "shop", "table": "orders"}}'


@pytest.mark.parametrize(
    ("fields", "steps", "value"),
    [
        (ENVELOPE, [{"type": "DebeziumTransform"}], CHANGE),
        (
            ENVELOPE | {"after": "string"},
            [{"type": "MongoDebezium", "types": "struct<id: string>"}, {"type": "DebeziumTransform"}],
            TEXTS,
        ),
        (
            {"doc": "string"},
            [
                {"type": "JsonToMap", "field": "doc", "types": "struct<id: string>"},
                {"type": "ExtractField", "field": "doc"},
            ],
            b'{"doc": "{\\"id\\": \\"a\\"}"}',
        ),
        (
            {"tags": "map<string, string>"},
            [{"type": "ExtractField", "field": "tags.id"}, {"type": "ReplaceField", "renames": "value:id"}],
            b'{"tags": {"id": "a"}}',
        ),
    ],
)
def test_declared_text_is_a_text_for_transforms(
    fields: dict[str, str], steps: list[dict[str, Any]], value: bytes
) -> None:
    """Texts of tables are of another Arrow type than those of formats, and so their fields would be refused."""
    destination = {"table": "a.b", "columns": {"id": "string"}, "kafka_columns": False}
    parts = {"name": "p", "source": {"topics": ["orders"]}, "value": {"fields": fields}, "transforms": steps}
    pipeline = Pipeline.model_validate({**parts, "destinations": [destination]})

    outcomes = OneTable(record_spec(pipeline, declared_columns(pipeline.destinations[0])), 1).decode(
        kafka_batch([value])
    )

    assert record_problems(pipeline) == ()
    assert outcomes.rows.to_pylist() == [{"id": "a"}]
