"""Maintenance, runs and kills in any order: the position is never lost, no record is there twice or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.failpoints import Failpoint
from frazil.kafka.client.cluster import Cluster
from frazil.maintain.need import STEPS, Step
from tests.spark.kills import Killed, at_failpoint, kill
from tests.spark.maintained import ORDERS, Maintained, maintained, put_old

POINTS = (
    Failpoint.STAGED,
    Failpoint.MANIFEST_WRITTEN,
    Failpoint.DECIDE_COMMITTING,
    Failpoint.DECIDE_COMMITTED,
    Failpoint.FOLLOW_COMMITTED,
    Failpoint.RECORD_COMMITTED,
)
PROCEDURES = ("rewrite_data_files", "rewrite_manifests", "remove_orphan_files")
ROUNDS = 10

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]
"""Ten rounds take half a minute on an idle machine, and many times that beside other work."""


@pytest.mark.parametrize("seed", [1, 2])
def test_position_survives_steps_in_any_order(
    tmp_path: Path,
    cluster: Cluster,
    topic: Callable[..., str],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """Steps in random order, forced, killed before or behind their commit; runs killed at random places in between."""
    orders = maintained(tmp_path, cluster, topic(), spark)
    orders.land(2)
    monkeypatch.setattr("frazil.maintain.steps._PAUSES", (0.0,))
    chance = random.Random(seed)
    reached = orders.position
    for _ in range(ROUNDS):
        if chance.random() < 0.5:
            _maintained(orders, chance.choice(STEPS), chance)
        else:
            _ran(orders, monkeypatch, chance)
        now = orders.position
        assert now.n >= reached.n
        assert [t.next for t in now.topics.values()] >= [t.next for t in reached.topics.values()]
        reached = now

    orders.engine.dies = {}
    orders.land(1)
    orders.maintain(table=None, force=True)
    orders.land(1)
    orders.assert_clean()
    assert orders.ids() == sorted(set(orders.ids()))


def _maintained(orders: Maintained, step: Step, chance: random.Random) -> None:
    """One step, on one table or all; perhaps the process ends in its middle."""
    put_old(orders.folder(), ["data/orphan.parquet"])
    # Orphans are as old as their files say; for them the clock is right.
    orders.ahead = timedelta() if step == "orphans" else timedelta(days=chance.choice([0, 1, 10]))
    orders.engine.dies = (
        {chance.choice(PROCEDURES): chance.choice(["before", "behind"])} if chance.random() < 0.4 else {}
    )
    try:
        result = orders.maintain(step, table=chance.choice([ORDERS, None]), force=True)
    except Killed:
        return
    assert not result.with_status("failed"), result


def _ran(orders: Maintained, monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Some records and a run, which perhaps is killed."""
    orders.send(chance.randint(1, 4))
    with monkeypatch.context() as patch:
        if chance.random() < 0.5:
            at_failpoint(patch, chance.choice(POINTS), kill)
        try:
            orders.run()
        except Killed:
            return
