"""A maintenance job that is killed with its JVM in the middle of a step: whoever comes next finds everything, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from frazil.runtime.process import until
from tests.chaos.lab import ORDERS, TABLES, Lab

MakeLab = Callable[..., Lab]

MAINTENANCE = """maintenance: {compaction: {min_files: 2}, manifests: {min_files: 2}, expiry: {min_snapshots: 1}}
"""
SECONDS = 180
"""Bounds a job; it takes 15 s on an idle machine."""

ORPHANS = 500


def folder(orders: Lab) -> Path:
    return Path(orders.load().metadata.location.removeprefix("file://"))


def files(orders: Lab, pattern: str) -> int:
    return sum(1 for _ in folder(orders).glob(pattern))


def writes_data(orders: Lab) -> Callable[[], bool]:
    """Compacted files are being written, and not committed yet."""
    before = files(orders, "data/**/*.parquet")
    return lambda: files(orders, "data/**/*.parquet") > before


def writes_manifests(orders: Lab) -> Callable[[], bool]:
    """A manifest more lies there."""
    before = files(orders, "metadata/*.avro")
    return lambda: files(orders, "metadata/*.avro") > before


def drops_snapshots(orders: Lab) -> Callable[[], bool]:
    """The snapshots are gone, and nothing is noted of it."""
    before = len(orders.load().metadata.snapshots)
    return lambda: len(orders.load().metadata.snapshots) < before


def removes_orphans(orders: Lab) -> Callable[[], bool]:
    """Some of many are gone."""
    for number in range(ORPHANS):
        orphan = folder(orders) / f"data/orphan-{number}.parquet"
        orphan.write_bytes(b"left behind")
        os.utime(orphan, (1e9, 1e9))
    return lambda: files(orders, "data/orphan-*.parquet") < ORPHANS


def let_all_expire(orders: Lab) -> None:
    """Every snapshot is old at once, of all tables."""
    old = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"}
    for table in TABLES:
        with orders.load(table).transaction() as change:
            change.set_properties(old)


@pytest.mark.embedded  # looks into folders, and at processes of its own Spark
@pytest.mark.timeout(4 * SECONDS)
@pytest.mark.parametrize(
    ("step", "middle"),
    [
        pytest.param("compaction", writes_data, marks=pytest.mark.full),
        pytest.param("manifests", writes_manifests, marks=pytest.mark.full),
        ("expiry", drops_snapshots),
        pytest.param("orphans", removes_orphans, marks=pytest.mark.full),
    ],
)
def test_killed_maintenance_loses_neither_position_nor_rows(
    lab: MakeLab, step: str, middle: Callable[[Lab], Callable[[], bool]]
) -> None:
    """The position is where it was, nothing comes again, and the next batch lands: killed at any step."""
    fetch(Home.resolve(), "spark")
    orders = lab(more=MAINTENANCE)
    for first in range(0, 120, 40):
        orders.fill(first)
        orders.run()
    let_all_expire(orders)
    is_there = middle(orders)
    command = [sys.executable, "-m", "frazil.cli", "maintain", "orders", "--table", ORDERS, "--step", step, "--force"]
    job = subprocess.Popen(command, env=os.environ | orders.env, start_new_session=True, stdout=subprocess.PIPE)
    try:
        assert until(lambda: is_there() or job.poll() is not None, SECONDS, 0.002), "never got there"
        assert job.poll() is None, f"ended before it was killed: {job.communicate()}"
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()

    orders.assert_at_rest()
    orders.assert_clean()
    orders.fill(500)
    orders.run()
    orders.assert_clean()
