"""Rows of real databases through Spark's JDBC source: asked for where the capture stands, and told without loss."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import create_engine, text

from frazil.capture.position import CaptureOrder
from frazil.capture.run import (
    CaptureResult,
    RowsTask,
    capture_context,
    initial_state_maker,
    next_rows,
    open_capture,
    utc_now,
)
from frazil.errors import Terminal
from frazil.kafka.client.cluster import Cluster
from frazil.pipeline.settings.capture import JdbcCapture
from frazil.pipeline.settings.catalogs import DatabaseSettings
from frazil.project import Project
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch, jar_paths
from frazil.spark.errors import SPARK_FAILED
from frazil.spark.jobs.capture import largest_number, refusal_of, rows_of, send_rows, sql_state
from frazil.spark.submit.submission import run_capture
from frazil.spark.writes.rows import configure_quoting
from tests.conftest import FreePorts
from tests.postgres_server import PASSWORD, PostgresServer
from tests.topic_reader import committed

MakeProject = Callable[..., Project]


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> MakeProject:
    """A project with one database `shop`, and captures of it."""

    def make(database: dict[str, Any], **captures: dict[str, Any]) -> Project:
        for folder in ("pipelines", "captures"):
            (tmp_path / folder).mkdir()
        for name, body in captures.items():
            capture = {"capture": "jdbc", "name": name, "partitions": 1, "database": "shop", "delay": "0s", **body}
            (tmp_path / "captures" / f"{name}.yaml").write_text(json.dumps(capture))
        settings = {
            "clusters": {"local": {"bootstrap_servers": cluster.bootstrap_servers}},
            "catalogs": {"lake": {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}},
            "engines": {"spark": {"master": "local[1]", "driver_memory": "512m"}},
            "databases": {"shop": {"queries": True, **database}},
            "captures": {"positions": f"positions-{uuid4().hex[:8]}"},
        }
        (tmp_path / "settings.yaml").write_text(json.dumps(settings))
        places = {"HOME": "home", "PIPELINES": "pipelines", "SETTINGS": "settings.yaml"}
        env = os.environ | {f"FRAZIL_{key}": str(tmp_path / name) for key, name in places.items()}
        return Project.load(env | {"FRAZIL_JARS": str(Home.resolve().jars)})

    return make


def capture_named(project: Project, name: str) -> JdbcCapture:
    capture = project.capture(name)
    assert isinstance(capture, JdbcCapture)
    return capture


def values(cluster: Cluster, capture: JdbcCapture) -> list[Any]:
    return [json.loads(record.value() or b"", parse_float=str) for record in committed(cluster, capture.topic)]


ORDERS = {"table": "orders", "mode": "incrementing", "incrementing_column": "ID", "key": ["id"]}


@pytest.fixture
def shop(spark: SparkSession, project: MakeProject, tmp_path: Path) -> Shop:
    """A SQLite database with three orders, and the capture `orders` of it."""
    file = tmp_path / "shop.db"
    many = [(n, f"{n}.000001", None if n % 2 else 'a "b" ü', b"\x00\xff") for n in (3, 1, 2)]
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE orders (id BIGINT, price DECIMAL(20,6), name TEXT, photo BLOB)")
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", many)
    topic = {"topic": f"orders-{uuid4().hex[:8]}"}
    new_project = project({"url": f"jdbc:sqlite:{file}", "driver": "org.sqlite.JDBC"}, orders=ORDERS | topic)
    session = spark.newSession()
    configure_quoting(session)
    return Shop(session, new_project, file)


@dataclass
class Shop:
    """A database, and a capture of it in this process."""

    spark: SparkSession
    project: Project
    file: Path

    @property
    def capture(self) -> JdbcCapture:
        """The capture."""
        return capture_named(self.project, "orders")

    def run(self, target: Any = None) -> tuple[int, str]:
        """One run: how many rows it captured, and how Spark asked for them."""
        capture, order, now = self.capture, CaptureOrder(str(uuid4()), restart_at=target, reason="a test"), utc_now()
        ground = capture_context(self.project, capture)
        frame = rows_of(self.spark, capture, self.project.database("shop"))
        with open_capture(
            ground, order, initial_state_maker(capture, now, partial(largest_number, frame, capture)), now
        ) as (_, position):
            rows_read = next_rows(capture, position, now)
        count, _ = send_rows(frame, RowsTask(ground, capture, order.run, position), rows_read)
        return count, frame.where(str(rows_read))._jdf.queryExecution().toString()

    def refused(self, **changes: Any) -> str:
        """Why a capture of other columns is refused."""
        with pytest.raises(Terminal) as caught:
            rows_of(self.spark, self.capture.model_copy(update=changes), self.project.database("shop"))
        return caught.value.message


def test_database_is_asked_for_new_rows_only(shop: Shop, cluster: Cluster) -> None:
    """It is asked for what comes next only; of all types nothing is lost on the way, nulls are there."""
    assert shop.run()[0] == 3
    with sqlite3.connect(shop.file) as database:
        database.execute("INSERT INTO orders VALUES (4, '4', 'new', x'')")
    count, plan = shop.run()
    assert (count, "GreaterThan(id,3)" in plan.replace("ID", "id")) == (1, True), plan
    assert shop.run("end")[0] == 0

    keys = [record.key() for record in committed(cluster, shop.capture.topic)]
    assert keys == [f'{{"id":{number}}}'.encode() for number in (1, 2, 3, 4)]
    first, second, *_ = values(cluster, shop.capture)
    assert first == {"id": 1, "price": "1.000001", "name": None, "photo": "AP8="}
    assert second["name"] == 'a "b" ü'
    assert "expected tinyint or " in shop.refused(incrementing_column="name")
    assert "which orders does not have" in shop.refused(key=("nowhere",))


@pytest.mark.full
@pytest.mark.timeout(900)
def test_rows_of_postgresql_land_once(
    project: MakeProject, cluster: Cluster, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As jobs of Spark, in a machine's own time zone: equal times, microseconds, changed rows; a bulk; a wrong password."""
    monkeypatch.setenv("TZ", "America/New_York")
    fetch(Home.resolve(), "postgres")
    engine = create_engine(postgres.make(f"shop_{uuid4().hex[:8]}"), isolation_level="AUTOCOMMIT")
    jar = str(jar_paths(Home.resolve(), "postgres")[0])
    url = engine.url
    database = {
        "url": f"jdbc:postgresql://127.0.0.1:{url.port}/{url.database}", "user": url.username, "password": PASSWORD,
        "driver": "org.postgresql.Driver", "jars": [jar],
    }  # fmt: skip
    topics = {name: f"{name}-{uuid4().hex[:8]}" for name in ("changes", "all")}
    query = "SELECT id, name, changed_at, price, tags FROM orders WHERE name <> 'hidden'"
    new_project = project(
        database,
        changes={
            "topic": topics["changes"], "query": query, "mode": "timestamp+incrementing", "timestamp_column": "changed_at",
            "incrementing_column": "id", "max_records": 2,
        },
        every={"topic": topics["all"], "table": "public.orders", "mode": "bulk"},
    )  # fmt: skip
    lines: list[str] = []

    def run(name: str, **changes: Any) -> CaptureResult:
        capture = capture_named(new_project, name).model_copy(update=changes)
        return run_capture(new_project, capture, CaptureOrder(str(uuid4())), lines.append)

    with engine.connect() as connection:
        connection.execute(text(
            "CREATE TABLE orders (id BIGINT, name TEXT, changed_at TIMESTAMPTZ, price NUMERIC(12,2), tags TEXT[])"
        ))  # fmt: skip
        moments = ("2026-03-01 12:00:00.000001Z", "2026-03-01 12:00:00.000001Z", "2026-03-01 12:00:00.000002Z")
        row = text("INSERT INTO orders VALUES (:id, :name, :at, 1.10, '{a,b}')")
        for number, moment in enumerate(moments):
            connection.execute(row, {"id": number, "name": "n", "at": moment})
        connection.execute(text("INSERT INTO orders VALUES (9, 'later', now() + interval '1 hour', 1, NULL)"))
        assert run("changes").records == 3
        connection.execute(row, {"id": 3, "name": "tie", "at": moments[2]})
        connection.execute(row, {"id": 4, "name": "hidden", "at": moments[2]})
        connection.execute(text("UPDATE orders SET name = 'changed', changed_at = '2026-03-02 00:00:00Z' WHERE id = 1"))
        assert run("changes").records == 2
        assert run("every").records == 6

    records = values(cluster, capture_named(new_project, "changes"))
    assert [(row["id"], row["name"]) for row in records] == [(0, "n"), (1, "n"), (2, "n"), (3, "tie"), (1, "changed")]
    assert records[0] == {
        "id": 0, "name": "n", "changed_at": "2026-03-01T12:00:00.000001Z", "price": "1.10", "tags": ["a", "b"],
    }  # fmt: skip
    logs = "".join(path.read_text(errors="replace") for path in new_project.home.root.rglob("*.log"))
    assert PASSWORD not in logs + "".join(lines)


def test_wrong_password_is_not_retried() -> None:
    """What databases say of it calls for a person, and so does a driver that is not there; other failures pass."""
    capture = JdbcCapture(capture="jdbc", name="orders", topic="t", database="shop", table="orders", mode="bulk")
    for message in (
        'FATAL: password authentication failed for user "ann"',
        "java.sql.SQLException: No suitable driver",
    ):
        refusal = refusal_of(capture, message)
        assert refusal is not None
        assert "databases.shop" in str(refusal)
    assert refusal_of(capture, "Connection refused") is None


def test_sqlstate_decides_instead_of_database_language(spark: SparkSession, free_ports: FreePorts) -> None:
    """A person must act, or not, by the SQLSTATE of the database's exception, which lies deep in what Spark raises."""
    capture = JdbcCapture(capture="jdbc", name="orders", topic="t", database="shop", table="nowhere", mode="bulk")
    url = f"jdbc:postgresql://127.0.0.1:{free_ports(1)[0]}/shop"
    with pytest.raises(SPARK_FAILED) as caught:
        rows_of(spark, capture, DatabaseSettings(url=url, driver="org.postgresql.Driver"))
    assert sql_state(caught.value) == "08001"  # nobody is there: another try may help
    assert refusal_of(capture, str(caught.value), "08001") is None
    with pytest.raises(SPARK_FAILED) as caught:
        spark.range(1).select("nowhere")
    assert sql_state(caught.value) == ""

    assert "user and password" in str(refusal_of(capture, "Passwort-Authentifizierung schlug fehl", "28P01"))
    assert "refuses the query: SQLSTATE 42P01" in str(refusal_of(capture, "Relation existiert nicht", "42P01"))
