"""Compaction, expiry and orphan removal by Spark beside runs: the position stays, nothing is done again or twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from frazil.batch.position import RunRequest
from frazil.failpoints import Failpoint
from frazil.run.batches.plan import plan_run
from tests.chaos.lab import LEDGER, ORDERS, TABLES, Lab
from tests.chaos.maintenance import Maintained, Maintenance, maintenance
from tests.chaos.scenes import BATCH, INGEST, REPLAY, Scene

MakeLab = Callable[..., Lab]
P = Failpoint

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def spark() -> Iterator[Maintenance]:
    """One JVM for the module."""
    with maintenance() as started:
        yield started


def everything(maintained: Maintained) -> None:
    """All that a maintenance job may do, in the order in which it does the most harm, on every table."""
    for table in TABLES:
        maintained.compact(table)
        maintained.expire(table)
        maintained.remove_orphans(table)


def test_position_survives_compaction_and_expiry(lab: MakeLab, spark: Maintenance) -> None:
    """A hundred idle runs after everything old is gone, nothing is committed; then new records go on where it stood."""
    orders = lab(max_records=BATCH)
    orders.fill(0, 60)
    orders.run()
    everything(spark.of(orders.project))
    before = orders.snapshots()
    assert set(before.values()) == {1}

    for number in range(100):
        assert plan_run(orders.project, orders.pipeline, RunRequest(f"idle-{number}")).plan is None

    assert orders.snapshots() == before
    orders.fill(1000)
    orders.run()
    orders.assert_clean()


@pytest.mark.parametrize(
    ("scene", "point", "time"),
    [
        *(INGEST.kill(point) for point in INGEST.points[1:]),
        *(REPLAY.kill(point) for point in REPLAY.points[1:]),
    ],
)
def test_maintenance_between_any_two_steps_disturbs_no_run(
    lab: MakeLab, spark: Maintenance, scene: Scene, point: Failpoint, time: int
) -> None:
    """Everything is compacted, expired and cleaned under a run; files that are staged are too young to be taken."""
    orders = lab(max_records=BATCH)
    running = orders.pause(point, time, scene.prepare(orders))
    maintained = spark.of(orders.project)
    everything(maintained)

    running.resume()
    output = running.succeed()

    if scene is INGEST:
        assert "refused" not in output
    orders.assert_clean()
    assert maintained.rows(ORDERS) == len(orders.rows())
    assert maintained.rows(LEDGER) == len(orders.rows(LEDGER))


def test_rival_run_finishes_killed_batch_after_maintenance(lab: MakeLab, spark: Maintenance) -> None:
    """A batch is decided and killed, all tables are compacted and expired, and another run finishes the batch."""
    orders = lab(max_records=BATCH)
    orders.crash(P.DECIDE_COMMITTED, 1, INGEST.prepare(orders))
    everything(spark.of(orders.project))

    orders.run()

    orders.assert_clean()
    orders.assert_at_rest()
