"""Events of the control topic as the real sink wrote them, and what they mean for taking its positions over."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import replace

import fastavro
import pytest

from frazil.connect.control import (
    ConnectorProgress,
    ControlFacts,
    FilesWritten,
    OffsetBounds,
    recorded_offsets,
    start_offsets,
    takeover_obstacles,
)
from frazil.kafka.read.control_topic import UnreadableEvent, decode_event
from tests.sink_events import COORDINATOR, SUMMARY, sink_events

STANDING = ConnectorProgress(
    ("connect-orders-sink",),
    "connect-orders-sink",
    "connect-orders-sink",
    "control-iceberg",
    {"*": "main", "shop.orders": "main"},
)
GROUP = STANDING.group


def events(which: str) -> tuple[FilesWritten, ...]:
    decoded = (decode_event(0, offset, value) for offset, value in sink_events(which))
    return tuple(event for event in decoded if event is not None)


def facts(which: str, recorded: dict[int, int] | None, handled: int = COORDINATOR) -> ControlFacts:
    return ControlFacts({0: (0, 100)}, events(which), {"shop.orders": recorded}, {0: handled})


def test_events_of_the_real_sink_are_read() -> None:
    """Java's schema names types in a way that Avro readers elsewhere refuse."""
    assert events("committed") == (FilesWritten(0, 2, GROUP, "shop.orders", 1),)
    assert events("pending") == (
        FilesWritten(0, 2, GROUP, "shop.orders", 1),
        FilesWritten(0, 4, GROUP, "shop.orders", 1),
    )


def test_events_of_the_older_sink_are_read() -> None:
    """Tabular's releases call the fields otherwise; a file that goes unseen would be lost."""
    name = {"type": "record", "name": "TableName", "fields": [
        {"name": "namespace", "type": {"type": "array", "items": "string"}},
        {"name": "name", "type": "string"},
    ]}  # fmt: skip
    files = {
        "type": "record",
        "name": "org.apache.iceberg.GenericDataFile",
        "fields": [{"name": "file_path", "type": "string"}],
    }
    payload = {"type": "record", "name": "CommitResponsePayload", "fields": [
        {"name": "tableName", "type": name},
        {"name": "dataFiles", "type": ["null", {"type": "array", "items": files}]},
        {"name": "deleteFiles", "type": ["null", {"type": "array", "items": "org.apache.iceberg.GenericDataFile"}]},
    ]}  # fmt: skip
    schema = {"type": "record", "name": "Event", "namespace": "io.tabular.iceberg.connect.events", "fields": [
        {"name": "type", "type": "int"},
        {"name": "payload", "type": payload},
        {"name": "groupId", "type": "string"},
    ]}  # fmt: skip
    written = {
        "tableName": {"namespace": ["a", "b"], "name": "c"},
        "dataFiles": [{"file_path": "x"}],
        "deleteFiles": None,
    }
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), {"type": 1, "payload": written, "groupId": "cg"})
    text = json.dumps(schema).encode()

    event = decode_event(3, 7, b"\xc2\x01" + struct.pack(">H", len(text)) + text + body.getvalue())

    assert event == FilesWritten(3, 7, "cg", "a.b.c", 1)


@pytest.mark.parametrize(
    "value", [None, b"", b"\xc2\x01", b"{}", b"\xc2\x01\x00\x02[]", sink_events("committed")[1][1][:-40]]
)
def test_unreadable_event_is_an_error(value: bytes | None) -> None:
    """A record that can't be read may announce files."""
    with pytest.raises(UnreadableEvent):
        decode_event(0, 0, value)


def test_a_table_with_all_its_files_takes_the_positions_over() -> None:
    """The real sink's own snapshot and coordinator say that nothing is outstanding."""
    recorded = recorded_offsets([SUMMARY], "control-iceberg", GROUP)

    assert recorded == {0: 4}
    assert not takeover_obstacles(STANDING, facts("committed", recorded))


@pytest.mark.parametrize("recorded", [{}, {0: 2}, {0: 4}])
def test_announced_files_without_a_snapshot_refuse_the_takeover(recorded: dict[int, int]) -> None:
    """The group is ahead of the table: starting there would lose the records of these files."""
    (reason,) = takeover_obstacles(STANDING, facts("pending", recorded))

    assert "shop.orders" in reason
    assert "never committed" in reason


def test_an_event_at_the_recorded_offset_is_still_outstanding() -> None:
    """The recorded offset is that of the next event."""
    assert takeover_obstacles(STANDING, facts("committed", {0: 2}))
    assert not takeover_obstacles(STANDING, facts("committed", {0: 3}))


def test_files_for_a_dropped_table_refuse_the_takeover() -> None:
    """The sink leaves such files out with a warning."""
    (reason,) = takeover_obstacles(STANDING, facts("committed", None))

    assert "does not exist" in reason


def test_files_for_a_table_outside_the_configuration_count_too() -> None:
    """Dynamic routing writes to tables that the configuration does not know."""
    other_event = replace(events("committed")[0], table="shop.other")
    facts = ControlFacts({0: (0, 100)}, (other_event,), {"shop.orders": {0: 4}, "shop.other": {}}, {0: COORDINATOR})

    assert "shop.other" in takeover_obstacles(STANDING, facts)[0]


def test_files_of_another_connector_are_ignored() -> None:
    """Connectors may share a control topic."""
    other_event = replace(events("pending")[0], group="connect-other")

    assert not takeover_obstacles(STANDING, ControlFacts({0: (0, 100)}, (other_event,), {"shop.orders": {}}, {}))


def test_announcement_without_files_is_complete() -> None:
    """The sink makes no snapshot for it, so no offset is ever recorded."""
    empty = replace(events("pending")[0], files=0)

    assert not takeover_obstacles(STANDING, ControlFacts({0: (0, 100)}, (empty,), {"shop.orders": {}}, {}))


@pytest.mark.parametrize(
    ("recorded", "handled", "refused"), [(9, 0, True), (10, 0, False), (0, 10, False), (0, 9, True)]
)
def test_deleted_control_events_are_covered_or_refused(recorded: int, handled: int, refused: bool) -> None:
    """Retention may have taken an announcement that nobody committed."""
    facts = ControlFacts({0: (10, 100)}, (), {"shop.orders": {0: recorded}}, {0: handled})

    assert bool(takeover_obstacles(STANDING, facts)) == refused


@pytest.mark.parametrize(
    ("recorded", "handled", "refused"),
    [({0: 7}, {}, False), ({0: 8}, {}, True), ({}, {0: 8}, True), ({1: 1}, {0: 7}, True)],
)
def test_offsets_of_a_lost_control_topic_cover_no_events(
    recorded: dict[int, int], handled: dict[int, int], refused: bool
) -> None:
    """A topic made anew counts from zero: what tables and coordinator say of the old one covers none of its events."""
    waiting = replace(events("pending")[0], offset=5)
    if recorded == {0: 7}:
        assert not takeover_obstacles(STANDING, ControlFacts({0: (0, 7)}, (waiting,), {"shop.orders": {0: 7}}, handled))
    reasons = takeover_obstacles(STANDING, ControlFacts({0: (0, 7)}, (), {"shop.orders": recorded}, handled))

    assert any("created again" in reason for reason in reasons) == refused


def test_each_partition_counts_as_far_as_any_snapshot_names_it() -> None:
    """Older sinks leave out partitions that a commit had no events of; other writers' snapshots lie between."""
    key = "kafka.connect.offsets.c.g"
    newest_first = [
        {key: '{"1":7}'},
        {"added-records": "1"},
        {key: '{"0":3,"1":5}'},
        {"kafka.connect.offsets.c.h": '{"0":99}'},
    ]

    assert recorded_offsets(newest_first, "c", "g") == {0: 3, 1: 7}


A, B = ("a", 0), ("a", 1)


def test_the_sinks_own_group_counts_before_kafka_connects() -> None:
    """The older sink rewinds to its own group; Kafka Connect's is only the fallback."""
    groups = [("cg-control-s", {A: 5}), ("connect-s", {A: 9, B: 4})]

    assert start_offsets({A: OffsetBounds(0, 10), B: OffsetBounds(0, 10)}, groups, "earliest").offsets == {
        "a": {0: 5, 1: 4}
    }


@pytest.mark.parametrize(("otherwise", "expected"), [("earliest", 3), ("latest", 10)])
def test_a_partition_that_was_never_read_begins_where_the_connector_would(otherwise: str, expected: int) -> None:
    """A partition that was added late has no committed offset."""
    start = start_offsets({A: OffsetBounds(3, 10), B: OffsetBounds(3, 10)}, [("g", {A: 5})], otherwise)

    assert start.offsets == {"a": {0: 5, 1: expected}}
    assert "has not read it yet" in start.notes[0]


def test_group_without_offsets_refuses_the_takeover() -> None:
    """Kafka forgets groups; beginning anew would land everything twice."""
    assert (
        "Kafka forgot the group"
        in start_offsets({A: OffsetBounds(0, 10)}, [("g", {("other", 0): 1})], "earliest").obstacles[0]
    )


def test_offset_beyond_the_topic_refuses_the_takeover() -> None:
    """A topic that was made anew has other records at the old offsets."""
    assert "created again" in start_offsets({A: OffsetBounds(0, 10)}, [("g", {A: 11})], "earliest").obstacles[0]


def test_records_that_kafka_deleted_are_reported() -> None:
    """The connector would have skipped them in silence."""
    start = start_offsets({A: OffsetBounds(8, 10)}, [("g", {A: 5})], "earliest")

    assert start.offsets == {"a": {0: 8}}
    assert "deleted the offsets 5 to 8" in start.notes[0]
