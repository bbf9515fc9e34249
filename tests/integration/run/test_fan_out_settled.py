"""Settling one of several destinations: what it lands again is what it lost, no more and no less, or it says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from frazil.batch.letters import LetterChoice
from frazil.errors import Terminal
from frazil.run.dead_letters import bring_home
from tests.fan_out import expected, fanned_out, file_of, fill, outcomes
from tests.operations import (
    LETTERS,
    assert_clean,
    drop,
    lake,
    offsets,
    replay,
    request,
    roll_back,
    scope,
    send,
    settle,
)

MakeShop = Callable[..., Any]
KIND = "\nroute: {{static: {{field: kind, tables: {{shop.orders: order, shop.refunds: refund}}}}, otherwise: {}}}\n"
ID = "{id: {type: long, required: true}}"


def pipeline(shop: Any, columns: Mapping[str, str], route: str = "") -> Any:
    """The shop with these destinations instead."""
    tables = "".join(f"  - {{table: {table}, columns: {of}}}\n" for table, of in columns.items())
    head = f"name: orders\nsource: {{topics: [{shop.topic}]}}\nengine: inline\ndead_letters: {{tolerance: all}}\n"
    return shop.with_pipeline(f"{head}destinations:\n{tables}{route}")


def value(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def ids(shop: Any, table: str) -> list[int]:
    return sorted(row["id"] for row in shop.rows(table))


def test_a_follower_that_is_settled_twice_gets_nothing(shop: MakeShop) -> None:
    """What the first settle took out were its own rows: they are owed again."""
    orders = fanned_out(shop)
    for first in (0, 10):
        fill(orders, range(first, first + 10))
        orders.run()
    for _ in range(2):
        drop(orders, "shop.audit")
        settle(orders, "shop.audit")

    assert outcomes(orders) == expected(range(20))
    assert orders.run().batches == 0
    assert_clean(orders)


def test_a_letter_of_one_table_that_came_home_moves_the_rows_of_another(shop: MakeShop) -> None:
    """What came home for one table is that table's: the other one's rows of that record stay with their batch."""
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
    bring_home(scope(after), LetterChoice(), request())
    roll_back(after, "shop.orders")

    done = settle(after, "shop.orders")

    assert done is not None
    assert (done.restaged, done.abandoned, done.remarks) == (1, 0, ())
    assert (ids(after, "shop.orders"), ids(after, "shop.refunds")) == ([1, 2, 3], [1, 3])
    assert after.run().batches == 0
    assert_clean(after)


def test_rows_that_an_edited_file_calls_bad_are_dropped_in_silence(shop: MakeShop) -> None:
    """Also where a replay took a part of the batch since: refused, and given up only on record."""
    columns = {"shop.orders": "{id: long}", "shop.refunds": "{id: long, n: long}"}
    before = pipeline(shop(partitions=1), columns)
    before.run()
    send(before, {0: [value(id=of, n=None if of == 2 else of) for of in range(10)]})
    before.run()
    replay(before, offsets(before, 5), offsets(before, 7))
    after = pipeline(before, {**columns, "shop.refunds": "{id: long, n: {type: long, required: true}}"})
    drop(after, "shop.refunds")
    with pytest.raises(Terminal, match="1 of its records have no row now"):
        settle(after, "shop.refunds")

    done = settle(after, "shop.refunds", abandon=True)

    assert done is not None
    assert (done.restaged, done.abandoned) == (9, 1)
    assert ids(after, "shop.refunds") == [of for of in range(10) if of != 2]


def test_a_record_that_was_left_out_keeps_a_table_from_being_settled(shop: MakeShop) -> None:
    """Records that no destination is for had no row then; that the file wants to fail now changes nothing of it."""
    columns = {"shop.orders": ID, "shop.refunds": ID}
    before = pipeline(shop(partitions=1), columns, KIND.format("filter"))
    send(before, {0: [value(id=1, kind="order"), value(id=2, kind="nothing")]})
    before.run()
    after = pipeline(before, columns, KIND.format("fail"))
    drop(after, "shop.orders")

    done = settle(after, "shop.orders")

    assert done is not None
    assert (done.restaged, done.abandoned) == (1, 0)
    assert ids(after, "shop.orders") == [1]


def test_letters_of_several_tables_are_guessed_by_a_file_of_one(shop: MakeShop) -> None:
    """What was lost was of several tables, whatever the file names now."""
    several = fanned_out(shop)
    fill(several, range(10))
    several.run()
    drop(several, LETTERS)
    one = several.with_pipeline(file_of(several, ("shop.orders",), ""))
    with pytest.raises(Terminal, match="dead letters are lost"):
        settle(one, LETTERS, abandon=True)

    settle(one, LETTERS, restage=False, abandon=True)

    assert one.rows(LETTERS) == []


def test_a_letter_whose_record_is_meant_for_another_table_now_is_closed(shop: MakeShop) -> None:
    """It would be nowhere: its letter stays open, and lands when it is meant for its table again."""
    columns = {"shop.orders": ID, "shop.refunds": "{id: string}"}
    before = pipeline(shop(partitions=1), columns, KIND.format("dead_letter"))
    send(before, {0: [value(id="x", kind="order")]})
    before.run()
    route = KIND.format("dead_letter").replace("order,", "other,").replace(": refund}", ': "order|refund"}')
    after = pipeline(before, columns, route)

    found = bring_home(scope(after), LetterChoice(), request())

    assert (found.tried, found.landed, found.filtered, sum((found.dead_codes or {}).values())) == (1, 0, 0, 1)
    assert [(row["destination"], row["landed_batch"]) for row in after.rows(LETTERS)] == [("shop.orders", None)]
    assert outcomes(after)[0] == {"shop.orders": [], "shop.refunds": []}
