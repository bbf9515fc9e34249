"""A real standalone cluster of two workers, one of which loses its executor, or is lost, in the middle of a batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from frazil.devstack import spark_cluster
from frazil.failpoints import VARIABLE, Failpoint
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.project import Project
from frazil.runtime.home import Home, project_root
from frazil.runtime.process import Processes, session_members, until
from tests.chaos.processes import SECONDS, stop_at
from tests.produce import produce
from tests.servers import with_ports

RECORDS: Final = 120_000
"""Two tasks: one for each worker's core."""

SETTINGS: Final = """
clusters: {{local: {{bootstrap_servers: "{brokers}"}}}}
catalogs: {{lake: {{uri: "sqlite:///${{local:home}}/catalog.db", warehouse: "file://${{local:home}}/warehouse"}}}}
engines:
  spark:
    master: "{master}"
    conf:
      spark.cores.max: "2"
      spark.executor.cores: "1"
      spark.executor.memory: 512m
      spark.executorEnv.{variable}: "{stop}"
"""
ORDERS: Final = """
name: orders
source: {{topics: [{topic}]}}
destinations: [{{table: shop.orders, columns: {{id: {{type: long, required: true}}}}}}]
"""


class Workers:
    """The processes of a cluster: each worker has a session, in which its executors and their Python are."""

    def __init__(self, home: Home) -> None:
        records = Processes(home.run, home.logs, home.root)
        executors = [records.running(spark_cluster.worker(number)) for number in range(2)]
        self.sessions = [process.pid for process in executors if process is not None]

    def standing(self, session: int) -> list[int]:
        """Python workers that stand at the crash point."""
        return [member.pid for member in session_members(session) if member.state == "T"]

    def executors(self, session: int) -> list[int]:
        """JVMs of executors."""
        return [
            member.pid for member in session_members(session) if b"CoarseGrainedExecutorBackend" in _command(member.pid)
        ]

    def go_on(self) -> None:
        """Let everything that stands at the crash point go on: also what comes there in a second try."""
        for session in self.sessions:
            for pid in self.standing(session):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@dataclass(frozen=True)
class Place:
    """A cluster, and a project whose engine it is; its Python workers stop in the middle of their first task."""

    home: Home
    env: dict[str, str]

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """A run, ended at the end whatever happened, and its Spark with it."""
        command, env = [sys.executable, "-m", "frazil.cli", "run", "orders"], os.environ | self.env
        run = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield run
        finally:
            if run.poll() is None:
                run.send_signal(signal.SIGINT)
                run.send_signal(signal.SIGINT)
            run.communicate(timeout=SECONDS)

    @property
    def said(self) -> str:
        """What Spark logged."""
        return "".join(file.read_text() for file in self.home.logs.glob("spark-orders-*.log"))


@pytest.fixture
def place(
    tmp_path: Path, cluster: Cluster, topic: Callable[..., str], free_ports: Callable[[int], list[int]]
) -> Iterator[Place]:
    (port,) = free_ports(1)
    home, name = with_ports(replace(Home.resolve(), root=tmp_path / "home"), spark_master=port), topic(2)
    processes = Processes(home.run, home.logs, home.root)
    produce(cluster, name, (OutgoingRecord(None, b'{"id": %d}' % number) for number in range(RECORDS)))
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(ORDERS.format(topic=name))
    options = {"brokers": cluster.bootstrap_servers, "master": spark_cluster.url(port)}
    stopped = {"variable": VARIABLE, "stop": stop_at(Failpoint.STAGING)}
    (tmp_path / "settings.yaml").write_text(SETTINGS.format(**options, **stopped))
    env = {
        "FRAZIL_HOME": str(home.root),
        "FRAZIL_JARS": str(home.jars),
        "FRAZIL_SETTINGS": str(tmp_path / "settings.yaml"),
        "FRAZIL_PIPELINES": str(tmp_path / "pipelines"),
        "PYTHONPATH": str(project_root() / "include"),
    }
    try:
        spark_cluster.start(home, processes, print, 2)
        yield Place(home, env)
    finally:
        spark_cluster.stop(processes, 2)


@pytest.mark.full
@pytest.mark.parametrize("lost", ["executor", "worker"])
def test_lost_executor_neither_loses_nor_doubles_rows(place: Place, lost: str) -> None:
    """Its task is done again elsewhere: each record lands once, and no file of the task that died is in the table."""
    workers = Workers(place.home)
    with place.running() as run:
        assert until(lambda: all(map(workers.standing, workers.sessions)) or run.poll() is not None, SECONDS), (
            place.said
        )
        assert run.poll() is None, place.said
        first = workers.sessions[0]
        lost_pids = (
            workers.executors(first) if lost == "executor" else [member.pid for member in session_members(first)]
        )
        for pid in [*lost_pids, *workers.standing(first)]:
            with suppress(ProcessLookupError):  # ended with its executor
                os.kill(pid, signal.SIGKILL)

        def has_ended() -> bool:
            workers.go_on()
            return run.poll() is not None

        assert until(has_ended, SECONDS), place.said

    assert run.returncode == 0, place.said
    assert "Lost executor" in place.said
    project = Project.load(os.environ | place.env)
    table = project.lake_of(project.pipeline("orders")).load_table("shop.orders")
    ids = table.scan(selected_fields=("id",)).to_arrow().column("id").to_pylist()
    files = table.inspect.files()
    assert (len(ids), len(set(ids))) == (RECORDS, RECORDS)
    assert sum(files.column("record_count").to_pylist()) == RECORDS
    assert files.num_rows == 2
