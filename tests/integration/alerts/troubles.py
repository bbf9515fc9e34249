"""Each trouble for real: how a pipeline gets into it, and what a runbook has people do by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.batch.position import RunRequest
from frazil.cli.app import invoke
from frazil.kafka.admin.topics import create_topic
from frazil.monitor.condition import Runs
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging import stage as inline
from frazil.run.staging.stage import StageOrder
from frazil_airflow.alerts import callbacks
from frazil_airflow.dags import dead_letters
from frazil_airflow.dags.dead_letters import LetterReportOperator
from frazil_airflow.dags.maintenance import look_at_tables
from frazil_airflow.project.run_request import limit_records
from tests.integration.alerts.desk import LETTERS, Desk
from tests.servers import delete_topic

INTERVAL = timedelta(minutes=5)  # as the pipeline's file says

FORM = {
    "codes": [],
    "topics": [],
    "since": None,
    "until": None,
    "reason": "the columns fit now",
    "dry_run": False,
}


def landed(desk: Desk, count: int = 10) -> None:
    """Some orders in the table, by a run."""
    desk.produce(range(count))
    assert invoke(["run", "orders"]) == 0


# --- refused ----------------------------------------------------------------------------------------------------------
def topic_recreated(desk: Desk) -> None:
    landed(desk)
    delete_topic(desk.cluster, desk.topic)
    create_topic(desk.cluster, desk.topic, 1)
    desk.produce(range(10, 13))


def records_lost(desk: Desk) -> None:
    landed(desk)
    desk.produce(range(10, 20))
    admin = AdminClient(dict(desk.cluster.properties))
    for deleted in admin.delete_records([TopicPartition(desk.topic, 0, 15)]).values():
        deleted.result()


def dead_letters_dropped(desk: Desk) -> None:
    desk.send([b"broken"])
    landed(desk)
    desk.project.lake_of(desk.pipeline)._catalog.drop_table(LETTERS)


def file_broken(desk: Desk) -> None:
    landed(desk)
    desk.configure("colour: red")


# --- failed runs ------------------------------------------------------------------------------------------------------
def storage_refuses(desk: Desk) -> None:
    """Nothing can be written where the table's files go."""
    landed(desk)
    desk.produce(range(10, 20))
    data(desk).rename(away(desk))
    data(desk).touch()
    desk.ingest()


def storage_refuses_and_airflow_says_so(desk: Desk) -> None:
    storage_refuses(desk)
    desk.runs = Runs(last_state="failed", last_run="scheduled__1", last_ended_at=datetime.now(UTC), failures=1)


def run_cleared(desk: Desk) -> None:
    """What landed by hand ends nothing for Airflow; the failed run is cleared, and succeeds."""
    assert desk.look() == []
    desk.runs = Runs(last_state="success", last_run="scheduled__1", last_ended_at=datetime.now(UTC), failures=0)


def storage_writes(desk: Desk) -> None:
    data(desk).unlink()
    away(desk).rename(data(desk))


def data(desk: Desk) -> Path:
    """Where files of rows are."""
    return desk.root / "warehouse" / "shop" / "orders" / "data"


def column_renamed(desk: Desk) -> None:
    landed(desk)
    desk.produce(range(10, 20))
    rename(desk, "name", "label")
    desk.ingest()


def rename(desk: Desk, column: str, new_name: str) -> None:
    """Somebody else alters the table."""
    with desk.load().update_schema() as change:
        change.rename_column(column, new_name)


def producer_broken(desk: Desk) -> None:
    """Three in ten records of a batch that is large enough to be judged by its rate."""
    landed(desk)
    desk.produce(range(10, 710))
    desk.send(b"broken %d" % number for number in range(300))
    desk.ingest()


def rival_at_work(desk: Desk) -> None:
    """Another project lands the same pipeline: one record, whenever the run is about to."""
    landed(desk)
    desk.produce(range(10, 20))
    stage = inline.stage_inline

    def overtaken(order: StageOrder) -> Any:
        planned = plan_run(desk.project, desk.pipeline, RunRequest("rival"))
        assert planned.plan is not None
        ingest(desk.project, desk.pipeline, limit_records(planned.plan, 1), stage, print)
        return stage(order)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inline, "stage_inline", overtaken)
        desk.ingest()


# --- late and behind --------------------------------------------------------------------------------------------------
def no_run_begins(desk: Desk) -> None:
    desk.configure("alerts: {fresh_within: 20m}")
    landed(desk)
    desk.produce(range(10, 20))
    assert desk.look() == []
    desk.looks_at = datetime.now(UTC) + timedelta(minutes=30)


def much_arrives(desk: Desk) -> None:
    desk.configure("alerts: {lag: 100}")
    landed(desk)
    desk.produce(range(10, 200))


def more_arrives_than_is_read(desk: Desk) -> None:
    desk.configure("alerts: {growing_intervals: 2, fresh_within: 2h}")
    landed(desk)
    first = datetime.now(UTC) + timedelta(minutes=1)  # one instant for all looks: each is in an interval of its own
    for interval in range(3):
        desk.produce(range(10 * interval, 10 * interval + 10))
        desk.looks_at = first + interval * INTERVAL
        assert desk.look() == []
    desk.looks_at = first + 3 * INTERVAL


def retention_is_near(desk: Desk) -> None:
    """Records of 50 minutes ago that wait, in a topic that keeps them for an hour."""
    desk.topic += "-hour"
    create_topic(desk.cluster, desk.topic, 1, {"retention.ms": "3600000"})
    desk.configure()
    landed(desk)
    desk.produce(range(10, 20), instant=datetime.now(UTC) - timedelta(minutes=50))


# --- what is beside ingestion -----------------------------------------------------------------------------------------
def manifests_gone(desk: Desk) -> None:
    """The storage does not give a table's manifests: a run needs none of them, a look of maintenance all."""
    landed(desk)
    hide_manifests(desk, "orders")
    desk.failing("maintain__orders", partial(maintenance, desk))


def hide_manifests(desk: Desk, table: str) -> None:
    """Have the storage not give a table's manifests."""
    away(desk).mkdir()
    for manifest in metadata(desk, table).glob("*.avro"):
        manifest.rename(away(desk) / manifest.name)


def storage_back(desk: Desk, table: str = "orders") -> None:
    for manifest in away(desk).iterdir():
        manifest.rename(metadata(desk, table) / manifest.name)


def dead_letters_restored(desk: Desk) -> None:
    storage_back(desk, "orders__dead_letters")


def metadata(desk: Desk, table: str) -> Path:
    """Where a table's manifests are."""
    return desk.root / "warehouse" / "shop" / table / "metadata"


def away(desk: Desk) -> Path:
    """Where things are that nobody can reach."""
    return desk.root / "away"


def maintenance(_: Desk) -> None:
    """A run of the maintenance DAG; nothing is due, so its job is skipped."""
    form = {"table": None, "steps": [], "force": False, "dry_run": False}
    run = SimpleNamespace(dag_id="maintain__orders", run_id="scheduled__2", conf=form)
    assert look_at_tables("orders", dag_run=run, params=form) is None
    works_again(run)


def works_again(run: Any) -> None:
    """A run that succeeded, as Airflow tells its callback."""
    callbacks.forget_failure({"dag": SimpleNamespace(dag_id=run.dag_id), "run_id": run.run_id, "dag_run": run})


def report_fails(desk: Desk) -> None:
    records_refused(desk)
    hide_manifests(desk, "orders__dead_letters")
    desk.failing("dead_letters__orders", partial(dead_letters_reported, desk))


def report_works(desk: Desk) -> None:
    assert [body["kind"] for body in dead_letters_reported(desk)] == ["dead_letters"]
    works_again(SimpleNamespace(dag_id="dead_letters__orders", run_id="scheduled__2", conf={}))


def replay_fails(desk: Desk) -> None:
    """The columns fit now, and somebody fills in the form."""
    records_refused(desk)
    desk.configure()
    hide_manifests(desk, "orders__dead_letters")
    desk.failing("replay_dead_letters__orders", filled_in, conf=FORM)


def replay_works(desk: Desk) -> None:
    """The command replayed all: the form finds nothing to do, and succeeds."""
    all_landed(desk)
    with pytest.raises(AirflowSkipException):
        filled_in()
    works_again(SimpleNamespace(dag_id="replay_dead_letters__orders", run_id="manual__2", conf=FORM))


def filled_in() -> None:
    """A run of the form's DAG."""
    run = SimpleNamespace(run_id="manual__1", run_type=SimpleNamespace(value="manual"), triggering_user_name="ana")
    dead_letters.replay("orders", dag_run=run, params=FORM, outlet_events={})  # type: ignore[arg-type]


def catalog_away(desk: Desk) -> None:
    """Its file can't be opened."""
    landed(desk)
    catalog(desk).rename(away(desk))
    catalog(desk).mkdir()


def catalog_back(desk: Desk) -> None:
    catalog(desk).rmdir()
    away(desk).rename(catalog(desk))


def catalog(desk: Desk) -> Path:
    return desk.root / "catalog.db"


def broker_stopped(desk: Desk) -> None:
    landed(desk)
    assert invoke(["down"]) == 0


def records_refused(desk: Desk) -> None:
    """A field that the pipeline's file calls a fault."""
    desk.configure("value: {unknown_fields: fail}")
    landed(desk)
    desk.send(b'{"id": %d, "name": "order", "coupon": true}' % number for number in range(10, 13))
    assert invoke(["run", "orders"]) == 0


def all_landed(desk: Desk) -> None:
    ids = sorted(desk.load().scan().to_arrow()["id"].to_pylist())
    assert ids == list(range(13)), ids


def dead_letters_reported(desk: Desk) -> list[dict[str, Any]]:
    """A run of the report's DAG: what people are told."""
    before, run = len(desk.hook.got), SimpleNamespace(dag_id="dead_letters__orders", run_id=f"r{len(desk.hook.got)}")
    try:
        LetterReportOperator(task_id="report", pipeline="orders").execute({"dag_run": run})  # type: ignore[typeddict-item]
    except AirflowSkipException:  # nothing is new
        assert desk.hook.bodies[before:] == []
    return desk.hook.bodies[before:]
