"""Dead letters of several destinations are replayed: each lands where its record is meant to be, exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.types import StringType

from frazil.batch.changes import LetterChoice, Place
from frazil.failpoints import Failpoint
from frazil.kafka.client.cluster import OutgoingRecord
from tests.fan_out import ROUTE, TABLES, expected, fanned_out, file_of, fill, outcomes
from tests.integration.run.conftest import AtFailpoint
from tests.letters import run_dead_letter_replay
from tests.operations import LETTERS, Killed, assert_clean, lake, send
from tests.produce import produce

MakeShop = Callable[..., Any]
P = Failpoint
NUMBERS = range(20)

DOUBLED, NAMELESS = 20, 21
"""Offsets of a record that no table could decode, and of one that fits neither of the two that it is meant for."""

DOUBLE_KEY = b'{"id": 20, "kind": "order", "kind": "order"}'
WITHOUT_ID = b'{"name": "x", "kind": "order"}'

UNROUTED = [number for number in NUMBERS if number % 7 == 6]


@pytest.fixture
def good_now(shop: MakeShop) -> Any:
    """Letters of each table, of whole records and of both tables of one; the present file takes all but one of them."""
    orders = fanned_out(shop)
    strict = orders.with_pipeline(_text(orders).replace("casts: text", "casts: text, duplicate_keys: dead_letter"))
    fill(strict, NUMBERS)
    send(strict, {0: [DOUBLE_KEY, WITHOUT_ID]})
    strict.run()
    rows, letters = expected(NUMBERS)
    letters_expected = [(NAMELESS, "shop.orders"), (NAMELESS, "shop.audit")]
    assert outcomes(strict) == (rows, sorted([*letters, (DOUBLED, None), *letters_expected], key=str))
    for name in ("shop.orders", "shop.refunds"):
        with lake(strict).load_table(name).update_schema(allow_incompatible_changes=True) as update:
            update.make_column_optional("id")
            update.add_column("other", StringType())
    text = file_of(strict, TABLES, ROUTE.replace("order|refund|note", "order|refund|note|nothing"))
    return strict.with_pipeline(text.replace("id: {type: long, required: true}", "other: string"))


def _text(shop: Any) -> str:
    definition: str = (shop.project.pipelines_folder / "orders.yaml").read_text()
    return definition


def landed_offsets() -> dict[str, list[int]]:
    """Offsets of the rows once every letter that can land has."""
    routed = [number for number in NUMBERS if number not in UNROUTED]
    return {
        "shop.orders": [*(number for number in routed if number % 3 == 0), DOUBLED, NAMELESS],
        "shop.refunds": [number for number in routed if number % 3 == 1],
        "shop.audit": [*NUMBERS, DOUBLED],
    }


def still_open(shop: Any) -> list[tuple[int, str | None]]:
    open_letters = (row for row in shop.rows(LETTERS) if row["landed_batch"] is None)
    return sorted(((row["offset"], row["destination"]) for row in open_letters), key=str)


def assert_landed(shop: Any) -> None:
    """Every letter that can land has its rows, once; the other one is open; and Kafka agrees."""
    assert outcomes(shop)[0] == landed_offsets()
    assert still_open(shop) == [(NAMELESS, "shop.audit")]
    assert_clean(shop)


def test_dead_letters_land_in_exactly_their_tables(good_now: Any) -> None:
    """One table's in that table, whole records in all that they are meant for, unrouted ones where the file routes now."""
    result = run_dead_letter_replay(good_now)

    assert (result.landed, result.dead_codes) == (len(good_now.rows(LETTERS)) - 1, {"MISSING_REQUIRED": 1})
    assert_landed(good_now)
    assert run_dead_letter_replay(good_now).landed == 0
    assert_landed(good_now)


def test_dead_letters_of_another_table_are_not_replayed(good_now: Any) -> None:
    """A choice by table leaves whole records and other tables alone, down to the letters of one record."""
    before = outcomes(good_now)[0]

    result = run_dead_letter_replay(good_now, LetterChoice(tables=frozenset({"shop.refunds"})))

    of_refunds = [offset for offset, table in expected(NUMBERS)[1] if table == "shop.refunds"]
    assert (result.tried, result.landed) == (len(of_refunds), len(of_refunds))
    assert outcomes(good_now)[0] == before | {"shop.refunds": sorted([*before["shop.refunds"], *of_refunds])}
    assert not {table for _, table in still_open(good_now)} & {"shop.refunds"}
    named = frozenset({(Place(good_now.topic, 0, NAMELESS), "shop.audit")})
    assert run_dead_letter_replay(good_now, LetterChoice(of_tables=named)).dead_codes == {"MISSING_REQUIRED": 1}
    tried = {row["destination"]: row["attempts"] for row in good_now.rows(LETTERS) if row["offset"] == NAMELESS}
    assert tried == {"shop.orders": 1, "shop.audit": 2}
    assert_clean(good_now)


@pytest.mark.short("follow.committed-2")
@pytest.mark.parametrize(
    ("point", "nth"),
    [
        *((point, 1) for point in (P.STAGING, P.STAGED, P.MANIFEST_WRITTEN, P.DECIDE_COMMITTING, P.DECIDE_COMMITTED)),
        *((point, nth) for point in (P.FOLLOW_COMMITTING, P.FOLLOW_COMMITTED) for nth in (1, 2, 3, 4)),
        *((point, 1) for point in (P.RECORD_COMMITTING, P.RECORD_COMMITTED)),
    ],
)
def test_dead_letter_replay_killed_between_tables_lands_rows_once(
    good_now: Any, at_failpoint: AtFailpoint, point: Failpoint, nth: int
) -> None:
    """Killed at any step, also between two tables, and tried again behind a run: each letter has its rows once."""
    at_failpoint(point, nth=nth)
    with pytest.raises(Killed):
        run_dead_letter_replay(good_now)

    good_now.run()
    run_dead_letter_replay(good_now)

    assert_landed(good_now)


@pytest.mark.short("follow.committing-3")
@pytest.mark.parametrize(
    ("point", "nth"),
    [
        (P.STAGED, 1),
        (P.DECIDE_COMMITTING, 1),
        (P.FOLLOW_COMMITTING, 1),
        (P.FOLLOW_COMMITTING, 3),
        (P.RECORD_COMMITTING, 1),
    ],
)
def test_two_replays_of_dead_letters_of_several_tables_land_them_once(
    good_now: Any, at_failpoint: AtFailpoint, point: Failpoint, nth: int
) -> None:
    """A rival does all of it while the first stands at a step, also between two tables: nothing lands twice."""
    at_failpoint(point, lambda: run_dead_letter_replay(good_now), nth=nth)

    run_dead_letter_replay(good_now)

    assert_landed(good_now)


KEYED = """
name: orders
source: {topics: [%s]}
engine: inline
key: {format: json, fields: {id: long, region: string}}
value: {fields: {kind: string, name: string}}
dead_letters: {tolerance: all}
destinations:
  - {table: shop.orders, columns: {customer: {type: long, from: id, part: key, required: true}, name: string}}
  - {table: shop.audit, columns: {region: {type: string, part: key}, kind: string}}
route: {static: {field: kind, tables: {shop.orders: order, shop.audit: "order|refund"}}}
"""


def test_key_gives_each_table_its_columns(shop: MakeShop) -> None:
    """Each table takes its columns of the key; one that can't be read is of no table, one that lacks a field of its own."""
    new_shop = shop(partitions=1)
    orders = new_shop.with_pipeline(KEYED % new_shop.topic)
    order = b'{"kind": "order", "name": "n"}'
    records = [
        (b'{"id": 1, "region": "eu"}', order),
        (b'{"region": "eu"}', order),
        (b"\xff", order),
        (None, order),
        (b'{"id": 2, "region": "us"}', b'{"kind": "refund"}'),
    ]
    produce(orders.cluster, orders.topic, (OutgoingRecord(key, value) for key, value in records))

    orders.run()

    assert [(row["_kafka_offset"], row["customer"]) for row in orders.rows()] == [(0, 1)]
    regions = sorted((row["_kafka_offset"], row["region"]) for row in orders.rows("shop.audit"))
    assert regions == [(0, "eu"), (1, "eu"), (3, None), (4, "us")]
    letters = sorted((row["offset"], row["destination"], row["code"]) for row in orders.rows(LETTERS))
    assert letters == [
        (1, "shop.orders", "MISSING_REQUIRED"),
        (2, None, "INVALID_KEY"),
        (3, "shop.orders", "MISSING_REQUIRED"),
    ]
    assert_clean(orders)
    with lake(orders).load_table("shop.orders").update_schema(allow_incompatible_changes=True) as update:
        update.make_column_optional("customer")

    mended = orders.with_pipeline((KEYED % new_shop.topic).replace(", required: true", ""))
    run_dead_letter_replay(mended)

    regions = sorted((row["_kafka_offset"], row["customer"]) for row in mended.rows())
    assert regions == [(0, 1), (1, None), (3, None)]
    assert len(mended.rows("shop.audit")) == 4
    assert still_open(mended) == [(2, None)]
    assert_clean(mended)
