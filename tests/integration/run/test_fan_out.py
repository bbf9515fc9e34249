"""Several destinations: the ledger decides, all destinations follow, each record has one outcome per table."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from tests.fan_out import TABLES, closing, expected, fanned_out, file_of, fill, outcomes
from tests.integration.run.conftest import AtFailpoint
from tests.operations import LEDGER, Killed, assert_clean, lake, ledger, repair, replay, reset, send

MakeShop = Callable[..., Any]
NUMBERS = range(20)


def test_records_miss_no_table(shop: MakeShop) -> None:
    """Rows and letters of every table; the ledger closes, and says per table what it got."""
    orders = fanned_out(shop)
    fill(orders, NUMBERS)

    result = orders.run()

    assert outcomes(orders) == expected(NUMBERS)
    assert closing(orders) == LEDGER
    assert (result.batches, result.read) == (1, len(NUMBERS))
    rows = {row["table"]: row for row in ledger(orders, "ingest")}
    rows_expected, letters = expected(NUMBERS)
    assert {table: rows[table]["table_written"] for table in TABLES} == {
        table: len(rows_expected[table]) for table in TABLES
    }
    assert rows["shop.orders"]["table_dead"] == sum(destination == "shop.orders" for _, destination in letters)
    assert rows[LEDGER]["role"] == "ledger"
    fields_left_out = {"shop.orders": ["kind"], "shop.refunds": ["kind", "name"], "shop.audit": ["name"]}
    left_out = {table: json.loads(rows[table]["table_unknown_fields"]) for table in TABLES}
    assert left_out == {table: dict.fromkeys(fields_left_out[table], len(rows_expected[table])) for table in TABLES}
    assert {table: rows[table]["table_unknown"] for table in TABLES} == {
        table: len(rows_expected[table]) for table in TABLES
    }
    assert rows[LEDGER]["records_unknown"] == result.written == result.unknown_fields.records
    assert orders.run().batches == 0
    assert_clean(orders)


@pytest.mark.short("follow.committed-2")
@pytest.mark.parametrize(
    ("point", "nth"),
    [
        *((point, 1) for point in ("staged", "manifest.written", "decide.committing", "decide.committed")),
        *((point, nth) for point in ("follow.committing", "follow.committed") for nth in (1, 2, 3, 4)),
        *((point, 1) for point in ("record.committing", "record.committed")),
    ],
)
def test_killed_run_leaves_no_table_behind(shop: MakeShop, at_failpoint: AtFailpoint, point: str, nth: int) -> None:
    """Wherever a run is killed, also between two tables, the next one carries on and nothing is doubled."""
    orders = fanned_out(shop)
    orders.run()
    fill(orders, NUMBERS)
    at_failpoint(point, nth=nth)

    with pytest.raises(Killed):
        orders.run()

    orders.run()
    assert outcomes(orders) == expected(NUMBERS)
    assert orders.run().batches == 0


def test_killed_first_run_keeps_its_closing_table(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Which table closes is chosen once: a first run that is killed behind its decision is finished with it."""
    orders = fanned_out(shop)
    fill(orders, NUMBERS)
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        orders.run()

    orders.run()

    assert closing(orders) == LEDGER
    assert outcomes(orders) == expected(NUMBERS)


def test_second_destination_does_not_move_position(shop: MakeShop) -> None:
    """The first destination stays the closing table; the new one gets what comes from then on, a replay fills it."""
    orders = shop(partitions=1)
    one = orders.with_pipeline(
        file_of(orders, ("shop.orders",), "route: {static: {field: kind, tables: {shop.orders: order}}}")
    )
    fill(one, range(10))
    one.run()
    assert closing(one) == "shop.orders"

    several = one.with_pipeline(file_of(orders))
    fill(several, range(10, 20))
    several.run()

    rows, _ = expected(NUMBERS)
    landed_rows, _ = outcomes(several)
    assert closing(several) == "shop.orders"
    assert landed_rows["shop.orders"] == rows["shop.orders"]
    assert landed_rows["shop.audit"] == [offset for offset in rows["shop.audit"] if offset >= 10]
    replay(several, "earliest")
    assert outcomes(several) == expected(NUMBERS)
    assert_clean(several)


def test_known_destination_is_not_recreated_silently(shop: MakeShop) -> None:
    """A table that is gone although batches landed in it is refused by name."""
    orders = fanned_out(shop)
    fill(orders, NUMBERS)
    orders.run()
    lake(orders)._catalog.drop_table("shop.refunds")

    with pytest.raises(Terminal, match=r"table shop\.refunds is gone"):
        orders.run()


def test_removed_destination_is_recorded(shop: MakeShop) -> None:
    """A destination that the file names no more gets no rows, on record; named again, it goes on."""
    orders = fanned_out(shop)
    fill(orders, range(7))
    orders.run()
    fewer = orders.with_pipeline(
        file_of(
            orders, TABLES[:2], "route: {static: {field: kind, tables: {shop.orders: order, shop.refunds: refund}}}"
        )
    )
    fill(fewer, range(7, 14))
    fewer.run()
    assert [(row["n"], row["table"]) for row in ledger(fewer) if row["role"] == "left"] == [(2, "shop.audit")]

    again = fewer.with_pipeline(file_of(orders))
    fill(again, range(14, 20))
    again.run()

    rows, _ = expected(NUMBERS)
    assert outcomes(again)[0]["shop.audit"] == [offset for offset in rows["shop.audit"] if not 7 <= offset < 14]
    assert outcomes(again)[0]["shop.orders"] == rows["shop.orders"]
    assert_clean(again)


def test_table_that_refuses_its_files_does_not_hold_up_others(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """The others have theirs, the pipeline stops with its name, and a repair lets the pipeline go on."""
    orders = fanned_out(shop)
    orders.run()
    fill(orders, NUMBERS)
    at_failpoint("decide.committed", lambda: _change(orders, "shop.refunds"))

    with pytest.raises(Terminal, match=r"shop\.refunds"):
        orders.run()

    rows, letters = expected(NUMBERS)
    landed_rows, dead = outcomes(orders)
    assert landed_rows == {**rows, "shop.refunds": []}
    assert dead == letters
    with pytest.raises(Terminal, match=r"shop\.refunds"):
        orders.run()

    repair(orders, "shop.refunds")
    assert outcomes(orders) == (rows, letters)
    fill(orders, range(20, 30))
    orders.run()
    assert outcomes(orders) == expected(range(30))
    assert_clean(orders)


def _change(shop: Any, table: str) -> None:
    with lake(shop).load_table(table).update_spec() as update:
        update.add_identity("id")


def test_replay_or_reset_doubles_no_table(shop: MakeShop) -> None:
    """Both replace rows and letters of every table."""
    orders = fanned_out(shop)
    fill(orders, NUMBERS)
    orders.run()

    replay(orders, "earliest")
    assert outcomes(orders) == expected(NUMBERS)
    reset(orders, "earliest")
    assert outcomes(orders) == ({table: [] for table in TABLES}, [])
    orders.run()
    assert outcomes(orders) == expected(NUMBERS)
    assert_clean(orders)


def test_hundred_tables_land_in_one_batch(shop: MakeShop) -> None:
    """One pass stages all of them, one commit decides, and each has its rows."""
    orders = shop(partitions=1)
    names = [f"shop.t{number}" for number in range(100)]
    tables = "".join(f"  - {{table: {name}, columns: {{id: long}}}}\n" for name in names)
    head = f"name: orders\nsource: {{topics: [{orders.topic}]}}\nengine: inline\ndestinations:\n{tables}"
    many = orders.with_pipeline(head + 'route: {field: {name: to, allow: ["shop\\\\..*"]}}\n')
    send(many, {0: [f'{{"id": {number}, "to": "shop.t{number % 100}"}}'.encode() for number in range(1000)]})

    result = many.run()

    assert (result.batches, result.read, result.dead) == (1, 1000, 0)
    assert {name: len(many.rows(name)) for name in names} == dict.fromkeys(names, 10)
