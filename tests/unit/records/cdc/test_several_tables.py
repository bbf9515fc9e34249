"""Changes that several destinations treat differently."""

from __future__ import annotations

from typing import Any

from frazil.batch.facts import TableCounts, UnknownFields
from frazil.pipeline.models.pipeline_file import Pipeline
from tests.unit.records.cdc.landing import COLUMNS, filtered, landed, ops_of, refused

DEBEZIUM: dict[str, Any] = {"write": "cdc", "identifier": ["id"], "changes": {"format": "debezium"}}
ROW = "struct<id: long, name: string>"
FIELDS = {"op": "string", "before": ROW, "after": ROW, "source": "struct<table: string>"}


def pipeline(*destinations: dict[str, Any], **more: Any) -> Pipeline:
    return Pipeline.model_validate(
        {"name": "shop", "source": {"topics": ["orders"]}, "destinations": list(destinations), **more}
    )


def test_appended_and_merged_table_of_one_topic_both_land() -> None:
    """One table appends changes, the other one applies them; DDL is a row only in the first."""
    log = {"table": "shop.log", "columns": {"op": "string"}}
    merged = {"table": "shop.now", "columns": COLUMNS, **DEBEZIUM}
    documents = [
        {"op": "u", "before": {"id": 1}, "after": {"id": 2, "name": "Ann"}},
        {"op": "m"},
        {"op": "d", "before": None},
    ]
    outcomes = landed(pipeline(log, merged, value={"fields": FIELDS}), documents)
    assert outcomes.rows["shop.log"].column("op").to_pylist() == ["u", "m", "d"]
    assert ops_of(outcomes, "id", table="shop.now") == [("delete", 1), ("upsert", 2)]
    left_out = UnknownFields(1, {"after": 1, "before": 1})
    assert outcomes.tables == {"shop.log": TableCounts(3, 3, 0, 3, left_out), "shop.now": TableCounts(2, 1, 1, 2)}
    assert len(refused(outcomes)) == 1
    assert filtered(outcomes) == {}


def test_changes_are_routed_to_their_own_table() -> None:
    """One topic with the changes of several tables: a field of the envelope routes them, and need not be declared."""
    people = {"table": "shop.people", "columns": COLUMNS, **DEBEZIUM}
    pets = {"table": "shop.pets", "columns": {"id": {"type": "long", "required": True}, "kind": "string"}, **DEBEZIUM}
    route = {"static": {"field": "source.table", "tables": {"shop.people": "people", "shop.pets": "pets"}}}
    documents = [
        {"op": "c", "after": {"id": 1, "name": "Ann"}, "source": {"table": "people"}},
        {"op": "c", "after": {"id": 1, "kind": "cat"}, "source": {"table": "pets"}},
        {"op": "m", "source": {"table": "pets"}},
    ]
    outcomes = landed(pipeline(people, pets, route=route), documents)
    assert ops_of(outcomes, "name", table="shop.people") == [("upsert", "Ann")]
    assert ops_of(outcomes, "kind", table="shop.pets") == [("upsert", "cat")]
    assert filtered(outcomes) == {"transform": 1}
    assert outcomes.tables["shop.pets"] == TableCounts(1, 1, 0, 1)
