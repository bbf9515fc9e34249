"""More names of fields than transforms are given: dead letters, which land replay by replay."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.letters import run_dead_letter_replay, still_open
from tests.operations import LETTERS, assert_clean, places, send

FILE = """
name: orders
source: {{topics: [{topic}]}}
engine: inline
dead_letters: {{tolerance: all}}
{how}
destinations:
  - {{table: shop.orders, columns: {{id: long}}, evolve: widen, max_columns: 10}}
  - {{table: shop.audit, columns: {{id: long}}}}
"""


@pytest.mark.short("keys")
@pytest.mark.parametrize(
    "how",
    ["transforms: [{type: InsertField, static.field: source, static.value: web}]", "key: {format: string}"],
    ids=["transforms", "keys"],
)
def test_each_replay_lands_as_many_names_as_the_bound(shop: Callable[..., Any], how: str) -> None:
    """No record is lost, none lands twice, and verify finds nothing wrong with the letters that wait."""
    orders = shop(partitions=1)
    orders = orders.with_pipeline(FILE.format(topic=orders.topic, how=how))
    values = [{"id": number} | {f"user-{number}-{key}": key for key in range(50)} for number in range(60)]
    send(orders, {0: [json.dumps(value).encode() for value in values]})
    orders.run()
    assert places(orders) == [(0, offset) for offset in range(40)]
    assert {row["code"] for row in orders.rows(LETTERS)} == {"TOO_MANY_NAMES"}
    assert_clean(orders)

    assert run_dead_letter_replay(orders).landed == 20
    assert places(orders) == [(0, offset) for offset in range(60)]
    assert still_open(orders) == []
    assert_clean(orders)
