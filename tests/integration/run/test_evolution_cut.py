"""How a batch is cut into tasks is no matter for what becomes of its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.evolving import evolving, put, task_by_task
from tests.operations import LETTERS, assert_clean

MakeShop = Callable[..., Any]


@pytest.mark.parametrize("partition", [0, 1], ids=["one task", "two tasks"])
def test_value_without_type_takes_type_seen_by_other_tasks(shop: MakeShop, partition: int) -> None:
    """The columns that another task's records bring count for it, too, as if both were read by one task."""
    orders = evolving(shop, partitions=2)
    put(orders, {"id": 1, "at": {"b": 0}})
    orders.run()
    put(orders, {"id": 2, "x": []}, {"id": 3, "t": {}}, {"id": 4, "l": [None]}, {"id": 5, "at": {"b": 1, "c": [{}]}})
    put(orders, {"id": 6, "x": 5, "t": "text", "l": ["a"], "at": {"b": 2, "c": True}}, partition=partition)

    orders.run(stage=task_by_task([]))

    assert {row["id"]: (row["t"], row["l"], row["_rescued"]) for row in orders.rows()} == {
        1: (None, None, None),
        2: (None, None, '{"x":[]}'),
        3: ("{}", None, None),
        4: (None, [None], None),
        5: (None, None, '{"at":{"b":1,"c":[{}]}}'),
        6: ("text", ["a"], None),
    }
    assert orders.rows(LETTERS) == []
    assert_clean(orders)
