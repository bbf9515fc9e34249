"""Verify's own reading of formats, held against the table of cases that the decoder is tested with and the docs show."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from frazil.iceberg.schema import declared_columns
from frazil.pipeline.model import Pipeline
from frazil.records.dead import DeadCode
from frazil.records.decode import Decoder
from frazil.run.record_spec import record_spec
from frazil.verify.values.canonical import column_values
from frazil.verify.values.column_readers import Bad
from frazil.verify.values.typed_expectation import TypedExpectation, untyped_because
from tests.unit.records.formats.case import COLUMN, Case
from tests.unit.records.formats.cases import cases
from tests.unit.records.formats.test_cases import OneSchema
from tests.unit.records.kafka_batches import kafka_batch

CASES = [case for case in cases() if case.group != "json"]
UNKNOWN = "unknown"


def pipeline_of(case: Case) -> Pipeline:
    destination = {"table": "a.b", "columns": {COLUMN: dict(case.column)}}
    given = {"name": "p", "source": {"topics": ["t"]}, "value": dict(case.value), "destinations": [destination]}
    return Pipeline.model_validate(given)


def landed(case: Case) -> Any:
    """What the decoder makes of it, in canonical form."""
    pipeline = pipeline_of(case)
    schemas = {} if case.schema is None else {str(case.value["registry"]): OneSchema(case.schema)}
    columns = declared_columns(pipeline.destinations[0])
    outcomes = Decoder(record_spec(pipeline, columns, schemas), 1).decode(kafka_batch([case.data]))
    of = pipeline.destinations[0].columns[COLUMN].parsed
    return [*column_values(outcomes.rows.column(COLUMN), of), *outcomes.dead.column("code").to_pylist()]


def expected(case: Case) -> Any:
    """What verify makes of it; `UNKNOWN` where it says nothing."""
    pipeline = pipeline_of(case)
    assert list(untyped_because(pipeline)) == []
    columns = pipeline.destinations[0].columns
    expectation = TypedExpectation(pipeline, columns, lambda _: lambda _: (case.schema or "", {}))
    row = expectation.record(Message(topic="t", partition=0, offset=0, value=case.data, timestamp=(1, 0)))
    if isinstance(row, Bad):
        return row
    return UNKNOWN if isinstance(row[0], Bad) else row[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.group}: {case.sent} as {case.declared}")
def test_verify_reads_a_value_as_the_decoder_does(case: Case) -> None:
    """The same value, or a dead letter; what verify does not know it says."""
    (found,), wanted = landed(case), expected(case)

    if case.result is DeadCode.SCHEMA_VIOLATION:
        return  # rules of schemas are not read: verify lets such letters stand
    if isinstance(case.result, DeadCode):
        assert wanted == UNKNOWN or isinstance(wanted, Bad)
    else:
        assert wanted == UNKNOWN or repr(wanted) == repr(found)


@pytest.mark.parametrize("group", sorted({case.group for case in CASES}))
def test_most_values_are_known(group: str) -> None:
    """A reading that knows nothing would agree with everything."""
    mine = [case for case in CASES if case.group == group and not isinstance(case.result, DeadCode)]
    unknown = [case.sent for case in mine if expected(case) == UNKNOWN]

    assert len(unknown) <= len(mine) * (0.6 if group == "json-schema" else 0.2), unknown
