"""Verify's own transforms, one record at a time, compared with the decoder's, which work on columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message

from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.staging.record_spec import record_spec
from frazil.verify.values.canonical import column_values
from frazil.verify.values.column_readers import Bad
from frazil.verify.values.transforms import APPLIED
from frazil.verify.values.typed_expectation import FILTERED, TypedExpectation, typed_reasons
from tests.unit.records.kafka_batches import OneTable, kafka_batch

VALUES: list[Any] = [
    {"id": 1, "name": "a", "n": "12", "f": 1.9, "ok": True, "s": {"a": 5, "b": "x"}},
    {"id": 2, "name": None, "n": "-7", "f": -0.5, "ok": False, "s": None},
    {"id": 3000000000, "name": "c", "n": "007", "f": 1e9, "s": {"a": None, "b": "y"}},
    {"id": 4, "f": 3e9},
    {},
    {"id": "x"},
]
FIELDS = {
    "id": "long",
    "name": "string",
    "n": "string",
    "f": "double",
    "ok": "boolean",
    "s": "struct<a: int, b: string>",
}
STEPS: dict[str, tuple[list[dict[str, Any]], dict[str, str]]] = {
    "InsertField": (
        [
            {
                "type": "InsertField",
                "topic.field": "t",
                "static.field": "of",
                "static.value": "x",
                "offset.field": "o!",
            },
            {"type": "InsertField", "partition.field": "p", "timestamp.field": "at"},
        ],
        {"id": "long", "t": "string", "of": "string", "o": "long", "p": "int", "at": "timestamptz"},
    ),
    "ReplaceField": (
        [{"type": "ReplaceField", "exclude": "f", "renames": "name:title,n:m"}],
        {"id": "long", "title": "string", "m": "string", "f": "double", "name": "string"},
    ),
    "ReplaceField includes": ([{"type": "ReplaceField", "include": "id"}], {"id": "long", "name": "string"}),
    "Cast": (
        [{"type": "Cast", "spec": "id:int32,n:int64,f:int64,ok:int8"}],
        {"id": "long", "n": "long", "f": "long", "ok": "int"},
    ),
    "Cast to text": ([{"type": "Cast", "spec": "id:string,ok:string"}], {"id": "string", "ok": "string"}),
    "Cast to fractions": ([{"type": "Cast", "spec": "id:float64,f:float32"}], {"id": "double", "f": "float"}),
    "Cast to truth": ([{"type": "Cast", "spec": "id:boolean,f:boolean"}], {"id": "boolean", "f": "boolean"}),
    "ExtractField": ([{"type": "ExtractField", "field": "s"}], {"a": "int", "b": "string"}),
    "ExtractField path": ([{"type": "ExtractField", "field": "s.b"}], {"value": "string"}),
    "HoistField": ([{"type": "HoistField", "field": "all"}], {"all": "struct<id: long, name: string>"}),
    "ValueToKey": ([{"type": "ValueToKey", "fields": "id"}], {"name": "string", "k": "long"}),
    "CopyValue": ([{"type": "CopyValue", "source.field": "id", "target.field": "b"}], {"id": "long", "b": "long"}),
    "Filter": (
        [{"type": "Filter", "when": {"predicate": "HasHeaderKey", "name": "test"}}],
        {"id": "long", "name": "string"},
    ),
    "headers": (
        [
            {"type": "HeaderFrom", "fields": "name", "headers": "test", "operation": "move"},
            {"type": "InsertHeader", "header": "b", "value.literal": "x"},
            {"type": "DropHeaders", "headers": "test"},
            {"type": "SetSchemaMetadata", "schema.name": "x"},
            {"type": "Filter", "when": {"predicate": "HasHeaderKey", "name": "test"}},
            {"type": "Filter", "when": {"predicate": "TopicNameMatches", "pattern": "ord.*", "negate": True}},
        ],
        {"id": "long", "name": "string"},
    ),
}


def pipeline_of(steps: list[dict[str, Any]], columns: dict[str, Any]) -> Pipeline:
    declared = {
        name: {"type": type_name, "part": "key", "from": "id"} if name == "k" else {"type": type_name}
        for name, type_name in columns.items()
    }
    definition = {"name": "p", "source": {"topics": ["orders"]}, "value": {"fields": FIELDS}, "transforms": steps}
    return Pipeline.model_validate(definition | {"destinations": [{"table": "a.b", "columns": declared}]})


@pytest.mark.parametrize("name", STEPS)
def test_transforms_give_what_the_decoder_gives(name: str) -> None:
    """Each record has the same row, dead letter or no outcome, and every cell is known."""
    pipeline = pipeline_of(*STEPS[name])
    assert list(typed_reasons(pipeline)) == []
    columns = pipeline.destinations[0].columns
    expectation = TypedExpectation(pipeline, columns)
    spec = record_spec(pipeline, declared_columns(pipeline.destinations[0]), {})
    rows = 0
    for index, value in enumerate(VALUES):
        for header in (None, "test"):
            raw = json.dumps(value).encode()
            headers = [] if header is None else [(header, b"")]
            batch = kafka_batch([raw])
            cells = pa.array([[{"key": key, "value": text} for key, text in headers]], batch.column("headers").type)
            batch = batch.set_column(batch.schema.names.index("headers"), batch.schema.field("headers"), cells)
            outcomes = OneTable(spec, 1).decode(batch)
            found = list(
                zip(*(column_values(outcomes.rows.column(of), c.parsed) for of, c in columns.items()), strict=True)
            )
            record = {of: batch.column(of)[0].as_py() for of in ("topic", "partition", "offset")}
            stamp = batch.column("timestamp").cast("int64")[0].as_py()
            row = expectation.record(Message(**record, value=raw, headers=headers, timestamp=(1, stamp // 1000)))
            if row is FILTERED:
                assert (found, len(outcomes.dead)) == ([], 0)
            elif isinstance(row, Bad):
                assert (found, len(outcomes.dead)) == ([], 1), (index, row)
            else:
                assert [repr(row)] == [repr(row_found) for row_found in found], (index, header)
                rows += 1
    assert rows
    assert expectation.unjudged == {}


def test_every_own_transform_is_compared_with_the_decoder() -> None:
    """Otherwise a transform without a case would not be tested."""
    assert {step["type"] for steps, _ in STEPS.values() for step in steps} == APPLIED.keys()
