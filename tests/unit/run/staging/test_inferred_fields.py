"""`value.fields: inferred`: JSON before transforms and changes holds what it says itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.staging.record_problems import record_problems
from frazil.run.staging.record_spec import record_specs
from tests.unit.records.cdc import landing
from tests.unit.records.kafka_batches import OneTable, kafka_batch

COLUMNS = {
    "id": {"type": "long", "required": True},
    "at": {"type": "timestamptz", "unit": "ms"},
    "price": "decimal(9,2)",
}
OP = {"format": "op_column", "op": "_cdc.op", "values": {"insert": ["I"], "update": ["U"], "delete": ["D"]}}
MERGED = {"write": "cdc", "changes": OP, "identifier": ["id"]}


def pipeline_of(steps: list[dict[str, Any]], **destination: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "name": "p",
        "source": {"topics": ["orders"]},
        "value": {"fields": "inferred"},
        "transforms": steps,
    }
    return Pipeline.model_validate({**parts, "destinations": [{"table": "a.b", "columns": COLUMNS, **destination}]})


def decoded(pipeline: Pipeline, *values: Any) -> Any:
    columns = {"a.b": declared_columns(pipeline.destinations[0])}
    spec = record_specs(pipeline, columns)["a.b"]
    assert record_problems(pipeline) == ()
    return OneTable(spec, 1).decode(kafka_batch([json.dumps(value).encode() for value in values]))


def test_values_of_any_shape_become_the_declared_columns() -> None:
    """Numbers and texts of one field, fields that come and go, a decimal with its digits: each value by itself."""
    pipeline = pipeline_of([{"type": "ReplaceField", "renames": "nr:id"}], kafka_columns=False)

    rows = decoded(
        pipeline,
        {"nr": 1, "at": 0, "price": 1.10},
        {"nr": 2, "at": "1970-01-01T00:00:00Z", "more": {"a": [1, "x"]}},
        {"nr": 3, "at": None, "price": 12},
        {"at": 0},
    )

    assert [
        (row["id"], row["at"] and row["at"].timestamp(), row["price"] and str(row["price"]))
        for row in rows.rows.to_pylist()
    ] == [
        (1, 0, "1.10"),
        (2, 0, None),
        (3, None, "12.00"),
    ]
    assert rows.dead.num_rows == 1


@pytest.mark.parametrize("evolve", ["none", "full"])
def test_changes_behind_a_transform_tell_upserts_and_deletes(evolve: str) -> None:
    """Envelopes without declared fields, whose images are null, absent or of other fields."""
    pipeline = pipeline_of([{"type": "DebeziumTransform"}], evolve=evolve, **MERGED)
    source = {"db": "shop", "table": "orders"}

    outcome = decoded(
        pipeline,
        {"op": "c", "before": None, "after": {"id": 1, "at": 5, "price": 2}, "source": source, "ts_ms": 1},
        {"op": "u", "before": {"id": 1}, "after": {"id": 1, "at": None, "price": 2.5}, "source": source},
        {"op": "d", "before": {"id": 1}, "source": source},
        {"op": "x", "after": {"id": 1}, "source": source},
    )

    assert [(row["id"], row["_frazil_op"]) for row in outcome.rows.to_pylist()] == [
        (1, "upsert"),
        (1, "upsert"),
        (1, "delete"),
    ]
    assert outcome.dead.num_rows == 1


HOSTILE: list[Any] = [
    {"op": 1},
    {"op": "c", "after": [1], "source": 1},
    {"op": "c", "after": {"id": {"a": 1}, "_cdc": 1}, "source": {"db": 1, "table": []}},
    {"op": "c", "after": "x", "before": 7, "source": {"db": "a", "table": "b"}},
    {"op": "c", "after": {"_cdc": 1, "id": 1}, "source": {"db": "a", "table": "b"}},
    {"op": {"op": []}, "before": {}, "after": {}, "source": {}},
    {},
    {"_cdc": {"op": "I"}, "id": 1},
    [],
    7,
]


@pytest.mark.parametrize(
    "steps",
    [
        [{"type": "DebeziumTransform"}],
        [{"type": "ExtractNewRecordState", "add.fields": "op:_cdc", "add.fields.prefix": ""}],
        [],
    ],
)
def test_no_value_ends_the_run(steps: list[dict[str, Any]]) -> None:
    """Whoever sends odd envelopes gets dead letters, also where a column takes a fact about the change."""
    columns = {**COLUMNS, "word": {"type": "string", "from": ["_cdc", "op"]}}

    outcome = decoded(pipeline_of(steps, **{**MERGED, "columns": columns}), *HOSTILE)

    assert outcome.rows.num_rows + outcome.dead.num_rows == len(HOSTILE)


@pytest.mark.parametrize(
    "parts",
    [
        {"key": {"fields": "inferred"}},
        {"value": {"format": "delimited", "fields": "inferred"}},
        {"value": {"format": "string", "fields": "inferred"}},
        {"value": {"fields": "guessed"}},
    ],
)
def test_only_json_values_are_inferred(parts: dict[str, Any]) -> None:
    """Keys say what they hold, and other formats have fields of their own."""
    whole = {
        "name": "p",
        "source": {"topics": ["orders"]},
        "destinations": [{"table": "a.b", "columns": {"id": "long"}}],
    }

    with pytest.raises(ValidationError):
        Pipeline.model_validate(whole | parts)


def test_unwrapped_changes_and_their_tombstones_keep_one_row_per_key() -> None:
    """Debezium's deletes come twice: the envelope is left out, and the tombstone behind it deletes the row of its key."""
    columns = {
        "id": {"type": "long", "required": True, "part": "key"},
        "name": "string",
        "word": {"type": "string", "from": "__op"},
    }
    steps = [{"type": "ExtractNewRecordState", "add.fields": "op"}]
    parts = {"value": {"fields": "inferred"}, "key": {"fields": {"id": "long"}}, "transforms": steps}
    file = landing.pipeline(parts, write="upsert", columns=columns)
    row = {"id": 1, "name": "a"}
    values = [{"op": "c", "before": None, "after": row}, {"op": "d", "before": row, "after": None}, None]

    outcomes = landing.landed(file, values, [{"id": 1}] * 3)

    assert landing.ops_of(outcomes, "id", "name", "word") == [("upsert", 1, "a", "c"), ("delete", 1, None, None)]
    assert landing.filtered(outcomes) == {"transform": 1}
    assert landing.refused(outcomes) == []
