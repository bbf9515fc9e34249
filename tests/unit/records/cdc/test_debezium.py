"""Debezium's change events, in the shapes its connectors send."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.run.staging.record_problems import record_problems
from tests.unit.records.cdc.landing import COLUMNS, filtered, landed, ops_of, pipeline, refused

DEBEZIUM = {"format": "debezium"}
MYSQL = {
    "version": "3.1.0.Final",
    "connector": "mysql",
    "name": "shop",
    "ts_ms": 1_700_000_000_000,
    "snapshot": "false",
    "db": "shop",
    "table": "customers",
    "server_id": 223344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 484,
    "row": 0,
    "thread": 7,
    "query": None,
}
POSTGRES = {
    "version": "3.1.0.Final",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1_700_000_000_000,
    "snapshot": "false",
    "db": "shop",
    "sequence": '["24023119","24023128"]',
    "schema": "public",
    "table": "customers",
    "txId": 555,
    "lsn": 24_023_128,
    "xmin": None,
}
ORDERED = {**COLUMNS, "place": {"type": "string", "from": ["_cdc", "order"]}}


def event(op: str, before: object, after: object, source: Any = POSTGRES) -> dict[str, Any]:
    """An event as Debezium sends it without schemas."""
    return {
        "before": before,
        "after": after,
        "source": source,
        "op": op,
        "ts_ms": 1_700_000_000_123,
        "transaction": None,
    }


def ann(number: int = 1, name: str | None = "Ann") -> dict[str, Any]:
    return {"id": number, "name": name, "not_declared": True}


@pytest.mark.parametrize(
    ("document", "rows"),
    [
        pytest.param(event("r", None, ann()), [("upsert", 1, "Ann")], id="snapshot"),
        pytest.param(event("c", None, ann()), [("upsert", 1, "Ann")], id="insert"),
        pytest.param(event("u", ann(name="An"), ann()), [("upsert", 1, "Ann")], id="update, full"),
        pytest.param(event("u", None, ann()), [("upsert", 1, "Ann")], id="update, identity default"),
        pytest.param(event("d", ann(), None), [("delete", 1, None)], id="delete, full"),
        pytest.param(event("d", {"id": 1, "name": None}, None), [("delete", 1, None)], id="delete, identity default"),
        pytest.param(
            event("u", ann(1), ann(2)), [("delete", 1, None), ("upsert", 2, "Ann")], id="update that moves the key"
        ),
        pytest.param(
            event("u", {"id": 1, "name": None}, ann(2)),
            [("delete", 1, None), ("upsert", 2, "Ann")],
            id="key moved, identity of an index",
        ),
        pytest.param(event("u", {"id": None, "name": "An"}, ann()), [("upsert", 1, "Ann")], id="before without key"),
        pytest.param(event("c", None, ann(), MYSQL), [("upsert", 1, "Ann")], id="mysql"),
    ],
)
def test_each_event_becomes_its_change(document: dict[str, Any], rows: list[tuple[Any, ...]]) -> None:
    """Snapshot reads are upserts like any other; an update whose image before has another key deletes that key."""
    outcomes = landed(pipeline(changes=DEBEZIUM), [document])
    assert ops_of(outcomes) == rows
    assert not refused(outcomes)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(event("d", None, None), "REPLICA IDENTITY NOTHING", id="delete, identity nothing"),
        pytest.param(event("u", ann(), None), "expected the row for op text", id="update without row"),
        pytest.param(event("x", None, ann()), "expected op as one of c, r, u, d, t, m", id="unknown op"),
        pytest.param({"databaseName": "shop", "ddl": "CREATE TABLE"}, "found null", id="no envelope"),
        pytest.param(
            {"schema": {}, "payload": event("c", None, ann())}, "value.format: json-envelope", id="with schema"
        ),
        pytest.param(event("c", None, ann(None)), "id", id="no key"),  # type: ignore[arg-type]
        pytest.param(
            event("u", None, ann(name="__debezium_unavailable_value")), "REPLICA IDENTITY FULL", id="value not sent"
        ),
        pytest.param(
            event("u", {"id": 1, "name": None}, ann(name="__debezium_unavailable_value")),
            "REPLICA IDENTITY FULL",
            id="value not sent, before has only the key",
        ),
    ],
)
def test_event_without_meaning_is_a_dead_letter(document: dict[str, Any], message: str) -> None:
    """An event that does not say which row changes, and how, is a dead letter with the reason."""
    outcomes = landed(pipeline(changes=DEBEZIUM), [document, event("c", None, ann(5))])
    assert ops_of(outcomes) == [("upsert", 5, "Ann")]
    assert message in refused(outcomes)[0]


def test_value_that_was_not_sent_leaves_the_row() -> None:
    """Postgres does not send large values that an update did not change; the image before has them, if it is full."""
    documents = event("u", ann(name="long"), ann(name="__debezium_unavailable_value"))
    assert ops_of(landed(pipeline(changes=DEBEZIUM), [documents])) == [("upsert", 1, "long")]


def test_tombstones_and_messages_are_counted() -> None:
    """Both change no row, and are counted outcomes."""
    outcomes = landed(pipeline(changes=DEBEZIUM), [event("d", ann(), None), None, event("m", None, None)])
    assert ops_of(outcomes) == [("delete", 1, None)]
    assert filtered(outcomes) == {"tombstone": 1, "transform": 1}


@pytest.mark.parametrize(
    ("source", "order"),
    [
        ({"lsn": 24_023_128}, f"{24_023_128:020}"),
        (MYSQL, f"mysql-bin.000003:{484:020}:{0:020}"),
        ({"change_lsn": "00000027:00000758:0003", "event_serial_no": 2}, f"00000027:00000758:0003:{2:020}"),
        ({"ts_ms": 1_700_000_000_000, "commit_lsn": "00000027:00000758:0005"}, "00000027:00000758:0005"),
        ({"scn": "2122185", "commit_scn": "2122188"}, f"{2_122_188:020}:{2_122_185:020}"),
        ({"ts_ms": 1_700_000_000_000, "scn": "2122180"}, f"{2_122_180:020}:{2_122_180:020}"),
        ({"ts_ms": 1_700_000_000_000, "ord": 3}, f"{1_700_000_000_000:020}:{3:020}"),
    ],
)
def test_log_positions_sort_as_numbers(source: dict[str, Any], order: str) -> None:
    """Numbers get leading zeros: 9 comes before 10."""
    merged = pipeline(changes=DEBEZIUM, columns=ORDERED, order_by="place")
    assert ops_of(landed(merged, [event("c", None, ann(), source)]), "place") == [("upsert", order)]


def test_facts_that_no_column_takes_are_no_unknown_fields() -> None:
    """With declared fields the whole envelope is read, and only what records bring may be counted as unknown."""
    row = "struct<id: long, name: string>"
    fields = {
        "op": "string",
        "before": row,
        "after": row,
        "ts_ms": "long",
        "source": "struct<connector: string, lsn: long>",
    }
    merged = pipeline({"value": {"fields": fields}}, changes=DEBEZIUM, columns=ORDERED)
    image = {"id": 1, "name": "Ann"}
    documents = {"op": "c", "after": image, "ts_ms": 5, "source": {"connector": "postgresql", "lsn": 5}}
    outcomes = landed(merged, [documents])
    assert ops_of(outcomes, "id", "place") == [("upsert", 1, f"{5:020}")]
    assert outcomes.unknown_fields.names == {}


def test_change_without_order_is_a_dead_letter() -> None:
    """A column of order_by is never null, declared as required or not: such a change is a dead letter."""
    merged = pipeline(changes=DEBEZIUM, columns=ORDERED, order_by="place")
    outcomes = landed(merged, [event("d", ann(), None, None), event("d", ann(), None)])
    assert ops_of(outcomes, "id", "place") == [("delete", 1, f"{24_023_128:020}")]
    assert "order" in refused(outcomes)[0]


@pytest.mark.parametrize("order_by", ["place", None])
def test_truncate_carries_its_metadata(order_by: str | None) -> None:
    """They order the truncate among the changes; the key is null."""
    merged = pipeline(changes=DEBEZIUM, columns=ORDERED, order_by=order_by, deletes="soft")
    outcomes = landed(merged, [event("t", None, None)])
    assert ops_of(outcomes, "id", "place", "_frazil_deleted") == [("truncate", None, f"{24_023_128:020}", False)]


def test_soft_deletes_are_marked() -> None:
    """Deleted rows have the mark true, all others false."""
    outcomes = landed(pipeline(changes=DEBEZIUM, deletes="soft"), [event("u", ann(1), ann(2))])
    assert ops_of(outcomes, "id", "_frazil_deleted") == [("delete", 1, True), ("upsert", 2, False)]


def test_moved_key_lands_whole_or_not_at_all() -> None:
    """An update that moves the key, and whose row does not fit, must not take the old row away."""
    columns = {**COLUMNS, "town": {"type": "string", "required": True}}
    outcomes = landed(pipeline(changes=DEBEZIUM, columns=columns), [event("u", ann(1), ann(2))])
    assert ops_of(outcomes) == []
    assert len(refused(outcomes)) == 1


def test_deleted_row_needs_only_its_key() -> None:
    """A deleted row may lack required columns."""
    columns = {**COLUMNS, "town": {"type": "string", "required": True}}
    outcomes = landed(pipeline(changes=DEBEZIUM, columns=columns), [event("d", {"id": 1}, None)])
    assert ops_of(outcomes) == [("delete", 1, None)]


def test_key_of_the_record_is_enough_to_delete() -> None:
    """MongoDB sends no image before by default: the record's key says which document was deleted."""
    columns = {"id": {"type": "string", "part": "key", "required": True}, "city": "string"}
    fields = dict.fromkeys(("before", "after", "op"), "string")
    mongo = pipeline(
        {
            "value": {"fields": fields},
            "key": {"fields": {"id": "string"}},
            "transforms": [{"type": "MongoDebezium", "types": "struct<city: string>"}],
        },
        changes=DEBEZIUM,
        columns=columns,
    )
    key = {"id": '{"$oid": "596e275826f08b2730779e1f"}'}
    documents = [
        {"op": "c", "after": '{"_id": {"$oid": "596e275826f08b2730779e1f"}, "city": "Oslo"}', "before": None},
        {"op": "d", "after": None, "before": None},
    ]
    oid = key["id"]
    assert ops_of(landed(mongo, documents, [key, key]), "id", "city") == [
        ("upsert", oid, "Oslo"),
        ("delete", oid, None),
    ]


def test_envelope_with_schema_is_readable() -> None:
    """Kafka Connect's JSON converter sends schema and payload, with its own types."""
    row = [{"field": "id", "type": "int64", "optional": False}, {"field": "name", "type": "string", "optional": True}]
    image = {"type": "struct", "fields": row, "optional": True}
    fields = [{**image, "field": "before"}, {**image, "field": "after"}, {"field": "op", "type": "string"}]
    schema = {"type": "struct", "fields": fields, "optional": False}
    payloads = [
        {"before": None, "after": {"id": 1, "name": "Ann"}, "op": "c"},
        {"before": {"id": 1, "name": "Ann"}, "after": {"id": 2, "name": "Bob"}, "op": "u"},
    ]
    merged = pipeline({"value": {"format": "json-envelope"}}, changes=DEBEZIUM)
    outcomes = landed(merged, [{"schema": schema, "payload": payload} for payload in payloads])
    assert ops_of(outcomes) == [("upsert", 1, "Ann"), ("delete", 1, None), ("upsert", 2, "Bob")]


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ({"transforms": [{"type": "Sql", "where": "true"}]}, {}, "transforms come before changes"),
        ({}, {"columns": {**COLUMNS, "all": {"type": "string", "from": []}}}, "takes the whole row"),
        ({}, {"columns": {**COLUMNS, "x": {"type": "int", "from": ["name", "x"]}}}, "in two ways"),
        ({"value": {"unknown_fields": "fail"}}, {}, "value.unknown_fields: fail"),
    ],
)
def test_undeclared_json_envelope_is_refused(more: dict[str, Any], options: dict[str, Any], message: str) -> None:
    """If the columns don't show the fields of an envelope, the file must declare them."""
    messages = ""
    try:
        messages = " ".join(record_problems(pipeline(more, changes=DEBEZIUM, **options)))
    except Terminal as error:
        messages = error.message
    assert message in messages


LISTS: dict[str, Any] = {"id": {"type": "long", "required": True}, "tags": "list<string>"}
TOO_LARGE = "__debezium_unavailable_value"


def test_list_that_was_not_sent_leaves_the_row() -> None:
    """Large lists are not sent either: the placeholder is their only element."""
    merged = pipeline(changes=DEBEZIUM, columns=LISTS)
    placeholder_known = event("u", {"id": 1, "tags": ["a", "b"]}, {"id": 1, "tags": [TOO_LARGE]})
    placeholder_unknown = event("u", {"id": 1, "tags": None}, {"id": 1, "tags": [TOO_LARGE]})
    outcomes = landed(merged, [placeholder_known, placeholder_unknown, event("c", None, {"id": 2, "tags": []})])
    assert ops_of(outcomes, "id", "tags") == [("upsert", 1, ["a", "b"]), ("upsert", 2, [])]
    assert "REPLICA IDENTITY FULL" in refused(outcomes)[0]


def test_map_that_was_not_sent_leaves_the_row() -> None:
    """A value of type hstore is JSON text."""
    documents = event("u", ann(name='{"a":"b"}'), ann(name=f'{{"{TOO_LARGE}":"{TOO_LARGE}"}}'))
    assert ops_of(landed(pipeline(changes=DEBEZIUM), [documents])) == [("upsert", 1, '{"a":"b"}')]


def test_one_record_with_another_schema_is_a_dead_letter() -> None:
    """If values name their schemas, a value that is no change event is a dead letter; its neighbours land."""

    def connect(schema: dict[str, Any], payload: dict[str, Any]) -> dict[str, Any]:
        return {"schema": schema, "payload": payload}

    def struct(field: str, *fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "struct", "field": field, "optional": True, "fields": list(fields)}

    row = struct("after", {"type": "int64", "field": "id"}, {"type": "string", "field": "name", "optional": True})
    good = {"type": "struct", "fields": [{"type": "string", "field": "op"}, row, row | {"field": "before"}]}
    odd = {"type": "struct", "fields": [{"type": "int32", "field": "op"}, row]}
    values = [
        connect(good, {"op": "c", "after": {"id": 1, "name": "ann"}, "before": None}),
        connect(odd, {"op": 1, "after": {"id": 2, "name": "bob"}}),
    ]
    outcomes = landed(pipeline({"value": {"format": "json-envelope"}}, changes=DEBEZIUM), values)
    assert ops_of(outcomes) == [("upsert", 1, "ann")]
    assert "expected op as string" in refused(outcomes)[0]
