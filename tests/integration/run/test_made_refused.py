"""Names that no table can be made of: their records are dead letters, and all others land."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.batch.changes import LetterChoice
from frazil.batch.facts import Staged
from frazil.errors import Terminal
from frazil.failpoints import Failpoint
from frazil.run.repair.dead_letter_replay import replay_dead_letters
from frazil.run.staging.stage import StageOrder, stage_inline
from tests import made as shops
from tests.integration.run.conftest import AtFailpoint
from tests.made import LETTERS, auto_created, fill, ids, letters
from tests.operations import Killed, assert_clean, catalog, drop, lake, request, scope, send


@pytest.mark.embedded
def test_unloadable_foreign_table_refuses_only_its_records(shop: Callable[..., Any]) -> None:
    """It is somebody else's, and its metadata is lost: only records that name it are dead letters."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"))
    orders.run()
    theirs = catalog(orders).create_table("shop.theirs", shops.SCHEMA)
    Path(theirs.metadata_location.removeprefix("file://")).unlink()
    fill(orders, (2, "shop.theirs"), (3, "shop.a"), (4, "shop.b"))
    orders.run()
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [1, 3], "shop.b": [4]}
    assert letters(orders) == [(1, "TABLE_NOT_MADE")]
    assert_clean(orders)


def test_impossible_table_name_is_tried_once_per_run(shop: Callable[..., Any]) -> None:
    """The run asks once: every later batch looks at its records once, and says the same of that name."""
    orders = shops.auto_creating(shop, max_records=3)
    fill(orders, (0, "shop.a"))
    orders.run()
    catalog(orders).create_table("shop.theirs", shops.SCHEMA)
    fill(orders, *((number, "shop.theirs" if number % 3 == 0 else "shop.a") for number in range(1, 10)))
    fill(orders, (10, "shop.b"), (11, "shop.theirs"), (12, "shop.b"))
    looks = []

    def counted(order: StageOrder) -> Staged:
        looks.append(sum(r.span for r in order.ranges))
        return stage_inline(order)

    assert orders.run(counted).batches == 4
    assert len(looks) == 6, looks  # the first batch again, and the fourth one for its new table
    messages = [row["message"] for row in orders.rows(LETTERS)]
    assert messages == [messages[0]] * 4
    assert ids(orders, ("shop.b",)) == {"shop.b": [10, 12]}
    assert_clean(orders)


def test_edited_template_after_kill_stops_no_pipeline(shop: Callable[..., Any], at_failpoint: AtFailpoint) -> None:
    """A table that was made to the old one stops nothing: its letters say what to do, and land once that is done."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"))
    at_failpoint(Failpoint.AUDITED)
    with pytest.raises(Killed):
        orders.run()
    orders = orders.with_pipeline(shops.file_of(orders, template="columns: {id: string, name: string}"))
    fill(orders, (2, "shop.b"))
    orders.run()
    assert auto_created(orders) == ("shop.b",)
    [letter] = orders.rows(LETTERS)
    assert "no batch landed in it: drop it" in letter["message"]
    assert_clean(orders)
    drop(orders, "shop.a")
    replay_dead_letters(scope(orders), LetterChoice(), request())
    assert [row["id"] for row in orders.rows("shop.a")] == ["1"]
    assert_clean(orders)


def test_all_runs_together_create_no_more_tables_than_limit(shop: Callable[..., Any]) -> None:
    """Each run stays below its own bound; records that name a table above the total are letters, which a higher one lands."""
    orders = shops.auto_creating(shop, template=f"{shops.COLUMNS}\n    max_tables: 3")
    fill(orders, (1, "shop.a"), (2, "shop.b"))
    orders.run()
    fill(orders, (3, "shop.c"), (4, "shop.d"))
    orders.run()
    fill(orders, (5, "shop.e"), (6, "shop.a"))
    orders.run()
    assert auto_created(orders) == ("shop.a", "shop.b", "shop.c")
    assert ids(orders, auto_created(orders)) == {"shop.a": [1, 6], "shop.b": [2], "shop.c": [3]}
    assert letters(orders) == [(3, "TABLE_NOT_MADE"), (4, "TABLE_NOT_MADE")]
    assert all("route.create.max_tables" in row["message"] for row in orders.rows(LETTERS))
    assert_clean(orders)

    orders = orders.with_pipeline(shops.file_of(orders, template=f"{shops.COLUMNS}\n    max_tables: 4"))
    replay_dead_letters(scope(orders), LetterChoice(), request())
    assert ids(orders, ("shop.d",)) == {"shop.d": [4]}
    assert letters(orders) == [(4, "TABLE_NOT_MADE")]


def test_failing_runs_create_no_more_tables_than_limit(shop: Callable[..., Any]) -> None:
    """What is made for a batch that is refused counts, and a later batch takes it: here two of three, then one of two."""
    orders = shops.auto_creating(shop, template=f"{shops.COLUMNS}\n    max_tables: 3")
    strict = orders.with_pipeline(
        shops.file_of(orders, template=f"{shops.COLUMNS}\n    max_tables: 3").replace(
            "tolerance: all", "tolerance: none"
        )
    )
    for number, letter in enumerate("zyx"):
        fill(strict, (number, f"shop.{letter}1"), (number, f"shop.{letter}2"))
        send(strict, {0: [b"bad"]})
        with pytest.raises(Terminal):
            strict.run()
    tables = [name for name in lake(orders).tables() if not name.startswith("shop.orders")]
    assert len(tables) == 3

    orders.run()

    assert auto_created(orders) == tuple(tables)
    assert {code for _, code in letters(orders)} >= {"TABLE_NOT_MADE"}
    assert sum(map(len, ids(orders, tables).values())) == 3
    assert [name for name in lake(orders).tables() if not name.startswith("shop.orders")] == tables
    assert_clean(orders)


def test_name_that_the_catalog_refuses_leaves_room_for_others(
    shop: Callable[..., Any], at_failpoint: AtFailpoint
) -> None:
    """Somebody else made the one table just before: it is theirs, and the total has room for another one."""
    orders = shops.auto_creating(shop, template=f"{shops.COLUMNS}\n    max_tables: 1")
    fill(orders, (1, "shop.a"))
    at_failpoint(Failpoint.CREATING, lambda: catalog(orders).create_table("shop.a", shops.SCHEMA))
    orders.run()
    fill(orders, (2, "shop.b"))
    orders.run()
    assert auto_created(orders) == ("shop.b",)
    assert_clean(orders)


def test_run_lands_what_its_number_of_new_tables_allows(shop: Callable[..., Any]) -> None:
    """By plain values: the first tables get their records, the others wait as dead letters, and a replay makes their tables."""
    plain = shop(partitions=1)
    text = shops.file_of(plain, most=3).replace("tolerance: all", "tolerance: {min_records: 1}")
    orders = plain.with_pipeline(text.replace("name: to, allow", 'name: to, table: "shop.{value}", allow'))
    fill(orders, *((number, f"T{number % 6}") for number in range(12)), (12, "../T1"))

    result = orders.run()

    assert "TABLE_NOT_MADE 6" in result.tolerance_exceeded[0]
    assert auto_created(orders) == ("shop.T0", "shop.T1", "shop.T2")
    assert ids(orders, auto_created(orders)) == {"shop.T0": [0, 6], "shop.T1": [1, 7], "shop.T2": [2, 8]}
    assert [code for _, code in letters(orders)] == ["TABLE_NOT_MADE"] * 6 + ["UNROUTED"]
    assert_clean(orders)

    replay_dead_letters(scope(orders), LetterChoice(), request())

    assert ids(orders, ("shop.T3", "shop.T4", "shop.T5")) == {
        f"shop.T{number}": [number, number + 6] for number in (3, 4, 5)
    }
    assert letters(orders) == [(12, "UNROUTED")]
    assert_clean(orders)


@pytest.mark.parametrize("point", [Failpoint.CREATED, Failpoint.AUDITED])
def test_killed_run_makes_the_tables_of_plain_values_once(
    shop: Callable[..., Any], at_failpoint: AtFailpoint, point: Failpoint
) -> None:
    plain = shop(partitions=1)
    orders = plain.with_pipeline(
        shops.file_of(plain).replace("name: to, allow", 'name: to, table: "shop.{value}", allow')
    )
    fill(orders, (1, "PushEvent"), (2, "ForkEvent"), (3, "a.b"))
    at_failpoint(point)
    with pytest.raises(Killed):
        orders.run()

    orders.run()

    assert ids(orders, ("shop.PushEvent", "shop.ForkEvent")) == {"shop.PushEvent": [1], "shop.ForkEvent": [2]}
    assert letters(orders) == [(2, "UNROUTED")]
    assert_clean(orders)
