"""Verify's own decoders, compared with the cases that the docs show and the other decoder is tested with."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from confluent_kafka import Message

from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.model.dead_letter import DeadCode
from frazil.run.staging.record_spec import record_spec
from frazil.verify.values.canonical import column_values
from frazil.verify.values.column_readers import Bad
from frazil.verify.values.native import SchemaReader
from frazil.verify.values.typed_expectation import FILTERED, TypedExpectation, typed_reasons
from tests.unit.records.formats.case import COLUMN, Case
from tests.unit.records.formats.cases import cases
from tests.unit.records.formats.test_cases import OneSchema
from tests.unit.records.kafka_batches import OneTable, kafka_batch

CASES = [case for case in cases() if case.group != "json"]
UNKNOWN_ROW = "unknown"


def pipeline_of(case: Case) -> Pipeline:
    destination = {"table": "a.b", "columns": {COLUMN: dict(case.column)}}
    definition = {"name": "p", "source": {"topics": ["t"]}, "value": dict(case.value), "destinations": [destination]}
    return Pipeline.model_validate(definition)


def landed(case: Case) -> Any:
    """The canonical value that the decoder makes of a case."""
    pipeline = pipeline_of(case)
    schemas = {} if case.schema is None else {str(case.value["registry"]): OneSchema(case.schema)}
    columns = declared_columns(pipeline.destinations[0])
    outcomes = OneTable(record_spec(pipeline, columns, schemas), 1).decode(kafka_batch([case.data]))
    column_type = pipeline.destinations[0].columns[COLUMN].parsed
    return [*column_values(outcomes.rows.column(COLUMN), column_type), *outcomes.dead.column("code").to_pylist()]


def message(data: bytes) -> Message:
    return Message(topic="t", partition=0, offset=0, value=data, timestamp=(1, 0))


def typed(case: Case) -> TypedExpectation:
    pipeline = pipeline_of(case)
    assert list(typed_reasons(pipeline)) == []
    columns = pipeline.destinations[0].columns
    return TypedExpectation(pipeline, columns, lambda _: SchemaReader(lambda _: (case.schema or "", {})))


def expected(case: Case) -> Any:
    """The value that verify expects for a case; `UNKNOWN` if it does not know."""
    row = typed(case).record(message(case.data))
    if isinstance(row, Bad):
        return row
    return UNKNOWN_ROW if isinstance(row[0], Bad) else row[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.group}: {case.sent} as {case.declared}")
def test_verify_reads_a_value_as_the_decoder_does(case: Case) -> None:
    """Both have the same value, or a dead letter, or verify says that it does not know."""
    (row,), expected_row = landed(case), expected(case)

    if case.result is DeadCode.SCHEMA_VIOLATION:
        return  # rules of schemas are not read: verify lets such letters stand
    if isinstance(case.result, DeadCode):
        assert expected_row == UNKNOWN_ROW or isinstance(expected_row, Bad)
    else:
        assert expected_row == UNKNOWN_ROW or repr(expected_row) == repr(row)


@pytest.mark.parametrize("group", sorted({case.group for case in CASES}))
def test_most_values_are_known(group: str) -> None:
    """A reading that knows nothing would agree with everything."""
    mine = [case for case in CASES if case.group == group and not isinstance(case.result, DeadCode)]
    unread = [case.sent for case in mine if expected(case) == UNKNOWN_ROW]

    assert len(unread) <= len(mine) * (0.6 if group == "json-schema" else 0.2), unread


@pytest.mark.parametrize("group", sorted({case.group for case in CASES}))
def test_no_bytes_stop_the_check(group: str) -> None:
    """A reading says what it makes of any bytes, or that it does not know."""
    random = Random(7)
    for case in [case for case in CASES if case.group == group][:25]:
        expectation = typed(case)
        for _ in range(20):
            data = bytearray(case.data or b"\0")
            data[random.randrange(len(data))] = random.randrange(256)
            cut = bytes(data[: random.randrange(len(data)) + 1])
            for raw in (bytes(data), cut, bytes(data) + b"\0"):
                assert isinstance(expectation.record(message(raw)), tuple | Bad)


def test_record_within_itself_is_unknown_and_a_type_used_twice_is_not() -> None:
    """What is JSON text from some level on is not read; a named type is looked at once."""
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}]}
    fields = [
        {"name": "a", "type": point},
        {"name": "b", "type": "point"},
        {"name": "next", "type": ["null", "node"]},
    ]
    schema = json.dumps({"type": "record", "name": "node", "fields": fields})
    columns = {"a": "struct<x: int>", "b": "struct<x: int>", "next": "string"}
    definition = {"name": "p", "source": {"topics": ["t"]}, "value": {"format": "avro", "schema": schema}}
    pipeline = Pipeline.model_validate(
        definition
        | {"destinations": [{"table": "a.b", "columns": {n: {"type": type_name} for n, type_name in columns.items()}}]}
    )
    expectation = TypedExpectation(pipeline, pipeline.destinations[0].columns)

    a, b, following = expectation.record(message(b"\x02\x04\x00"))

    assert (a, b, following) == ((1,), (2,), None)
    assert isinstance(expectation.record(message(b"\x02\x04\x02\x02\x04\x00"))[2], Bad)


@pytest.mark.parametrize(("null_value", "is_filtered"), [("delete", True), ("dead_letter", False)])
def test_envelope_without_payload_is_a_tombstone(null_value: str, *, is_filtered: bool) -> None:
    """`value.null_value` decides about it, as about a record without value."""
    definition = {
        "name": "p",
        "source": {"topics": ["t"]},
        "value": {"format": "json-envelope", "null_value": null_value},
    }
    pipeline = Pipeline.model_validate(
        definition | {"destinations": [{"table": "a.b", "columns": {"c": {"type": "int"}}}]}
    )
    row = TypedExpectation(pipeline, pipeline.destinations[0].columns).record(
        message(b'{"schema": null, "payload": null}')
    )

    assert isinstance(row, Bad)
    assert (row is FILTERED) == is_filtered
