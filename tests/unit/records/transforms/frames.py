"""Frames for the tests of this folder, and what must hold of every outcome."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.model.format import Frame, Transform, Transformed
from frazil.records.transforms.fields import batch_of
from tests.unit.records.kafka_batches import kafka_batch

FIRST_OFFSET = 100


def frame_of(
    rows: Sequence[dict[str, object]], types: pa.Schema | None = None, key: pa.RecordBatch | None = None
) -> Frame:
    """Return the frame of rows. All columns are slices out of longer ones, with rubbish before and behind."""
    schema = types or pa.Table.from_pylist(list(rows)).schema
    twice = [rows[-1], *rows, rows[0]]
    columns = [(field, pa.array([row.get(field.name) for row in twice], field.type)) for field in schema]
    value = batch_of(columns, len(twice)).slice(1, len(rows))
    records = kafka_batch([b"%d" % number for number in range(len(twice))]).slice(1, len(rows))
    return Frame.from_records(records, pa.array(range(len(rows)), pa.int64()), value, key)


def frame_of_array(name: str, values: pa.Array) -> Frame:
    """Return the frame of one column."""
    records = kafka_batch([b"%d" % number for number in range(len(values))])
    return Frame.from_records(records, pa.array(range(len(values)), pa.int64()), pa.record_batch({name: values}))


def run(transform: Transform, frame: Frame) -> Transformed:
    """Apply a transform and hold its outcome against the contract: every record has one outcome, in order."""
    done = transform.apply(frame)
    positions_before = set(frame.positions.to_pylist())
    offsets = dict(zip(frame.positions.to_pylist(), frame.records["offset"].to_pylist(), strict=True))
    for went in done.frames:
        _check(went, offsets)
    positions_after = {position for went in done.frames for position in went.positions.to_pylist()}
    assert all(len(went) for went in done.other_frames)
    assert positions_after | set(done.dead) | done.filtered == positions_before
    assert len(positions_after) + len(done.dead) + len(done.filtered) == len(positions_before)
    return done


def _check(went: Frame, offsets: dict[int, int]) -> None:
    size = len(went)
    positions = went.positions.to_pylist()
    assert positions == sorted(positions)
    assert {size} == {len(went.topic), len(went.headers), went.records.num_rows, went.value.num_rows}
    assert went.key is None or went.key.num_rows == size
    went.value.validate(full=True)
    for field, column in zip(went.value.schema, went.value.columns, strict=True):
        assert field.nullable or not column.null_count, field
    assert went.records["offset"].to_pylist() == [offsets[position] for position in positions]


def dead_messages(done: Transformed) -> dict[int, str]:
    """Return messages by position."""
    return {position: reason.message for position, reason in done.dead.items()}


def sliced(values: pa.Array) -> pa.Array:
    """Return the same values as a slice of a longer array."""
    return pa.concat_arrays([values, values]).slice(len(values)) if len(values) else values


def distinct(values: pa.Array) -> int:
    """Return how many values there are."""
    return len(pc.unique(values))
