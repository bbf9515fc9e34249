"""Debezium's ExtractNewRecordState: rows out of envelopes, with facts about the change as fields and headers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from frazil.records.transforms.kinds.change_events import ExtractNewRecordState
from tests.unit.records.transforms.frames import dead_messages, frame_of, run

IMAGE = pa.struct([pa.field("id", pa.int64()), pa.field("name", pa.string())])
ORIGIN = pa.struct([("db", pa.string()), ("table", pa.string()), ("ts_ms", pa.int64())])
SHAPE = pa.schema([("before", IMAGE), ("after", IMAGE), ("source", ORIGIN), ("op", pa.string()), ("ts_ms", pa.int64())])
GOOD: dict[str, object] = {
    "before": {"id": 1, "name": "old"},
    "after": {"id": 1, "name": "new"},
    "source": {"db": "shop", "table": "orders", "ts_ms": 5},
    "op": "u",
    "ts_ms": 6,
}


def events(*changes: dict[str, object]) -> Any:
    return frame_of([{**GOOD, **change} for change in changes], SHAPE)


DELETES = [
    ("drop", [{"id": 1, "name": "new"}], {1}),
    ("tombstone", [{"id": 1, "name": "new"}], {1}),
    (
        "rewrite-with-tombstone",
        [{"id": 1, "name": "new", "__deleted": "false"}, {"id": 1, "name": "old", "__deleted": "true"}],
        set(),
    ),
]


@pytest.mark.parametrize(("mode", "rows", "filtered"), DELETES)
def test_deleted_rows_go_or_are_marked(mode: Any, rows: list[dict[str, object]], filtered: set[int]) -> None:
    """A value that becomes null is filtered, as a sink ignores tombstones."""
    done = run(ExtractNewRecordState(delete_handling=mode), events({}, {"op": "d", "after": None}))

    assert (done.frame.value.to_pylist(), done.filtered) == (rows, filtered)


def test_facts_become_fields_and_headers() -> None:
    """Facts are found where Debezium looks, and get its prefix; a fact that no envelope has is left out."""
    unwrap = ExtractNewRecordState(
        add_fields=("op", "table:origin", "source.ts_ms", "ts_ms", "lsn", "transaction.id"),
        add_headers=("db", "ts_ms"),
        add_headers_prefix="h.",
    )

    frame = run(unwrap, events({})).frame

    assert frame.value.to_pylist() == [
        {"id": 1, "name": "new", "__op": "u", "__origin": "orders", "__source_ts_ms": 5, "__ts_ms": 6}
    ]
    assert [(header["key"], header["value"]) for header in frame.headers[0].as_py()[-2:]] == [
        ("h.db", b"shop"),
        ("h.ts_ms", b"6"),
    ]


FAILURES: list[tuple[dict[str, object], str]] = [
    ({"op": None}, "expected op as one of c, r, u, d, t, m, found null"),
    ({"after": None}, 'expected after for op text "u", found null'),
]


@pytest.mark.parametrize(("change", "message"), FAILURES)
def test_half_an_envelope_fails_alone(change: dict[str, object], message: str) -> None:
    """Its neighbours land, and events without a row are filtered."""
    done = run(ExtractNewRecordState(), events({}, change, {"op": "t", "after": None}))

    assert (done.frame.positions.to_pylist(), done.filtered) == ([0], {2})
    assert message in dead_messages(done)[1]


def test_row_with_a_field_of_an_added_name_is_a_dead_letter() -> None:
    """A producer that sends such rows stops no run."""
    done = run(ExtractNewRecordState(add_fields=("op:name",), add_fields_prefix=""), events({}))

    assert "the row has a field name itself" in dead_messages(done)[0]


def test_value_that_is_no_envelope_continues_unchanged() -> None:
    """Topics have other events, too, and Debezium's transform lets them pass."""
    done = run(ExtractNewRecordState(add_fields=("op",)), frame_of([{"id": 1}]))

    assert done.frame.value.to_pylist() == [{"id": 1}]
