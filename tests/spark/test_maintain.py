"""Maintenance of real tables by Spark: each step does its work, none takes what somebody needs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import TimeType
from pyspark.sql import SparkSession

from frazil.error_codes import INTERNAL
from frazil.errors import Terminal
from frazil.failpoints import Failpoint
from frazil.iceberg.commit.expiry import HOLD_KEY, NO_HOLD, expire_snapshots, named_manifests
from frazil.iceberg.commit.summary_state import POSITION_KEY
from frazil.kafka.client.cluster import Cluster
from frazil.maintain import steps
from frazil.maintain.need import ORPHANS_KEY
from frazil.maintain.run import MAINTAINED_KEY, last_maintenance
from tests.spark.kills import Killed, at_failpoint, kill
from tests.spark.maintained import LEDGER, LETTERS, ORDERS, Maintained, maintained, put_old

Make = Callable[..., Maintained]
DAY = timedelta(days=1)


@pytest.fixture
def make(tmp_path: Path, cluster: Cluster, topic: Callable[..., str], spark: SparkSession) -> Make:
    """Make a pipeline: `make(layout="partition_by: [day(at)]", more="orphans: {older_than: 3d}")`."""

    def made(**keys: str) -> Maintained:
        return maintained(tmp_path, cluster, topic(), spark, **keys)

    return made


def test_small_files_are_compacted(make: Make) -> None:
    """Six files of six batches become one; rows, position and what verify says stay."""
    orders = make()
    orders.land(6)
    before, ids = orders.position, orders.ids()

    step = orders.step("compaction")

    assert (step.status, step.counts["rewritten_data_files_count"]) == ("done", 6)
    assert len(orders.files()) == 1
    assert (orders.position, orders.ids()) == (before, ids)
    orders.land(1)
    orders.assert_clean()


def test_closed_compaction_leaves_partition_of_today_alone(make: Make) -> None:
    """With `closed`, the partitions of earlier days become one file each, today's stays as it is."""
    orders = make(layout="partition_by: [day(at)]", more="orphans: false")
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    changed = text.replace("min_deletes: 1}", "min_deletes: 1, partitions: closed}")
    (orders.project.pipelines_folder / "orders.yaml").write_text(changed)
    orders.project = type(orders.project).load(
        orders.project.environment() | {"FRAZIL_KAFKA_PORT": str(orders.project.home.ports.kafka)}
    )
    today, earlier = orders.clock(), orders.clock() - DAY
    for day in (today, earlier):
        orders.land(3, instant=day.strftime("%Y-%m-%dT00:00:00Z"))

    orders.step("compaction")

    files = [file["partition"]["at_day"] for file in orders.files()]
    assert (files.count(today.date()), files.count(earlier.date())) == (3, 1)
    orders.assert_clean()


def test_table_with_a_time_column_is_maintained(make: Make) -> None:
    """Spark can't load it: old snapshots and orphans go all the same, and what rests says why; the next run lands."""
    orders = make(more="orphans: {older_than: 3d}")
    orders.land(4)
    with orders.table().update_schema() as change:
        change.add_column("opens", TimeType())
    (orphan,) = put_old(orders.folder() / "data", ["left.parquet"])
    orders.ahead = timedelta(hours=2)

    (table,) = orders.maintain(force=True).tables

    status = {step.step: step.status for step in table.steps}
    assert (status["expiry"], status["orphans"], status["compaction"]) == ("done", "done", "skipped")
    assert "column opens is of type time" in next(step.reason for step in table.steps if step.step == "compaction")
    assert (len(orders.metadata().snapshots), orphan.exists()) == (1, False)
    assert {ORPHANS_KEY, MAINTAINED_KEY} <= orders.metadata().properties.keys()
    orders.ahead = timedelta()
    orders.land(1)
    orders.assert_clean()


def test_expiry_keeps_position(make: Make) -> None:
    """All old snapshots of all tables go but the heads, the position stays, and the next run goes on there."""
    orders = make()
    orders.land(4)
    orders.step("compaction")
    before, orders.ahead = orders.position, DAY

    result = orders.maintain("expiry", table=None)

    assert {table.table for table in result.tables} == {ORDERS, LETTERS, LEDGER}
    assert [step.status for table in result.tables for step in table.steps] == ["done"] * 3
    assert len(orders.metadata().snapshots) == 1
    assert orders.engine.calls == ["rewrite_data_files"]
    assert orders.position == before
    orders.land(1)
    orders.assert_clean()


def test_files_of_others_are_not_taken_for_orphans(make: Make) -> None:
    """What nobody names goes, staged rows of applied operations too; manifests of batches and another table's files stay."""
    orders = make()
    orders.land(2)
    old_files = put_old(orders.folder(), ["data/x.parquet", "frazil-staged/y.parquet", "metadata/z.avro"])
    stays = put_old(orders.folder(), ["orders/data/of-another-table.parquet"])
    batch = [Path(of.removeprefix("file://")) for of in named_manifests(orders.metadata())]
    assert batch
    for path in (*batch, *orders.folder().rglob("*.parquet"), *orders.folder().rglob("*.avro")):
        put_old_time(path)

    assert orders.look("orphans").tables[0].steps[0].status == "skipped"  # the table is too young to have any
    step = orders.step("orphans", force=True)

    assert (step.status, step.counts) == ("done", {"orphan_files": 3, "left_alone": 1 + len(batch)})
    assert not any(path.exists() for path in old_files)
    assert all(path.exists() for path in (*stays, *batch))
    assert not [view.name for view in orders.engine.spark.catalog.listTables() if view.isTemporary]
    assert ORPHANS_KEY in orders.metadata().properties
    assert orders.look("orphans").tables[0].steps[0].status == "skipped"
    orders.land(1)
    orders.assert_clean()


def test_orphans_beyond_the_bound_go_with_the_next_maintenance(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one run leaves is due at once, not a week later."""
    orders = make()
    orders.land(1)
    monkeypatch.setattr(steps, "MOST_ORPHANS", 3)
    old_files = put_old(orders.folder(), [f"data/{n}.parquet" for n in range(5)])

    first = orders.step("orphans", force=True)
    assert (first.counts["orphan_files"], ORPHANS_KEY in orders.metadata().properties) == (3, False)
    second = orders.step("orphans", force=True)

    assert (second.counts["orphan_files"], ORPHANS_KEY in orders.metadata().properties) == (2, True)
    assert not any(path.exists() for path in old_files)
    orders.land(1)
    orders.assert_clean()


def put_old_time(path: Path) -> None:
    """Make a file old."""
    import os

    os.utime(path, (1e9, 1e9))


def test_table_records_its_last_maintenance(make: Make) -> None:
    """Each table says what was done to it last; a run that does nothing commits nothing and leaves that as it is."""
    orders = make()
    orders.land(3)
    assert last_maintenance(orders.project, orders.project.pipeline("orders")) == {}

    (done,) = orders.maintain("compaction").tables
    noted = last_maintenance(orders.project, orders.project.pipeline("orders"))
    location = orders.table().metadata_location
    orders.maintain("compaction", "expiry")

    assert list(noted) == [ORDERS]
    assert (noted[ORDERS].pipeline, noted[ORDERS].outcome) == ("orders", done)
    assert (noted[ORDERS].outcome.before.files, noted[ORDERS].outcome.after.files) == (3, 1)
    assert orders.table().metadata_location == location
    orders.land(1)
    assert last_maintenance(orders.project, orders.project.pipeline("orders")) == noted
    orders.assert_clean()


def test_failed_note_does_not_undo_maintenance(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that goes away behind the last step costs the notes, which the log says, not the result."""
    orders = make()
    orders.land(3)
    note = orders.engine.note

    def away(catalog: str, table: str, key: str, value: str) -> None:
        if key != HOLD_KEY or value == NO_HOLD:
            raise INTERNAL.retryable("the catalog does not answer")
        note(catalog, table, key, value)

    monkeypatch.setattr(orders.engine, "note", away)

    assert orders.step("compaction").status == "done"
    assert (
        f"{ORDERS}: the result could not be stored in the table's properties: the catalog does not answer"
        in orders.said
    )
    assert f"{ORDERS}: its snapshots are held for longer than needed: the catalog does not answer" in orders.said


def test_hold_outlives_a_rewrite_that_overlaps(make: Make) -> None:
    """Somebody compacts by hand while a compaction is under way: what that one holds stays held when the other ends."""
    orders = make()
    orders.land(3)
    held_files = []

    def rival() -> None:
        orders.engine.meanwhile = None
        held_files.append(orders.metadata().properties[HOLD_KEY])
        assert orders.step("compaction").status == "done"
        held_files.append(orders.metadata().properties[HOLD_KEY])

    orders.engine.meanwhile = rival

    orders.step("compaction")

    assert held_files[0] == held_files[1] != NO_HOLD
    assert orders.metadata().properties[HOLD_KEY] == NO_HOLD


def test_manifests_of_batches_are_merged_into_one(make: Make) -> None:
    """A manifest per batch becomes one."""
    orders = make()
    orders.land(4)

    step = orders.step("manifests")

    assert (step.status, step.counts["added_manifests_count"]) == ("done", 1)
    orders.assert_clean()


@pytest.mark.parametrize("step", ["expiry", "orphans"])
def test_waiting_batch_keeps_its_files(make: Make, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A batch is decided and its run killed: nothing is removed until it is finished, and nobody calls that a failure."""
    orders = make()
    orders.land(3)
    orders.send(3)
    with monkeypatch.context() as patch:
        at_failpoint(patch, Failpoint.DECIDE_COMMITTED, kill)
        with pytest.raises(Killed):
            orders.run()
    monkeypatch.setattr("frazil.maintain.steps._PAUSES", (0.0,))
    (orphan,) = put_old(orders.folder(), ["data/x.parquet"])
    orders.ahead, before = DAY, len(orders.metadata().snapshots)

    outcome = orders.step(step, force=step == "orphans")

    assert (outcome.status, orders.engine.calls) == ("skipped", [])
    assert "batch 4 is not finished" in outcome.reason
    assert (orphan.exists(), len(orders.metadata().snapshots)) == (True, before)
    orders.run()
    orders.ahead = timedelta() if step == "orphans" else DAY
    assert orders.step(step, force=step == "orphans").status == "done"
    orders.assert_clean()


def test_rollback_is_not_hidden_by_expiry(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots that a rollback left behind say that it was one; they stay until a reset has followed it."""
    orders = make()
    orders.land(3)
    table = orders.table()
    older = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)[-2]
    table.manage_snapshots().rollback_to_snapshot(older.snapshot_id).commit()
    monkeypatch.setattr("frazil.maintain.steps._PAUSES", (0.0,))
    orders.ahead = DAY

    assert orders.step("expiry").status == "skipped"

    orders.to_table()
    orders.run()
    assert orders.step("expiry").status == "done"
    orders.run()
    orders.assert_clean()


def test_lost_position_is_reported_as_error(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expiry after which the table does not say its position any more ends in a call for a person."""
    orders = make()
    orders.land(3)
    orders.ahead = DAY

    def break_it(*arguments: Any) -> int:
        with orders.table().transaction() as change:
            change.remove_properties(POSITION_KEY.format("orders"))
        return expire_snapshots(*arguments)

    monkeypatch.setattr(steps, "expire_snapshots", break_it)
    with pytest.raises(Terminal, match=r"the expiry removed .*, which Frazil needs"):
        orders.step("expiry")


def test_compaction_does_not_stop_rows_from_landing(make: Make) -> None:
    """Batches land between the plan of a compaction and its commit, and both are there."""
    orders = make()
    orders.land(4)
    orders.engine.meanwhile = lambda: orders.land(1)

    assert orders.step("compaction").status == "done"

    orders.assert_clean()


def test_delete_files_are_removed_by_maintenance(make: Make) -> None:
    """Files with positions of deleted rows go with the data files that they belong to, and the deleted rows stay away."""
    orders = make()
    orders.land(3)
    engine = orders.engine.spark
    engine.sql("ALTER TABLE lake.shop.orders SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')").collect()
    ids = orders.ids()
    engine.sql("DELETE FROM lake.shop.orders WHERE id = :id", args={"id": ids[0]}).collect()
    before = orders.look("compaction").tables[0].before

    orders.step("compaction")

    after = orders.look("compaction").tables[0].before
    assert (before.delete_files, after.delete_files) == (1, 0)
    assert orders.ids() == ids[1:]


def test_distinct_value_counts_are_kept_in_table_metadata(make: Make) -> None:
    """Distinct values are in the table's metadata, batches leave them there, and a tenth more rows make the step due."""
    orders = make(more="stats: {columns: [id]}")
    orders.land(1, count=12)

    step = orders.step("stats")

    assert step.status == "done", step
    (counted,) = orders.metadata().statistics
    assert [blob.properties for blob in counted.blob_metadata] == [{"ndv": "11"}]
    assert orders.look("stats").tables[0].steps[0].status == "skipped"
    orders.land(1)
    assert orders.metadata().statistics == [counted]
    assert orders.look("stats").tables[0].steps[0].status == "due"
    orders.assert_clean()
