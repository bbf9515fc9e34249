"""A dry run on a real broker and catalog: what it tells, and that nothing is different afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from frazil.batch.facts import Staged
from frazil.batch.position import EARLIEST, LATEST, RunRequest, Target
from frazil.errors import Terminal
from frazil.kafka.admin.consumer_group import group_offsets
from frazil.kafka.admin.topics import create_topic
from frazil.run.batches.dry_run import DryRun, dry_run, plan_dry_run
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import StageOrder, stage_inline
from tests.servers import delete_topic

pytestmark = pytest.mark.embedded

MakeShop = Callable[..., Any]
BAD = [b'{"id": "x"}', b"", b'{"id": 1', None]


class Killed(BaseException):
    """Ends a run like a kill."""


def preview(orders: Any, start: Target | None = None, end: Target | None = None) -> DryRun:
    """A dry run in this process; what the result says survives its way through JSON."""
    request = RunRequest("look", mode="dry_run", start=start, end=end)
    plan = plan_dry_run(orders.project, orders.pipeline, request)
    report = dry_run(orders.project, orders.pipeline, plan, stage_inline)
    assert DryRun.from_json(report.to_json()) == report
    return report


def state(orders: Any) -> dict[str, Any]:
    """Everything that a run could change: tables and their metadata, files of the warehouse, the consumer group."""
    lake, home = orders.project.lake("lake"), orders.project.home
    group = orders.pipeline.consumer_group
    return {
        "tables": {name: lake.load_table(name).metadata.model_dump_json() for name in lake.tables()},
        "files": {path: path.stat().st_mtime_ns for path in home.warehouse.rglob("*")},
        "group": group_offsets(orders.cluster, group),
    }


@pytest.fixture
def unchanged() -> Iterator[Callable[[Any], None]]:
    """Watch a shop: `unchanged(orders)`; at the end of the test it is as it was."""
    watched: list[tuple[Any, dict[str, Any]]] = []
    yield lambda orders: watched.append((orders, state(orders)))
    assert watched
    for orders, before in watched:
        assert state(orders) == before


def kill_when(word: str) -> Callable[[str], None]:
    """A report that ends the run when a line has the word."""

    def report(line: str) -> None:
        if word in line:
            raise Killed

    return report


def test_dry_run_commits_nothing_and_next_run_reads_the_same(shop: MakeShop, unchanged: Callable[[Any], None]) -> None:
    """From the position to the end, with the outcome of every record; the run that follows lands exactly that."""
    orders = shop()
    orders.produce_orders(range(10))
    orders.run()
    orders.produce_orders(range(10, 50))
    orders.produce(BAD)
    unchanged(orders)

    report = preview(orders)

    counts = report.counts
    assert (counts.read, counts.written, counts.dead, counts.filtered) == (44, 40, 3, 1)
    assert (report.offsets, report.looked_at) == (44, 44)
    assert report.dead_codes == {"WRONG_TYPE": 1, "EMPTY_VALUE": 1, "INVALID_JSON": 1}
    assert report.bytes == sum(len(b'{"id": %d, "name": "order %d"}' % (n, n)) for n in range(10, 50)) + 19
    assert sum(p.counts.read for p in report.partitions) == 44
    assert report.too_many_dead is None
    assert report.remarks == ()


def test_run_after_dry_run_lands_what_it_said(shop: MakeShop) -> None:
    """Ranges and counts of a look are those of the run."""
    orders = shop()
    orders.produce_orders(range(30))
    orders.produce(BAD)
    report = preview(orders)

    result = orders.run()

    counts = report.counts
    assert (result.read, result.written, result.dead, result.filtered) == (
        counts.read,
        counts.written,
        counts.dead,
        counts.filtered,
    )
    assert {p.partition: p.looked_to for p in report.partitions} == dict(enumerate(result.position[orders.topic]))


def test_dry_run_of_new_pipeline_creates_no_tables(shop: MakeShop, unchanged: Callable[[Any], None]) -> None:
    """Without tables the declared columns and the resolved start tell what would land; `start: latest` stays open."""
    orders = shop()
    orders.produce_orders(range(7))
    orders.produce([b'{"name": "no id"}'])
    unchanged(orders)

    report = preview(orders)

    assert (report.counts.written, report.counts.dead) == (7, 1)
    assert report.remarks == ("pipeline orders never ran: the next run writes its start position first",)
    assert orders.project.lake("lake").tables() == []


def test_dry_run_does_not_resolve_start_latest(shop: MakeShop) -> None:
    """Records produced between a look and the first run are before its start: the look left nothing behind."""
    orders = shop(start="latest")
    orders.produce_orders(range(5))
    assert preview(orders).offsets == 0
    orders.produce_orders(range(5, 9))

    assert orders.run().read == 0
    assert orders.ids() == []


def test_dry_run_does_not_finish_decided_batch(shop: MakeShop, unchanged: Callable[[Any], None]) -> None:
    """After a crash it says what the next run will finish, and leaves that to it."""
    orders = shop()
    orders.produce_orders(range(20))
    with pytest.raises(Killed):
        orders.run(report=kill_when("decided"))
    orders.produce_orders(range(20, 23))
    unchanged(orders)

    report = preview(orders)

    assert report.remarks == ("batch 1 is decided and not finished: the next run finishes it first",)
    assert report.counts.read == 3


def test_dry_run_reads_one_batch_of_backlog(shop: MakeShop) -> None:
    """No more than one batch is read, a share of every partition; the whole is told beside it."""
    orders = shop(max_records=40)
    orders.produce_orders(range(300))

    report = preview(orders)

    assert (report.offsets, report.looked_at, report.counts.read) == (300, 38, 38)
    assert all(p.start < p.looked_to < p.end for p in report.partitions)


def test_explicit_range_is_not_cut_at_position(shop: MakeShop, unchanged: Callable[[Any], None]) -> None:
    """A look may go over what is landed, over what is new, and over a part of the partitions."""
    orders = shop()
    orders.produce_orders(range(50))
    orders.run()
    orders.produce_orders(range(50, 60))
    unchanged(orders)
    first = Target("offsets", offsets={orders.topic: {0: 1}})
    fourth = Target("offsets", offsets={orders.topic: {0: 4}})
    tomorrow = Target("timestamp", datetime.now(UTC) + timedelta(days=1))

    assert preview(orders, EARLIEST, LATEST).counts.read == 60
    assert preview(orders, EARLIEST).counts.read == 60
    assert preview(orders, None, LATEST).counts.read == 10
    assert preview(orders, tomorrow).offsets == 0
    (part,) = preview(orders, first, fourth).partitions
    assert (part.partition, part.start, part.end, part.counts.read) == (0, 1, 4, 3)


def test_too_many_dead_letters_are_reported(shop: MakeShop) -> None:
    """What a run would refuse to publish is said, with a letter of every code and where its record is."""
    orders = shop(partitions=1)
    orders.produce([b"broken"] * 12)

    report = preview(orders)

    assert report.too_many_dead is not None
    assert "12 of 12 records" in report.too_many_dead
    letter = report.samples["INVALID_JSON"]
    assert (letter.topic, letter.partition, letter.offset) == (orders.topic, 0, 0)
    assert "expected one JSON document" in letter.message


def test_dry_run_of_recreated_topic_is_refused(shop: MakeShop) -> None:
    """What would stop a run stops a look; between plan and look, too."""
    orders = shop(partitions=1)
    orders.produce_orders(range(5))
    orders.run()
    orders.produce_orders(range(5, 9))
    plan = plan_dry_run(orders.project, orders.pipeline, RunRequest("look", mode="dry_run"))
    delete_topic(orders.cluster, orders.topic)
    create_topic(orders.cluster, orders.topic, 1)
    orders.produce_orders(range(100, 120))

    with pytest.raises(Terminal, match="was recreated"):
        dry_run(orders.project, orders.pipeline, plan, stage_inline)
    with pytest.raises(Terminal, match="was recreated"):
        preview(orders)


def test_plan_of_another_kind_is_refused(shop: MakeShop) -> None:
    """A dry run's plan lands nothing by mistake, and a run's plan is not taken for a look."""
    orders = shop()
    orders.produce_orders(range(5))
    dry = plan_dry_run(orders.project, orders.pipeline, RunRequest("look", mode="dry_run"))
    wet = plan_run(orders.project, orders.pipeline, RunRequest("run")).plan

    with pytest.raises(Terminal, match="a dry run lands nothing"):
        ingest(orders.project, orders.pipeline, dry, stage_inline, print)
    with pytest.raises(Terminal, match="not a dry run"):
        dry_run(orders.project, orders.pipeline, wet, stage_inline)


def test_no_engine_is_started_without_offsets(shop: MakeShop) -> None:
    """Without offsets to look at no engine is asked; with some it gets no place to write to."""
    orders = shop()
    orders_staged: list[StageOrder] = []

    def stage(order: StageOrder) -> Staged:
        orders_staged.append(order)
        return stage_inline(order)

    for _ in range(2):
        plan = plan_dry_run(orders.project, orders.pipeline, RunRequest("look", mode="dry_run"))
        dry_run(orders.project, orders.pipeline, plan, stage)
        orders.produce_orders(range(3))

    (order,) = orders_staged
    assert (order.destinations, order.dead_letters) == ({}, None)
    assert sum(r.span for r in order.ranges) == 3
