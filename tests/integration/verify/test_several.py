"""Verify over several destinations: the topic is read once, and each table is still held against all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Message

from frazil.verify import check as checks
from frazil.verify.kafka import PartitionReader
from frazil.verify.reading import read_once
from frazil.verify.result import Verification
from tests.fan_out import TABLES, fanned_out, fill, record
from tests.operations import send

MakeShop = Callable[..., Any]
Check = Callable[..., Verification]
NUMBERS = range(20)


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """How often each record, by partition and offset, was read."""
    found: Counter[tuple[int, int]] = Counter()
    genuine = PartitionReader.read

    def counted(reader: PartitionReader, start: int, end: int) -> Iterator[Message]:
        for message in genuine(reader, start, end):
            found[message.partition() or 0, message.offset() or 0] += 1
            yield message

    monkeypatch.setattr(PartitionReader, "read", counted)
    return found


@pytest.mark.parametrize("window", [1, 3, 250_000])
def test_every_table_reads_the_topic_again(
    shop: MakeShop,
    check: Check,
    handed: Counter[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    window: int,
) -> None:
    """However small the windows, each record is read once for all tables, and each table has compared all of them."""
    monkeypatch.setattr(checks, "read_once", partial(read_once, window=window))
    orders = fanned_out(shop, partitions=2)
    for partition in (0, 1):
        send(orders, {partition: [record(number) for number in NUMBERS]})
        orders.run()

    found = check(orders)

    assert found.is_clean, found.differences
    assert set(handed.values()) == {1}
    assert len(handed) == 2 * len(NUMBERS)
    assert Counter((of.table, of.records) for of in found.partitions) == dict.fromkeys(
        ((table, len(NUMBERS)) for table in TABLES), 2
    )


@pytest.mark.parametrize("window", [2, 250_000])
def test_a_row_that_one_table_lost_is_held_against_another(
    shop: MakeShop, check: Check, table: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """What is missing or too much is told of its own table, also of one that was a destination only later."""
    monkeypatch.setattr(checks, "read_once", partial(read_once, window=window))
    orders = fanned_out(shop)
    fill(orders, range(10))
    orders.run()
    table(orders, "shop.orders").delete(_kafka_offset=3)
    audit = table(orders, "shop.audit")
    audit.append([row for row in audit.rows().to_pylist() if row["_kafka_offset"] == 5])

    found = check(orders)

    said = sorted((of.kind, of.table, of.offset) for of in found.differences if of.kind != "ledger")
    assert said == [("duplicate", "shop.audit", 5), ("missing", "shop.orders", 3)]
