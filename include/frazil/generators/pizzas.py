"""Orders of a pizza chain: one record per pizza, keyed by order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import Final

from frazil.generators.broken import CUT_OFF, EMPTY, TEXT_FOR_NUMBER, breakages, broken_value
from frazil.kafka.client.record import OutgoingRecord

KINDS: Final = (CUT_OFF, TEXT_FOR_NUMBER, EMPTY)

_STORES: Final = 100
_MOST_PIZZAS: Final = 5
_MOST_TOPPINGS: Final = 4
_ORDER_ID_BITS: Final = 128
_WINDOW_SECONDS: Final = 3_600
"""Orders are spread over the hour before now."""

_SAUCES: Final = ("extra", "bbq", "light", "alfredo")
_CHEESES: Final = ("extra", "none", "three cheese", "goat cheese")
_MEATS: Final = ("pepperoni", "sausage", "ham", "anchovies", "salami", "bacon")
_VEGGIES: Final = ("tomato", "olives", "onions", "peppers", "pineapple", "mushrooms")

# Written out instead of json.dumps(indent=4), which takes ten times as long. No value here needs an
# escape.
_PIZZA: Final = """{
    "order_id": "%s",
    "store_id": %s,
    "sauce": "%s",
    "cheese": "%s",
    "meats": "%s",
    "veggies": "%s",
    "date_ordered": "%s"
}"""


def pizzas(
    count: int, *, seed: int | None = None, broken_per_thousand: int = 0, now: datetime | None = None
) -> Iterator[OutgoingRecord]:
    """Yield exactly `count` pizzas; the last order is cut short where it has to be.

    An order is 1 to 5 pizzas with the same key, order and store. The key is the order id as text;
    the value is JSON over several lines. Broken records keep their key. Arguments: see
    `frazil.generators.Generator`.
    """
    random = Random(seed)
    how = breakages(random, broken_per_thousand, KINDS)
    latest = now or datetime.now(UTC)
    return islice((_record(random, order, next(how)) for order in _order_lines(random, latest)), count)


def _order_lines(random: Random, latest: datetime) -> Iterator[tuple[str, int, str]]:
    """Order id, store and time: once per pizza of each order, without end."""
    while True:
        ordered = latest - timedelta(seconds=random.randrange(_WINDOW_SECONDS))
        order = (str(random.getrandbits(_ORDER_ID_BITS)), random.randint(1, _STORES), f"{ordered:%Y-%m-%d %H:%M:%S}")
        for _ in range(random.randint(1, _MOST_PIZZAS)):
            yield order


def _record(random: Random, order: tuple[str, int, str], kind: str | None) -> OutgoingRecord:
    order_id, store_id, ordered = order
    store: int | str = f'"store {store_id}"' if kind == TEXT_FOR_NUMBER else store_id
    sauce, cheese = random.choice(_SAUCES), random.choice(_CHEESES)
    text = _PIZZA % (order_id, store, sauce, cheese, _toppings(random, _MEATS), _toppings(random, _VEGGIES), ordered)
    return OutgoingRecord(order_id.encode(), broken_value(text, kind), kind=kind)


def _toppings(random: Random, choices: Sequence[str]) -> str:
    number = random.randint(0, _MOST_TOPPINGS)
    return " & ".join(random.sample(choices, number)) if number else "none"
