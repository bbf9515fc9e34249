"""Records that are gone within the log: a replay must not take out the rows that only the table has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from frazil.batch.facts import Staged
from frazil.batch.position import EARLIEST, RunRequest
from frazil.errors import Terminal
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import StageOrder
from tests.compaction import COMPACTED, configure, eager_cleaner, send_apart, wait_for
from tests.operations import assert_clean, bad, letters, offsets, order, places, position, replay, reset
from tests.transactions import transactions

pytestmark = pytest.mark.embedded

MakeShop = Callable[..., Any]

KEPT_TOMBSTONES = COMPACTED | {"delete.retention.ms": "86400000", "retention.ms": "-1"}


@pytest.fixture(scope="module", autouse=True)
def _eager_cleaner(broker: str) -> Iterator[None]:
    with eager_cleaner(broker):
        yield


def unused(_: StageOrder) -> Staged:
    raise AssertionError("nothing may be staged")


def data_files(shop: Any) -> set[str]:
    return {str(path) for path in shop.project.home.warehouse.rglob("data/*.parquet")}


def landed(shop: MakeShop, records: list[tuple[bytes, bytes | None]]) -> Any:
    """A pipeline that landed records of one partition before any of them was compacted."""
    orders = shop(partitions=1)
    configure(orders.cluster, orders.topic, {"retention.ms": "-1", "segment.ms": "1"})
    send_apart(orders.cluster, orders.topic, records)
    orders.run()
    return orders


def compacted_once(orders: Any, file_counts: list[int]) -> None:
    """Compact the topic, and set its policy back."""
    configure(orders.cluster, orders.topic, KEPT_TOMBSTONES)
    wait_for(orders.cluster, orders.topic, position(orders).topics[orders.topic].next[0], file_counts)
    configure(orders.cluster, orders.topic, {"cleanup.policy": "delete"})


def test_replay_of_compacted_topic_is_refused(shop: MakeShop) -> None:
    """Refused by the plan, and by a run whose plan was made before the topic was compacted."""
    orders = landed(shop, [(b"a", order(0)), (b"a", order(1)), (b"x", order(2))])
    request = RunRequest("early", "cli:tester@here", "replay", EARLIEST, reason="a test")
    early = plan_run(orders.project, orders.pipeline, request).plan
    assert early is not None
    configure(orders.cluster, orders.topic, {"cleanup.policy": "compact,delete"})

    with pytest.raises(Terminal, match=f"topic {orders.topic} is compacted: .* nothing was changed"):
        replay(orders, "earliest", stage=unused)
    with pytest.raises(Terminal, match=f"topic {orders.topic} is compacted: .* nothing was changed"):
        ingest(orders.project, orders.pipeline, early, unused, lambda _: None)

    assert places(orders) == [(0, 0), (0, 1), (0, 2)]
    assert position(orders).n == 1


def test_topic_compacted_earlier_is_refused(shop: MakeShop) -> None:
    """Rows and letters of records that compaction removed stay; the numbers are told, the staged files deleted."""
    records = [(b"a", order(0)), (b"a", bad(1)), (b"a", order(2)), (b"b", order(3)), (b"x", order(4))]
    orders = landed(shop, records)
    compacted_once(orders, [2, 3, 4])
    files = data_files(orders)

    with pytest.raises(Terminal, match="nothing was changed") as refused:
        replay(orders, "earliest")

    message = "partition 0, offsets 0 to 4: 5 rows and dead letters are there, 3 records were read; 2 are gone: 0, 1"
    assert message in refused.value.message
    assert places(orders) == [(0, 0), (0, 2), (0, 3), (0, 4)]
    assert letters(orders) == [(0, 1, 1)]
    assert position(orders).n == 1
    assert data_files(orders) == files


def test_lost_row_is_found_behind_tombstone(shop: MakeShop) -> None:
    """As many records as rows are there, but one is a tombstone, which is filtered, and one row has no record."""
    orders = landed(shop, [(b"a", order(0)), (b"a", None), (b"b", order(2)), (b"x", order(3))])
    compacted_once(orders, [1, 2, 3])

    with pytest.raises(Terminal, match=r"3 rows and dead letters are there, 3 records were read; 1 are gone: 0\n"):
        replay(orders, "earliest")

    assert places(orders) == [(0, 0), (0, 2), (0, 3)]


def test_range_that_compaction_spared_is_replayed(shop: MakeShop) -> None:
    """Behind the removed records a replay does its work."""
    orders = landed(shop, [(b"a", order(0)), (b"a", order(1)), (b"b", bad(2)), (b"x", order(3))])
    compacted_once(orders, [1, 2, 3])

    assert replay(orders, offsets(orders, 1)).read == 3
    assert places(orders) == [(0, 0), (0, 1), (0, 3)]
    assert letters(orders) == [(0, 2, 2)]


def test_transaction_markers_do_not_pass_for_lost_rows(shop: MakeShop) -> None:
    """Offsets that never had a row are no loss: not with rows twice, nor where rows are filtered or letters by now."""
    orders = shop(partitions=1)
    with transactions(orders.cluster, orders.topic) as writer:
        writer.commit([order(0), bad(1)])  # marker 2
        writer.abort([order(3)])  # marker 4
        writer.commit([order(5)])  # marker 6
    orders.run()
    expected = [(0, 0), (0, 5)]

    assert replay(orders, "earliest").read == 3
    assert places(orders) == expected
    reset(orders, "earliest", allow_duplicates=True)
    orders.run()
    assert places(orders) == sorted(2 * expected)
    assert replay(orders, "earliest").read == 3
    assert places(orders) == expected
    assert len(letters(orders)) == 1
    assert_clean(orders)


def test_newly_filtered_records_do_not_pass_for_lost_ones(shop: MakeShop) -> None:
    """A dead letter that the present pipeline file filters goes, for its record was read."""
    strict = shop(partitions=1)
    text = (strict.project.pipelines_folder / "orders.yaml").read_text()
    strict = strict.with_pipeline(text + "value: {null_value: dead_letter}\n")
    with transactions(strict.cluster, strict.topic) as writer:
        writer.commit([order(0), order(1)])  # marker 2
    strict.produce([None])
    strict.run()
    assert letters(strict) == [(0, 3, 1)]

    lenient = strict.with_pipeline(text)
    assert replay(lenient, "earliest").dead == 0

    assert places(lenient) == [(0, 0), (0, 1)]
    assert letters(lenient) == []
    assert_clean(lenient)
