"""What metrics and lineage are told of a run: of this plan, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frazil.batch.position import RunRequest
from frazil.report.lineage import Lineage, run_lineage
from frazil.run.batches.dry_run import plan_dry_run
from frazil.run.batches.plan import plan_run, run_result
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline

MakeShop = Callable[..., Any]


def ran(shop: Any, run_id: str) -> Any:
    """Plan under this id and land it; returns the plan."""
    plan = plan_run(shop.project, shop.pipeline, RunRequest(run_id)).plan
    ingest(shop.project, shop.pipeline, plan, stage_inline, lambda _: None)
    return plan


def rows(lineage: Lineage) -> dict[str, int | None]:
    return {table.known_as.name: table.rows for table in lineage.tables}


def test_retry_of_cleared_run_does_not_count_earlier_batches(shop: MakeShop) -> None:
    """It plans again under its id: the result of the run has both plans, that of a plan has its own batches."""
    orders = shop(partitions=1)
    orders.produce_orders(range(7))
    first = ran(orders, "scheduled__1")
    told_of_first = run_lineage(orders.project, orders.pipeline, first, has_landed=True)
    orders.produce_orders(range(7, 10))
    orders.produce([b"no JSON"])
    second = ran(orders, "scheduled__1")

    whole = run_result(orders.project, orders.pipeline, "scheduled__1")
    part = run_result(orders.project, orders.pipeline, "scheduled__1", second.planned_at)

    assert (whole.batches, whole.written, len(whole.phases)) == (2, 10, 2)
    assert (part.batches, part.written, part.dead, part.rows) == (1, 3, 1, {"shop.orders": 3})
    assert (part.files["shop.orders"], len(part.phases)) == (1, 1)
    assert part.bytes["shop.orders"] > 0
    assert rows(told_of_first) == {"shop.orders": 7}
    lineage = run_lineage(orders.project, orders.pipeline, second, has_landed=True)
    assert rows(lineage) == {"shop.orders": 3, "shop.orders__dead_letters": 1}
    (topic,) = lineage.topics
    assert (topic.name.name, topic.records) == (orders.topic, 4)


def test_lineage_names_only_written_tables(shop: MakeShop) -> None:
    """Before the first run there is no table to name; a dry run reads the topic and writes none."""
    orders = shop()
    orders.produce_orders(range(3))
    plan = plan_run(orders.project, orders.pipeline, RunRequest("first")).plan
    look = plan_dry_run(orders.project, orders.pipeline, RunRequest("look", mode="dry_run"), lambda _: None)

    planned = run_lineage(orders.project, orders.pipeline, plan, has_landed=False)

    assert [topic.name.name for topic in planned.topics] == [orders.topic]
    assert planned.topics[0].name.namespace == f"kafka://{orders.cluster.bootstrap_servers}"
    assert all(table.rows is None for table in planned.tables)
    for has_landed in (False, True):
        lineage = run_lineage(orders.project, orders.pipeline, look, has_landed=has_landed)
        assert ([topic.name.name for topic in lineage.topics], lineage.tables) == ([orders.topic], ())
