"""Runs on a spark connect server: what lands, and what becomes of the work when either side is killed."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import fastavro
import pytest

from frazil.errors import Retryable, Stopped, Terminal
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.project import Project
from frazil.runtime import spark_server
from frazil.runtime.home import Home
from frazil.runtime.process import Processes, Spec, session_members, until
from frazil.spark.submit.server import managed_engine, managed_server
from frazil.verify.check import verify
from tests.conftest import FreePorts
from tests.produce import produce
from tests.servers import with_ports
from tests.warm_spark import WarmSpark

pytestmark = pytest.mark.tried("Spark Connect", "real")

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

SECONDS = 120
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
GOOD, BAD = 200, 3

FILE = """
name: orders
engine: warm
source: {{topics: [{topic}]}}
value: {{format: avro, registry: main}}
destinations:
  - {{table: shop.orders, columns: {{id: {{type: long, required: true}}}}}}
dead_letters: {{tolerance: {{max_rate: 1}}}}
"""

MERGED = """
name: orders
engine: warm
source: {{topics: [{topic}]}}
destinations:
  - table: shop.orders
    columns: {{id: {{type: string, required: true}}}}
    write: upsert
    identifier: [id]
    evolve: widen
"""


@dataclass
class Gate:
    """A Schema Registry of one schema, which answers workers when it is open.

    Attributes:
        url: Its address.
        opened: Set while it answers.
        asked: Somebody waits for an answer: a worker is in the middle of its records.
        left: Who waited is gone.
    """

    url: str = ""
    opened: Event = field(default_factory=Event)
    asked: Event = field(default_factory=Event)
    left: Event = field(default_factory=Event)

    def answers(self, connection: socket.socket) -> bool:
        """Wait until the gate opens; whether somebody still waits for the answer then."""
        self.asked.set()
        while not self.opened.wait(0.05):
            readable, _, _ = select.select([connection], [], [], 0)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                self.left.set()
                return False
        return True


def handler_of(gate: Gate) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if gate.answers(self.connection):
                body = json.dumps({"schema": json.dumps(SCHEMA)}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    return Handler


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(gate)) as server:
        server.daemon_threads = True
        gate.url = f"http://127.0.0.1:{server.server_port}"
        serving = Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield gate
        gate.opened.set()
        server.shutdown()
        serving.join()


@pytest.fixture
def orders(place: Place, cluster: Cluster, gate: Gate, warm_spark: WarmSpark) -> Place:
    """A pipeline of 200 good records and 3 bad ones; its settings name the server as somebody else's."""
    warm_spark.start()
    configure(place, warm_spark, gate)
    (place.root / "pipelines" / "orders.yaml").write_text(FILE.format(topic=place.topic))
    create_topic(cluster, place.topic, 1)
    values = [*map(framed, range(GOOD)), *(b"broken",) * BAD]
    produce(cluster, place.topic, [OutgoingRecord(None, value) for value in values])
    return place


def configure(place: Place, warm: WarmSpark, gate: Gate, **engine: Any) -> None:
    """Write the settings; `engine` has what is special about the engine."""
    file = place.root / "settings.yaml"
    settings_text = file.read_text().split("engines:")[0].rstrip()
    more = {
        "engines": {**warm.engines(**engine), "managed": warm.managed},
        "registries": {"main": {"url": gate.url, "properties": {"timeout": "600"}}},
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in more.items()]
    file.write_text("\n".join([settings_text, *lines, ""]))


def framed(number: int) -> bytes:
    """An order in Confluent's frame."""
    written = io.BytesIO()
    fastavro.schemaless_writer(written, SCHEMA, {"id": number})
    return b"\0\0\0\0\1" + written.getvalue()


@contextmanager
def begun(place: Place, gate: Gate) -> Iterator[subprocess.Popen[str]]:
    """A run in whose first batch a worker stands still."""
    command = [sys.executable, "-m", "frazil.cli", "run", "orders"]
    with subprocess.Popen(command, env=place.environment, stderr=subprocess.PIPE, text=True) as run:
        try:
            until(lambda: gate.asked.is_set() or run.poll() is not None, SECONDS)
            assert run.poll() is None, run.communicate()[1]
            assert gate.asked.is_set(), "no worker asked"
            yield run
        finally:
            run.kill()


def assert_exact(place: Place) -> None:
    """The next run lands every record once."""
    place.succeed("run", "orders")
    assert sorted(row["id"] for row in rows(place, "shop.orders")) == list(range(GOOD))
    assert len(rows(place, "shop.orders__dead_letters")) == BAD
    project = Project.load(place.environment)
    assert verify(project, project.pipeline("orders")).is_clean


def rows(place: Place, table: str) -> list[dict[str, Any]]:
    project = Project.load(place.environment)
    rows: list[dict[str, Any]] = project.lake("lake").load_table(table).scan().to_arrow().to_pylist()
    return rows


def nothing_landed(place: Place) -> bool:
    return not rows(place, "shop.orders")


def driver_of(place: Place) -> int:
    """The process that has the session."""
    (file,) = (place.root / "home" / "drivers").glob("*.json")
    pid: int = json.loads(file.read_text())["pid"]
    return pid


def daemons(warm: WarmSpark) -> set[int]:
    """The processes of the server that its Python workers are forked from."""
    pids = (process.pid for process in session_members(warm.pid))
    return {pid for pid in pids if parent_of(pid) == warm.pid}


def parent_of(pid: int) -> int:
    """Process id of a process's parent; 0 if the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))


def test_killed_client_leaves_no_job_on_server(orders: Place, gate: Gate) -> None:
    """Nobody waits for the answer any more: the server ends the work, nothing is published, the next run is exact."""
    with begun(orders, gate) as run:
        os.kill(driver_of(orders), signal.SIGKILL)
        errors = run.communicate(timeout=SECONDS)[1]

    assert run.returncode == Retryable.exit_code, errors
    assert gate.left.wait(SECONDS), "the worker still waits"
    assert nothing_landed(orders)
    gate.opened.set()
    assert_exact(orders)


def test_killed_server_does_not_keep_client_waiting(orders: Place, gate: Gate, warm_spark: WarmSpark) -> None:
    """The run ends as one to be tried again, within a minute; a server that is up again takes the next one."""
    with begun(orders, gate) as run:
        warm_spark.kill()
        errors = run.communicate(timeout=SECONDS)[1]

    assert run.returncode == Retryable.exit_code, errors
    assert nothing_landed(orders)
    gate.opened.set()
    down = orders.frazil("run", "orders")
    assert (down.returncode, "does not answer" in down.stderr) == (Retryable.exit_code, True), down.stderr
    warm_spark.start()
    assert_exact(orders)


def test_stop_does_not_wait_for_server(orders: Place, gate: Gate) -> None:
    """The batch is discarded at once, and the work on the server ends with it."""
    with begun(orders, gate) as run:
        run.send_signal(signal.SIGTERM)
        errors = run.communicate(timeout=SECONDS)[1]

    assert run.returncode == Stopped.exit_code, errors
    assert gate.left.wait(SECONDS), "the worker still waits"
    assert nothing_landed(orders)
    gate.opened.set()
    assert_exact(orders)


def test_failed_runs_leave_no_daemons_on_server(orders: Place, gate: Gate, warm_spark: WarmSpark) -> None:
    """Spark ends the daemon of a session's workers only with the server: the next run has the session of the refused one."""
    gate.opened.set()
    file = orders.root / "pipelines" / "orders.yaml"
    file.write_text(file.read_text().replace("max_rate: 1", "max_count: 0"))
    drivers = []
    for _ in range(2):
        refused = orders.frazil("run", "orders")
        assert refused.returncode == Terminal.exit_code, refused.stderr
        drivers.append(daemons(warm_spark))

    assert drivers[0], "no daemon was seen"
    assert drivers[0] == drivers[1]


def test_dead_managed_server_is_started_by_one_of_two_runs(orders: Place, gate: Gate, warm_spark: WarmSpark) -> None:
    """The first starts it while the other waits; one lands the records, the other finds them landed."""
    gate.opened.set()
    warm_spark.kill()
    run = [sys.executable, "-m", "frazil.cli", "run", "orders", "--engine", "managed"]
    env = orders.environment | {key: warm_spark.env[key] for key in ("FRAZIL_HOME", "FRAZIL_SPARK_CONNECT_PORT")}
    settings_text = (orders.root / "settings.yaml").read_text().replace("${local:home}", str(orders.root / "home"))
    (orders.root / "settings.yaml").write_text(settings_text)

    runs = [subprocess.Popen(run, env=env, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [each.communicate(timeout=SECONDS)[1] for each in runs]

    assert [each.returncode for each in runs] == [0, 0], outputs
    assert sum("spark connect: ready" in text for text in outputs) == 1, outputs
    assert_exact(orders)


def test_run_without_a_server_starts_a_spark_of_its_own(orders: Place, gate: Gate) -> None:
    """Nobody started the managed server: the run leaves none behind, and warns of nothing."""
    gate.opened.set()

    ran = orders.succeed("run", "orders", "--engine", "managed")

    assert "warning" not in ran.stderr
    assert not spark_server.is_started(Project.load(orders.environment).home)
    assert_exact(orders)


def test_server_that_can_not_be_restarted_holds_no_run(orders: Place, gate: Gate, free_ports: FreePorts) -> None:
    """The server is dead and its port somebody else's: the run says so, and lands by a Spark of its own."""
    gate.opened.set()
    home = Project.load(orders.environment).home
    ended = Spec(spark_server.NAME, ("true",), {}, spark_server.url(home), spark_server.GRACE_SECONDS)
    Processes(home.run, home.logs, home.root).start(ended)
    (port,) = free_ports(1)

    with socket.create_server(("127.0.0.1", port)):
        ran = orders.succeed("run", "orders", "--engine", "managed", FRAZIL_SPARK_CONNECT_PORT=str(port))

    assert "this run starts a Spark of its own" in ran.stderr
    assert_exact(orders)


@pytest.mark.full  # a minute of waiting
def test_silent_server_holds_no_run(orders: Place, gate: Gate, free_ports: FreePorts) -> None:
    """A managed server takes connections and never answers: the run lands by a Spark of its own, the next one replaces it."""
    gate.opened.set()
    (port,) = free_ports(1)
    env = orders.environment | {"FRAZIL_SPARK_CONNECT_PORT": str(port)}
    project = Project.load(env)
    home, engine = project.home, managed_engine(project)
    assert engine is not None
    processes, server = Processes(home.run, home.logs, home.root), managed_server(project, engine)
    silent = f"import socket, time; at = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    silent_server = Spec(spark_server.NAME, (sys.executable, "-c", silent), {}, "", spark_server.GRACE_SECONDS)
    processes.start(silent_server)
    try:
        (home.run / f"{spark_server.NAME}.release").write_text(server.release)
        ran = orders.succeed("run", "orders", "--engine", "managed", FRAZIL_SPARK_CONNECT_PORT=str(port))
        reason = "(gave no answer in 60 s|opened no session).*; this run starts a Spark of its own"
        assert re.search(reason, ran.stderr), ran.stderr
        assert_exact(orders)

        unable = replace(server, command=("false",))
        with pytest.raises(Retryable, match="ended while starting"), spark_server.serving(home, unable, print):
            pass
        assert processes.running(spark_server.NAME) is None
    finally:
        spark_server.stop(processes)


def test_run_does_not_wait_for_the_runs_on_an_outdated_server(tmp_path: Path) -> None:
    """A run of newer code or settings leaves a server that is in use alone; once it is idle, it is ended for the new one."""
    home = with_ports(replace(Home.resolve(), root=tmp_path), spark_connect=1)
    processes = Processes(home.run, home.logs, home.root)
    newer = spark_server.Server(("false",), {}, "newer")
    processes.start(Spec(spark_server.NAME, ("sleep", "600"), {}, "", spark_server.GRACE_SECONDS))
    try:
        with (home.run / f"{spark_server.NAME}.users").open("a") as user:
            fcntl.flock(user, fcntl.LOCK_SH)
            with pytest.raises(Retryable, match="another release"), spark_server.serving(home, newer, print):
                pass
            assert processes.running(spark_server.NAME) is not None
        with pytest.raises(Retryable, match="ended while starting"), spark_server.serving(home, newer, print):
            pass
        assert processes.running(spark_server.NAME) is None
        waited = spark_server.serving(home, newer, print, if_started=True)
        with pytest.raises(Retryable, match="did not start, while this run waited"), waited:
            pass
    finally:
        spark_server.stop(processes)


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ({"token": "not it"}, "refuses this client"),
        ({"conf": {"spark.executor.memory": "2g"}}, "spark.executor.memory can't be set in a session"),
    ],
)
def test_unfit_engine_lands_nothing(
    orders: Place, gate: Gate, warm_spark: WarmSpark, engine: dict[str, Any], expected: str
) -> None:
    """What only a person can mend is said before anything is read, without the token."""
    gate.opened.set()
    configure(orders, warm_spark, gate, **engine)

    refused = orders.frazil("run", "orders")

    assert refused.returncode == Terminal.exit_code, refused.stderr
    assert expected in refused.stderr
    assert "not it" not in refused.stderr


@pytest.mark.full
def test_names_and_keys_mean_themselves_on_a_server_of_somebody_else(
    place: Place, cluster: Cluster, gate: Gate, warm_spark: WarmSpark
) -> None:
    """Its own configuration substitutes variables; the session of a merge does not, whatever the engine's conf says."""
    warm_spark.start()
    configure(place, warm_spark, gate, conf={"spark.sql.variable.substitute": "true"})
    (place.root / "pipelines" / "orders.yaml").write_text(MERGED.format(topic=place.topic))
    create_topic(cluster, place.topic, 1)
    for mark in ("a", "b"):
        order = {"id": "${env:HOME}", "${env:HOME}": mark, "deep": {"user-id`": {"${env:PATH}": mark}}}
        produce(cluster, place.topic, [OutgoingRecord(None, json.dumps(order).encode())])
        place.succeed("run", "orders")

    (row,) = rows(place, "shop.orders")
    assert (row["id"], row["${env:HOME}"], row["deep"]) == ("${env:HOME}", "b", {"user-id`": {"${env:PATH}": "b"}})
