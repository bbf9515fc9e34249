"""A topic becomes a table under a real Airflow: triggered over REST, landed by Spark, compared value by value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.kafka.admin.observe import observe
from frazil.kafka.read.read import read_range
from frazil.report.history import dead_letter_counts
from frazil.runtime.airflow_api import DagRun
from frazil.runtime.process import until
from tests.e2e.embedded import PAYMENTS, PIZZAS, RUN_SECONDS, TOPICS, Embedded

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

TOPIC = TOPICS[PIZZAS]
TABLE = "rpc.pizzas"
DEAD_LETTERS = "rpc.pizzas__dead_letters"
COLUMNS = ("order_id", "store_id", "sauce", "cheese", "meats", "veggies", "date_ordered")


def topic_records(embedded: Embedded) -> list[dict[str, Any]]:
    """Every record of the topic, as Kafka has it."""
    (facts,) = observe(embedded.cluster, [TOPIC]).topics.values()
    return [
        record
        for number, partition in enumerate(facts.partitions)
        for batch in read_range(embedded.cluster, TOPIC, number, partition.log_start, partition.stable_end)
        for record in batch.to_pylist()
    ]


def expected_outcome(value: bytes) -> dict[str, Any] | str:
    """The row of a record, or the code of its dead letter, by Python's own JSON reader."""
    if not value:
        return "EMPTY_VALUE"
    try:
        fields = json.loads(value)
    except ValueError:
        return "INVALID_JSON"
    return fields if isinstance(fields["store_id"], int) else "WRONG_TYPE"


def test_every_record_of_the_topic_is_a_row_or_a_dead_letter_with_equal_values(embedded: Embedded, landed: DagRun):
    """Rows carry the record's values and place, dead letters its bytes and the reason; nothing is there twice."""
    rows, dead = {}, {}
    for record in topic_records(embedded):
        place = (TOPIC, record["partition"], record["offset"])
        outcome = expected_outcome(record["value"])
        if isinstance(outcome, str):
            dead[place] = (outcome, record["key"], record["value"], record["timestamp"])
        else:
            rows[place] = (*(outcome[name] for name in COLUMNS), record["timestamp"])

    landed_rows = embedded.rows(TABLE)
    letters = embedded.rows(DEAD_LETTERS)

    assert len(rows) + len(dead) >= 3_000
    assert len(landed_rows) == len(rows)
    assert {
        (row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"]): (
            *(row[name] for name in COLUMNS),
            row["_kafka_timestamp"],
        )
        for row in landed_rows
    } == rows
    assert len(letters) == len(dead)
    assert {
        (letter["topic"], letter["partition"], letter["offset"]): (
            letter["code"],
            letter["key"],
            letter["value"],
            letter["timestamp"],
        )
        for letter in letters
    } == dead
    assert {code for code, *_ in dead.values()} == {"EMPTY_VALUE", "INVALID_JSON", "WRONG_TYPE"}


def test_dead_letters_are_counted_by_reason(embedded: Embedded, landed: DagRun):
    """The ledger's counts are those of the dead-letter table."""
    counted: dict[str, int] = {}
    for letter in embedded.rows(DEAD_LETTERS):
        counted[letter["code"]] = counted.get(letter["code"], 0) + 1

    assert dead_letter_counts(embedded.project, embedded.project.pipeline("pizzas")) == counted
    assert sum(counted.values()) == 18


def test_a_run_with_nothing_new_succeeds_without_spark_and_without_a_commit(embedded: Embedded, landed: DagRun):
    """Plan succeeds, the rest is skipped, and no table has a new snapshot."""
    before = [embedded.snapshot_ids(table) for table in (TABLE, DEAD_LETTERS)]

    again = embedded.run(PIZZAS, "e2e-nothing-new")

    assert embedded.states(PIZZAS, again.run_id) == {"plan": "success", "ingest": "skipped", "record": "skipped"}
    assert [embedded.snapshot_ids(table) for table in (TABLE, DEAD_LETTERS)] == before


def test_an_empty_topic_is_no_failure(embedded: Embedded, idle_run: DagRun):
    """The first scheduled run finds nothing: the schedule may be switched on before the producers."""
    assert idle_run.run_type == "scheduled"
    assert embedded.states(PIZZAS, idle_run.run_id) == {"plan": "success", "ingest": "skipped", "record": "skipped"}


def test_a_run_says_in_airflow_what_it_did(embedded: Embedded, landed: DagRun):
    """The note has our line beside the person's; the asset event has rows, position and snapshot."""
    note = embedded.api.run(PIZZAS, landed.run_id).note
    event = embedded.event(landed.run_id)
    facts = event["extra"]

    assert note is not None
    assert note.startswith("asked for by a test\n\nFrazil: 2,982 rows, 18 dead letters (")
    assert "complete through 20" in note
    assert (event["name"], event["uri"]) == ("lake.rpc.pizzas", "iceberg://lake/rpc/pizzas")
    assert (facts["read"], facts["rows"], facts["dead_letters"], facts["filtered"]) == (3_000, 2_982, 18, 0)
    assert sum(facts["position"][TOPIC]) == 3_000
    (snapshot_id,) = facts["snapshot_ids"]
    assert int(snapshot_id) in embedded.snapshot_ids(TABLE)


def test_a_run_limited_by_hand_leaves_the_rest_to_the_next(embedded: Embedded, paid: tuple[DagRun, DagRun]):
    """Both together read everything once. The inline engine does it, in the task's process."""
    limited, rest = (embedded.event(run.run_id)["extra"] for run in paid)

    assert 0 < limited["read"] <= 30
    assert limited["complete_through"] is None
    assert rest["read"] == 60 - limited["read"]
    assert rest["complete_through"] is not None
    assert sum(rest["position"]["payments"]) == 60
    assert len({row["id"] for row in embedded.rows("orders.payments")}) == 60


def test_no_secret_is_in_what_airflow_shows(embedded: Embedded, landed: DagRun):
    """Neither the logs, the rendered templates nor the XComs of a run hold the password of its API login."""
    password = embedded.api._password
    path = f"/dags/{PIZZAS}/dagRuns/{landed.run_id}/taskInstances"
    tasks = ("plan", "ingest", "record")

    shown = [embedded.api.log(PIZZAS, landed.run_id, task) for task in tasks]
    shown += [json.dumps(embedded.api._request("GET", f"{path}/{task}")) for task in tasks]
    shown += [json.dumps(embedded.api._request("GET", f"{path}/{task}/xcomEntries")) for task in tasks]

    assert "2,982 rows" in shown[2]
    assert not [text for text in shown if password in text]


def test_a_broken_pipeline_file_is_an_import_error_while_the_others_work(embedded: Embedded, landed: DagRun):
    """Airflow names file, key and near match; mended, the error goes."""
    broken = Path(embedded.project.pipelines_folder) / "returns.yaml"
    broken.write_text("name: returns\nintervall: 5m\n")
    try:
        assert until(lambda: bool(embedded.api.import_errors()), RUN_SECONDS, 0.5)
        (error,) = embedded.api.import_errors()
        assert error.filename.endswith("broken_pipelines.py")
        assert f"{broken}" in error.stack_trace
        assert "intervall: unknown key, did you mean 'interval'?" in error.stack_trace
        assert {PAYMENTS, PIZZAS} <= set(embedded.api.dag_ids())
        assert embedded.run(PIZZAS, "e2e-beside-a-broken-file").state == "success"
    finally:
        broken.unlink()
    assert until(lambda: not embedded.api.import_errors(), RUN_SECONDS, 0.5)
