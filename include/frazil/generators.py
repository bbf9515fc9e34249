"""Made-up but plausible records for demos, tests and measurements (some broken on purpose), and the lines of a file.

Generators are seeded: the same arguments give the same bytes. A chosen share of the records is
broken on purpose and says how (`OutgoingRecord.kind`), so that a reader of the topic can be checked
against exact numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final
from uuid import UUID

from frazil.error_codes import BAD_FILE
from frazil.kafka.client.cluster import OutgoingRecord

CUT_OFF: Final = "cut-off JSON"
TEXT_FOR_NUMBER: Final = "text for a number"
EMPTY: Final = "empty value"

_BLOCK: Final = 1_000


def breakages(random: Random, per_thousand: int, kinds: Sequence[str]) -> Iterator[str | None]:
    """Yield without end how the next record is broken; None for a sound one.

    Exactly `per_thousand` of each full thousand are broken, at random places; the kinds take turns.

    Raises:
        ValueError: `per_thousand` is not between 0 and 1000.
    """
    if not 0 <= per_thousand <= _BLOCK:
        raise ValueError(f"broken records per thousand: expected 0 to {_BLOCK}, found {per_thousand}")
    turns = cycle(kinds)
    while True:
        places = set(random.sample(range(_BLOCK), per_thousand))
        for place in range(_BLOCK):
            yield next(turns) if place in places else None


def broken_value(text: str, kind: str | None) -> bytes:
    """The bytes of a record's value: intact, cut off, or empty. A text in place of a number is already in `text`."""
    return {CUT_OFF: text[: len(text) // 2], EMPTY: ""}.get(kind or "", text).encode()


PAYMENT_KINDS: Final = (TEXT_FOR_NUMBER, CUT_OFF, EMPTY)

_TYPES: Final = ("debit", "credit", "bank_slip")
_GIVEN_NAMES: Final = ("Ana", "Bruno", "Carla", "Davi", "Elisa", "João", "Luísa", "Mateus", "Nádia", "Zoë")
_FAMILY_NAMES: Final = ("Almeida", "Barbosa", "Conceição", "Fernandes", "Guimarães", "Lima", "Müller", "Souza")
_DOCUMENTS: Final = 100
_LARGEST_AMOUNT: Final = 10_000
_ID_BITS: Final = 128
_PAYMENTS_SECONDS: Final = 86_400
"""Payments are spread over the day before now."""


def payments(
    count: int, *, seed: int | None = None, broken_per_thousand: int = 0, now: datetime | None = None
) -> Iterator[OutgoingRecord]:
    """Yield exactly `count` payments.

    `created_at` is UTC without a zone; `document` is a number as text.

    Args:
        count: Number of records, broken ones included.
        seed: Equal seeds (with equal `now`) give equal records; None gives other records each time.
        broken_per_thousand: How many of every thousand are broken; the seed decides which.
        now: The latest time in the records; None for the present.
    """
    random = Random(seed)
    kinds = breakages(random, broken_per_thousand, PAYMENT_KINDS)
    latest = now or datetime.now(UTC)
    return (_payment(random, latest, kind) for kind in islice(kinds, count))


def _payment(random: Random, latest: datetime, kind: str | None) -> OutgoingRecord:
    amount = random.randint(1, _LARGEST_AMOUNT)
    created = latest - timedelta(seconds=random.randrange(_PAYMENTS_SECONDS))
    payment = {
        "id": str(UUID(int=random.getrandbits(_ID_BITS), version=4)),
        "type": random.choice(_TYPES),
        "created_at": f"{created:%Y-%m-%dT%H:%M:%S}",
        "document": str(random.randint(1, _DOCUMENTS)),
        "payer": f"{random.choice(_GIVEN_NAMES)} {random.choice(_FAMILY_NAMES)}",
        "amount": str(amount) if kind == TEXT_FOR_NUMBER else amount,
    }
    text = json.dumps(payment, ensure_ascii=False, separators=(",", ":"))
    return OutgoingRecord(None, broken_value(text, kind), kind=kind)


PIZZA_KINDS: Final = (CUT_OFF, TEXT_FOR_NUMBER, EMPTY)

_STORES: Final = 100
_MOST_PIZZAS: Final = 5
_MOST_TOPPINGS: Final = 4
_ORDERS_SECONDS: Final = 3_600
"""Orders are spread over the hour before now."""

_SAUCES: Final = ("extra", "bbq", "light", "alfredo")
_CHEESES: Final = ("extra", "none", "three cheese", "goat cheese")
_MEATS: Final = ("pepperoni", "sausage", "ham", "anchovies", "salami", "bacon")
_VEGGIES: Final = ("tomato", "olives", "onions", "peppers", "pineapple", "mushrooms")

# Written out instead of json.dumps(indent=4), which takes ten times as long. No value here needs an escape.
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
    the value is JSON over several lines. Broken records keep their key. The arguments are those of `payments`.
    """
    random = Random(seed)
    kinds = breakages(random, broken_per_thousand, PIZZA_KINDS)
    latest = now or datetime.now(UTC)
    return islice((_pizza(random, order, next(kinds)) for order in _order_lines(random, latest)), count)


def _order_lines(random: Random, latest: datetime) -> Iterator[tuple[str, int, str]]:
    """Yield order id, store and time once per pizza of each order, without end."""
    while True:
        ordered = latest - timedelta(seconds=random.randrange(_ORDERS_SECONDS))
        order = (str(random.getrandbits(_ID_BITS)), random.randint(1, _STORES), f"{ordered:%Y-%m-%d %H:%M:%S}")
        for _ in range(random.randint(1, _MOST_PIZZAS)):
            yield order


def _pizza(random: Random, order: tuple[str, int, str], kind: str | None) -> OutgoingRecord:
    order_id, store_id, ordered = order
    store: int | str = f'"store {store_id}"' if kind == TEXT_FOR_NUMBER else store_id
    sauce, cheese = random.choice(_SAUCES), random.choice(_CHEESES)
    text = _PIZZA % (order_id, store, sauce, cheese, _toppings(random, _MEATS), _toppings(random, _VEGGIES), ordered)
    return OutgoingRecord(order_id.encode(), broken_value(text, kind), kind=kind)


def _toppings(random: Random, choices: Sequence[str]) -> str:
    number = random.randint(0, _MOST_TOPPINGS)
    return " & ".join(random.sample(choices, number)) if number else "none"


DEMO_BROKEN_PER_THOUSAND: Final = 3
"""Broken records per thousand in the demo: dead letters show from the first minute, far below the tolerated rate."""


GENERATORS: Final[Mapping[str, Callable[..., Iterator[OutgoingRecord]]]] = MappingProxyType(
    {"pizzas": pizzas, "payments": payments}
)
"""Generators by the name that `frazil produce --generate` takes."""


def lines(path: Path) -> Iterator[OutgoingRecord]:
    """Yield one record without key per line, also for an empty one: its bytes without the newline.

    Raises:
        Terminal: The file can't be read.
    """
    try:
        with path.open("rb") as file:
            for line in file:
                yield OutgoingRecord(None, line.removesuffix(b"\n"))
    except OSError as error:
        raise BAD_FILE.terminal(
            f"can't read {path}: {error.strerror}",
            next_step="give a readable file with one record per line",
        ) from error
