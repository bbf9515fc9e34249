"""Times with more digits than a table holds: cut off where the pipeline file says so, in each format and in each way of reading."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from frazil.records.formats.catalogue import FORMATS
from frazil.records.model.format import FormatSpec
from frazil.records.model.spec import RecordSpec
from tests.unit.records.formats.avro_values import logical, written
from tests.unit.records.kafka_batches import decode_both, kafka_batch

INSTANT, WALL, CLOCK = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.time64("us")
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Event { google.protobuf.Timestamp x = 1; }
"""
AVRO = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "x", "type": logical("long", "timestamp-nanos")}]}
)
GO = dt.datetime(2026, 5, 1, 12, 30, 0, 123456)
BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)


def nanoseconds(seconds: int, nanos: int) -> bytes:
    """A message of `PROTO`."""
    from google.protobuf.timestamp_pb2 import Timestamp

    inner = Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
    return b"\x0a" + bytes([len(inner)]) + inner


JSON = [
    (INSTANT, None, '"2026-05-01T12:30:00.123456789Z"', GO.replace(tzinfo=dt.UTC)),
    (INSTANT, None, '"2026-05-01T14:30:00.123456789+02:00"', GO.replace(tzinfo=dt.UTC)),
    (INSTANT, None, '"1969-12-31T23:59:59.9999999Z"', BEFORE_1970.replace(tzinfo=dt.UTC)),
    (WALL, None, '"2026-05-01 12:30:00.123456789"', GO),
    (CLOCK, None, '"12:30:00.1234569"', dt.time(12, 30, 0, 123456)),
    (WALL, "ns", "1777638600123456789", GO),
    (WALL, "ns", "-1", BEFORE_1970),
    (WALL, "s", "1777638600.123456789", GO),
    (WALL, "s", "-1e-9", BEFORE_1970),
    (WALL, "s", "1e-999999999", dt.datetime(1970, 1, 1)),
    (CLOCK, "ns", "999", dt.time()),
    (pa.list_(WALL), None, '["2026-05-01 12:30:00.1234567", null]', [GO, None]),
    (pa.struct([("y", WALL)]), None, '{"y": "2026-05-01 12:30:00.1234567"}', {"y": GO}),
]


@pytest.mark.parametrize(("data_type", "unit", "text", "expected"), JSON)
def test_json_time_is_cut_on_request(data_type: pa.DataType, unit: Any, text: str, expected: object) -> None:
    """Cut towards the past, so that order stays, also before 1970; without the option it is a dead letter."""
    spec = RecordSpec(pa.schema([pa.field("x", data_type)]), units={} if unit is None else {"x": unit})
    records = kafka_batch([f'{{"x": {text}}}'.encode()])

    cut = decode_both(replace(spec, format=FormatSpec(truncates=True)), records)

    assert cut.rows.column("x").to_pylist() == [expected]
    assert decode_both(spec, records).dead.column("code").to_pylist() == ["LOSSY_CAST"]


CASES = {
    "avro": (FORMATS["avro"]("avro", schema=AVRO), written("long", 1777638600123456789), written("long", -1)),
    "protobuf": (
        FORMATS["protobuf"]("protobuf", schema=PROTO, message="Event"),
        nanoseconds(1777638600, 123456789),
        nanoseconds(-1, 999_999_999),
    ),
    "delimited": (
        FORMATS["delimited"]("delimited", fields=("x",)),
        b"2026-05-01T12:30:00.123456789Z",
        b"1969-12-31T23:59:59.9999999Z",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_time_of_other_formats_is_cut_on_request(name: str) -> None:
    """The same of binary nanoseconds, and of texts in lines."""
    form, after, before = CASES[name]
    spec = RecordSpec(pa.schema([pa.field("x", INSTANT)]), format=form)
    records = kafka_batch([after, before])

    cut = decode_both(replace(spec, format=replace(form, truncates=True)), records)

    assert cut.rows.column("x").to_pylist() == [moment.replace(tzinfo=dt.UTC) for moment in (GO, BEFORE_1970)]
    assert decode_both(spec, records).dead.column("code").to_pylist() == ["LOSSY_CAST"] * 2
