"""Changes as AWS DMS, Maxwell and Canal send them, and those that the pipeline file describes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.records.cdc.landing import COLUMNS, filtered, landed, ops_of, pipeline, refused

ANN = {"id": 1, "name": "Ann"}


def dms(operation: str, data: object, record_type: str = "data", **more: object) -> dict[str, Any]:
    metadata = {
        "timestamp": "2024-05-01T10:00:00.123456Z",
        "record-type": record_type,
        "operation": operation,
        "partition-key-type": "schema-table",
        "schema-name": "shop",
        "table-name": "customers",
        "transaction-id": 4294967296,
    }
    return {"data": data, **more, "metadata": metadata}


def maxwell(kind: str, data: object, **more: object) -> dict[str, Any]:
    place = {"database": "shop", "table": "customers", "ts": 1477053217, "xid": 23396, "commit": True}
    return {**place, "type": kind, "data": data, "position": "master.000006:800911", "xoffset": 1, **more}


def canal(kind: str, data: object, old: object = None, *, is_ddl: bool = False) -> dict[str, Any]:
    named = {"database": "shop", "table": "customers", "pkNames": ["id"], "id": 9, "sql": ""}
    times = {"es": 1589373560000, "ts": 1589373560798}
    return {**named, **times, "type": kind, "isDdl": is_ddl, "data": data, "old": old, "mysqlType": {"id": "INTEGER"}}


OPS = {"insert": ["I", "1"], "update": ["U"], "delete": ["D", "false"]}
OP_COLUMN = {"format": "op_column", "op": "op", "values": OPS}
IMAGES = {**OP_COLUMN, "op": "meta.op", "row": "data.after", "before": "data.before"}
ENVELOPE = {"format": "envelope", "values": {"insert": ["insert"], "update": ["update"], "delete": ["delete"]}}


@pytest.mark.parametrize(
    ("changes", "document", "rows"),
    [
        ("dms", dms("load", ANN), [("upsert", 1, "Ann")]),
        ("dms", dms("insert", ANN), [("upsert", 1, "Ann")]),
        ("dms", dms("update", ANN, **{"before-image": {"id": 1}}), [("upsert", 1, "Ann")]),
        ("dms", dms("update", ANN, **{"before-image": {"id": 7}}), [("delete", 7, None), ("upsert", 1, "Ann")]),
        ("dms", dms("delete", ANN), [("delete", 1, None)]),
        ("maxwell", maxwell("insert", ANN), [("upsert", 1, "Ann")]),
        ("maxwell", maxwell("bootstrap-insert", ANN, xid=None), [("upsert", 1, "Ann")]),
        ("maxwell", maxwell("update", ANN, old={"name": "An"}), [("upsert", 1, "Ann")]),
        ("maxwell", maxwell("update", ANN, old={"id": 7}), [("delete", 7, None), ("upsert", 1, "Ann")]),
        ("maxwell", maxwell("delete", ANN), [("delete", 1, None)]),
        ("canal", canal("INSERT", [{"id": "1", "name": "Ann"}]), [("upsert", 1, "Ann")]),
        ("canal", canal("UPDATE", [{"id": "1", "name": "Ann"}], [{"name": "An"}]), [("upsert", 1, "Ann")]),
        ("canal", canal("DELETE", [{"id": "1", "name": "A"}, {"id": "2"}]), [("delete", 1, None), ("delete", 2, None)]),
        (OP_COLUMN, {"op": "I", **ANN}, [("upsert", 1, "Ann")]),
        (OP_COLUMN, {"op": "D", "id": 1}, [("delete", 1, None)]),
        (IMAGES, {"meta": {"op": "U"}, "data": {"after": ANN}}, [("upsert", 1, "Ann")]),
        (IMAGES, {"meta": {"op": "D"}, "data": {"before": ANN}}, [("delete", 1, None)]),
        (
            IMAGES,
            {"meta": {"op": "U"}, "data": {"after": ANN, "before": {"id": 7}}},
            [("delete", 7, None), ("upsert", 1, "Ann")],
        ),
        (ENVELOPE, {"insert": ANN}, [("upsert", 1, "Ann")]),
        (ENVELOPE, {"update": ANN, "delete": None}, [("upsert", 1, "Ann")]),
        (ENVELOPE, {"delete": {"id": 1}}, [("delete", 1, None)]),
    ],
)
def test_each_format_becomes_its_changes(changes: Any, document: dict[str, Any], rows: list[tuple[Any, ...]]) -> None:
    """Each format describes the same changes in its own way."""
    declared = {"format": changes} if isinstance(changes, str) else changes
    outcomes = landed(pipeline(changes=declared), [document])
    assert ops_of(outcomes) == rows
    assert not refused(outcomes)


@pytest.mark.parametrize(
    ("changes", "document"),
    [
        ("dms", dms("create-table", None, "control")),
        ("dms", dms("add-column", None, "control")),
        ("maxwell", maxwell("bootstrap-start", {})),
        ("maxwell", maxwell("bootstrap-complete", {})),
        ("maxwell", maxwell("table-alter", None)),
        ("canal", canal("ALTER", None, is_ddl=True)),
        ("canal", canal("QUERY", None, is_ddl=True)),
    ],
)
def test_record_without_a_row_is_filtered_and_counted(changes: str, document: dict[str, Any]) -> None:
    """It is left out on purpose, and counted."""
    outcomes = landed(pipeline(changes={"format": changes}), [document])
    assert ops_of(outcomes) == []
    assert not refused(outcomes)
    assert filtered(outcomes) == {"transform": 1}


@pytest.mark.parametrize(
    ("changes", "document"),
    [("dms", dms("truncate-table", None, "control")), ("canal", canal("TRUNCATE", None, is_ddl=True))],
)
def test_truncate_lands_by_kafka_coordinates_without_an_order_column(changes: str, document: dict[str, Any]) -> None:
    """Kafka's coordinates, which all staged rows have, order them."""
    outcomes = landed(pipeline(changes={"format": changes}), [document])
    assert ops_of(outcomes, "id") == [("truncate", None)]
    assert not refused(outcomes)


@pytest.mark.parametrize(
    ("changes", "document", "message"),
    [
        ("dms", dms("upsert", ANN), "expected metadata.operation as one of"),
        ("dms", dms("delete", None), "expected the row for op"),
        ("maxwell", maxwell("replace", ANN), "expected type as one of"),
        ("maxwell", maxwell("update", None), "expected the row for op"),
        ("canal", canal("MERGE", [{"id": "1"}]), "expected type INSERT, UPDATE or DELETE"),
        ("canal", canal("UPDATE", []), "expected the rows of"),
        ("canal", canal("UPDATE", [{"id": "1"}], [{}, {}]), "as many rows in old as in data"),
        ("canal", canal("INSERT", [{"id": "x"}]), "id"),
        (OP_COLUMN, {"op": "i", **ANN}, "expected one of I, 1, U, D, false"),
        (OP_COLUMN, ANN, "found null"),
        (IMAGES, {"meta": {"op": "D"}, "data": {"after": None}}, "expected the row for op"),
        (ENVELOPE, {"upsert": ANN}, "found none or several"),
        (ENVELOPE, {"insert": ANN, "delete": ANN}, "found none or several"),
    ],
)
def test_change_without_meaning_is_a_dead_letter(changes: Any, document: dict[str, Any], message: str) -> None:
    """An undeclared word, or a missing row, makes a dead letter."""
    declared = {"format": changes} if isinstance(changes, str) else changes
    outcomes = landed(pipeline(changes=declared), [document])
    assert ops_of(outcomes) == []
    assert message in refused(outcomes)[0]


def test_deletes_of_one_statement_come_before_its_upserts() -> None:
    """`UPDATE … SET id = id + 1` gives a row the key that its neighbour had: deletes of one statement come first."""
    document = canal("UPDATE", [{"id": "2", "name": "a"}, {"id": "3", "name": "b"}], [{"id": "1"}, {"id": "2"}])
    outcomes = landed(pipeline(changes={"format": "canal"}), [document])
    assert ops_of(outcomes, "_frazil_place", "id") == [
        ("delete", 0, 1),
        ("delete", 1, 2),
        ("upsert", 2, 2),
        ("upsert", 3, 3),
    ]
    assert next(iter(outcomes.counts.values())).written == 1


def test_statement_lands_whole_or_not_at_all() -> None:
    """If one row of a message does not fit, none lands, and the message is one dead letter."""
    document = canal("INSERT", [{"id": "1", "name": "a"}, {"id": "many", "name": "b"}])
    outcomes = landed(pipeline(changes={"format": "canal"}), [document])
    assert ops_of(outcomes) == []
    assert len(refused(outcomes)) == 1


def test_binlog_position_is_kept() -> None:
    """Maxwell sends binlog positions if configured; xoffset orders rows of one position."""
    columns = {**COLUMNS, "place": {"type": "string", "from": ["_cdc", "order"]}}
    merged = pipeline(changes={"format": "maxwell"}, columns=columns, order_by="place")
    documents = [maxwell("insert", ANN), maxwell("delete", ANN, position=None)]
    outcomes = landed(merged, documents)
    assert ops_of(outcomes, "place") == [("upsert", f"master.000006:{800911:020}:{1:020}")]
    assert "order" in refused(outcomes)[0]


def test_numbers_and_flags_are_valid_operations() -> None:
    """An op may be a number or a boolean: its JSON text counts."""
    for type_name, word in (("long", 1), ("boolean", False)):
        fields = {"op": type_name, "id": "long", "name": "string"}
        outcomes = landed(pipeline({"value": {"fields": fields}}, changes=OP_COLUMN), [{"op": word, **ANN}])
        assert len(ops_of(outcomes)) == 1, type_name


def test_times_of_a_row_follow_their_columns() -> None:
    """Without a schema times are numbers or texts, by the options of their columns."""
    columns = {**COLUMNS, "at": {"type": "timestamptz", "unit": "ms"}, "on": "date"}
    outcomes = landed(
        pipeline(changes=OP_COLUMN, columns=columns), [{"op": "I", **ANN, "at": 1_500, "on": "2024-05-01"}]
    )
    assert not refused(outcomes)
    [(_, instant, on_value)] = ops_of(outcomes, "at", "on")
    assert (instant.timestamp(), str(on_value)) == (1.5, "2024-05-01")


def test_exact_number_may_be_sent_as_text() -> None:
    """Decimals of databases are sent as text, since many readers of JSON cut numbers: the file declares them."""
    columns = {**COLUMNS, "cost": "decimal(9,2)"}
    fields = {"op": "string", "id": "long", "name": "string", "cost": "string"}
    merged = pipeline({"value": {"fields": fields}}, changes=OP_COLUMN, columns=columns)
    outcomes = landed(merged, [{"op": "I", **ANN, "cost": "12.50"}])
    assert [(op, str(cost)) for op, cost in ops_of(outcomes, "cost")] == [("upsert", "12.50")]


def test_row_without_key_or_order_is_a_dead_letter() -> None:
    """Values that are rows need key and order, too; a value without them is a dead letter."""
    columns = {**COLUMNS, "version": "long"}
    merged = pipeline(write="upsert", columns=columns, order_by="version", deletes="soft")
    outcomes = landed(merged, [{**ANN, "version": 3}, {"name": "Bob", "version": 4}, {**ANN, "version": None}])
    assert ops_of(outcomes, "id", "version", "_frazil_deleted", "_frazil_place") == [("upsert", 1, 3, False, 0)]
    assert len(refused(outcomes)) == 2


BEFORE = {"id": 1, "name": "Ann", "BI_id": 7, "BI_name": "An"}


@pytest.mark.parametrize(
    ("document", "rows"),
    [
        (dms("update", BEFORE), [("delete", 7, None), ("upsert", 1, "Ann")]),
        (dms("update", {**BEFORE, "BI_id": 1}), [("upsert", 1, "Ann")]),
        (dms("update", {**BEFORE, "BI_id": None}), [("upsert", 1, "Ann")]),
        (dms("insert", {**BEFORE, "BI_id": None, "BI_name": None}), [("upsert", 1, "Ann")]),
        (dms("delete", BEFORE), [("delete", 1, None)]),
        (dms("update", BEFORE, **{"before-image": {"id": 8}}), [("delete", 8, None), ("upsert", 1, "Ann")]),
    ],
)
@pytest.mark.parametrize("evolve", ["none", "widen"])
def test_before_image_columns_of_dms_are_the_row_as_it_was(
    document: dict[str, Any], rows: list[tuple[Any, ...]], evolve: str
) -> None:
    """A key that changes deletes the old row, and no table gets columns `BI_*`."""
    outcomes = landed(pipeline(changes={"format": "dms"}, evolve=evolve), [document])
    assert not outcomes.demands
    assert not refused(outcomes)
    assert ops_of(outcomes) == rows
    assert outcomes.unknown_fields.records == 0


def test_a_column_named_like_a_before_image_column_lands_where_it_is_declared() -> None:
    """The file may declare it, and a row may have a column `BI_x` without `x`."""
    columns = {**COLUMNS, "was": {"type": "string", "from": "BI_name"}, "BI_code": "string"}
    data = {"id": 1, "name": "Ann", "BI_name": "An", "BI_code": "x"}
    outcomes = landed(pipeline(changes={"format": "dms"}, columns=columns), [dms("update", data)])
    assert ops_of(outcomes, "id", "was", "BI_code") == [("upsert", 1, "An", "x")]
