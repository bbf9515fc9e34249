"""A merged table that lost its last batches: a repair lands their changes again, and the rows are what they were."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from frazil.batch.position import RunRequest
from frazil.errors import Terminal
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.repair import repair as repairs
from frazil.run.staging.stage import stage_inline
from frazil.run.state.context import RunContext
from frazil.spark.submit.configuration import open_catalog
from frazil.spark.writes.apply import SparkApply
from tests.integration.conftest import Shop
from tests.operations import assert_clean, drop, lake, reset, roll_back, send

TABLE = "shop.orders"
FILE = """
name: orders
source: {{topics: [{topic}]}}
dead_letters: {{tolerance: all}}
destinations:
  - table: shop.orders
    columns: {{id: {{type: long, required: true}}, name: string}}
    write: cdc
    identifier: [id]
    changes: {{format: op_column, op: op, row: after, before: before, values: {{insert: [c], update: [u], delete: [d]}}}}
"""

Make = Callable[[], Shop]


@pytest.fixture
def merged(tmp_path: Path, cluster: Cluster, spark: SparkSession) -> Make:
    """Make a pipeline of changes over a fresh topic."""

    def make() -> Shop:
        topic = f"orders-{uuid.uuid4().hex[:8]}"
        create_topic(cluster, topic, 1)
        folder = tmp_path / "pipelines"
        folder.mkdir()
        (folder / "orders.yaml").write_text(FILE.format(topic=topic))
        port = cluster.bootstrap_servers.rpartition(":")[2]
        env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(folder), "FRAZIL_KAFKA_PORT": port}
        return Shop(Project.load(env), cluster, topic)

    return make


def engine(shop: Shop, spark: SparkSession) -> SparkApply:
    """Spark, in a session that knows the catalog and cuts small work into few pieces."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    open_catalog(session, "lake", shop.project.settings.catalogs["lake"])
    return SparkApply(session)


def run(shop: Shop, apply: SparkApply) -> int:
    """Plan a run and ingest it; the number of its batches."""
    planned = plan_run(shop.project, shop.pipeline, RunRequest(str(uuid.uuid4())))
    if planned.plan is None:
        return 0
    return ingest(shop.project, shop.pipeline, planned.plan, stage_inline, lambda _: None, apply=apply)


def change(op: str, key: int, name: str | None = None, before: int | None = None) -> bytes:
    after = None if op == "d" else {"id": key, "name": name}
    return json.dumps({"op": op, "after": after, "before": {"id": key if before is None else before}}).encode()


BATCHES = (
    [change("c", number, "a") for number in range(6)],
    [change("u", 1, "b"), change("d", 2), b"no json", change("u", 30, "moved", before=3)],
    [change("c", 2, "again"), change("d", 30), change("u", 1, "c"), change("d", 77), b"{}"],
)
"""Inserts; then an update, a delete, a key that moves; then what those made, and a delete of a key that never was."""

ROWS = [(0, "a"), (1, "c"), (2, "again"), (4, "a"), (5, "a")]


def with_deletes(shop: Shop, deletes: str) -> Shop:
    text = (shop.project.pipelines_folder / "orders.yaml").read_text()
    return shop.with_pipeline(text.replace("    write: cdc\n", f"    write: cdc\n    deletes: {deletes}\n"))


def repair_and_replay(shop: Shop, apply: SparkApply, *, replays: bool = True) -> repairs.PlannedRepair:
    """Repair without an engine, as the command does; then the replay, with one."""
    planned = repairs.plan_repair(RunContext.open(shop.project, shop.pipeline), TABLE)
    request = RunRequest(str(uuid.uuid4()), "cli:tester@here", reason="a test")
    assert repairs.repair(RunContext.open(shop.project, shop.pipeline), planned, request) is not None
    filling = planned.replay_request(request) if replays else None
    plan = plan_run(shop.project, shop.pipeline, filling).plan if filling is not None else None
    if plan is not None:
        assert ingest(shop.project, shop.pipeline, plan, stage_inline, lambda _: None, apply=apply) == 1
    return planned


@pytest.mark.short("dropped")
@pytest.mark.parametrize(
    "damage",
    [lambda shop: roll_back(shop, TABLE, snapshots=2), lambda shop: drop(shop, TABLE)],
    ids=["rolled back", "dropped"],
)
def test_repaired_merged_table_has_its_rows_again(
    merged: Make, spark: SparkSession, damage: Callable[[Shop], None]
) -> None:
    """Rolled back or dropped: every row is what its last change says, deleted ones included."""
    shop = with_deletes(merged(), "soft")
    apply = engine(shop, spark)
    for values in BATCHES:
        send(shop, {0: values})
        assert run(shop, apply) == 1
    before = _rows(shop)
    assert_clean(shop)
    damage(shop)
    with pytest.raises(Terminal) as refused:
        run(shop, apply)
    assert f"frazil repair orders {TABLE} --reason" in str(refused.value)

    repair_and_replay(shop, apply)

    assert run(shop, apply) == 0
    assert _rows(shop) == before
    assert_clean(shop)
    send(shop, {0: [change("u", 4, "later")]})
    assert run(shop, apply) == 1
    assert [row["name"] for row in _rows(shop) if row["id"] == 4] == ["later"]
    assert_clean(shop)


def test_table_that_forgets_deletes_goes_on_without_what_it_lost(merged: Make, spark: SparkSession) -> None:
    """A replay would bring deleted rows back: what is possible is said, and the backward reset that it names works."""
    shop = with_deletes(merged(), "hard")
    apply = engine(shop, spark)
    for values in BATCHES:
        send(shop, {0: values})
        run(shop, apply)
    before = _rows(shop)
    assert [(row["id"], row["name"]) for row in before] == ROWS
    roll_back(shop, TABLE)

    planned = repair_and_replay(shop, apply)

    assert planned.fill
    assert "frazil reset orders --to earliest --reason" in str(planned.refusal)
    assert run(shop, apply) == 0
    assert [(row["id"], row["name"]) for row in _rows(shop)] == [(0, "a"), (1, "b"), (4, "a"), (5, "a"), (30, "moved")]
    reset(shop, "earliest")
    assert run(shop, apply) == 1
    assert _rows(shop) == before


def _rows(shop: Any) -> list[dict[str, Any]]:
    """All rows, but for the batch that brought them."""
    rows = lake(shop).load_table(TABLE).scan().to_arrow().to_pylist()
    return sorted(({**row, "_frazil_batch": None} for row in rows), key=lambda row: row["id"])
