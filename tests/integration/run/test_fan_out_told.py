"""Several destinations that can't take their parts: whoever must act is told of all of them, and of a way on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.verify.check import verify
from tests.fan_out import TABLES, expected, fanned_out, file_of, fill, outcomes
from tests.integration.run.conftest import AtFailpoint
from tests.operations import Killed, assert_clean, drop, lake, repair, roll_back, send, to_table

MakeShop = Callable[..., Any]


def test_both_altered_tables_are_named(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """One error names both tables, each with the command that repairs it."""
    orders = fanned_out(shop)
    orders.run()
    fill(orders, range(10))
    at_failpoint("decide.committed", lambda: _alter(orders, "shop.refunds", "shop.audit"))

    with pytest.raises(Terminal, match=r"table shop\.refunds.*; and .*table shop\.audit") as refused:
        orders.run()

    for table in ("shop.refunds", "shop.audit"):
        assert f"frazil repair orders {table}" in str(refused.value.next_step)


def _alter(shop: Any, *tables: str) -> None:
    for table in tables:
        with lake(shop).load_table(table).update_spec() as update:
            update.add_identity("id")


def test_dropped_and_removed_table_can_be_named_again_and_repaired(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Dropped and taken out of the file while a batch waits: named again and repaired, the pipeline goes on."""
    orders = fanned_out(shop)
    orders.run()
    fill(orders, range(10))
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        orders.run()
    drop(orders, "shop.audit")
    route = "route: {static: {field: kind, tables: {shop.orders: order, shop.refunds: refund}}, otherwise: filter}"
    fewer = orders.with_pipeline(file_of(orders, TABLES[:2], route))

    with pytest.raises(Terminal, match=r"table shop\.audit is gone") as refused:
        fewer.run()

    assert str(refused.value.next_step).startswith("name shop.audit under destinations")
    again = fewer.with_pipeline(file_of(orders))
    repair(again, "shop.audit")
    again.run()
    assert outcomes(again) == expected(range(10))
    assert_clean(again)


def test_new_table_without_kafka_columns_does_not_stop_rewind(shop: MakeShop) -> None:
    """It has no rows that could come twice; one that has some is refused, until they may stand beside those that come again."""
    orders = shop(partitions=1)
    one = orders.with_pipeline(_plain(orders))
    one.run()
    send(one, {0: [b'{"id": 1}']})
    one.run()
    two = one.with_pipeline(_plain(orders, "  - {table: shop.refunds, kafka_columns: false, columns: {id: long}}\n"))
    roll_back(two, "shop.orders")
    to_table(two)

    two.run()

    assert [row["id"] for row in two.rows("shop.orders")] == [row["id"] for row in two.rows("shop.refunds")] == [1]
    roll_back(two, "shop.orders")
    with pytest.raises(Terminal, match=r"table shop\.refunds holds rows of later batches") as refused:
        to_table(two)
    assert "--to-table --allow-duplicates" in str(refused.value.next_step)

    to_table(two, allow_duplicates=True)
    two.run()

    assert [row["id"] for row in two.rows("shop.orders")] == [1]
    assert [row["id"] for row in two.rows("shop.refunds")] == [1, 1]


def test_table_added_after_killed_start_counts_as_new(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """The first batch was decided and not recorded: what it does not name is new."""
    orders = shop(partitions=1)
    one = orders.with_pipeline(_plain(orders))
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        one.run()
    two = one.with_pipeline(_plain(orders, "  - {table: shop.refunds, columns: {id: long}}\n"))
    send(two, {0: [b'{"id": 1}']})

    two.run()

    assert [row["id"] for row in two.rows("shop.refunds")] == [1]
    assert_clean(two)


def _plain(shop: Any, more: str = "") -> str:
    head = f"name: orders\nsource: {{topics: [{shop.topic}]}}\nengine: inline\ndestinations:\n"
    return f"{head}  - {{table: shop.orders, columns: {{id: long}}}}\n{more}"


@pytest.mark.parametrize("first", ["several", "one"])
def test_lost_row_is_found_beside_abandoned_rows_of_another_table(shop: MakeShop, first: str) -> None:
    """Abandoned rows are of the repaired table alone, whoever closes: verify still misses a row of the other."""
    orders = shop(partitions=1)
    if first == "one":
        orders.with_pipeline(_plain(orders)).run()
    two = orders.with_pipeline(_plain(orders, "  - {table: shop.refunds, columns: {id: long}}\n"))
    for number in range(2):
        send(two, {0: [f'{{"id": {number}}}'.encode()] * 5})
        two.run()
    roll_back(two, "shop.refunds")
    repair(two, "shop.refunds", replays=False)
    assert_clean(two)

    lake(two).load_table("shop.orders").delete("_kafka_offset = 7")

    differences = verify(two.project, two.pipeline).differences
    assert [(difference.kind, difference.offset) for difference in differences if difference.offset is not None] == [
        ("missing", 7)
    ]
