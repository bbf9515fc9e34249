"""One whole stack for the tests of this folder: broker and Airflow in a home of their own, with two pipelines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from frazil.devstack import stack
from frazil.kafka.admin.topics import create_topic
from frazil.project import Project
from frazil.runtime import airflow_login
from frazil.runtime.airflow_api import DagRun
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from tests.conftest import FreePorts
from tests.e2e.embedded import MARKS, PAYMENTS, PIZZAS, TOPICS, WEB_TOKEN, Embedded, start_stack
from tests.postgres_server import PostgresServer
from tests.receivers import Mails, Posts, mails, posts
from tests.statsd import statsd_receiver

PIPELINE = """
name: {name}
source: {{topics: [{name}]}}
destinations: [{{table: own.{name}, columns: {{id: long}}}}]
"""

OWN = {
    "clicks": "engine: inline\ninterval: '@yearly'\ntrigger: {records: 50, every: 1s}\n",
    "deliveries": "engine: inline\ninterval: '@yearly'\ncatch_up: 10\n",
    "drills": "engine: spark\ninterval: '@yearly'\nlimits: {max_records: 50}\n",
    "inline_drills": "engine: inline\ninterval: '@yearly'\nlimits: {max_records: 2}\n",
    "parcels": "engine: inline\ninterval: '@monthly'\nowner: depot\nvalue: {unknown_fields: fail}\n",
    "refunds": (
        "engine: inline\ninterval: '@yearly'\nowner: returns team\nvalue: {unknown_fields: fail}\n"
        "dead_letters: {report: {schedule: '@yearly', threshold: 2}}\n"
    ),
    "rides": "engine: inline\ninterval: 1m\n",
    "buses": "engine: auto\ninterval: 1s\nsession_for: 1m\n",
    "meters": "engine: inline\ninterval: '@yearly'\nlimits: {max_records: 50}\n",
}
"""Small pipelines, each of one file of tests: the engine, and what starts their runs."""

VISITS = """engine: inline
interval: '@monthly'
maintenance: {compaction: false, manifests: false, expiry: false, orphans: false}
"""
"""The pipeline of the stack on PostgreSQL: intervals enough for a backfill, and a look at tables that calls for no JVM."""

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def mailbox(free_ports: FreePorts) -> Iterator[Mails]:
    """The mail server that the stack's alerts go to."""
    with mails(*free_ports(1)) as mailbox:
        yield mailbox


@pytest.fixture(scope="session")
def hook() -> Iterator[Posts]:
    """The web server that the stack's alerts go to."""
    with posts() as alert_posts:
        yield alert_posts


@pytest.fixture(scope="session")
def embedded(
    tmp_path_factory: pytest.TempPathFactory, mailbox: Mails, hook: Posts, free_ports: FreePorts
) -> Iterator[Embedded]:
    """The stack, up; afterwards down, with no process of it left."""
    with statsd_receiver() as (port, metrics):
        root = tmp_path_factory.mktemp("e2e")
        _delivered(root)
        servers = _channels(root, mailbox.port, hook.port) | _airflow(root, port)
        yield from _stack(root, _environment(root, *free_ports(3)) | servers, metrics)


@pytest.fixture(scope="module")
def on_postgres(
    tmp_path_factory: pytest.TempPathFactory,
    mailbox: Mails,
    hook: Posts,
    postgres: PostgresServer,
    free_ports: FreePorts,
) -> Iterator[Embedded]:
    """Another stack, whose Airflow keeps its metadata in PostgreSQL, with one pipeline; down again after the tests of a file."""
    root = tmp_path_factory.mktemp("postgres")
    _pipelines(root, {"visits": PIPELINE.format(name="visits") + VISITS})
    servers = _channels(root, mailbox.port, hook.port) | {"FRAZIL_AIRFLOW_DATABASE": postgres.make("airflow")}
    yield from _stack(root, _environment(root, *free_ports(3)) | servers, [])


def _stack(root: Path, env: Mapping[str, str], metrics: list[str]) -> Iterator[Embedded]:
    home = Home.resolve(env)
    for purpose in ("broker", "spark"):
        fetch(home, purpose)
    try:
        start_stack(home, env)
        with airflow_login.api(home) as api:
            yield Embedded(Project.load(env), api, env, metrics)
    finally:
        stack.down(home)
    assert processes_of(root) == []


@pytest.fixture(scope="session")
def idle_run(embedded: Embedded) -> DagRun:
    """The run that the schedule makes when the DAG is unpaused, over an empty topic."""
    create_topic(embedded.cluster, TOPICS[PIZZAS], 6)
    return embedded.unpause(PIZZAS)


@pytest.fixture(scope="session")
def landed(embedded: Embedded, idle_run: DagRun) -> DagRun:
    """A run started over REST that landed 3,000 pizzas by Spark, some of them broken."""
    embedded.produce(PIZZAS, 3_000, seed=7, broken_per_thousand=6)
    return embedded.run(PIZZAS, "e2e-first", note="asked for by a test")


@pytest.fixture(scope="session")
def inline(embedded: Embedded) -> str:
    """The DAG of the pipeline that needs no Spark, switched on over an empty topic."""
    create_topic(embedded.cluster, TOPICS[PAYMENTS], 2)
    embedded.unpause(PAYMENTS)
    return PAYMENTS


@pytest.fixture(scope="session")
def paid(embedded: Embedded, inline: str) -> tuple[DagRun, DagRun]:
    """Two runs of the inline engine that landed 60 payments: one limited by hand to 30, and one for the rest."""
    embedded.produce(inline, 60, seed=8)
    return embedded.run(inline, "e2e-limited", max_records=30), embedded.run(inline, "e2e-rest")


def processes_of(folder: Path) -> list[str]:
    """Command lines of live processes with the folder in their command or environment."""
    ports = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            command, env = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if str(folder).encode() in command + env:
            ports.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return ports


def _delivered(root: Path) -> None:
    """The delivered pipelines on a schedule that stays out of the way, and the small ones."""
    files = {name: PIPELINE.format(name=name) + more for name, more in OWN.items()}
    for name, engine in (("pizzas", "spark"), ("payments", "inline")):
        delivered = (ROOT / "include" / "pipelines" / f"{name}.yaml").read_text().splitlines()
        lines = [line for line in delivered if not line.startswith(("interval:", "engine:"))]
        files[name] = "\n".join([*lines, "interval: '@yearly'", f"engine: {engine}", ""])
    _pipelines(root, files)


def _pipelines(root: Path, files: Mapping[str, str]) -> None:
    (root / "pipelines").mkdir()
    for name, text in files.items():
        (root / "pipelines" / f"{name}.yaml").write_text(text)


def _environment(root: Path, kafka: int, controller: int, web: int) -> dict[str, str]:
    """A project of its own: home, ports and the folder of its pipelines."""
    return {
        "FRAZIL_HOME": str(root / "home"),
        "FRAZIL_JARS": str(Home.resolve().jars),
        "FRAZIL_PIPELINES": str(root / "pipelines"),
        "FRAZIL_KAFKA_PORT": str(kafka),
        "FRAZIL_KAFKA_CONTROLLER_PORT": str(controller),
        "FRAZIL_AIRFLOW_PORT": str(web),
    }


ALERTS = """
alerts:
  every: 1d  # the tests say when to look
  channels:
    mail: {type: smtp, connection: test_mail, to: [ops@example.org], sender: frazil@example.org}
    web: {type: webhook, connection: test_web}
"""


WAREHOUSE = "    warehouse: file://${local:home}/warehouse\n"
WARM = "    type: connect\n    managed: true\n"
CONF = "    conf:\n"


def _channels(root: Path, mail: int, web: int) -> dict[str, str]:
    """The delivered settings with channels that lead to servers of the tests, and marked secrets in each place for some."""
    settings = root / "settings.yaml"
    delivered = (ROOT / "include" / "settings.yaml").read_text()
    assert WAREHOUSE in delivered
    assert CONF in delivered
    secrets_file = root / "secrets.properties"
    secrets_file.write_text("".join(f"{key}={secret}\n" for key, secret in MARKS.items()))
    secrets_file.chmod(0o600)
    catalog, registry, conf = (f"${{file:{secrets_file}:{key}}}" for key in MARKS)
    assert WARM in delivered
    # Runs start a Spark of their own, by Airflow's provider, as on a cluster.
    marked = delivered.replace(WARM, "").replace(
        WAREHOUSE, f"{WAREHOUSE}    properties: {{credential: '{catalog}'}}\n", 1
    )
    marked = marked.replace(CONF, f"{CONF}      spark.frazil.test: '{conf}'\n", 1)
    registries = f"registries:\n  main: {{url: 'https://127.0.0.1:9', user_info: 'reader:{registry}'}}\n"
    settings.write_text(marked + registries + ALERTS + "rest_api: {changes: file}\n")
    connections = {
        "MAIL": {
            "conn_type": "smtp",
            "host": "127.0.0.1",
            "port": mail,
            "extra": {"disable_tls": True, "disable_ssl": True},
        },
        "WEB": {"conn_type": "http", "host": f"http://127.0.0.1:{web}/in/{WEB_TOKEN}"},
    }
    return {
        "FRAZIL_SETTINGS": str(settings),
        **{f"AIRFLOW_CONN_TEST_{name}": json.dumps(connection) for name, connection in connections.items()},
    }


def _airflow(root: Path, statsd: int) -> dict[str, str]:
    """Where Airflow sends metrics to, and where else it finds DAGs: those that the drills need, which no user has.

    In a configuration file: settings of another Airflow in the environment don't count.
    """
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [
        {"name": "dags-folder", "classpath": local, "kwargs": {}},
        {"name": "hurried", "classpath": local, "kwargs": {"path": str(Path(__file__).with_name("hurried"))}},
    ]
    file = root / "airflow.cfg"
    file.write_text(
        f"[metrics]\nstatsd_on = True\nstatsd_host = 127.0.0.1\nstatsd_port = {statsd}\nstatsd_influxdb_enabled = True\n"
        f"[dag_processor]\ndag_bundle_config_list = {json.dumps(bundles)}\n"
    )
    return {"AIRFLOW_CONFIG": str(file)}
