"""A range is read again: exactly its rows and letters are replaced, in one moment, and nothing else moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.batch.facts import Staged
from frazil.errors import Retryable, Terminal
from frazil.run.staging.stage import StageOrder, stage_inline
from tests.operations import (
    ALL_ROWS,
    LETTERS,
    ORDERS,
    Killed,
    assert_clean,
    bad,
    lake,
    ledger,
    letters,
    offsets,
    order,
    places,
    position,
    recreate_topic,
    replay,
    reset,
    send,
    without_kafka_columns,
)

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]

NAMELESS = b'{"id": 1}'
STRICT = ("name: string", "name: {type: string, required: true}")


def landed(shop: MakeShop) -> Any:
    """Two partitions of eight records in two batches; 1 and 5 are bad, 3 has no name."""
    orders = shop(partitions=2)
    for n in (0, 4):
        third = NAMELESS if n == 0 else order(7)
        send(orders, {p: [order(n), bad(n + 1), order(n + 2), third] for p in (0, 1)})
        orders.run()
    return orders


def numbered(shop: Any) -> list[tuple[int, int, int]]:
    """Partition, offset and batch number of every row."""
    return sorted((row["_kafka_partition"], row["_kafka_offset"], row["_frazil_batch"]) for row in shop.rows())


def test_replay_touches_no_other_rows(shop: MakeShop) -> None:
    """Rows and letters of the range carry the replay's number, all others their own; the position stays, n grows."""
    orders = landed(shop)
    before = position(orders)

    result = replay(orders, offsets(orders, 2), offsets(orders, 6))

    assert (result.batches, result.read, result.written, result.dead) == (1, 4, 3, 1)
    assert numbered(orders) == sorted((p, o, 3 if p == 0 and 2 <= o < 6 else 1 if o < 4 else 2) for p, o in ALL_ROWS)
    assert letters(orders) == [(0, 1, 1), (0, 5, 3), (1, 1, 1), (1, 5, 2)]
    after = position(orders)
    assert (after.n, after.epoch) == (3, 0)
    assert after.topics[orders.topic].next == before.topics[orders.topic].next
    assert {(row["kind"], row["reason"]) for row in ledger(orders) if row["n"] == 3} == {("replay", "a test")}
    assert_clean(orders)


def test_changed_config_leaves_no_old_outcomes(shop: MakeShop) -> None:
    """A good record that is dead now loses its row, and a dead one that is good now its letter; only in the range."""
    lenient = landed(shop)
    text = (lenient.project.pipelines_folder / "orders.yaml").read_text()
    strict = lenient.with_pipeline(text.replace(*STRICT))

    assert replay(strict, offsets(strict, 0), offsets(strict, 8)).dead == 3
    assert places(strict) == [place for place in ALL_ROWS if place != (0, 3)]
    assert letters(strict) == [(0, 1, 3), (0, 3, 3), (0, 5, 3), (1, 1, 1), (1, 5, 2)]
    assert_clean(strict)
    again = strict.with_pipeline(text)
    assert replay(again, offsets(again, 3), offsets(again, 4)).written == 1
    assert places(again) == ALL_ROWS
    assert letters(again) == [(0, 1, 3), (0, 5, 3), (1, 1, 1), (1, 5, 2)]
    assert_clean(again)


@pytest.mark.short("decide.committed")
@pytest.mark.parametrize("point", ["manifest.written", "decide.committing", "decide.committed"])
def test_reader_never_sees_range_missing(shop: MakeShop, at_failpoint: AtFailpoint, point: str) -> None:
    """While a replay is under way main holds every row of the range: the old ones, then the new ones."""
    orders = landed(shop)
    ranges_read: list[list[tuple[int, int]]] = []
    at_failpoint(point, lambda: ranges_read.append(places(orders)))

    replay(orders, "earliest")

    assert ranges_read == [ALL_ROWS]
    assert_clean(orders)


@pytest.mark.short("decide.committed")
@pytest.mark.parametrize(
    "point",
    ["staged", "manifest.written", "decide.committing", "decide.committed",
     "follow.committing", "follow.committed", "record.committing"],
)  # fmt: skip
def test_killed_replay_leaves_no_half_range(shop: MakeShop, at_failpoint: AtFailpoint, point: str) -> None:
    """Killed at any step and run again: every record once."""
    orders = landed(shop)
    at_failpoint(point)
    with pytest.raises(Killed):
        replay(orders, "earliest", run="once")

    replay(orders, "earliest", run="once")

    assert places(orders) == ALL_ROWS
    assert len(ledger(orders, "replay")) == 2
    orders.run()
    assert_clean(orders)


def test_rerun_of_finished_replay_replaces_nothing(shop: MakeShop) -> None:
    """The same run a second time does nothing, and tells the same result."""
    orders = landed(shop)
    first = replay(orders, "earliest", run="once")

    second = replay(orders, "earliest", run="once")

    assert first == second
    assert position(orders).n == 3
    assert orders.snapshots(LETTERS) == 3


def test_rival_run_is_neither_lost_nor_doubled(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A batch that lands while a replay is staged stays; the replay is staged again behind it."""
    orders = landed(shop)
    send(orders, {0: [order(8), bad(9)]})
    at_failpoint("audited", orders.run)

    result = replay(orders, "earliest", offsets(orders, 8, 8))

    assert result.batches == 1
    assert places(orders) == sorted([*ALL_ROWS, (0, 8)])
    assert letters(orders)[2] == (0, 9, 3)
    assert position(orders).n == 4
    assert_clean(orders)


def test_two_replays_at_once_double_no_rows(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Both are done, one after the other."""
    orders = landed(shop)
    at_failpoint("manifest.written", lambda: replay(orders, "earliest"))

    replay(orders, "earliest")

    assert places(orders) == ALL_ROWS
    assert position(orders).n == 4
    assert_clean(orders)


def test_replay_of_nothing_commits_nothing(shop: MakeShop) -> None:
    """Beyond the position there is nothing to replace, and nothing is read."""
    orders = landed(shop)
    send(orders, {0: [order(8)]})

    result = replay(orders, offsets(orders, 8, 8))

    assert result.batches == 0
    assert position(orders).n == 2
    assert places(orders) == ALL_ROWS


def test_replay_without_kafka_columns_is_refused_before_reading(shop: MakeShop) -> None:
    """Refused before anything is staged, with the reason."""
    plain = without_kafka_columns(shop)
    plain.produce_orders(range(3))
    plain.run()

    with pytest.raises(Terminal, match="has no Kafka columns"):
        replay(plain, "earliest")
    assert plain.ids() == [0, 1, 2]


def test_replay_before_log_start_is_refused(shop: MakeShop) -> None:
    """Rows whose records Kafka deleted stay: the range is refused, with its offsets."""
    orders = landed(shop)
    admin = AdminClient(dict(orders.cluster.properties))
    (future,) = admin.delete_records([TopicPartition(orders.topic, 0, 4)]).values()
    future.result()

    with pytest.raises(Terminal, match="partition 0: 2 was asked for, the log holds 4 to 8"):
        replay(orders, offsets(orders, 2), offsets(orders, 6))
    assert places(orders) == ALL_ROWS
    assert replay(orders, "earliest").read == 12
    assert places(orders) == ALL_ROWS
    assert_clean(orders)


def test_replay_leaves_rows_of_earlier_topic(shop: MakeShop) -> None:
    """After the topic was recreated its older rows and letters stay, whatever is replayed."""
    orders = landed(shop)
    recreate_topic(orders, 2)
    send(orders, {0: [order(100), bad(101)]})
    with pytest.raises(Terminal, match="was recreated"):
        replay(orders, "earliest")
    reset(orders, "earliest")
    orders.run()

    replay(orders, "earliest")

    assert places(orders) == sorted([*ALL_ROWS, (0, 0)])
    assert letters(orders) == [(0, 1, 1), (0, 1, 5), (0, 5, 2), (1, 1, 1), (1, 5, 2)]
    assert_clean(orders)


def test_replay_after_reset_neither_doubles_nor_loses(shop: MakeShop) -> None:
    """A reset that allowed duplicates, then a replay: one outcome each."""
    orders = landed(shop)
    reset(orders, "earliest", allow_duplicates=True)
    orders.run()

    replay(orders, "earliest")

    assert places(orders) == ALL_ROWS
    assert len(letters(orders)) == 4
    assert_clean(orders)


def test_reset_voids_staged_replay(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A replay planned before a reset is void."""
    orders = landed(shop)
    at_failpoint("audited", lambda: reset(orders, offsets(orders, 0, 8)))

    with pytest.raises(Exception, match="reset"):
        replay(orders, "earliest")

    orders.run()
    assert places(orders) == ALL_ROWS
    assert_clean(orders)


def test_replay_in_parts_lands_in_one_commit(shop: MakeShop) -> None:
    """A range larger than a batch is staged in parts and lands in one commit."""
    orders = shop(partitions=2, max_records=10)
    orders.produce_orders(range(45))
    orders.run()
    before = orders.snapshots()
    staged: list[int] = []

    def counting(order: StageOrder) -> Staged:
        staged.append(sum(r.span for r in order.ranges))
        return stage_inline(order)

    result = replay(orders, "earliest", stage=counting)

    assert len(staged) == 5
    assert max(staged) <= 10
    assert (result.batches, result.read) == (1, 45)
    assert orders.snapshots() == before + 1
    assert orders.ids() == list(range(45))
    assert_clean(orders)


@pytest.mark.embedded
def test_replay_beside_schedule_stops_staging_at_first_conflict(shop: MakeShop) -> None:
    """Batches that land all the time: each attempt ends with the part under way, and the last says what to do."""
    orders = shop(partitions=1, max_records=10)
    orders.produce_orders(range(45))
    orders.run()
    staged: list[int] = []

    def beside_a_schedule(order: StageOrder) -> Staged:
        staged.append(order.n)
        part = stage_inline(order)
        orders.produce_orders([100 + len(staged)])
        orders.run()
        return part

    with pytest.raises(Retryable, match="refused 3 times") as refused:
        replay(orders, "earliest", stage=beside_a_schedule)

    assert "pause the DAG ingest__orders" in str(refused.value.next_step)
    assert staged == [6, 7, 8]
    data_files = {f"file://{path}" for path in orders.project.home.warehouse.rglob("orders/data/*.parquet")}
    assert data_files == set(lake(orders).load_table(ORDERS).inspect.files()["file_path"].to_pylist())
    assert orders.ids() == [*range(45), 101, 102, 103]
    assert_clean(orders)
