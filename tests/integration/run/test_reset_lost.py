"""A reset where the closing table was lost: it mends whatever is lost with it, for all topics, and nothing comes twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate

from frazil.batch.position import parse_offsets, parse_target
from frazil.errors import Terminal
from frazil.iceberg.commit.summary_state import MANIFEST_KEY
from frazil.run.repair.reset import plan_reset
from frazil.run.repair.reset_batch import ResetOrder
from tests.operations import (
    LEDGER,
    LETTERS,
    ORDERS,
    TABLES,
    Killed,
    assert_clean,
    bad,
    catalog,
    drop,
    lake,
    landed,
    letters,
    offsets,
    order,
    places,
    position,
    recreate_topic,
    remake,
    repair,
    reset,
    roll_back,
    scope,
    send,
    state,
    without_kafka_columns,
)

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]

DECIDED = ("decide.committed", "follow.committed", "record.committing", "record.committed")


def two_topics(shop: MakeShop, topic: Callable[..., str]) -> tuple[Any, Any]:
    """One pipeline over two topics of three records each, one of them bad; the second shop sends to the other topic."""
    orders = shop(partitions=1)
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    second_topic = topic(partitions=2)
    with_both = orders.with_pipeline(text.replace(f"[{orders.topic}]", f"[{orders.topic}, {second_topic}]"))
    also = type(with_both)(with_both.project, with_both.cluster, second_topic)
    for shop_part in (with_both, also):
        send(shop_part, {0: [order(0), bad(1), order(2)]})
    with_both.run()
    return with_both, also


def take_head_away(orders: Any) -> None:
    """Roll a table back to its first day: main has no snapshot."""
    table = lake(orders).load_table(ORDERS)
    head = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=table.current_snapshot().snapshot_id)
    table.catalog.commit_table(table, (head,), (RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH),))


def assert_all(orders: Any, count: int) -> None:
    """Every record has its one outcome: even offsets are rows, odd ones letters."""
    assert places(orders) == [(0, o) for o in range(0, count, 2)]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, o) for o in range(1, count, 2)]


@pytest.mark.embedded
def test_position_whose_manifest_is_gone_is_never_guessed(shop: MakeShop) -> None:
    """After a rollback the ledger's row has the position, too. Nothing runs by itself; a reset to the beginning works as well."""
    orders = landed(shop)
    before = places(orders), letters(orders)
    roll_back(orders, ORDERS)
    manifest = lake(orders).load_table(ORDERS).current_snapshot().summary.additional_properties[MANIFEST_KEY]
    Path(manifest.removeprefix("file://")).unlink()

    with pytest.raises(Terminal, match="the table was rolled back") as refused:
        orders.run()

    assert "frazil reset orders --to-table --reason" in str(refused.value.next_step)
    reset(orders, "earliest")
    orders.run()
    assert (places(orders), [letter[:2] for letter in letters(orders)]) == (
        before[0],
        [letter[:2] for letter in before[1]],
    )
    assert_clean(orders)


@pytest.mark.short("remake")
@pytest.mark.parametrize("damage", [drop, remake])
def test_reset_of_one_topic_of_lost_table_is_refused(
    shop: MakeShop, topic: Callable[..., str], damage: Callable[[Any, str], None]
) -> None:
    """All topics' rows are gone with the table: a reset of some of them is refused, one of all lands everything."""
    with_both, also = two_topics(shop, topic)
    damage(with_both, ORDERS)
    before = state(with_both)
    one_partition = parse_offsets(f'{{"{with_both.topic}": {{"0": 0}}, "{also.topic}": {{"0": 0}}}}', "offsets.json")

    for order_ in (ResetOrder(parse_target("earliest"), (with_both.topic,)), ResetOrder(one_partition)):
        with pytest.raises(Terminal, match="the position is gone from table") as refused:
            plan_reset(scope(with_both), order_)
        assert "reset without --topic" in str(refused.value)
    assert state(with_both) == before

    reset(with_both, "earliest")
    assert with_both.run().read == 6
    assert (len(places(with_both)), len(letters(with_both))) == (4, 2)
    assert_clean(with_both)


def test_reset_of_one_topic_after_full_rollback_is_refused(shop: MakeShop, topic: Callable[..., str]) -> None:
    """A table rolled back behind the pipeline's first commit has lost the rows of all topics, too."""
    with_both, _ = two_topics(shop, topic)
    take_head_away(with_both)

    with pytest.raises(Terminal, match="the position is gone from table"):
        reset(with_both, "earliest", (with_both.topic,))

    reset(with_both, "earliest")
    assert with_both.run().read == 6
    assert (len(places(with_both)), len(letters(with_both))) == (4, 2)


@pytest.mark.parametrize("also", [LETTERS, LEDGER])
@pytest.mark.short("drop-shop.orders__dead_letters", "roll_back-shop.orders__ledger")
@pytest.mark.parametrize("damage", [drop, remake, roll_back])
def test_two_lost_tables_are_repaired_by_one_reset(
    shop: MakeShop, also: str, damage: Callable[[Any, str], None]
) -> None:
    """Repair names reset, and reset mends both: every record has its one outcome again."""
    orders = landed(shop, 2)
    drop(orders, ORDERS)
    damage(orders, also)
    with pytest.raises(Terminal):
        orders.run()
    with pytest.raises(Terminal, match="frazil reset orders --to earliest"):
        repair(orders, also)

    reset(orders, "earliest")

    assert orders.run().read == 8
    assert_all(orders, 8)
    send(orders, {0: [order(8), bad(9)]})
    orders.run()
    assert_all(orders, 10)


@pytest.mark.short("follow.committed-shop.orders__ledger")
@pytest.mark.parametrize("also", [None, LETTERS, LEDGER])
@pytest.mark.parametrize("point", DECIDED)
def test_killed_reset_of_lost_tables_is_finished_by_another(
    shop: MakeShop, at_failpoint: AtFailpoint, also: str | None, point: str
) -> None:
    """Another reset finishes what a killed one left."""
    orders = landed(shop, 2)
    for table in (ORDERS, also):
        if table is not None:
            drop(orders, table)
    at_failpoint(point)
    with pytest.raises(Killed):
        reset(orders, "earliest")

    reset(orders, "earliest")

    assert orders.run().read == 8
    assert_all(orders, 8)


@pytest.mark.parametrize("end", [0, 9])
def test_unrecorded_dead_letters_come_once(shop: MakeShop, at_failpoint: AtFailpoint, end: int) -> None:
    """A batch had put its letters, not its ledger row, when the destination was dropped: whatever comes again goes."""
    orders = landed(shop, 2)
    send(orders, {0: [order(8), bad(9)]})
    at_failpoint("record.committing")
    with pytest.raises(Killed):
        orders.run()
    assert letters(orders)[-1] == (0, 9, 3)
    drop(orders, ORDERS)
    with pytest.raises(Terminal, match="frazil reset orders --to earliest"):
        orders.run()

    reset(orders, offsets(orders, end))

    assert [place for place in letters(orders) if place[1] >= end] == []
    orders.run()
    assert places(orders) == [(0, o) for o in range(end, 10) if o % 2 == 0]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, o) for o in (1, 3, 5, 7, 9)]


def test_dead_letters_of_older_incarnation_stay(shop: MakeShop) -> None:
    """They can't come again, so they stay."""
    orders = landed(shop, 2)
    recreate_topic(orders, 1)
    send(orders, {0: [order(100), bad(101)]})
    reset(orders, "earliest")
    orders.run()
    drop(orders, ORDERS)

    reset(orders, "earliest")

    assert letters(orders) == [(0, 1, 1), (0, 3, 1), (0, 5, 2), (0, 7, 2)]
    orders.run()
    assert [letter[1:] for letter in letters(orders)] == [(1, 1), (1, 6), (3, 1), (5, 2), (7, 2)]


def test_reset_works_after_rollback_of_unrecorded_first_commit(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Only the table's property still knows of the pipeline: the reset that the refusal names works."""
    orders = shop(partitions=1)
    send(orders, {0: [order(0), bad(1)]})
    orders.run()
    schema, spec = (read(lake(orders).load_table(ORDERS)) for read in (lambda t: t.schema(), lambda t: t.spec()))
    for table in TABLES:
        drop(orders, table)
    table = catalog(orders).create_table(ORDERS, schema, partition_spec=spec)
    table.append(pa.Table.from_pylist([{"id": 999, "name": "foreign"}], table.schema().as_arrow()))
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        orders.run()
    roll_back(orders, ORDERS)
    with pytest.raises(Terminal, match="frazil reset orders --to earliest"):
        orders.run()

    reset(orders, "earliest")

    assert orders.run().read == 2
    assert sorted(row["id"] for row in orders.rows()) == [0, 999]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, 1)]
    assert (position(orders).n, position(orders).epoch) == (2, 1)


def test_lost_table_without_kafka_columns_is_landed_again(shop: MakeShop) -> None:
    """An empty table has no rows to tell apart, and the letters don't come twice."""
    plain = without_kafka_columns(shop)
    send(plain, {0: [order(0), bad(1), order(2)]})
    plain.run()
    drop(plain, ORDERS)

    reset(plain, "earliest")
    plain.run()

    assert plain.ids() == [0, 2]
    assert [(p, o) for p, o, _ in letters(plain)] == [(0, 1)]
