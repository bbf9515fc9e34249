"""Every bad state of the closing table ends by the command that its refusal names, followed to the letter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate

from frazil.batch.position import EARLIEST
from frazil.errors import Retryable, Terminal
from frazil.iceberg.commit.summary_state import MANIFEST_KEY
from frazil.report.history import history
from frazil.run.repair.reset import preview_reset
from frazil.run.repair.reset_batch import ResetOrder
from tests.compaction import configure
from tests.operations import (
    LEDGER,
    LETTERS,
    ORDERS,
    Killed,
    assert_clean,
    bad,
    delete_records,
    drop,
    lake,
    landed,
    letters,
    location,
    offsets,
    order,
    places,
    position,
    remake,
    remove_manifest,
    replay,
    reset,
    restore,
    roll_back,
    scope,
    send,
    state,
    to_table,
)
from tests.refusals import carry_out, follow_refusals, named_command

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]


def assert_all(orders: Any, count: int) -> None:
    """Every record has its one outcome: even offsets are rows, odd ones letters."""
    assert places(orders) == [(0, o) for o in range(0, count, 2)]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, o) for o in range(1, count, 2)]


def more(orders: Any, first: int) -> None:
    send(orders, {0: [order(first), bad(first + 1), order(first + 2), bad(first + 3)]})


def kill_decided(orders: Any, at_failpoint: AtFailpoint) -> None:
    """A fourth batch, decided, of which no other table has its part."""
    more(orders, 12)
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        orders.run()


def rolled_back(orders: Any, at_failpoint: AtFailpoint, past: dict[str, list[str]]) -> None:
    roll_back(orders, ORDERS, 2)


def replaced(orders: Any, at_failpoint: AtFailpoint, past: dict[str, list[str]]) -> None:
    """CREATE OR REPLACE TABLE: the same table and properties, and a snapshot without parent."""
    table = lake(orders).load_table(ORDERS)
    head = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=table.current_snapshot().snapshot_id)
    table.catalog.commit_table(table, (head,), (RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH),))
    table = lake(orders).load_table(ORDERS)
    table.append(table.schema().as_arrow().empty_table())


def dropped(orders: Any, at_failpoint: AtFailpoint, past: dict[str, list[str]]) -> None:
    drop(orders, ORDERS)


def restored(orders: Any, at_failpoint: AtFailpoint, past: dict[str, list[str]]) -> None:
    restore(orders, ORDERS, past[ORDERS][1])


def restored_with_its_ledger(orders: Any, at_failpoint: AtFailpoint, past: dict[str, list[str]]) -> None:
    """The dead letters alone know of later batches."""
    restore(orders, ORDERS, past[ORDERS][1])
    restore(orders, LEDGER, past[LEDGER][1])


def manifest_gone(orders: Any, at_failpoint: AtFailpoint, past: dict[str, list[str]]) -> None:
    kill_decided(orders, at_failpoint)
    remove_manifest(orders)


def rolled_back_with_its_ledger(orders: Any, at_failpoint: AtFailpoint, past: dict[str, list[str]]) -> None:
    roll_back(orders, ORDERS, 1)
    roll_back(orders, LEDGER, 2)


def rolled_back_with_all_others(orders: Any, at_failpoint: AtFailpoint, past: dict[str, list[str]]) -> None:
    roll_back(orders, ORDERS, 2)
    roll_back(orders, LETTERS, 2)
    roll_back(orders, LEDGER, 1)


def rolled_back_and_manifest_gone(orders: Any, at_failpoint: AtFailpoint, past: dict[str, list[str]]) -> None:
    kill_decided(orders, at_failpoint)
    remove_manifest(orders)
    roll_back(orders, ORDERS, 2)


def manifest_gone_of_the_batch_it_is_at(orders: Any, at_failpoint: AtFailpoint, past: dict[str, list[str]]) -> None:
    roll_back(orders, ORDERS, 1)
    table = lake(orders).load_table(ORDERS)
    Path(table.current_snapshot().summary.additional_properties[MANIFEST_KEY].removeprefix("file://")).unlink()


STATES = [
    rolled_back,
    replaced,
    dropped,
    restored,
    restored_with_its_ledger,
    manifest_gone,
    rolled_back_with_its_ledger,
    rolled_back_with_all_others,
    rolled_back_and_manifest_gone,
    manifest_gone_of_the_batch_it_is_at,
]


@pytest.mark.parametrize("state", STATES)
def test_command_of_the_refusal_ends_the_state(
    shop: MakeShop, at_failpoint: AtFailpoint, state: Callable[..., None]
) -> None:
    """At most two steps lead to a pipeline that runs, with one outcome for each record."""
    orders = shop(partitions=1)
    past: dict[str, list[str]] = {ORDERS: [], LEDGER: []}
    for first in (0, 4, 8):
        more(orders, first)
        orders.run()
        for table, locations in past.items():
            locations.append(location(orders, table))
    state(orders, at_failpoint, past)
    count = 16 if "gone" in state.__name__ and "is_at" not in state.__name__ else 12

    assert 1 <= follow_refusals(orders) <= 2

    assert_all(orders, count)
    assert_clean(orders)
    assert orders.run().batches == 0


def test_late_run_on_restored_table_is_resolved_by_one_command(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A run stages, a rival lands the batch, the table is restored, the run decides: two batches of one number."""
    orders = landed(shop, 1)
    before = location(orders, ORDERS)
    more(orders, 4)

    def rival() -> None:
        orders.run()
        restore(orders, ORDERS, before)

    at_failpoint("manifest.written", rival)
    with pytest.raises(Retryable):
        orders.run()

    with pytest.raises(Terminal, match=r"ends at batch 2 \(.*\), but the pipeline was at batch 2 \("):
        orders.run()
    assert follow_refusals(orders) == 1
    assert position(orders).n > 2
    assert_all(orders, 8)
    assert_clean(orders)


def test_rolled_back_table_takes_no_replay_that_slept(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A replay pauses before its commit, a rival lands, the table is rolled back to where the replay began: it is refused."""
    orders = landed(shop, 2)
    more(orders, 8)

    def rival() -> None:
        orders.run()
        roll_back(orders, ORDERS)

    at_failpoint("decide.committing", rival)
    with pytest.raises(Terminal, match="was rolled back"):
        replay(orders, offsets(orders, 2), offsets(orders, 6))

    assert follow_refusals(orders) == 1
    assert_all(orders, 12)
    assert_clean(orders)


def test_late_run_of_older_batch_is_resolved_by_one_command(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Two batches land while a run sleeps, the table is restored to before both, and the run lands the first anew."""
    orders = landed(shop, 1)
    before = location(orders, ORDERS)
    more(orders, 4)

    def rival() -> None:
        orders.run()
        more(orders, 8)
        orders.run()
        restore(orders, ORDERS, before)

    at_failpoint("manifest.written", rival)
    with pytest.raises(Retryable):
        orders.run()

    assert follow_refusals(orders) == 1
    assert_all(orders, 12)
    assert_clean(orders)


def test_batch_without_manifest_gives_up_what_kafka_lost(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """What Kafka still holds comes again; beyond that rows stay, and the missing letters are given up on record."""
    orders = landed(shop, 3)
    kill_decided(orders, at_failpoint)
    remove_manifest(orders)
    delete_records(orders, 14)

    assert follow_refusals(orders) == 1

    assert places(orders) == [(0, o) for o in range(0, 16, 2)]
    assert [o for _, o, _ in letters(orders)] == [1, 3, 5, 7, 9, 11, 15]
    (rewind,) = [batch for batch in history(orders.project, orders.pipeline) if batch.kind == "rewind"]
    assert [skipped[-2:] for skipped in rewind.skipped] == [(12, 14)]


def test_replay_without_manifest_is_read_again_from_the_start(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Nobody knows what it replaced, so everything that Kafka holds comes again."""
    orders = landed(shop, 2)
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        replay(orders, offsets(orders, 2), offsets(orders, 6))
    remove_manifest(orders)

    assert follow_refusals(orders) == 1
    assert_all(orders, 8)
    assert_clean(orders)


def test_lost_ledger_does_not_stop_reset_to_table(shop: MakeShop) -> None:
    """Nothing but the table says where the pipeline is: that counts."""
    orders = landed(shop, 3)
    roll_back(orders, ORDERS)
    drop(orders, LEDGER)

    to_table(orders)
    orders.run()

    assert_all(orders, 12)


@pytest.mark.parametrize("damage", [drop, remake])
def test_lost_ledger_is_no_dead_end_without_the_manifest_of_the_last_batch(
    shop: MakeShop, damage: Callable[[Any, str], None]
) -> None:
    """Nothing but the table says where the pipeline is: the command of the refusal goes on from there."""
    orders = landed(shop, 3)
    table = lake(orders).load_table(ORDERS)
    Path(table.current_snapshot().summary.additional_properties[MANIFEST_KEY].removeprefix("file://")).unlink()
    damage(orders, LEDGER)

    assert 1 <= follow_refusals(orders) <= 2

    more(orders, 12)
    orders.run()
    assert_all(orders, 16)


@pytest.mark.parametrize("point", ["manifest.written", "decide.committing"])
def test_second_reset_to_table_is_refused_and_changes_nothing(
    shop: MakeShop, at_failpoint: AtFailpoint, point: str
) -> None:
    """Two at the same moment: one is done, the other changes nothing."""
    orders = landed(shop)
    roll_back(orders, ORDERS)
    at_failpoint(point, lambda: to_table(orders))

    with pytest.raises(Retryable, match="nothing was reset"):
        to_table(orders)

    orders.run()
    assert_all(orders, 12)
    assert_clean(orders)


def positionless(shop: MakeShop) -> Any:
    """A shop whose closing table has its rows, and no position: expiry took the snapshot of the last batch, too."""
    orders = landed(shop)
    table = lake(orders).load_table(ORDERS)
    table.append(table.scan(limit=0).to_arrow())
    table.refresh()
    old = [
        snapshot.snapshot_id
        for snapshot in table.snapshots()
        if snapshot.snapshot_id != table.metadata.current_snapshot_id
    ]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    with lake(orders).load_table(ORDERS).transaction() as edit:
        edit.remove_properties("kafka.offsets.orders")
    return orders


def test_table_without_position_property_does_not_start_over(shop: MakeShop) -> None:
    """Nothing is decided; a reset lands all again, and its preview says that rows go."""
    orders = positionless(shop)
    before, rows = state(orders), places(orders)
    with pytest.raises(
        Terminal, match=r"ends at batch 3 .* and has no position: its property kafka\.offsets\.orders is gone"
    ):
        orders.run()
    assert state(orders) == before

    (first,) = preview_reset(scope(orders), ResetOrder(EARLIEST)).remarks
    assert (
        first
        == f"the position is gone from table {ORDERS}: rows that will land again are removed from all destinations"
    )
    reset(orders, "earliest")
    orders.run()

    assert places(orders) == rows
    assert_clean(orders)


def test_reset_of_a_lost_position_over_a_compacted_topic_names_the_one_that_works(shop: MakeShop) -> None:
    """No row goes for good: it goes on at the end, or lands records beside their rows."""
    orders = positionless(shop)
    configure(orders.cluster, orders.topic, {"cleanup.policy": "compact,delete"})
    rows = places(orders)
    with pytest.raises(Terminal, match="compacted") as refused:
        reset(orders, "earliest")

    carry_out(orders, named_command(refused.value))
    orders.run()

    assert places(orders) == sorted([*rows, *rows])


def test_reset_of_lost_position_leaves_rows_of_compacted_topic(shop: MakeShop) -> None:
    """Rows of records that compaction removed would go for good; a new table has none."""
    orders = positionless(shop)
    configure(orders.cluster, orders.topic, {"cleanup.policy": "compact,delete"})
    before = state(orders)

    with pytest.raises(Terminal, match="compacted: rows whose records compaction removed would be deleted"):
        reset(orders, "earliest")
    assert state(orders) == before

    drop(orders, ORDERS)
    assert reset(orders, "earliest").topics[orders.topic].next == (0,)
