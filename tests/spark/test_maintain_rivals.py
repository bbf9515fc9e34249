"""Batches and compaction of one table at the same moment: rows never wait, and each side gets its turn."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.batch.position import EARLIEST, RunRequest
from frazil.failpoints import Failpoint
from frazil.iceberg.commit import expiry
from frazil.kafka.client.cluster import Cluster
from frazil.maintain.run import StepOutcome
from frazil.runtime.process import until
from tests.spark.kills import at_failpoint
from tests.spark.maintained import Maintained, maintained

Make = Callable[..., Maintained]
CORES = 2
"""Of the session that tests share."""

MERGED = "write: upsert\n    identifier: [id]"


@pytest.fixture
def make(tmp_path: Path, cluster: Cluster, topic: Callable[..., str], spark: SparkSession) -> Make:
    """Make a pipeline: `make(layout="partition_by: [day(at)]")`."""

    def made(**keys: str) -> Maintained:
        return maintained(tmp_path, cluster, topic(), spark, **keys)

    return made


def beside_compaction(
    orders: Maintained, monkeypatch: pytest.MonkeyPatch, place: Failpoint, deed: Callable[[], None]
) -> StepOutcome:
    """Do something that goes on from that place when a compaction has its plan, and waits for a core to write files."""
    context = orders.engine.spark.sparkContext
    tracker, gate = context.statusTracker(), orders.project.home.root / f"gate-{uuid.uuid4().hex}"
    with ThreadPoolExecutor(2) as pool:
        begun = []

        def compaction_runs() -> None:
            pool.submit(lambda: context.parallelize([str(gate)] * CORES, CORES).foreach(stand_before))
            assert until(lambda: len(tracker.getActiveJobsIds()) == 1, 60, 0.002)
            begun.append(pool.submit(orders.step, "compaction"))
            assert until(lambda: len(tracker.getActiveJobsIds()) > 1, 60, 0.002)

        try:
            with monkeypatch.context() as patch:
                at_failpoint(patch, place, compaction_runs)
                deed()
        finally:
            gate.touch()
        (outcome,) = begun
        return outcome.result()


def stand_before(gate: str) -> None:
    """Hold a core of Spark until there is a file; not for ever, lest a deed that needs a core itself hangs."""
    end = time.monotonic() + 60
    while not Path(gate).exists() and time.monotonic() < end:
        time.sleep(0.01)


def replay() -> RunRequest:
    """All again."""
    return RunRequest(str(uuid.uuid4()), mode="replay", start=EARLIEST, reason="a test")


def test_rows_land_during_compaction(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is decided while a compaction writes its files: it stands before them, and they are committed all the same."""
    orders = make(layout="partition_by: ['bucket(8, id)']")
    orders.land(4, count=40)
    orders.send(5)

    outcome = beside_compaction(orders, monkeypatch, Failpoint.DECIDE_COMMITTING, orders.run)

    assert outcome.status == "done", outcome
    sequences = {
        snapshot.snapshot_id: snapshot.sequence_number
        for snapshot in orders.metadata().snapshots
        if snapshot.sequence_number
    }
    landed = max(n for id_, n in sequences.items() if operation(orders, id_) == "append")
    head = orders.metadata().current_snapshot_id
    written = next(entry for entry in orders.table().inspect.entries().to_pylist() if entry["snapshot_id"] == head)
    assert head is not None
    assert operation(orders, head) == "replace"
    assert written["sequence_number"] < landed < sequences[head]
    orders.assert_clean()


def test_compaction_commits_after_more_batches_than_a_table_lists(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iceberg looks through all snapshots since it began: batches leave them until it is over."""
    orders = make()
    orders.land(4)
    monkeypatch.setattr(expiry, "RECENT", 2)
    orders.send(5)

    def land_many() -> None:
        orders.run()
        orders.land(5)

    outcome = beside_compaction(orders, monkeypatch, Failpoint.DECIDE_COMMITTING, land_many)

    assert outcome.status == "done", outcome
    assert orders.metadata().properties[expiry.HOLD_KEY] == expiry.NO_HOLD
    orders.land(3)
    assert len(orders.metadata().snapshots) <= 3
    orders.assert_clean()


def operation(orders: Maintained, snapshot_id: int) -> str | None:
    """What a snapshot did."""
    snapshot = orders.metadata().snapshot_by_id(snapshot_id)
    return snapshot.summary.operation.value if snapshot is not None and snapshot.summary is not None else None


def test_compaction_does_not_bring_back_rows_replaced_by_replay(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay takes the files that a compaction is about to replace: it gives way, says so, and is due again."""
    orders = make()
    orders.land(4)

    outcome = beside_compaction(orders, monkeypatch, Failpoint.DECIDE_COMMITTING, lambda: orders.run(replay()))

    assert outcome.status == "gave_way", outcome
    orders.assert_clean()
    orders.land(2)
    assert orders.step("compaction").status == "done"
    orders.assert_clean()


def test_replay_does_not_restore_files_replaced_by_compaction(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction is over before a replay commits: its removal is computed anew, from the compacted files."""
    orders = make()
    orders.land(4)

    with monkeypatch.context() as patch:
        at_failpoint(patch, Failpoint.DECIDE_COMMITTING, lambda: orders.step("compaction"))
        orders.run(replay())

    assert (
        len(
            [
                snapshot
                for snapshot in orders.metadata().snapshots
                if operation(orders, snapshot.snapshot_id) == "replace"
            ]
        )
        == 1
    )
    orders.assert_clean()


def test_merges_do_not_starve_compaction(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge overtakes a compaction, which tries again with fewer files, in one commit, within the same run."""
    orders = make(layout=MERGED)
    orders.land(4)
    orders.sent = 0
    orders.send(9)  # orders that are there

    outcome = beside_compaction(orders, monkeypatch, Failpoint.BRANCH_STAGED, orders.run)

    assert any(
        "another commit was faster than compaction, trying again with fewer files" in line for line in orders.said
    )
    assert (outcome.status, orders.engine.calls.count("rewrite_data_files")) == ("done", 2)
    orders.assert_clean()


def test_compaction_does_not_starve_merge(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction is over before a merge is shown: the merge begins anew, once, by itself."""
    orders = make(layout=MERGED)
    orders.land(4)
    orders.sent = 0
    orders.send(9)

    with monkeypatch.context() as patch:
        at_failpoint(patch, Failpoint.BRANCH_STAGED, lambda: orders.step("compaction"))
        orders.run()

    assert (
        len(
            [
                snapshot
                for snapshot in orders.metadata().snapshots
                if operation(orders, snapshot.snapshot_id) == "replace"
            ]
        )
        == 1
    )
    orders.assert_clean()
