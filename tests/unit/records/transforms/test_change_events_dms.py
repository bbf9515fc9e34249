"""Changes of AWS DMS become the rows that changed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from frazil.errors import Terminal
from frazil.records.transforms.kinds.change_events import DmsTransform
from tests.unit.records.transforms.frames import dead_messages, frame_of, run

META = {
    "timestamp": "2026-01-01T00:00:00Z",
    "record-type": "data",
    "operation": "update",
    "schema-name": "s",
    "table-name": "t",
}
GOOD: dict[str, object] = {"data": {"id": 1}, "metadata": META}


@pytest.mark.parametrize(
    ("operation", "op"), [("update", "U"), ("delete", "D"), ("load", "I"), ("insert", "I"), (None, "I")]
)
def test_each_operation_has_its_op(operation: str | None, op: str):
    """All but updates and deletes are inserts; the time stays as it was written."""
    value = run(DmsTransform(), frame_of([{**GOOD, "metadata": {**META, "operation": operation}}, GOOD])).frame.value

    assert value.to_pylist()[0] == {"id": 1, "_cdc": {"op": op, "ts": META["timestamp"], "source": "s.t"}}


CONTROL = [
    ("control", {"metadata": {**META, "record-type": "control"}}),
    ("no data", {"data": None}),
    ("no metadata", {"metadata": None}),
]


@pytest.mark.parametrize("change", [row[1] for row in CONTROL], ids=[row[0] for row in CONTROL])
def test_control_records_are_filtered_and_counted(change: dict[str, object]):
    """They have no row; the neighbours land."""
    done = run(DmsTransform(), frame_of([GOOD, {**GOOD, **change}, GOOD]))

    assert (done.filtered, done.frame.positions.to_pylist()) == ({1}, [0, 2])


def test_a_shape_without_data_is_filtered_whole():
    """As the sink drops records without data or metadata."""
    assert run(DmsTransform(), frame_of([{"x": 1}, {"x": 2}])).filtered == {0, 1}


def test_a_change_without_its_table_fails():
    """It could not be routed."""
    done = run(DmsTransform(), frame_of([{**GOOD, "metadata": {**META, "table-name": None}}, GOOD]))

    assert dead_messages(done) == {
        0: "DmsTransform: expected metadata.schema-name and metadata.table-name, found null or no such field"
    }


def test_faults_of_the_declaration_are_refused():
    """Data that is no struct, or has the added field itself."""
    with pytest.raises(Terminal, match="expected data as struct, found string"):
        DmsTransform().apply(frame_of([{"data": "x", "metadata": META}]))
    with pytest.raises(Terminal, match="the data already has a field id"):
        DmsTransform(cdc_field="id").apply(frame_of([GOOD]))


def test_required_data_stays_required():
    """Records without data are filtered, so they need no nulls."""
    data = pa.struct([pa.field("id", pa.int64(), nullable=False)])
    shape = pa.schema([("data", data), ("metadata", pa.struct([(name, pa.string()) for name in META]))])

    value = run(DmsTransform(), frame_of([GOOD, {**GOOD, "data": None}], shape)).frame.value

    assert [field.nullable for field in value.schema] == [False, False]
