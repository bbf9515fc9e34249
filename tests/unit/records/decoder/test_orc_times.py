"""A record with a time that ORC files would give back as another one is a dead letter; its neighbours land."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from frazil.batch.facts import UnknownFields
from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Column, Destination, Pipeline
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.table_rows import without_altered_times
from frazil.records.model.rows import Block
from frazil.records.model.spec import RecordSpec
from frazil.run.staging.record_spec import record_spec
from frazil.verify.values.column_readers import Bad, Expectation
from tests.unit.records.kafka_batches import OneTable, decode_both, kafka_batch

US, FAR = pa.timestamp("us", "UTC"), 2**63 // 1000 - 1
LOST = [-1, -999_999, FAR + 1, -FAR - 1]
LANDING = [-1_000_000, -1_000_001, 0, 1, FAR, -FAR]

SHAPES: dict[str, tuple[pa.DataType, Any]] = {
    "plain": (US, lambda instant: instant),
    "local": (pa.timestamp("us"), lambda instant: instant),
    "list": (pa.list_(US), lambda instant: [0, None, instant]),
    "struct": (pa.struct([("a", pa.struct([("b", US)]))]), lambda instant: {"a": {"b": instant}}),
    "map": (pa.map_(pa.string(), US), lambda instant: [("x", instant)]),
    "key": (pa.map_(US, pa.string()), lambda instant: [(instant, "x")]),
    "lists in maps": (
        pa.map_(pa.string(), pa.list_(pa.struct([("a", US)]))),
        lambda instant: [("w", None), ("x", [None, {"a": instant}])],
    ),
}
BAD_TIME = b'{"id": 1, "at": "1969-12-31T23:59:59.5Z"}'
GOOD_TIME = b'{"id": 2, "at": "1969-12-31T23:59:59Z"}'
COLUMNS = pa.schema([("id", pa.int64()), ("at", US)])
IN_ORC = RecordSpec(COLUMNS, file_format="orc")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("instant", LOST)
def test_times_that_orc_loses_are_found_at_any_depth_and_their_neighbours_kept(shape: str, instant: int) -> None:
    """In slices of arrays as well, whose first values are others'."""
    data_type, make = SHAPES[shape]
    values = [make(instant), make(0), None, make(instant), make(5), make(instant)]
    whole = pa.RecordBatch.from_arrays([pa.array(values, data_type)], ["x"])
    records = kafka_batch([b"{}"] * len(values))
    spec = RecordSpec(pa.schema([("x", data_type)]), file_format="orc")

    for first in (0, 1):
        block = Block(whole.slice(first), pa.arange(first, len(values)))
        landed, dead = without_altered_times(spec, block, records)
        assert (landed.positions.to_pylist(), list(dead)) == (
            [1, 2, 4],
            [number for number in (0, 3, 5) if number >= first],
        )
        assert {(reason.code.value, reason.path) for reason in dead.values()} == {("OUT_OF_RANGE", "x")}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("instant", LANDING)
def test_times_at_the_edges_land(shape: str, instant: int) -> None:
    """ORC gives these back."""
    data_type, make = SHAPES[shape]
    rows = pa.RecordBatch.from_arrays([pa.array([None, make(instant)], data_type)], ["x"])
    block = Block(rows, pa.arange(0, 2))
    spec = RecordSpec(pa.schema([("x", data_type)]), file_format="orc")
    assert without_altered_times(spec, block, kafka_batch([b"", b""])) == (block, {})


def test_null_list_over_hidden_times_lands() -> None:
    """Arrow may keep items behind a null list: no record has them."""
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], pa.array([-1, 5, -1], US), mask=pa.array([True, False, False]))
    rows = pa.RecordBatch.from_arrays([lists], ["x"])
    spec = RecordSpec(rows.schema, file_format="orc")
    kept, dead = without_altered_times(spec, Block(rows, pa.arange(0, 3)), kafka_batch([b"{}"] * 3))
    assert (kept.positions.to_pylist(), list(dead)) == ([0, 1], [2])


def test_record_with_a_time_that_orc_loses_is_a_dead_letter() -> None:
    """In a table of Parquet files it lands."""
    batch = kafka_batch([BAD_TIME, GOOD_TIME])
    outcomes = decode_both(IN_ORC, batch)

    (letter,) = outcomes.dead.select(["code", "path", "offset", "message"]).to_pylist()
    assert letter.pop("message").endswith("declare the column as string, or land into a table of Parquet files")
    assert letter == {"code": "OUT_OF_RANGE", "path": "at", "offset": 100}
    assert outcomes.rows.column("id").to_pylist() == [2]
    assert len(decode_both(replace(IN_ORC, file_format="parquet"), batch).rows) == 2


def test_kafka_timestamp_that_orc_loses_makes_a_dead_letter() -> None:
    """A producer chooses it; without Kafka columns it lands nowhere."""
    batch = kafka_batch([GOOD_TIME, GOOD_TIME])
    far = pa.array([0, FAR + 1], batch.column("timestamp").type)
    batch = batch.set_column(batch.schema.get_field_index("timestamp"), batch.schema.field("timestamp"), far)

    outcomes = OneTable(IN_ORC, 7).decode(batch)
    assert outcomes.dead.column("path").to_pylist() == ["_kafka_timestamp"]
    assert outcomes.rows.column("_kafka_offset").to_pylist() == [100]
    assert len(OneTable(replace(IN_ORC, kafka_columns=None), 7).decode(batch).rows) == 2


def test_only_the_table_of_orc_files_refuses_the_record() -> None:
    """One outcome for each table."""
    specs = {"a.orc": IN_ORC, "a.parquet": replace(IN_ORC, file_format="parquet")}
    outcomes = Decoder(specs, None, 7).decode(kafka_batch([BAD_TIME, GOOD_TIME]))

    assert {table: rows.column("id").to_pylist() for table, rows in outcomes.rows.items()} == {
        "a.orc": [2],
        "a.parquet": [1, 2],
    }
    assert outcomes.dead.select(["destination", "offset"]).to_pylist() == [{"destination": "a.orc", "offset": 100}]
    assert {
        table: (table_outcome.routed, table_outcome.written, table_outcome.dead)
        for table, table_outcome in outcomes.tables.items()
    } == {
        "a.orc": (2, 1, 1),
        "a.parquet": (2, 2, 0),
    }
    assert outcomes.unknown_fields == UnknownFields()


def test_file_format_of_the_pipeline_file_reaches_the_decoder() -> None:
    """Whatever its case."""
    destination = {"table": "a.b", "columns": {"id": "long"}, "properties": {"write.format.default": "ORC"}}
    pipeline = Pipeline.model_validate({"name": "p", "source": {"topics": ["t"]}, "destinations": [destination]})
    assert record_spec(pipeline, declared_columns(Destination.model_validate(destination))).file_format == "orc"


@pytest.mark.parametrize("instant", ["1969-12-31T23:59:59.5Z", "1677-01-01T00:00:00Z", "2263-01-01T00:00:00Z"])
def test_verify_expects_dead_letters_for_times_that_orc_loses(instant: str) -> None:
    """At any depth, and in tables of ORC files only."""
    columns = {"x": Column(type="list<struct<at: timestamptz>>")}
    value = json.dumps({"x": [{"at": instant}]}).encode()
    assert isinstance(Expectation(columns, in_orc=True).row(value), Bad)
    assert not isinstance(Expectation(columns).row(value), Bad)
    assert not isinstance(
        Expectation(columns, in_orc=True).row(
            value.replace(b".5Z", b"Z").replace(b"1677", b"1678").replace(b"2263", b"2262")
        ),
        Bad,
    )
