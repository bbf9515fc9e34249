"""Lists of millions of items: which column they request, and the cost of inferring it."""

from __future__ import annotations

from random import Random
from time import process_time

import pytest

from frazil.records.evolution.infer import Widest, infer
from frazil.records.evolution.types import list_of
from frazil.records.model.json_number import JsonValue, Number
from frazil.records.model.spec import Evolution

ITEMS: tuple[JsonValue, ...] = (None, True, "", "x", {}, [], [None], {"a": Number("1")}, {"a": "x"}, [Number("2")])


def number(random: Random) -> Number:
    """A number of any form, short more often than long."""
    sign, whole = random.choice(["", "-"]), random.randrange(10 ** random.randint(1, 22))
    fraction = random.choice(["", f".{random.randrange(10 ** random.randint(1, 12)):0{random.randint(1, 12)}}"])
    exponent = random.choice(["", "", f"{random.choice('eE')}{random.choice(['', '+', '-'])}{random.randint(0, 330)}"])
    return Number(f"{sign}{whole}{fraction}{exponent}")


def test_list_requests_the_column_that_its_items_request_alone() -> None:
    """Items that say the same are looked at once; that changes nothing."""
    random, evolution = Random(7), Evolution()
    for turn in range(3_000):
        makers = [number] if turn % 2 else [number, lambda random: random.choice(ITEMS)]
        items = [random.choice(makers)(random) for _ in range(random.randint(1, 6))]
        met = Widest()
        for item in items:
            met.add(infer(item, 2, evolution)[0])

        assert infer(items, 1, evolution) == (list_of(met.type), True)


@pytest.mark.parametrize("item", [Number("0"), Number("-12.5"), Number("1e5"), "text", True])
def test_long_list_of_one_kind_costs_little(item: JsonValue) -> None:
    """Two bytes of a record can be an item: each took microseconds, so one record of 16 MB took most of a minute."""
    items = [item] * 400_000
    before = process_time()
    infer(items, 1, Evolution())

    assert process_time() - before < 0.8
