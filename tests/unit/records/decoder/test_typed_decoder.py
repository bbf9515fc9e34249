"""Values that bring their own columns: which record each row, letter and filter belongs to."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from frazil.records.model.rows import KAFKA_SCHEMA, FilterReason, TopicPartition
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.kinds.conditions import Filter, TopicNameMatches, When
from frazil.records.transforms.kinds.nested import Explode
from tests.format_specs import format_spec
from tests.unit.records.kafka_batches import OneTable, OneTableOutcomes

ITEMS = pa.schema([("id", pa.int64()), ("items", pa.list_(pa.int64()))])
EXPLODED = RecordSpec(
    pa.schema([("id", pa.int64()), ("items", pa.int64())]), fields=ITEMS, transforms=(Explode("items", outer=False),)
)
ENVELOPES = RecordSpec(pa.schema([("value", pa.int64())]), format=format_spec("json-envelope"))


def records(*values: bytes | None) -> pa.RecordBatch:
    rows = [
        {"topic": "t", "partition": 0, "offset": 10 + index, "timestamp": index, "value": value}
        for index, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, KAFKA_SCHEMA)


def order(number: int, *items: int) -> bytes:
    return json.dumps({"id": number, "items": items}).encode()


def landed(outcomes: OneTableOutcomes) -> list[tuple[Any, ...]]:
    rows = outcomes.rows.to_pylist()
    return [(row["_kafka_offset"], row["id"], row["items"]) for row in rows]


def test_rows_keep_their_record_where_counts_coincide() -> None:
    """One record of two rows and one of none: the rows still say where they came from, and the counts are of records."""
    outcomes = OneTable(EXPLODED, 7).decode(records(order(1), order(2, 5, 6)))

    assert landed(outcomes) == [(11, 2, 5), (11, 2, 6)]
    counts = outcomes.counts[TopicPartition("t", 0)]
    assert (counts.read, counts.written, counts.filtered) == (2, 1, {FilterReason.TRANSFORM: 1})


def test_tombstones_and_broken_records_leave_positions_of_others() -> None:
    """Positions are those of the batch, whatever was left out before a value was decoded."""
    outcomes = OneTable(EXPLODED, 7).decode(records(None, b"{", order(3, 1), None, order(4, 2)))

    assert landed(outcomes) == [(12, 3, 1), (14, 4, 2)]
    assert outcomes.dead.column("offset").to_pylist() == [11]
    assert outcomes.counts[TopicPartition("t", 0)].filtered == {FilterReason.TOMBSTONE: 2}


@pytest.mark.parametrize("values", [(), (None, None), (b"{", b"[")], ids=["empty", "tombstones", "broken"])
def test_batch_without_any_row_has_outcomes_for_every_record(values: tuple[bytes | None, ...]) -> None:
    """Rows of the right columns, none of them, and an outcome for each record."""
    outcomes = OneTable(EXPLODED, 7).decode(records(*values))

    assert outcomes.rows.schema.equals(EXPLODED.row_schema)
    assert outcomes.rows.num_rows == 0
    assert all(counts.is_complete for counts in outcomes.counts.values())


@pytest.mark.parametrize(("tombstone", "dead", "filtered"), [("filter", 0, 1), ("dead_letter", 1, 0)])
def test_null_within_an_envelope_is_no_tombstone(tombstone: Any, dead: int, filtered: int) -> None:
    """A null payload is treated as a record without value is."""
    spec = RecordSpec(ENVELOPES.columns, format=ENVELOPES.format, tombstone=tombstone)
    schema = {"type": "int64", "optional": True}
    values = [json.dumps({"schema": schema, "payload": payload}).encode() for payload in (1, None)]

    outcomes = OneTable(spec, 7).decode(records(*values))

    counts = outcomes.counts[TopicPartition("t", 0)]
    assert (counts.written, sum(counts.dead.values()), sum(counts.filtered.values())) == (1, dead, filtered)


def test_spec_with_transforms_travels_to_executors() -> None:
    """Formats, transforms and predicates are plain data until a worker opens them."""
    condition = When(Filter(), TopicNameMatches("other"))
    spec = RecordSpec(EXPLODED.columns, fields=ITEMS, transforms=(*EXPLODED.transforms, condition))

    spec_copy = pickle.loads(pickle.dumps(spec))  # noqa: S301 - our own bytes

    assert landed(OneTable(spec_copy, 7).decode(records(order(1, 9)))) == [(10, 1, 9)]
