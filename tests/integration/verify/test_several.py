"""Verify over several destinations: the topic is read once, and each table is still held against all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Message

from frazil.verify import check as checks
from frazil.verify import tables as tables_of_verify
from frazil.verify.compare import Comparison
from frazil.verify.facts.result import Verification
from frazil.verify.kafka import PartitionReader
from frazil.verify.reading import read_once
from frazil.verify.values import transforms
from tests import made as shops
from tests.fan_out import TABLES, fanned_out, fill, record
from tests.operations import send

MakeShop = Callable[..., Any]
Check = Callable[..., Verification]
NUMBERS = range(20)


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """How often each record, by partition and offset, was read."""
    counts: Counter[tuple[int, int]] = Counter()
    genuine = PartitionReader.read

    def counted(reader: PartitionReader, start: int, end: int) -> Iterator[Message]:
        for message in genuine(reader, start, end):
            counts[message.partition() or 0, message.offset() or 0] += 1
            yield message

    monkeypatch.setattr(PartitionReader, "read", counted)
    return counts


@pytest.mark.parametrize("window", [1, 3, 250_000])
def test_topic_is_read_once_for_all_tables(
    shop: MakeShop,
    check: Check,
    handed: Counter[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    window: int,
) -> None:
    """However small the windows, each record is read once for all tables, and each table has compared all of them."""
    monkeypatch.setattr(checks, "read_once", partial(read_once, window_size=window))
    orders = fanned_out(shop, partitions=2)
    for partition in (0, 1):
        send(orders, {partition: [record(number) for number in NUMBERS]})
        orders.run()

    report = check(orders)

    assert report.is_clean, report.differences
    assert set(handed.values()) == {1}
    assert len(handed) == 2 * len(NUMBERS)
    assert Counter((part.table, part.records) for part in report.partitions) == dict.fromkeys(
        ((table, len(NUMBERS)) for table in TABLES), 2
    )


@pytest.mark.parametrize("window", [2, 250_000])
def test_lost_row_is_reported_for_its_own_table(
    shop: MakeShop, check: Check, table: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """What is missing or too much is told of its own table, also of one that was a destination only later."""
    monkeypatch.setattr(checks, "read_once", partial(read_once, window_size=window))
    orders = fanned_out(shop)
    fill(orders, range(10))
    orders.run()
    table(orders, "shop.orders").delete(_kafka_offset=3)
    audit = table(orders, "shop.audit")
    audit.append([row for row in audit.rows().to_pylist() if row["_kafka_offset"] == 5])

    report = check(orders)

    differences = sorted(
        (difference.kind, difference.table, difference.offset)
        for difference in report.differences
        if difference.kind != "ledger"
    )
    assert differences == [("duplicate", "shop.audit", 5), ("missing", "shop.orders", 3)]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a value was parsed to route its record, a record was handed to a table, and the ledger was read."""
    counts: Counter[str] = Counter()
    parse, take, rows = transforms.object_of, Comparison.take, tables_of_verify._ledger_rows

    def parsed(raw: bytes, decoder: Any) -> Any:
        counts["parsed"] += 1
        return parse(raw, decoder)

    def taken(comparison: Comparison, message: Message, offset: int) -> None:
        counts["handed"] += 1
        take(comparison, message, offset)

    def read(ledger: Any, pipeline: Any) -> Any:
        counts["ledger"] += 1
        return rows(ledger, pipeline)

    monkeypatch.setattr(tables_of_verify, "_ledger_rows", read)
    monkeypatch.setattr(transforms, "object_of", parsed)
    monkeypatch.setattr(Comparison, "take", taken)
    return counts


def test_work_follows_the_records_and_not_the_tables_times_the_records(
    shop: MakeShop, check: Check, table: Callable[..., Any], work: Counter[str]
) -> None:
    """Of many tables that records name each record is routed once, and handed to its own; it is counted once."""
    tables, count = 30, 300
    orders = shops.auto_creating(shop, most=tables)
    shops.fill(orders, *((number, f"shop.t{number % tables}") for number in range(count)))
    orders.run()
    send(orders, {0: [None, None]})
    orders.run()

    report = check(orders)

    assert report.is_clean, report.differences
    assert len(report.partitions) == tables
    assert report.records == count + 2
    assert work["handed"] <= count
    assert work["ledger"] == 1
    assert work["parsed"] <= 2 * count  # to hand it on, and to judge it
    assert {(partition.records, partition.rows, partition.filtered) for partition in report.partitions} == {
        (count + 2, 10, count - 8)
    }

    table(orders, "shop.t3").delete(_kafka_offset=33)
    fourth_table = table(orders, "shop.t4")
    fourth_table.append(table(orders, "shop.t5").rows().to_pylist()[:1])
    wrong = check(orders)
    differences = sorted(
        (difference.kind, difference.table, difference.offset)
        for difference in wrong.differences
        if difference.kind != "ledger"
    )
    assert differences == [("missing", "shop.t3", 33), ("unexpected", "shop.t4", 5)]


def test_record_that_an_edited_file_sends_elsewhere_is_left_out_as_the_ledger_counts(
    shop: MakeShop, check: Check, table: Callable[..., Any]
) -> None:
    """Batches under another file left out as many as their rows in the ledger say: one record more is a difference."""
    orders = fanned_out(shop)
    fill(orders, range(20))
    orders.run()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    edited = orders.with_pipeline(
        text.replace("value: {casts: text}", "value: {casts: text, duplicate_keys: dead_letter}")
    )

    assert check(edited).is_clean

    table(orders, "shop.refunds").delete(_kafka_offset=1)
    assert ("missing", "shop.refunds") in {
        (difference.kind, difference.table) for difference in check(edited).differences
    }
