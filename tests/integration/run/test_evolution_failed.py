"""Runs that ended behind a change of a table: what they changed stays, and is on record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from tests.evolving import changes, evolving, put, rewritten, rows, types
from tests.integration.run.conftest import AtFailpoint
from tests.letters import run_dead_letter_replay, still_open
from tests.operations import LETTERS, Killed, assert_clean, lake

MakeShop = Callable[..., Any]

PIPELINE_THAT_FAILS = """
name: orders
source: {{topics: [{topic}]}}
engine: inline
destinations: [{{table: shop.orders, on_incompatible: dead_letter}}]
dead_letters: {{tolerance: {{max_count: 1}}}}
"""


@pytest.mark.parametrize("ends", ["by a kill", "by its audit"])
def test_schema_change_of_failed_run_is_recorded_by_next_batch(
    shop: MakeShop, at_failpoint: AtFailpoint, ends: str
) -> None:
    """The table has the column, the run has no batch: the next batch tells of it, beside its own."""
    orders = evolving(shop)
    put(orders, {"id": 1})
    orders.run()
    put(orders, {"id": 2, "note": "x"}, *([{"id": "x"}] * 3 if ends == "by its audit" else []))
    if ends == "by a kill":
        at_failpoint("evolved")
        with pytest.raises(Killed):
            orders.run()
    else:
        strict = orders.with_pipeline(PIPELINE_THAT_FAILS.format(topic=orders.topic))
        with pytest.raises(Terminal, match="dead letters"):
            strict.run()
        orders = rewritten(orders, "{table: shop.orders, on_incompatible: dead_letter}")
    assert "note" in types(orders)
    put(orders, {"id": 3, "size": 1})

    orders.run()

    paths = [change.path for change in changes(orders)[-1]["shop.orders"]]
    assert (len(changes(orders)), sorted(paths)) == (2, [("note",), ("size",)])
    put(orders, {"id": 4})
    orders.run()
    assert len(changes(orders)) == 2


def test_foreign_identifier_does_not_end_run(shop: MakeShop) -> None:
    """A key that the file does not know of stays a key: records without one are dead letters, other columns may be null."""
    required = "{type: long, required: true}"
    orders = evolving(shop, f"{{table: shop.orders, columns: {{id: {required}, size: {required}}}, evolve: full}}")
    put(orders, {"id": 1, "size": 1})
    orders.run()
    with lake(orders).load_table("shop.orders").update_schema() as update:
        update.set_identifier_fields("id")
    put(orders, {"size": 2}, {"id": 3})

    orders.run()

    assert rows(orders, "shop.orders", "id", "size") == [(1, 1), (3, None)]
    assert [letter["code"] for letter in orders.rows(LETTERS)] == ["MISSING_REQUIRED"]
    assert_clean(orders)


def test_dead_letter_that_stays_bad_does_not_keep_others_from_landing(shop: MakeShop) -> None:
    """With `on_incompatible: fail` a letter that still does not fit stays one, with its reason, and the others land."""
    size = "{table: shop.orders, columns: {id: long, size: int}"
    orders = evolving(shop, f"{size}}}")
    put(orders, {"id": 1, "size": "big"}, {"id": 2, "size": 2**40}, {"id": 3, "size": True})
    orders.run()
    orders = rewritten(orders, f"{size}, evolve: widen, on_incompatible: fail}}")

    result = run_dead_letter_replay(orders)

    assert (result.tried, result.landed, result.dead_codes) == (3, 1, {"WRONG_TYPE": 2})
    assert rows(orders, "shop.orders", "id", "size") == [(2, 2**40)]
    assert still_open(orders) == [(0, 0), (0, 2)]
