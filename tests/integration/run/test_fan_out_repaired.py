"""Repairing one of several destinations, and letters whose record is meant for another table by now."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from frazil.batch.changes import LetterChoice
from frazil.errors import Terminal
from frazil.run.repair.dead_letter_replay import replay_dead_letters
from tests.fan_out import fanned_out, file_of, fill, outcomes
from tests.operations import LETTERS, assert_clean, drop, lake, repair, request, roll_back, scope, send

MakeShop = Callable[..., Any]
KIND = "\nroute: {{static: {{field: kind, tables: {{shop.orders: order, shop.refunds: refund}}}}, otherwise: {}}}\n"
ID = "{id: {type: long, required: true}}"


def pipeline(shop: Any, columns: Mapping[str, str], route: str = "") -> Any:
    """The shop with these destinations instead."""
    tables = "".join(f"  - {{table: {table}, columns: {columns_text}}}\n" for table, columns_text in columns.items())
    head = f"name: orders\nsource: {{topics: [{shop.topic}]}}\nengine: inline\ndead_letters: {{tolerance: all}}\n"
    return shop.with_pipeline(f"{head}destinations:\n{tables}{route}")


def value(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def ids(shop: Any, table: str) -> list[int]:
    return sorted(row["id"] for row in shop.rows(table))


def test_replayed_dead_letter_of_one_table_leaves_rows_of_another(shop: MakeShop) -> None:
    """What was replayed for one table is that table's: the other one's rows of that record stay with their batch."""
    columns = {
        "shop.orders": "{id: {type: long, required: true}, m: {type: long, required: true}}",
        "shop.refunds": "{id: {type: long, required: true}, n: {type: long, required: true}}",
    }
    before = pipeline(shop(partitions=1), columns)
    send(before, {0: [value(id=1, n=1, m=1), value(id=2, n="y", m="x"), value(id=3, n=3, m=3)]})
    before.run()
    with lake(before).load_table("shop.orders").update_schema() as update:
        update.make_column_optional("m")
    after = pipeline(before, {**columns, "shop.orders": ID})
    replay_dead_letters(scope(after), LetterChoice(), request())
    roll_back(after, "shop.orders")

    repair(after, "shop.orders")

    assert (ids(after, "shop.orders"), ids(after, "shop.refunds")) == ([1, 2, 3], [1, 3])
    assert after.run().batches == 0
    assert_clean(after)


def test_replay_that_the_file_refuses_leaves_the_loss_on_record(shop: MakeShop) -> None:
    """A record for no destination fails the replay; the pipeline goes on, and under another file a repair fills the table."""
    columns = {"shop.orders": ID, "shop.refunds": ID}
    before = pipeline(shop(partitions=1), columns, KIND.format("filter"))
    send(before, {0: [value(id=1, kind="order"), value(id=2, kind="nothing")]})
    before.run()
    after = pipeline(before, columns, KIND.format("fail"))
    drop(after, "shop.orders")
    with pytest.raises(Terminal, match="nothing"):
        repair(after, "shop.orders")
    send(after, {0: [value(id=3, kind="order")]})
    after.run()
    assert ids(after, "shop.orders") == [3]

    again = pipeline(before, columns, KIND.format("filter"))
    repair(again, "shop.orders")

    assert ids(again, "shop.orders") == [1, 3]
    assert_clean(again)


def test_repair_under_file_of_one_table_restores_its_dead_letters(shop: MakeShop) -> None:
    """A replay leaves the letters that the present file means."""
    several = fanned_out(shop)
    fill(several, range(10))
    several.run()
    drop(several, LETTERS)
    one = several.with_pipeline(file_of(several, ("shop.orders",), ""))

    repair(one, LETTERS)

    assert one.rows(LETTERS) != []
    assert one.run().batches == 0
    assert_clean(one)


def test_dead_letter_of_rerouted_record_stays_open(shop: MakeShop) -> None:
    """It would be nowhere: its letter stays open, and lands when it is meant for its table again."""
    columns = {"shop.orders": ID, "shop.refunds": "{id: string}"}
    before = pipeline(shop(partitions=1), columns, KIND.format("dead_letter"))
    send(before, {0: [value(id="x", kind="order")]})
    before.run()
    route = KIND.format("dead_letter").replace("order,", "other,").replace(": refund}", ': "order|refund"}')
    after = pipeline(before, columns, route)

    result = replay_dead_letters(scope(after), LetterChoice(), request())

    assert (result.tried, result.landed, result.filtered, sum((result.dead_codes or {}).values())) == (1, 0, 0, 1)
    assert [(row["destination"], row["landed_batch"]) for row in after.rows(LETTERS)] == [("shop.orders", None)]
    assert outcomes(after)[0] == {"shop.orders": [], "shop.refunds": []}
