"""More partition values than a task may give its table: dead letters, which land replay by replay."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.fan_out import file_of
from tests.letters import run_dead_letter_replay, still_open
from tests.operations import LETTERS, assert_clean, places, send

FILE = """
name: orders
source: {{topics: [{topic}]}}
engine: inline
dead_letters: {{tolerance: all}}
limits: {{max_partitions: {limit}}}
destinations:
  - {{table: shop.orders, columns: {{id: {{type: long, required: true}}, name: string}}, partition_by: [name]}}
"""


def scattered(shop: Callable[..., Any], limit: int, records: int) -> Any:
    """A shop with records of as many partition values, landed under a limit."""
    orders = shop(partitions=1)
    orders = orders.with_pipeline(FILE.format(topic=orders.topic, limit=limit))
    send(orders, {0: [json.dumps({"id": number, "name": f"town {number}"}).encode() for number in range(records)]})
    orders.run()
    return orders


def test_each_replay_lands_as_many_partition_values_as_the_limit(shop: Callable[..., Any]) -> None:
    """No record is lost, none lands twice, and verify finds nothing wrong with the letters that wait."""
    orders = scattered(shop, limit=10, records=24)
    assert places(orders) == [(0, offset) for offset in range(10)]
    assert {row["code"] for row in orders.rows(LETTERS)} == {"TOO_MANY_PARTITIONS"}
    assert_clean(orders)

    look, first, second = (
        run_dead_letter_replay(orders, dry_run=True),
        run_dead_letter_replay(orders),
        run_dead_letter_replay(orders),
    )

    assert (look.landed, look.dead_codes) == (10, {"TOO_MANY_PARTITIONS": 4})
    assert (first.landed, first.dead_codes) == (10, {"TOO_MANY_PARTITIONS": 4})
    assert (second.landed, second.dead_codes) == (4, {})
    assert places(orders) == [(0, offset) for offset in range(24)]
    assert still_open(orders) == []
    assert_clean(orders)


def test_replay_under_a_higher_limit_lands_all(shop: Callable[..., Any]) -> None:
    orders = scattered(shop, limit=3, records=12)
    raised = orders.with_pipeline(FILE.format(topic=orders.topic, limit=100))
    assert run_dead_letter_replay(raised).landed == 9
    assert places(raised) == [(0, offset) for offset in range(12)]
    assert_clean(raised)


def test_dead_letter_of_one_table_lands_in_no_other(shop: Callable[..., Any]) -> None:
    """With several destinations the letter is of the table whose partitions were too many."""
    orders = shop(partitions=1)
    text = file_of(orders, ("shop.orders", "shop.audit"), "").replace(
        "{table: shop.orders,", "{table: shop.orders, partition_by: [name],"
    )
    orders = orders.with_pipeline(text + "limits: {max_partitions: 10}\n")
    send(
        orders,
        {0: [json.dumps({"id": number, "name": f"town {number}", "kind": "order"}).encode() for number in range(24)]},
    )
    orders.run()
    assert [len(orders.rows(table)) for table in ("shop.orders", "shop.audit")] == [10, 24]
    assert {row["destination"] for row in orders.rows(LETTERS)} == {"shop.orders"}
    assert_clean(orders)

    assert [run_dead_letter_replay(orders).landed for _ in range(2)] == [10, 4]

    assert [len(orders.rows(table)) for table in ("shop.orders", "shop.audit")] == [24, 24]
    assert_clean(orders)
