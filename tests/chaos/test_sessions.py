"""A session that is killed, asked to stop, met by a rival or left without a broker: each record lands once all the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from frazil.devstack import broker as local_broker
from frazil.errors import Stopped
from frazil.failpoints import Failpoint
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.drivers import drivers
from frazil.runtime.home import Home, bootstrap_servers
from frazil.runtime.process import Processes, until
from tests.chaos import child
from tests.chaos.lab import Lab, new_lab
from tests.chaos.processes import SECONDS, Nursery, kill_at, stop_at
from tests.conftest import FreePorts
from tests.servers import with_ports

MakeLab = Callable[..., Lab]
P = Failpoint

AT_ONCE_SECONDS = 60
"""How soon a session ends that waits for its next tick; it takes half a second, and the session would last for two minutes."""


@pytest.mark.parametrize(
    "point",
    [
        P.STAGED,
        pytest.param(P.DECIDE_COMMITTING, marks=pytest.mark.full),
        P.DECIDE_COMMITTED,
    ],
)
def test_killed_session_neither_loses_nor_doubles_records(lab: MakeLab, point: Failpoint) -> None:
    """Killed anywhere in its second batch, what it landed stays, and the next session carries on."""
    orders = lab(partitions=2)
    orders.run()
    orders.fill(0)
    session = orders.start(child.stay, kill_at(point, 2))
    assert until(lambda: "finished" in session.output, SECONDS), session.output
    orders.fill(100)
    session.die()
    orders.fill(200)

    orders.run(partial(child.stay, seconds=2.0))

    orders.assert_clean()
    orders.assert_at_rest()


def test_session_that_waits_stops_at_once(lab: MakeLab) -> None:
    """Between two batches SIGTERM ends it at once, with the exit code of a run that was asked to stop."""
    orders = lab()
    orders.fill(0)
    session = orders.start(child.stay)
    assert until(lambda: "finished" in session.output, SECONDS), session.output
    (driver,) = drivers(orders.project.home, "orders")

    began = time.monotonic()
    driver.ask_to_stop()
    ended = session.wait()

    assert time.monotonic() - began < AT_ONCE_SECONDS
    assert ended.code == Stopped.exit_code, ended.output
    assert "between two batches" in ended.output
    assert drivers(orders.project.home, "orders") == []
    orders.assert_clean()


def test_session_and_run_beside_it_land_each_record_once(lab: MakeLab) -> None:
    """A run that overtakes a session lands its records, and the session goes on with those that come later.

    It stands still where it holds no lock of the catalog: a run beside one that does would have to wait for it.
    """
    orders = lab(partitions=2)
    session = orders.start(child.stay, ",".join(stop_at(P.STAGED, time) for time in (1, 2, 3)))
    for first in range(0, 600, 200):
        orders.fill(first)
        session.pause()
        orders.fill(first + 100)
        orders.run()
        session.resume()
    orders.fill(600)
    assert until(lambda: len(orders.rows()) >= 7 * 21, SECONDS), session.output
    session.kill()

    orders.run()
    orders.assert_clean()


@contextmanager
def own_broker(folder: Path, free_ports: FreePorts) -> Iterator[tuple[Home, Processes]]:
    """A broker that nobody else needs."""
    kafka, controller = free_ports(2)
    home = with_ports(replace(Home.resolve(), root=folder), kafka=kafka, controller=controller)
    processes = Processes(home.run, home.logs, home.root)
    try:
        local_broker.start(home, processes, print)
        yield home, processes
    finally:
        local_broker.stop(processes)


@pytest.mark.full  # a broker that starts twice
def test_session_outlives_restart_of_its_broker(tmp_path: Path, children: Nursery, free_ports: FreePorts) -> None:
    """A broker that is away for some seconds is waited for; records that it got then land in the same session."""
    with own_broker(tmp_path / "broker", free_ports) as (home, processes):
        orders = new_lab(tmp_path, Cluster("local", {"bootstrap.servers": bootstrap_servers(home)}), children)
        orders.fill(0)
        session = orders.start(child.stay)
        assert until(lambda: "batch 1: finished" in session.output, SECONDS), session.output
        local_broker.stop(processes)
        assert until(lambda: "trying again" in session.output, SECONDS), session.output
        local_broker.start(home, processes, print)
        orders.fill(100)
        assert until(lambda: "batch 2: finished" in session.output, SECONDS), session.output
        orders.assert_clean()
