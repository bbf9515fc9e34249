"""What a run looks at before it merges rows into tables; the merging itself is Spark's, see tests/spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.iceberg.holdings import IDENTIFIER_KEY
from frazil.run.plan import plan_run
from tests.fan_out import TABLES, fanned_out, file_of, fill
from tests.operations import LEDGER, lake, request, scope

MakeShop = Callable[..., Any]
APPENDED = "{table: shop.refunds, "
KEY = IDENTIFIER_KEY.format("orders")


def _merged(shop: Any, destination: str) -> Any:
    """The same shop, with another destination `shop.refunds`; a run would need Spark, planning one does not."""
    text = file_of(shop).replace("engine: inline", "engine: spark")
    assert APPENDED in text
    return shop.with_pipeline(text.replace(APPENDED, f"{APPENDED}{destination}, "))


def test_appended_rows_are_taken_for_one_per_key(shop: MakeShop) -> None:
    """A destination that the pipeline appended to becomes a merged one only by a person's word that keys are unique."""
    orders = fanned_out(shop)
    orders.run()
    plan_run(_merged(orders, "write: upsert, identifier: [id]").project, orders.pipeline, request())  # no rows yet
    orders = orders.with_pipeline(file_of(orders))
    fill(orders, range(20))
    orders.run()
    assert {of: lake(orders).load_table(of).properties.get(KEY) for of in TABLES} == dict.fromkeys(TABLES, "[]")

    merged = _merged(orders, "write: upsert, identifier: [id]")
    with pytest.raises(Terminal, match=r"adds rows in table shop.refunds, .* merges rows by id"):
        plan_run(merged.project, merged.pipeline, request())

    table = lake(merged).load_table("shop.refunds")
    table.transaction().set_properties({KEY: '["id"]'}).commit_transaction()
    assert plan_run(merged.project, merged.pipeline, request()).plan is None

    appended = orders.with_pipeline(file_of(orders))
    with pytest.raises(Terminal, match=r"merges rows by id in table shop.refunds, .* adds rows"):
        appended.run()


def test_a_table_without_key_is_made(shop: MakeShop) -> None:
    """Nothing says what the key is: the run is refused before it makes any table, and takes the table's once it has one."""
    orders = _merged(fanned_out(shop), "write: upsert")
    with pytest.raises(Terminal, match="no such table yet"):
        plan_run(orders.project, orders.pipeline, request())
    assert LEDGER not in lake(orders).tables()

    keyed = _merged(orders, "write: upsert, identifier: [id]")
    plan_run(keyed.project, keyed.pipeline, request())
    told = _merged(orders, "write: upsert")
    assert plan_run(told.project, told.pipeline, request()).position is not None
    assert scope(told).pipeline.destination("shop.refunds").identifier == ("id",)
