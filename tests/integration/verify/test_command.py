"""`frazil verify` as a person and as a program uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from frazil.cli.app import invoke

Make = Callable[..., Any]

TEXTS = """
    name: orders
    source: {topics: [%s]}
    engine: inline
    value: {format: string}
    destinations: [{table: shop.orders, columns: {value: string}}]
"""


@pytest.fixture
def frazil(shop: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Make:
    """Run the command in a shop: `frazil(orders, "verify", "orders")` returns exit code and stdout."""

    def run(orders: Any, *arguments: str) -> tuple[int, str]:
        for name, value in orders.project.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("FRAZIL_KAFKA_PORT", orders.cluster.bootstrap_servers.rpartition(":")[2])
        capsys.readouterr()
        return invoke(arguments), capsys.readouterr().out

    return run


def test_clean_pipeline_ends_with_success(shop: Make, frazil: Make) -> None:
    """Exit code 0 and one verdict; JSON says the same."""
    orders = shop(partitions=1)
    orders.produce_orders(range(12))
    orders.produce([b"broken"])
    orders.run()

    code, out = frazil(orders, "verify", "orders")
    assert code == 0
    assert "orders: clean, 13 records through batch 1" in out.splitlines()[-1]
    assert f"{orders.topic}/0" in out

    code, out = frazil(orders, "verify", "orders", "--json")
    body = json.loads(out)
    assert (code, body["is_clean"], body["count"], body["differences"]) == (0, True, 0, [])
    assert (body["partitions"][0]["records"], body["partitions"][0]["letters"]) == (13, 1)


def test_values_that_were_not_compared_are_reported(shop: Make, frazil: Make) -> None:
    """A verdict must say what it is about."""
    plain = shop(partitions=1)
    orders = plain.with_pipeline(
        TEXTS.replace("{format: string}", "{format: string}\n    transforms: [{type: Flatten}]") % plain.topic
    )
    orders.produce([b"a", b"b"])
    orders.run()

    code, out = frazil(orders, "verify", "orders")
    assert code == 0
    assert "values were not compared, since transforms change them (Flatten): only offsets, bytes and counts" in out
    assert "orders: clean but for values, 2 records through batch 1" in out.splitlines()[-1]

    body = json.loads(frazil(orders, "verify", "orders", "--json")[1])
    assert (body["values_compared"], body["values_not_compared_because"]) == (False, "transforms change them (Flatten)")


def test_spoiled_pipeline_ends_with_failure(shop: Make, frazil: Make, table: Make) -> None:
    """Exit code 1, the first ten differences with their coordinates, and how many there are."""
    orders = shop(partitions=1)
    orders.produce_orders(range(12))
    orders.run()
    table(orders).overwrite(lambda row: row | {"name": "x" * 1000})

    code, out = frazil(orders, "verify", "orders")
    assert code == 1
    assert out.count("changed: topic") == 10
    assert f"topic {orders.topic}, partition 0, offset 0, batch 1: expected name=order 0, found name=xxx" in out
    assert "… and 2 more" in out
    assert "orders: 12 differences" in out.splitlines()[-1]
    assert max(map(len, out.splitlines())) < 400

    code, out = frazil(orders, "verify", "orders", "--json")
    body = json.loads(out)
    assert (code, body["is_clean"], body["count"], len(body["differences"])) == (1, False, 12, 12)
    assert body["differences"][0]["kind"] == "changed"


def test_invalid_bounds_are_refused(shop: Make, frazil: Make) -> None:
    """A mistyped instant needs a person."""
    orders = shop(partitions=1)
    orders.produce_orders(range(2))
    orders.run()

    assert frazil(orders, "verify", "orders", "--from", "yesterday")[0] == 78


def test_check_of_nothing_is_not_called_clean(shop: Make, frazil: Make, delete_records: Make) -> None:
    """An empty topic is no failure, one whose records are all gone is no success."""
    orders = shop(partitions=1)
    orders.run()
    code, out = frazil(orders, "verify", "orders")
    assert (code, "orders: nothing was compared, 0 records" in out) == (0, True)

    orders.produce_orders(range(3))
    orders.run()
    delete_records(orders.topic, {0: -1})
    code, out = frazil(orders, "verify", "orders")
    assert (code, "orders: nothing was compared, 0 records" in out) == (1, True)
    assert "3 offsets that batches read are gone from Kafka" in out


def test_one_difference_is_written_in_singular(shop: Make, frazil: Make, table: Make) -> None:
    """The verdict is read by people."""
    orders = shop(partitions=1)
    orders.produce_orders(range(3))
    orders.run()
    table(orders).delete(id=1)

    assert "orders: 1 difference, 3 records" in frazil(orders, "verify", "orders")[1].splitlines()[-1]
