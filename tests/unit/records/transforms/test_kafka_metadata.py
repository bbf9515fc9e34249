"""Where a record came from, as fields."""

from __future__ import annotations

import pyarrow as pa
import pytest

from frazil.records.transforms.kinds.field_sets import KafkaMetadata
from tests.unit.records.transforms.frames import frame_of, run

FACTS = {"topic": "orders", "partition": 0, "offset": 101, "timestamp": 0}

OPTIONS = [
    ("flat", {}, {f"_kafka_metadata_{name}": value for name, value in FACTS.items()}),
    ("nested", {"nested": True, "field_name": "k"}, {"k": FACTS}),
    ("nested, external", {"nested": True, "external_field": "dc,eu"}, {"_kafka_metadata": {**FACTS, "dc": "eu"}}),
    (
        "flat, external",
        {"external_field": "dc,eu", "field_name": "k"},
        {**{f"k_{n}": v for n, v in FACTS.items()}, "k_dc": "eu"},
    ),
]


@pytest.mark.parametrize(("options", "added"), [row[1:] for row in OPTIONS], ids=[row[0] for row in OPTIONS])
def test_coordinates_become_fields(options: dict, added: dict[str, object]):
    """Names and types are those of the sink's transform: the timestamp is a number of milliseconds."""
    value = run(KafkaMetadata(**options), frame_of([{"x": 1}])).frame.value

    assert value.to_pylist() == [{"x": 1, **added}]


def test_a_record_without_timestamp_has_none():
    """Kafka allows records without, and times before 1970."""
    frame = frame_of([{"x": 1}, {"x": 2}])
    times = pa.array([None, -2000], pa.timestamp("us", "UTC"))
    records = frame.records.set_column(3, frame.records.schema.field(3), times)
    keyless = type(frame)(records, frame.positions, frame.topic, frame.value, None, frame.headers)

    assert run(KafkaMetadata(), keyless).frame.value["_kafka_metadata_timestamp"].to_pylist() == [None, -2]
