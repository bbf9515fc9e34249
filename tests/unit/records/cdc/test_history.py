"""A log of changes, alone or with a merged table: it keeps each change as a row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from frazil.iceberg.schema.schema import declared_columns, declared_schema
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.syntax.strict import InvalidKey
from frazil.records.decoder.route import Router
from frazil.run.commit.manifests import operation_of
from frazil.run.staging.record_spec import route_of
from frazil.verify.values.canonical import column_values
from frazil.verify.values.cdc_expectation import ChangeReader
from frazil.verify.values.column_readers import Bad
from frazil.verify.values.transforms import route_to_table
from tests.unit.records.cdc.landing import COLUMNS, TABLE, landed, pipeline
from tests.unit.records.cdc.test_debezium import DEBEZIUM, ann, event
from tests.unit.verify.values.test_cdc_expectation import COLUMNS as WITH_FACTS
from tests.unit.verify.values.test_cdc_expectation import FORMATS

LOG = "shop.customers_log"


def test_history_contains_every_change() -> None:
    """It has every image, also of deletes and changed keys, with its order; the merged table gets the same rows."""
    history_pipeline = pipeline(changes=DEBEZIUM, append_history=LOG, deletes="soft")
    documents = [event("c", None, ann(1)), event("u", ann(1), ann(2)), event("d", ann(2), None), event("m", None, None)]
    outcomes = landed(history_pipeline, documents)
    log = outcomes.rows[LOG]
    names = ["_kafka_offset", "_frazil_place", "_frazil_op", "id", "name"]
    assert [tuple(row[name] for name in names) for row in log.to_pylist()] == [
        (100, 0, "upsert", 1, "Ann"),
        (101, 0, "delete", 1, None),
        (101, 1, "upsert", 2, "Ann"),
        (102, 0, "delete", 2, None),
    ]
    assert outcomes.rows[TABLE].select(log.schema.names).to_pylist() == log.to_pylist()
    assert not outcomes.unknown_fields.records  # the envelope's own fields are no loss
    assert operation_of(history_pipeline.destination(LOG), None) is None  # type: ignore[arg-type]  # PyIceberg adds its files


def test_history_has_no_key_and_no_required_columns() -> None:
    """A key has several rows, and a truncate has no key: no column is required, and none identifies a row."""
    declared = pipeline(changes=DEBEZIUM, append_history=LOG)
    destination = declared.destination(LOG)
    schema = declared_schema(destination)
    assert (schema.identifier_field_ids, [field.name for field in schema.fields if field.required]) == ([], [])
    assert [field.name for field in schema.fields][-2:] == ["_frazil_op", "_frazil_place"]
    assert not destination.is_merged
    assert not declared.forgets_deletes(destination)


def test_history_gets_the_records_of_its_table() -> None:
    """However records are routed, the log gets the records of its table, and verify expects that."""
    second_destination = {
        "table": "shop.pets",
        "write": "cdc",
        "identifier": ["id"],
        "columns": COLUMNS,
        "changes": DEBEZIUM,
    }
    first = {**second_destination, "table": TABLE, "append_history": LOG}
    ways: list[dict[str, Any]] = [
        {"static": {"field": "source.table", "tables": {TABLE: TABLE, "shop.pets": "pets"}}},
        {"field": {"name": "source.table"}},
        {"topic": {"rename": {"orders": TABLE}}},
    ]
    for route in ways:
        value = event("c", None, ann(), {"table": TABLE})
        declared = {
            "name": "c",
            "source": {"topics": ["orders"]},
            "destinations": [first, second_destination],
            "route": route,
        }
        made = Pipeline.model_validate(declared)
        outcomes = landed(made, [value])
        assert {table: rows.num_rows for table, rows in outcomes.rows.items()} == {TABLE: 1, "shop.pets": 0, LOG: 1}
        routes = {table: route_to_table(made, table) for table in made.tables}
        routed = {
            table: None if tell is None else tell("orders", json.dumps(value).encode(), Message())
            for table, tell in routes.items()
        }
        assert routed == {TABLE: "here", "shop.pets": "elsewhere", LOG: "here"}


@pytest.mark.parametrize(
    ("route", "topic"),
    [({"field": {"name": "source.table"}}, "any"), ({"topic": {}}, LOG), ({"field": {"name": "source.table"}}, LOG)],
)
@pytest.mark.parametrize("is_listed", [False, True])
def test_record_that_names_the_history_table_lands_nowhere(route: dict[str, Any], topic: str, is_listed: bool) -> None:
    """The log gets only the records of its table: its own name as a route leads nowhere."""
    options = {"write": "cdc", "identifier": ["id"], "columns": COLUMNS, "changes": DEBEZIUM}
    listed = [{**options, "table": LOG, "write": "history"}] if is_listed else []
    destinations = [{**options, "table": TABLE, "append_history": LOG}, *listed]
    declared = {"name": "c", "source": {"topics": ["orders"]}, "destinations": destinations, "route": route}
    made = Pipeline.model_validate(declared)
    router = Router(
        route_of(made, {table: declared_columns(made.destination(table)) for table in made.tables}), made.tables
    )
    assert router.has_table(TABLE)
    assert not router.has_table(LOG)
    value = json.dumps(event("c", None, ann(), {"table": LOG})).encode()
    for table in made.tables:
        tell = route_to_table(made, table)
        assert tell is not None
        assert tell(topic, value, Message()) == "nowhere"


def test_history_table_named_in_a_route_gets_its_records() -> None:
    """Records that the file routes there by an expression get there."""
    options = {"write": "cdc", "identifier": ["id"], "columns": COLUMNS, "changes": DEBEZIUM}
    declared = {
        "name": "c",
        "source": {"topics": ["orders"]},
        "destinations": [{**options, "table": TABLE, "append_history": LOG}],
        "route": {"static": {"field": "source.table", "tables": {TABLE: "customers", LOG: "old"}}},
    }
    made = Pipeline.model_validate(declared)
    value = event("c", None, ann(), {"table": "old"})
    assert {table: rows.num_rows for table, rows in landed(made, [value]).rows.items()} == {TABLE: 0, LOG: 1}
    routes = {table: route_to_table(made, table) for table in made.tables}
    assert {
        table: tell("orders", json.dumps(value).encode(), Message())
        for table, tell in routes.items()
        if tell is not None
    } == {
        TABLE: "elsewhere",
        LOG: "here",
    }


def test_listed_history_table_is_not_created_again() -> None:
    """A log that the file lists is created once."""
    log = {"table": LOG, "write": "history", "identifier": ["id"], "columns": COLUMNS, "changes": DEBEZIUM}
    first = {"table": TABLE, "write": "cdc", "identifier": ["id"], "columns": COLUMNS, "changes": DEBEZIUM}
    destinations = [{**first, "append_history": LOG}, {**log, "partition_by": ["bucket(4, id)"]}]
    declared = Pipeline.model_validate({"name": "c", "source": {"topics": ["orders"]}, "destinations": destinations})
    assert declared.tables == (TABLE, LOG)
    assert declared.destination(LOG).partition_by == ("bucket(4, id)",)
    alone = Pipeline.model_validate(
        {"name": "c", "source": {"topics": ["orders"]}, "destinations": [log], "engine": "inline"}
    )
    assert landed(alone, [event("d", ann(), None)]).rows[LOG].num_rows == 1


@pytest.mark.parametrize("is_listed", [False, True])
def test_history_shared_by_two_tables_is_refused(is_listed: bool) -> None:
    """A log belongs to one table; a second table that names it is refused, with the key."""
    options = {"write": "cdc", "identifier": ["id"], "columns": COLUMNS, "changes": DEBEZIUM}
    destinations = [{**options, "table": name, "append_history": LOG} for name in (TABLE, "shop.pets")]
    listed = [{**options, "table": LOG, "write": "history"}] if is_listed else []
    declared = {"name": "c", "source": {"topics": ["orders"]}, "destinations": [*destinations, *listed]}
    with pytest.raises(ValidationError, match=f"{LOG} is already the history of {TABLE}") as refusal:
        Pipeline.model_validate(declared)
    error = refusal.value.errors()[0]["ctx"]["error"]
    assert isinstance(error, InvalidKey)
    assert error.key == "destinations.1.append_history"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"write": "append", "changes": None, "append_history": LOG}, "append_history is for write: upsert and cdc"),
        ({"append_history": TABLE}, "must be"),
        ({"append_history": LOG, "identifier": []}, "write: history needs identifier"),
        ({"write": "history", "kafka_columns": False}, "kafka_columns: false"),
        ({"write": "history", "evolve": "add"}, "declared columns only"),
        ({"write": "history", "columns": {**COLUMNS, "_frazil_op": "string"}}, "_frazil_op, which write: history adds"),
        ({"write": "history", "deletes": "soft"}, "deletes is for write: upsert and cdc"),
        ({"write": "history", "order_by": "nr"}, "order_by names 'nr'"),
    ],
)
def test_impossible_history_is_refused(options: dict[str, Any], message: str) -> None:
    """Each is refused with the reason."""
    with pytest.raises(ValidationError, match=message):
        pipeline(**({"changes": DEBEZIUM} | options))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("order_by", [None, "place"])
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_verify_and_staging_read_the_same_history(name: str, order_by: str | None, data: st.DataObject) -> None:
    """For any record, valid or broken, both have the same rows with the same values, or none."""
    changes, values = FORMATS[name]
    history_pipeline = pipeline(write="history", changes=changes, columns=WITH_FACTS, order_by=order_by)
    document = data.draw(values)
    outcomes = landed(history_pipeline, [document])
    destination = history_pipeline.destinations[0]
    reading = ChangeReader(destination, destination.columns, history_pipeline.value).row(json.dumps(document).encode())
    rows = outcomes.rows[TABLE]
    if isinstance(reading, Bad):
        assert (rows.num_rows, outcomes.dead.num_rows) == (0, 1), reading
        return
    cells = [column_values(rows.column(of), column.parsed) for of, column in destination.columns.items()]
    assert [change.row for change in reading] == list(zip(*cells, strict=True))
    assert [(change.op, index) for index, change in enumerate(reading)] == list(
        zip(rows.column("_frazil_op").to_pylist(), rows.column("_frazil_place").to_pylist(), strict=True)
    )
