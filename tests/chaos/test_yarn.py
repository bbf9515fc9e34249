"""Drivers inside a real YARN: killed at crash points, with their application, with their node, and without who waits for them."""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from frazil.batch.position import RunRequest
from frazil.errors import Retryable, Stopped
from frazil.failpoints import VARIABLE, Failpoint
from frazil.kafka.client.cluster import Cluster
from frazil.project import SETTINGS_VARIABLE
from frazil.run.batches.plan import plan_run
from frazil.runtime.home import LOOPBACK, Home, project_root
from frazil.runtime.jars import fetch
from frazil.runtime.process import until
from tests.chaos.lab import Lab, new_lab
from tests.chaos.processes import Nursery, kill_at, stop_at
from tests.chaos.scenes import BATCH
from tests.yarn_server import ADDRESSES, CLOSED, Yarn, yarn_cluster

P = Failpoint

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(1200),
    pytest.mark.tried("Spark on YARN, driver in the cluster", "real"),
]

SECONDS: Final = 400
"""Bounds a run: three JVMs, one after the other, and an earlier driver that is waited for."""

CONF: Final = {
    "spark.driver.memoryOverhead": "256m",
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverhead": "256m",
    "spark.executor.instances": "1",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": LOOPBACK,
    "spark.executorEnv.SPARK_LOCAL_IP": LOOPBACK,
}


RUN: Final = ("-m", "frazil.cli", "run", "orders", "--engine", "yarn")


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]) -> Iterator[Yarn]:
    with yarn_cluster(tmp_path_factory.mktemp("yarn"), free_ports(len(ADDRESSES)), nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed Python with the packages of this one, less what is installed in editable form: that is Frazil."""
    root = tmp_path_factory.mktemp("environment")
    venv.create(root / "environment", symlinks=True)
    (own,) = root.glob("environment/lib/python*/site-packages")
    (own / "packages.pth").write_text("\n".join(site.getsitepackages()))
    with tarfile.open(root / "environment.tar.gz", "w:gz") as packed:
        packed.add(root / "environment", ".")
    return root / "environment.tar.gz"


@dataclass(frozen=True)
class Place:
    """A pipeline `orders` whose engine is YARN, with its driver there."""

    yarn: Yarn
    orders: Lab
    environment: Path

    def configure(self, driver: str = "", worker: str = "", **conf: str) -> None:
        """Have drivers and Python workers hit at crash points, and add to the engine's `conf`."""
        crashes = {f"spark.yarn.appMasterEnv.{VARIABLE}": driver, f"spark.executorEnv.{VARIABLE}": worker}
        write_settings(Path(self.orders.env[SETTINGS_VARIABLE]), self.yarn, self.environment, crashes | conf)

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """A process that submits, `frazil run` unless another is given; killed at the end whatever happened."""
        arguments = [sys.executable, *(command or RUN)]
        env = os.environ | self.orders.env
        piped = {"env": env, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(arguments, **piped) as run:
            try:
                yield run
            finally:
                run.kill()

    def run(self) -> tuple[int, str]:
        """The exit code of a run, and what it said."""
        with self.running() as run:
            output = run.communicate(timeout=SECONDS)[0]
        return run.returncode, output

    @property
    def application(self) -> str:
        """The newest one."""
        return max(self.yarn.applications())

    def stopped_driver(self, run: subprocess.Popen[str]) -> int:
        """Process id of the driver, once it stands at its crash point."""
        assert until(lambda: bool(self._stopped()) or run.poll() is not None, SECONDS)
        assert run.poll() is None, run.communicate()[0]
        (pid,) = self._stopped()
        return pid

    def _stopped(self) -> list[int]:
        """Processes of the newest application's containers that were stopped."""
        applications = self.yarn.applications()
        return _stopped_in(max(applications)) if applications else []

    def has_ended(self, application: str) -> bool:
        """Whether YARN has no containers of it any more."""
        return self.yarn.applications()[application] in {"SUCCEEDED", "FAILED", "KILLED"}


def _stopped_in(application: str) -> list[int]:
    states = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):
            is_stopped = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "T"
            if is_stopped and application in str((folder / "cwd").readlink()):
                states.append(int(folder.name))
    return states


@pytest.fixture
def place(yarn: Yarn, environment: Path, tmp_path: Path, cluster: Cluster, children: Nursery) -> Place:
    fetch(Home.resolve(), "spark")
    write_settings(tmp_path / "settings.json", yarn, environment, {})
    orders = new_lab(tmp_path, cluster, children, settings=tmp_path / "settings.json", partitions=2, max_records=BATCH)
    orders.env |= {"HADOOP_CONF_DIR": str(yarn.conf), "PYTHONPATH": str(project_root() / "include")}
    orders.fill(0, 40)
    return Place(yarn, orders, environment)


def write_settings(file: Path, yarn: Yarn, environment: Path, conf: dict[str, str]) -> None:
    """Write settings whose engine is the cluster."""
    staging = f"file://{yarn.conf.parent}/staging"
    engine = {
        "master": "yarn",
        "deploy_mode": "cluster",
        "driver_memory": "512m",
        "py_files": "zip",
        "archives": [f"file://{environment}#environment"],
        "conf": CONF | {"spark.yarn.jars": f"local:{yarn.jars}/*", "spark.yarn.stagingDir": staging} | conf,
    }
    lake = {"uri": "sqlite:///${local:home}/catalog.db", "warehouse": "file://${local:home}/warehouse"}
    # In a container these references stand for other values: the driver has those of who submitted it.
    clusters = {"local": {"bootstrap_servers": "${local:kafka}"}}
    file.write_text(json.dumps({"clusters": clusters, "catalogs": {"lake": lake}, "engines": {"yarn": engine}}))


def test_batch_lands_with_driver_in_cluster(place: Place) -> None:
    """The driver has its Python, Frazil's code, the project and the values of its references from who submits it; nothing of it stays."""
    code, output = place.run()

    assert code == 0, output
    assert place.yarn.applications()[place.application] == "SUCCEEDED"
    assert not [*(Path(place.orders.env["FRAZIL_HOME"]) / "plans").glob("*.zip")]
    place.orders.assert_clean()
    place.orders.assert_at_rest()


@pytest.mark.parametrize("point", [P.STAGED, P.DECIDE_COMMITTING, P.DECIDE_COMMITTED, P.FOLLOW_COMMITTED])
def test_killed_driver_neither_loses_nor_doubles_records(place: Place, point: Failpoint) -> None:
    """Whatever of a batch its driver had done: the next run carries on, and the error says where the driver's log is."""
    place.configure(driver=kill_at(point))
    code, output = place.run()
    place.orders.run()

    assert code == Retryable.exit_code, output
    assert f"yarn logs -applicationId {place.application}" in output
    assert place.yarn.applications()[place.application] == "FAILED"
    place.orders.assert_clean()
    place.orders.assert_at_rest()


def test_killed_worker_neither_loses_nor_doubles_records(place: Place) -> None:
    """A Python worker dies in the middle of its first task, in each of its tries."""
    place.configure(worker=kill_at(P.STAGING))
    code, output = place.run()
    place.configure()
    again, said_again = place.run()

    assert (code, again) == (Retryable.exit_code, 0), output + said_again
    place.orders.assert_clean()
    place.orders.assert_at_rest()


@pytest.mark.parametrize("point", [P.STAGED, P.DECIDE_COMMITTED])
@pytest.mark.parametrize("lost", ["application", "node"])
def test_driver_lost_with_what_it_runs_in_neither_loses_nor_doubles_records(
    place: Place, point: Failpoint, lost: str
) -> None:
    """`yarn application -kill`; or a node that YARN hears no more of, on which the driver goes on beside the next run."""
    place.configure(driver=stop_at(point))
    with place.running() as run:
        driver = place.stopped_driver(run)
        if lost == "application":
            place.yarn.kill(place.application)
        else:
            place.yarn.lose_driver_node(place.application)
        output = run.communicate(timeout=SECONDS)[0]
    place.orders.run()
    with suppress(ProcessLookupError):
        os.kill(driver, signal.SIGCONT)  # its JVM has ended, or finds that it is no driver any more

    assert run.returncode == Retryable.exit_code, output
    assert until(lambda: not Path(f"/proc/{driver}").exists(), SECONDS)
    place.orders.assert_clean()
    place.orders.assert_at_rest()


TRY: Final = """
import sys
from pathlib import Path
from frazil.batch.plan import RunPlan
from frazil.project import Project
from frazil.spark.submit.submission import run_spark
project = Project.load()
pipeline = project.pipeline("orders").model_copy(update={"engine": "yarn"})
run_spark(project, pipeline, RunPlan.from_json(Path(sys.argv[1]).read_text()), print)
"""
"""One try at a plan, as a task of Airflow makes it."""


@pytest.mark.parametrize("ends", ["before", "after"])
def test_next_try_takes_the_outcome_of_a_driver_that_nobody_waited_for(place: Place, tmp_path: Path, ends: str) -> None:
    """The waiting process is killed, the driver goes on to its end: before the next try, or while that waits for it."""
    planned = plan_run(place.orders.project, place.orders.pipeline, RunRequest("a run"), print)
    assert planned.plan is not None
    (tmp_path / "plan.json").write_text(planned.plan.to_json())
    command = ("-c", TRY, str(tmp_path / "plan.json"))
    place.configure(driver=stop_at(P.STAGED))
    with place.running(*command) as run:
        driver = place.stopped_driver(run)
    first = place.application
    if ends == "before":
        os.kill(driver, signal.SIGCONT)
        assert until(lambda: place.has_ended(first), SECONDS)
    with place.running(*command) as run:
        with suppress(subprocess.TimeoutExpired):
            run.wait(10)
        assert ends == "before" or run.poll() is None
        if ends == "after":
            os.kill(driver, signal.SIGCONT)
        output = run.communicate(timeout=SECONDS)[0]

    assert run.returncode == 0, output
    assert "an earlier attempt finished this" in output
    assert place.application == first
    assert place.yarn.applications()[first] == "SUCCEEDED"
    place.orders.assert_clean()
    place.orders.assert_at_rest()


def test_stopped_run_ends_its_application(place: Place) -> None:
    """Who waits for a driver in the cluster and is stopped withdraws its order: the driver ends by itself, before its last batch."""
    place.configure(driver=stop_at(P.STAGED))
    with place.running() as run:
        driver = place.stopped_driver(run)
        command = [sys.executable, "-m", "frazil.cli", "stop", "orders"]
        stopped = subprocess.run(command, env=os.environ | place.orders.env, timeout=SECONDS, check=False)
        output = run.communicate(timeout=SECONDS)[0]
    os.kill(driver, signal.SIGCONT)

    assert (stopped.returncode, run.returncode) == (0, Stopped.exit_code), output
    assert until(lambda: place.has_ended(place.application), SECONDS)
    assert place.yarn.applications()[place.application] == "FAILED"
    place.orders.run()
    place.orders.assert_clean()
    place.orders.assert_at_rest()


def test_stopped_run_ends_an_application_that_waits_in_a_queue(place: Place) -> None:
    """Its driver has not begun, and would find no order: the application is taken out of the queue."""
    place.configure(**{"spark.yarn.queue": CLOSED})
    before = set(place.yarn.applications())
    with place.running() as run:
        assert until(lambda: set(place.yarn.applications()) > before, SECONDS)
        run.send_signal(signal.SIGTERM)
        output = run.communicate(timeout=SECONDS)[0]

    assert run.returncode == Stopped.exit_code, output
    assert place.yarn.applications()[place.application] == "KILLED"
    place.orders.run()
    place.orders.assert_clean()
