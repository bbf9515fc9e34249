"""Faults under a real Airflow in the middle of a run: whatever is killed, hangs or is marked, records land once and nobody is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from uuid import uuid4

import pytest

from frazil.devstack import airflow, broker, stack
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import OutgoingRecord
from frazil.runtime.drivers import drivers
from frazil.runtime.home import Home
from frazil.runtime.process import Stat, until
from frazil.verify.check import verify
from tests.e2e.drivers import AtWork, mid_batch, spark_of
from tests.e2e.embedded import UNPAUSED_SECONDS, Embedded
from tests.produce import produce

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SPARK, INLINE = "drills", "inline_drills"
BACKLOG = {SPARK: 3_000, INLINE: 1_200}
"""Records that wait when a drill begins, of 50 and of 2 a batch: for longer than the 5 s in which Airflow tells a task to end."""

ORPHAN_SECONDS = 60
"""How long a driver may live on without its task; it takes a second, and 20 s if it finishes a batch."""

RUN_SECONDS = 900
"""Bounds a run with its tries, and the minute until Airflow misses a task."""

BROKER_SECONDS = 300
"""Bounds the wait until a job gives up a broker that is away: Spark's readers ask for two minutes."""

full = pytest.mark.full


@dataclass(frozen=True)
class Drill:
    """A run of a pipeline, for a fault to hit.

    Attributes:
        embedded: The stack.
        pipeline: The pipeline. It has a topic and a table of its own.
        dag_id: The DAG of the run.
        run_id: The run.
    """

    embedded: Embedded
    pipeline: str
    dag_id: str
    run_id: str

    @property
    def home(self) -> Home:
        """The stack's home."""
        return self.embedded.project.home

    def mid_batch(self) -> AtWork:
        """Start the run over a backlog, and wait until it is in the middle of it."""
        first = self.records()
        self.embedded.send(self.pipeline, range(first, first + BACKLOG[self.pipeline]))
        produce(self.embedded.cluster, self.pipeline, [OutgoingRecord(None, b"broken")])
        self.embedded.api.trigger(self.dag_id, run_id=self.run_id)
        return mid_batch(self.home, self.pipeline, self.dag_id, self.run_id)

    def assert_carried_on(self, work: AtWork) -> None:
        """Nobody of the hit try is left, and the run lands the rest by itself."""
        assert_gone(work)
        self.assert_ends("success")
        self.assert_at_rest()

    def assert_over(self, work: AtWork) -> None:
        """Nobody of the run is left. It leaves records unread, which is no loss: the pipeline's next run lands them.

        Its state says nothing: Airflow skips the last task of a run that is marked failed, and where the scheduler looks
        at that one in the same moment, it calls the run a success.
        """
        self.embedded.api.wait(self.dag_id, self.run_id, RUN_SECONDS)
        assert_gone(work)
        assert len(self.outcomes()) < self.records(), "the fault came too late: everything had landed"
        next_one = replace(self, dag_id=f"ingest__{self.pipeline}", run_id=f"{self.run_id}-next")
        self.embedded.api.trigger(next_one.dag_id, run_id=next_one.run_id)
        next_one.assert_ends("success")
        self.assert_at_rest()

    def assert_ends(self, state: str) -> None:
        """The run ends so."""
        assert self.embedded.api.wait(self.dag_id, self.run_id, RUN_SECONDS).state == state

    def assert_at_rest(self) -> None:
        """Every record is a row or a dead letter, once; the independent check agrees, and no process of a batch is left."""
        project = self.embedded.project
        assert len(self.outcomes()) == self.records()
        assert len(set(self.outcomes())) == self.records()
        result = verify(project, project.pipeline(self.pipeline))
        assert result.is_clean, "\n".join(map(str, result.differences))
        assert drivers(self.home, self.pipeline) == []
        assert list(spark_of(self.home)) == []

    def outcomes(self) -> list[tuple[int, int]]:
        """Places in the topic, partition and offset, of all rows and dead letters."""
        rows, letters = (self.embedded.rows(f"own.{self.pipeline}{suffix}") for suffix in ("", "__dead_letters"))
        places = [(row["_kafka_partition"], row["_kafka_offset"]) for row in rows]
        return places + [(letter["partition"], letter["offset"]) for letter in letters]

    def records(self) -> int:
        """How many records the topic has."""
        (facts,) = observe(self.embedded.cluster, [self.pipeline]).topics.values()
        return sum(partition.stable_end for partition in facts.partitions)


MakeDrill = Callable[..., Drill]


@pytest.fixture
def drill(embedded: Embedded) -> MakeDrill:
    """A new run of a pipeline, whose topic is there and whose DAG runs."""

    def make(pipeline: str, dag_id: str | None = None) -> Drill:
        if create_topic(embedded.cluster, pipeline, 2):
            embedded.unpause(f"ingest__{pipeline}")
        if dag_id is not None:
            assert until(lambda: dag_id in embedded.api.dag_ids(), UNPAUSED_SECONDS, 0.5), embedded.api.import_errors()
            embedded.api.unpause(dag_id)
        return Drill(embedded, pipeline, dag_id or f"ingest__{pipeline}", f"drill-{uuid4().hex[:8]}")

    return make


def assert_gone(work: AtWork) -> None:
    """The processes of a try have ended, or end soon."""
    assert until(lambda: not work.still_alive(), ORPHAN_SECONDS), f"left: {work.still_alive()} of {work}"


def kill(process: Stat) -> None:
    """End a process at once."""
    os.kill(process.pid, signal.SIGKILL)


@contextmanager
def paused(process: Stat) -> Iterator[None]:
    """While the block runs, the process stands still and answers nobody."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def component(drill: Drill, name: str) -> Stat:
    """The process of a component of the stack."""
    running = stack.processes_of(drill.home).running(name)
    assert running is not None
    return running.leader


@full
@pytest.mark.parametrize(
    ("pipeline", "who"),
    [*product([SPARK], ["driver", "jvm", "task", "worker"]), *product([INLINE], ["task", "worker"])],
)
def test_killed_process_ends_the_others_and_leaves_no_gap(drill: MakeDrill, pipeline: str, who: str) -> None:
    """Each process of a run is killed in the middle of it: the others end, also one whose worker is gone, and Airflow's next
    try lands the rest.
    """
    hit = drill(pipeline)
    work = hit.mid_batch()

    kill(getattr(work, who))

    hit.assert_carried_on(work)


@full
@pytest.mark.parametrize(
    ("pipeline", "name"), [*product([INLINE], [airflow.API_SERVER, *airflow.WORKERS]), (SPARK, "airflow-scheduler")]
)
def test_killed_component_does_not_end_run(drill: MakeDrill, pipeline: str, name: str) -> None:
    """A component of Airflow is killed in the middle of a run, and `frazil up` starts it again: the run lands everything,
    whether its task lived on or was tried again.
    """
    hit = drill(pipeline)
    work = hit.mid_batch()

    kill(component(hit, name))
    assert until(lambda: stack.processes_of(hit.home).running(name) is None, ORPHAN_SECONDS)
    hit.embedded.start()

    hit.assert_ends("success")
    assert_gone(work)
    hit.assert_at_rest()


@full
@pytest.mark.parametrize("pipeline", [SPARK, INLINE])
def test_run_lands_rest_when_broker_is_back(drill: MakeDrill, pipeline: str) -> None:
    """The broker stops in the middle of a run: the try fails and leaves nobody, and when it is back the next one lands the rest."""
    hit = drill(pipeline)
    work = hit.mid_batch()

    broker.stop(stack.processes_of(hit.home))
    try:
        assert until(lambda: not work.still_alive(), BROKER_SECONDS), f"left: {work.still_alive()} of {work}"
    finally:
        hit.embedded.start()

    hit.assert_carried_on(work)


@pytest.mark.parametrize("pipeline", [SPARK, pytest.param(INLINE, marks=full)])
def test_run_marked_failed_ends_and_next_run_lands_rest(drill: MakeDrill, pipeline: str) -> None:
    """Its driver ends within seconds; what it had not landed is landed by the next run."""
    hit = drill(pipeline)
    work = hit.mid_batch()

    hit.embedded.api.fail(hit.dag_id, hit.run_id)

    hit.assert_over(work)


@full
@pytest.mark.parametrize("tasks", [["ingest"], ["plan", "ingest"]])
@pytest.mark.parametrize("pipeline", [SPARK, INLINE])
def test_cleared_task_ends_before_its_next_try(drill: MakeDrill, pipeline: str, tasks: list[str]) -> None:
    """Cleared at work, it ends, and the same run lands the rest, by its old plan or by a new one."""
    hit = drill(pipeline)
    work = hit.mid_batch()

    body = {"dag_run_id": hit.run_id, "task_ids": tasks, "dry_run": False, "only_failed": False}
    hit.embedded.api._request("POST", f"/dags/{hit.dag_id}/clearTaskInstances", json=body)

    hit.assert_carried_on(work)


@full
@pytest.mark.parametrize("limit", ["task", "run"])
@pytest.mark.parametrize("pipeline", [SPARK, INLINE])
def test_hanging_driver_ends_at_its_timeout(drill: MakeDrill, pipeline: str, limit: str) -> None:
    """The broker answers nobody any more, so the driver hangs until the time of its task, or of its run, is over: then it is
    gone, and the next run lands the rest.
    """
    hit = drill(pipeline, f"hurried_{limit}__{pipeline}")
    work = hit.mid_batch()

    with paused(component(hit, broker.NAME)):
        hit.embedded.api.wait(hit.dag_id, hit.run_id, RUN_SECONDS)
        assert_gone(work)

    hit.assert_over(work)


@full
@pytest.mark.parametrize("pipeline", [INLINE, SPARK])
def test_driver_forgotten_by_airflow_is_stopped(drill: MakeDrill, pipeline: str) -> None:
    """Its worker stands still, so nobody tells it that its run is over: `frazil stop` finds and ends it."""
    hit = drill(pipeline)
    work = hit.mid_batch()

    with paused(work.worker):
        hit.embedded.api.fail(hit.dag_id, hit.run_id)
        assert [driver.pid for driver in drivers(hit.home, pipeline, hit.run_id)] == [work.driver.pid]
        command = [sys.executable, "-m", "frazil.cli", "stop", pipeline]
        output = subprocess.run(
            command, env=os.environ | hit.embedded.project.environment(), capture_output=True, text=True, check=True
        ).stdout
        assert f"run {hit.run_id} (process {work.driver.pid}) ended in" in output
        assert drivers(hit.home, pipeline) == []

    hit.assert_over(work)
