"""Made records have the promised shape, in the promised number, the same for the same seed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from uuid import UUID

import pytest

import frazil
from frazil.errors import Terminal
from frazil.generators import CUT_OFF, EMPTY, GENERATORS, TEXT_FOR_NUMBER, lines, payments, pizzas
from frazil.kafka.client.cluster import OutgoingRecord

NOW = datetime(2026, 3, 4, 0, 0, 30, tzinfo=UTC)
MEATS = {"pepperoni", "sausage", "ham", "anchovies", "salami", "bacon"}
VEGGIES = {"tomato", "olives", "onions", "peppers", "pineapple", "mushrooms"}


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 1_001])
def test_last_order_is_cut_to_the_number_of_records(name: str, count: int) -> None:
    """Exactly as many records as asked for, also when an order is cut."""
    assert len(list(GENERATORS[name](count, seed=1))) == count


@pytest.mark.parametrize("name", GENERATORS)
def test_same_seed_makes_the_same_records(name: str) -> None:
    """Seed and time decide every byte; no seed gives new ones each time."""
    make = GENERATORS[name]
    first = list(make(500, seed=1, broken_per_thousand=30, now=NOW))

    assert first == list(make(500, seed=1, broken_per_thousand=30, now=NOW))
    assert first != list(make(500, seed=2, broken_per_thousand=30, now=NOW))
    assert list(make(5, now=NOW)) != list(make(5, now=NOW))


@pytest.mark.parametrize("name", GENERATORS)
def test_only_marked_records_are_broken(name: str) -> None:
    """Marked records are broken as they say, in equal numbers; all others can be parsed."""
    records = list(GENERATORS[name](5_000, seed=1, broken_per_thousand=6))

    assert Counter(r.kind for r in records if r.kind) == {
        CUT_OFF: 10,
        TEXT_FOR_NUMBER: 10,
        EMPTY: 10,
    }
    for record in records:
        check_breakage(record, "store_id" if name == "pizzas" else "amount")


def check_breakage(record: OutgoingRecord, number: str) -> None:
    """Hold a record to its kind."""
    value = record.value
    assert value is not None
    if record.kind == EMPTY:
        assert value == b""
    elif record.kind == CUT_OFF:
        assert value.startswith(b"{")
        with pytest.raises(json.JSONDecodeError):
            json.loads(value)
    else:
        expected = str if record.kind == TEXT_FOR_NUMBER else int
        assert type(json.loads(value)[number]) is expected


def test_pizzas_of_an_order_share_its_fields() -> None:
    """An order is 1 to 5 neighbours with one key, order id, store and time."""
    records = list(pizzas(2_000, seed=1, now=NOW))
    orders = [list(group) for _, group in groupby(records, key=lambda record: record.key)]

    assert len({order[0].key for order in orders}) == len(orders)
    assert {len(order) for order in orders} == {1, 2, 3, 4, 5}
    for order in orders:
        parsed = [json.loads(record.value or b"") for record in order]
        assert {pizza["order_id"].encode() for pizza in parsed} == {order[0].key}
        assert len({(pizza["store_id"], pizza["date_ordered"]) for pizza in parsed}) == 1


def test_pizza_has_the_documented_shape() -> None:
    """The value is JSON with four spaces over several lines and only known words."""
    toppings: dict[str, set[str]] = {"meats": set(), "veggies": set()}
    for record in pizzas(3_000, seed=1, now=NOW):
        pizza = json.loads(record.value or b"")
        assert record.value == json.dumps(pizza, indent=4).encode()
        assert list(pizza) == [
            "order_id", "store_id", "sauce", "cheese", "meats", "veggies", "date_ordered",
        ]  # fmt: skip
        assert re.fullmatch(r"\d{1,39}", pizza["order_id"])
        assert int(pizza["order_id"]) < 2**128
        assert 1 <= pizza["store_id"] <= 100
        assert pizza["sauce"] in {"extra", "bbq", "light", "alfredo"}
        assert pizza["cheese"] in {"extra", "none", "three cheese", "goat cheese"}
        ordered = datetime.strptime(pizza["date_ordered"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        assert 0 <= (NOW - ordered).total_seconds() < 3_600
        for kind in toppings:
            parts = pizza[kind].split(" & ")
            assert len(parts) == len(set(parts)) <= 4
            toppings[kind] |= set(parts)

    assert toppings == {"meats": MEATS | {"none"}, "veggies": VEGGIES | {"none"}}


def test_payment_has_the_documented_shape() -> None:
    """No key, one line, a time without zone, a document that is text though it is a number."""
    types, documents = set(), set()
    for record in payments(3_000, seed=1, now=NOW):
        payment = json.loads(record.value or b"")
        assert record.key is None
        assert b"\n" not in (record.value or b"")
        assert list(payment) == ["id", "type", "created_at", "document", "payer", "amount"]
        assert str(UUID(payment["id"])) == payment["id"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", payment["created_at"])
        assert type(payment["amount"]) is int
        assert type(payment["payer"]) is str
        types.add(payment["type"])
        documents.add(payment["document"])

    assert types == {"debit", "credit", "bank_slip"}
    assert documents == {str(number) for number in range(1, 101)}


def test_lines_are_sent_unchanged(tmp_path: Path) -> None:
    """Each line is one value with its bytes as they are: empty, not UTF-8, CR, no last newline."""
    file = tmp_path / "lines"
    file.write_bytes(b'{"a":1}\n\n\xff\x00 \r\n last')

    records = list(lines(file))

    assert [record.value for record in records] == [b'{"a":1}', b"", b"\xff\x00 \r", b" last"]
    assert {record.key for record in records} == {None}


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    """A missing file and a folder are named."""
    with pytest.raises(Terminal, match=r"nothing: No such file"):
        next(lines(tmp_path / "nothing"))
    with pytest.raises(Terminal, match="directory"):
        next(lines(tmp_path))


def test_generators_do_not_load_the_kafka_client() -> None:
    """Making records, or naming a cluster, does not load librdkafka."""
    code = (
        "import sys, frazil.generators, frazil.kafka.client.cluster, frazil.kafka.client.cluster;"
        "sys.exit('confluent_kafka' in sys.modules)"
    )
    root = Path(frazil.__file__).parents[1]

    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
