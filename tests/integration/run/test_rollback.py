"""Somebody rolls the closing table back: it is refused, the position follows on demand, and every record lands once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate

from frazil.errors import Terminal
from frazil.iceberg.commit.summary_state import MANIFEST_KEY
from frazil.report.history import history
from tests.operations import (
    ALL_ROWS,
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
    landed_in_two_partitions,
    ledger,
    letters,
    offsets,
    order,
    places,
    position,
    repair,
    replay,
    reset,
    roll_back,
    send,
    to_table,
    without_kafka_columns,
)

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]


def assert_all(orders: Any, count: int) -> None:
    """Every record has its one outcome: even offsets are rows, odd ones letters."""
    assert places(orders) == [(0, o) for o in range(0, count, 2)]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, o) for o in range(1, count, 2)]
    assert_clean(orders)


def kinds(orders: Any) -> list[str]:
    return [batch.kind for batch in history(orders.project, orders.pipeline)]


@pytest.mark.short("2")
@pytest.mark.parametrize("snapshots", [1, 2, 3])
def test_rolled_back_records_land_again_on_demand(shop: MakeShop, snapshots: int) -> None:
    """A rollback by any number of batches is refused until a reset follows it; then the records land again, once."""
    orders = landed(shop)
    roll_back(orders, ORDERS, snapshots)
    with pytest.raises(Terminal, match=rf"{ORDERS} ends at batch {3 - snapshots} .* at batch 3 ") as refused:
        orders.run()
    assert "frazil reset orders --to-table" in str(refused.value.next_step)
    to_table(orders)

    result = orders.run()

    assert result.read == 4 * snapshots
    assert_all(orders, 12)
    assert (position(orders).n, position(orders).epoch) == (5, 1)
    assert kinds(orders)[-2:] == ["rewind", "ingest"]


def test_table_rolled_back_before_first_snapshot_begins_at_recorded_start(shop: MakeShop) -> None:
    """A table emptied of all its snapshots begins where the ledger says the pipeline began."""
    orders = landed(shop)
    table = lake(orders).load_table(ORDERS)
    table.catalog.commit_table(
        table,
        (AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=table.current_snapshot().snapshot_id),),
        (RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH),),
    )
    assert lake(orders).load_table(ORDERS).current_snapshot() is None

    to_table(orders)
    orders.run()

    assert_all(orders, 12)


def test_rollback_to_foreign_snapshot_keeps_its_rows(shop: MakeShop) -> None:
    """Somebody else's snapshot between two batches becomes main again: its rows stay, ours come again."""
    orders = landed(shop, 1)
    table = lake(orders).load_table(ORDERS)
    schema = table.schema().as_arrow()
    table.append(pa.Table.from_pylist([{"id": 999, "name": "foreign"}], schema))
    send(orders, {0: [order(4), bad(5)]})
    orders.run()
    roll_back(orders, ORDERS)
    to_table(orders)

    orders.run()

    assert sorted(row["id"] for row in orders.rows()) == [0, 2, 4, 999]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, 1), (0, 3), (0, 5)]
    assert_clean(orders)


def test_rollback_past_reset_lands_skipped_records(shop: MakeShop) -> None:
    """The reset is undone too: what it skipped is landed, and the epoch only grows."""
    orders = landed(shop, 1)
    send(orders, {0: [order(4), bad(5), order(6), bad(7)]})
    reset(orders, "latest")
    send(orders, {0: [order(8), bad(9)]})
    orders.run()
    roll_back(orders, ORDERS, 2)
    to_table(orders)

    orders.run()

    assert_all(orders, 10)
    assert position(orders).epoch == 2


def test_rollback_past_backward_reset_doubles_nothing(shop: MakeShop) -> None:
    """The rows that the reset took out are back, its letters are not: both end up there once."""
    orders = landed(shop, 2)
    reset(orders, offsets(orders, 2))
    roll_back(orders, ORDERS)
    to_table(orders)

    orders.run()

    assert_all(orders, 8)


@pytest.mark.short("1")
@pytest.mark.parametrize("later", [0, 1])
def test_rollback_past_replay_neither_loses_nor_doubles_dead_letters(shop: MakeShop, later: int) -> None:
    """Letters that the replay replaced are neither lost nor doubled, also if a batch came after it."""
    orders = landed(shop, 2)
    replay(orders, offsets(orders, 2), offsets(orders, 6))
    if later:
        send(orders, {0: [order(8), bad(9), order(10), bad(11)]})
        orders.run()
    roll_back(orders, ORDERS, 1 + later)
    to_table(orders)

    orders.run()

    assert_all(orders, 8 + 4 * later)


def test_rollback_past_unknown_replay_neither_loses_nor_doubles(shop: MakeShop) -> None:
    """The ledger was lost, and so was the replay's manifest: a repair left its number out, and it may have replaced anything."""
    orders = landed(shop, 2)
    replay(orders, offsets(orders, 2), offsets(orders, 6))
    manifest = lake(orders).load_table(ORDERS).current_snapshot().summary.additional_properties[MANIFEST_KEY]
    send(orders, {0: [order(8), bad(9), order(10), bad(11)]})
    orders.run()
    Path(manifest.removeprefix("file://")).unlink()
    drop(orders, LEDGER)
    repair(orders, LEDGER)
    assert {row["n"] for row in ledger(orders)} == {0, 1, 2, 4, 5}
    roll_back(orders, ORDERS, 3)
    to_table(orders)

    orders.run()

    assert_all(orders, 12)


def test_rolled_back_partition_lost_in_part_is_recorded(shop: MakeShop) -> None:
    """Its letters that can't come again stay, what is missing is on record; the other partition comes again as a whole."""
    orders = landed_in_two_partitions(shop)
    roll_back(orders, ORDERS)
    delete_records(orders, 6)

    to_table(orders)
    orders.run()

    assert places(orders) == [row_place for row_place in ALL_ROWS if row_place != (0, 4)]
    assert letters(orders) == [(0, 1, 1), (0, 5, 2), (1, 1, 1), (1, 5, 4)]
    assert_clean(orders)


def test_range_redone_with_other_bounds_doubles_no_dead_letters(shop: MakeShop) -> None:
    """The missing records come in another cut than before: letters of the old one don't stand beside them."""
    orders = landed(shop)
    roll_back(orders, ORDERS, 2)
    to_table(orders)
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    small = orders.with_pipeline(text.replace("max_records: 1000000", "max_records: 3"))
    send(small, {0: [order(12), bad(13)]})

    assert small.run().batches == 4
    assert_all(small, 14)


@pytest.mark.short("decide.committed")
@pytest.mark.parametrize("point", ["decide.committed", "follow.committed", "record.committed"])
def test_rollback_of_unfinished_batch_cleans_its_followers(
    shop: MakeShop, at_failpoint: AtFailpoint, point: str
) -> None:
    """Decided, killed at a follow-up, then rolled back: what its followers got already goes again."""
    orders = landed(shop, 1)
    send(orders, {0: [order(4), bad(5), order(6), bad(7)]})
    at_failpoint(point)
    with pytest.raises(Killed):
        orders.run()
    roll_back(orders, ORDERS)
    to_table(orders)

    orders.run()

    assert_all(orders, 8)


@pytest.mark.short("decide.committed")
@pytest.mark.parametrize("point", ["manifest.written", "decide.committed", "follow.committed", "record.committing"])
def test_killed_rewind_is_finished_by_next_run(shop: MakeShop, at_failpoint: AtFailpoint, point: str) -> None:
    """Following a rollback is a batch like any other: whoever comes next finishes it."""
    orders = landed(shop)
    roll_back(orders, ORDERS, 2)
    at_failpoint(point)
    with pytest.raises(Killed):
        to_table(orders)

    to_table(orders)
    orders.run()

    assert_all(orders, 12)


def test_second_rollback_lands_records_once(shop: MakeShop) -> None:
    """A rollback of what came after a rollback."""
    orders = landed(shop)
    roll_back(orders, ORDERS, 1)
    to_table(orders)
    orders.run()
    roll_back(orders, ORDERS, 2)
    to_table(orders)
    orders.run()

    assert_all(orders, 12)
    assert position(orders).epoch == 2


def test_rollback_of_both_tables_loses_nothing(shop: MakeShop) -> None:
    """Closing table and letters to the same batch, by the same hand: nothing is lost, and everything is there once."""
    orders = landed(shop)
    roll_back(orders, ORDERS)
    roll_back(orders, LETTERS)

    to_table(orders)
    orders.run()

    assert_all(orders, 12)


def test_rollback_past_repair_neither_loses_nor_doubles_dead_letters(shop: MakeShop) -> None:
    """The dead letters that the repair landed are those of their batches: they go and come with them."""
    orders = landed(shop)
    roll_back(orders, LETTERS)
    repair(orders, LETTERS)
    roll_back(orders, ORDERS, 2)
    to_table(orders)

    orders.run()

    assert_all(orders, 12)


def test_rollback_past_unrecorded_replay_keeps_dead_letters_once(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A replay, then a repair on top of it, both decided and killed before their record: dead letters are there once."""
    orders = landed(shop, 2)
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        replay(orders, offsets(orders, 0), offsets(orders, 8))
    drop(orders, LETTERS)
    at_failpoint("record.committing")
    with pytest.raises(Killed):
        repair(orders, LETTERS)
    roll_back(orders, ORDERS, 2)

    to_table(orders)
    with pytest.raises(Terminal, match=rf"table {LETTERS} was dropped and created again"):
        orders.run()
    repair(orders, LETTERS)
    orders.run()

    assert_all(orders, 8)


@pytest.mark.short("1")
@pytest.mark.parametrize("snapshots", [1, 2])
def test_rows_without_coordinates_do_not_block_rollback(shop: MakeShop, snapshots: int) -> None:
    """Behind a reset that allowed duplicates, a table that does not say where its rows are from goes on by itself."""
    plain = without_kafka_columns(shop)
    plain.produce_orders(range(3))
    plain.run()
    reset(plain, "earliest", allow_duplicates=True)
    plain.run()
    assert plain.ids() == [0, 0, 1, 1, 2, 2]
    roll_back(plain, ORDERS, snapshots)
    to_table(plain)

    plain.run()

    assert kinds(plain)[-2 if snapshots == 1 else -1 :][0] == "rewind"
    assert plain.ids() == ([0, 0, 1, 1, 2, 2] if snapshots == 1 else [0, 1, 2])
