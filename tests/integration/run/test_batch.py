"""One pipeline, a real broker, a real catalog, in this process: what lands, and what happens when it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from frazil.batch.facts import Staged
from frazil.batch.position import RunRequest
from frazil.errors import Terminal
from frazil.kafka.admin.topics import create_topic
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import StageOrder, stage_inline
from tests.servers import delete_topic

MakeShop = Callable[..., Any]
PHASES = ("staging", "staged", "decided", "finished")


class Killed(BaseException):
    """Ends a run like a kill: nothing inside may catch it."""


def killer(phase: str, times: int = 1) -> Callable[[str], None]:
    """A report that kills the run the first `times` a phase is told."""
    remaining = [times]

    def report(line: str) -> None:
        if phase in line and remaining[0]:
            remaining[0] -= 1
            raise Killed(phase)

    return report


def test_values_land_unchanged(shop: MakeShop) -> None:
    """Every good record is one row with its values and Kafka coordinates, every bad one a dead letter with its bytes."""
    orders = shop()
    orders.produce_orders(range(50))
    orders.produce([b'{"id": "x"}', b"", b'{"id": 1', None])

    result = orders.run()

    assert (result.read, result.written, result.dead, result.filtered) == (54, 50, 3, 1)
    rows = orders.rows()
    assert sorted(row["id"] for row in rows) == list(range(50))
    assert all(row["name"] == f"order {row['id']}" and row["_kafka_topic"] == orders.topic for row in rows)
    coordinates = {(row["_kafka_partition"], row["_kafka_offset"]) for row in rows}
    assert len(coordinates) == 50
    letters = orders.rows("shop.orders__dead_letters")
    assert {letter["value"] for letter in letters} == {b'{"id": "x"}', b"", b'{"id": 1'}
    assert {letter["code"] for letter in letters} == {"WRONG_TYPE", "EMPTY_VALUE", "INVALID_JSON"}
    assert coordinates.isdisjoint({(letter["partition"], letter["offset"]) for letter in letters})


def test_second_run_lands_nothing_again(shop: MakeShop) -> None:
    """A run with nothing new commits nothing anywhere."""
    orders = shop()
    orders.produce_orders(range(20))
    orders.run()
    tables = ("shop.orders", "shop.orders__dead_letters", "shop.orders__ledger")
    before = [orders.snapshots(table) for table in tables]

    result = orders.run()

    assert (result.batches, result.read) == (0, 0)
    assert [orders.snapshots(table) for table in tables] == before
    assert orders.ids() == list(range(20))


def test_rerun_of_finished_plan_lands_nothing_again(shop: MakeShop) -> None:
    """The same plan executed twice is a no-op the second time."""
    orders = shop()
    orders.produce_orders(range(20))
    plan = plan_run(orders.project, orders.pipeline, RunRequest("a")).plan

    published = [ingest(orders.project, orders.pipeline, plan, stage_inline, print) for _ in range(2)]

    assert published == [1, 0]
    assert orders.ids() == list(range(20))


@pytest.mark.short("decided")
@pytest.mark.parametrize("phase", PHASES)
def test_kill_between_steps_neither_loses_nor_doubles_records(shop: MakeShop, phase: str) -> None:
    """Killed after any step, the next run carries on: every record once, dead letters and ledger complete."""
    orders = shop()
    orders.produce_orders(range(30))
    orders.produce([b"broken", b"{}"])
    with pytest.raises(Killed):
        orders.run(report=killer(phase))
    orders.produce_orders(range(30, 40))

    orders.run()

    assert orders.ids() == list(range(40))
    assert len(orders.rows("shop.orders__dead_letters")) == 2
    assert sum(batch.read for batch in orders.history()) == 42


def test_kill_before_first_row_keeps_start_position(shop: MakeShop) -> None:
    """`latest` is resolved once: records produced after the first, killed run still land."""
    orders = shop(start="latest")
    orders.produce_orders(range(5))
    assert orders.run().batches == 0
    orders.produce_orders(range(5, 12))
    with pytest.raises(Killed):
        orders.run(report=killer("staged"))

    orders.run()

    assert orders.ids() == list(range(5, 12))


def test_rival_run_in_the_middle_doubles_no_records(shop: MakeShop) -> None:
    """A run whose batch a rival took plans again and lands only what is left."""
    orders = shop()
    orders.produce_orders(range(25))
    rivals = [orders.run]

    def stage(order: StageOrder) -> Staged:
        staged = stage_inline(order)
        if rivals:
            rivals.pop()()
        return staged

    orders.run(stage=stage)

    assert orders.ids() == list(range(25))
    assert [batch.read for batch in orders.history()] == [25]


def test_backlog_is_cut_without_missing_piece(shop: MakeShop) -> None:
    """A run larger than `max_records` becomes several batches that together hold every record once."""
    orders = shop(partitions=3, max_records=40)
    orders.produce_orders(range(250))

    result = orders.run()

    assert result.batches == 7
    assert orders.ids() == list(range(250))
    assert all(batch.read <= 42 for batch in orders.history())


@pytest.mark.embedded
def test_too_many_dead_letters_are_not_published(shop: MakeShop) -> None:
    """Above the tolerated rate nothing is published, no file is left, and the position does not move."""
    orders = shop()
    orders.produce([b"broken"] * 12)
    with pytest.raises(Terminal, match="12 of 12 records"):
        orders.run()

    assert orders.snapshots() == 1  # the start position
    assert orders.snapshots("shop.orders__dead_letters") == 0
    data = {path.parent.parent.name for path in orders.project.home.warehouse.rglob("data/*.parquet")}
    assert data == {"orders__ledger"}
    orders.produce_orders(range(20))
    orders.run()
    assert orders.ids() == list(range(20))


def test_partition_added_later_is_read_from_its_beginning(shop: MakeShop) -> None:
    """Partitions that appear between runs are read from their beginning."""
    orders = shop(partitions=1)
    orders.produce_orders(range(10))
    orders.run()
    grow(orders, 4)
    orders.produce_orders(range(10, 60))

    orders.run()

    assert orders.ids() == list(range(60))


def grow(orders: Any, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient(dict(orders.cluster.properties))
    admin.create_partitions([NewPartitions(orders.topic, partitions)])[orders.topic].result()


def test_recreated_topic_is_refused(shop: MakeShop) -> None:
    """A topic that was deleted and made anew is refused, although its offsets would fit."""
    orders = shop(partitions=1)
    orders.produce_orders(range(5))
    orders.run()
    delete_topic(orders.cluster, orders.topic)
    create_topic(orders.cluster, orders.topic, 1)
    orders.produce_orders(range(100, 120))

    with pytest.raises(Terminal, match="was recreated"):
        orders.run()
    assert orders.ids() == list(range(5))


@pytest.mark.embedded
@pytest.mark.parametrize("table", ["shop.orders", "shop.orders__dead_letters", "shop.orders__ledger"])
def test_dropped_table_is_refused(shop: MakeShop, table: str) -> None:
    """A table of the pipeline that is gone stops the pipeline instead of starting from earliest again."""
    orders = shop()
    orders.produce_orders(range(5))
    orders.produce([b"broken"])
    orders.run()
    settings = orders.project.settings.catalogs["lake"]
    SqlCatalog("lake", uri=settings.uri, warehouse=settings.warehouse).drop_table(table)

    with pytest.raises(Terminal, match="is gone"):
        orders.run()


def test_renamed_destination_is_refused(shop: MakeShop) -> None:
    """A pipeline file that names another table is refused: the position is kept in the old one."""
    orders = shop()
    orders.produce_orders(range(5))
    orders.run()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    renamed = orders.with_pipeline(text.replace("shop.orders", "shop.orders2"))

    with pytest.raises(Terminal, match=r"keeps its position in table shop\.orders,"):
        renamed.run()


def test_snapshot_has_what_next_plan_needs(shop: MakeShop) -> None:
    """Rows, position, batch and counts stand in one snapshot, and nothing of the settings' secrets does."""
    orders = shop()
    orders.produce_orders(range(8))
    orders.run()
    summary = orders.project.lake("lake").load_table("shop.orders").current_snapshot().summary.additional_properties

    assert {"kafka.offsets.orders", "frazil.batch.orders", "frazil.manifest", "frazil.config"} <= summary.keys()
    assert summary["frazil.rows.written"] == "8"
    assert "frazil.complete-through" in summary
