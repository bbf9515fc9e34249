"""Replay, dry run and backfill under a real Airflow, started over REST as a person would."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.report.history import history
from frazil.runtime.airflow_api import DagRun
from tests.e2e.embedded import PAYMENTS, PIZZAS, Embedded

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PAID = ("orders.payments", "orders.payments__dead_letters")
LANDED = ("rpc.pizzas", "rpc.pizzas__dead_letters", "rpc.pizzas__ledger")
NOTHING_DONE = {"plan": "success", "ingest": "skipped", "record": "skipped"}


def payments(embedded: Embedded) -> list[dict[str, Any]]:
    """Rows by their place in Kafka, without the number of the batch that landed them."""
    rows = [{name: value for name, value in row.items() if name != "_frazil_batch"} for row in embedded.rows(PAID[0])]
    return sorted(rows, key=lambda row: (row["_kafka_partition"], row["_kafka_offset"]))


def test_replay_doubles_no_rows_and_keeps_its_reason(embedded: Embedded, paid: tuple[DagRun, DagRun]):
    """Every row is there once, with the replay's batch number; note, event and ledger say what was done and why."""
    before = payments(embedded)

    again = embedded.run(PAYMENTS, "e2e-replay", mode="replay", reason="wrong prices", **{"from": "earliest"})

    assert payments(embedded) == before
    (batch,) = {row["_frazil_batch"] for row in embedded.rows(PAID[0])}
    last = history(embedded.project, embedded.project.pipeline("payments"))[-1]
    assert (last.n, last.kind, last.reason) == (batch, "replay", "wrong prices")
    assert last.started_by == f"airflow:manual:{embedded.project.home.airflow_user}"
    facts = embedded.event(again.run_id)["extra"]
    assert (facts["mode"], facts["reason"], facts["rows"]) == ("replay", "wrong prices", 60)
    assert "Frazil: replay, reason: wrong prices; 60 rows" in str(embedded.api.run(PAYMENTS, again.run_id).note)


def test_backfill_of_landed_intervals_lands_nothing_again(embedded: Embedded, paid: tuple[DagRun, DagRun]):
    """Two past intervals at once, both below the position: nothing is committed, and the log says why and what to do."""
    before = [embedded.snapshot_ids(table) for table in PAID]

    runs = embedded.backfill(PAYMENTS, "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z")

    assert len(runs) == 2
    assert [embedded.states(PAYMENTS, run.run_id) for run in runs] == [NOTHING_DONE, NOTHING_DONE]
    log = embedded.api.log(PAYMENTS, runs[0].run_id, "plan")
    assert "landed already; mode replay lands a range again" in log
    assert [embedded.snapshot_ids(table) for table in PAID] == before


def test_dry_run_of_spark_commits_nothing(embedded: Embedded, landed: DagRun):
    """Its numbers, counted by Spark, are those of the run that landed; they go to the note, and no event is made."""
    before = [embedded.snapshot_ids(table) for table in LANDED]

    look = embedded.run(PIZZAS, "e2e-dry-run", mode="dry_run", **{"from": "earliest"})

    assert embedded.states(PIZZAS, look.run_id) == {"plan": "success", "ingest": "success", "record": "skipped"}
    note = str(embedded.api.run(PIZZAS, look.run_id).note)
    assert "Frazil: dry run, nothing was landed; looked at 3,000 of 3,000 offsets" in note
    assert "2,982 rows, 18 dead letters (" in note
    assert "dead letter INVALID_JSON, topic completed-pizzas" in embedded.api.log(PIZZAS, look.run_id, "record")
    assert [embedded.snapshot_ids(table) for table in LANDED] == before
    with pytest.raises(ValueError, match="not enough values"):
        embedded.event(look.run_id)
