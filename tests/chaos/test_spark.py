"""The same with the product's engine: the driver of a Spark job, or one of its workers, is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from frazil.errors import Retryable
from frazil.failpoints import VARIABLE, Failpoint
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from tests.chaos.lab import Lab
from tests.chaos.processes import SECONDS, kill_at
from tests.chaos.scenes import BATCH

MakeLab = Callable[..., Lab]
P = Failpoint


REPLAY = ("replay", "orders", "--from", "earliest", "--reason", "a test", "--yes")


def on_spark(orders: Lab, *deed: str, crash: str = "") -> subprocess.CompletedProcess[str]:
    """`frazil run --engine spark` or `frazil replay …`, with a job that is hit at a crash point."""
    command = [sys.executable, "-m", "frazil.cli", *(deed or ("run", "orders")), "--engine", "spark"]
    env = os.environ | orders.env | {VARIABLE: crash}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=2 * SECONDS, check=False)


@pytest.mark.parametrize(
    "point",
    [
        P.DECIDE_COMMITTED,
        pytest.param(P.STAGING, marks=pytest.mark.full),
        pytest.param(P.AUDITED, marks=pytest.mark.full),
        pytest.param(P.FOLLOW_COMMITTING, marks=pytest.mark.full),
    ],
)
def test_killed_spark_job_neither_loses_nor_doubles_records(lab: MakeLab, point: Failpoint) -> None:
    """Whether a worker dies while it writes or the driver around its commits: the next run carries on."""
    fetch(Home.resolve(), "spark")
    orders = lab(partitions=2, max_records=BATCH)
    orders.run()
    orders.fill(0, 40)
    orders.fill(100, 40)

    ended = on_spark(orders, crash=kill_at(point))
    orders.run()

    assert ended.returncode == Retryable.exit_code, ended.stderr
    orders.assert_clean()
    orders.assert_at_rest()


@pytest.mark.full
def test_killed_spark_replay_neither_shows_nor_loses_rows(lab: MakeLab) -> None:
    """The driver dies when the new rows are all on the branch: readers see the old ones, and asking again replaces them."""
    fetch(Home.resolve(), "spark")
    orders = lab(partitions=2, max_records=BATCH)
    orders.fill(0, 40)
    orders.fill(100, 40)
    orders.run()
    before = orders.rows()

    ended = on_spark(orders, *REPLAY, crash=kill_at(P.BRANCH_STAGED))
    assert ended.returncode == Retryable.exit_code, ended.stderr
    assert orders.rows() == before
    again = on_spark(orders, *REPLAY)

    assert again.returncode == 0, again.stderr
    (replayed,) = orders.batches("replay")
    assert {row["_frazil_batch"] for row in orders.rows()} == {replayed["n"]}
    orders.run()  # the plan after a decision removes the branches of its other attempts
    orders.assert_clean()
    orders.assert_at_rest()
