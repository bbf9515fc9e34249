"""Where values can't be worked out without the code that writes, places, bytes and counts are compared still."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

Make = Callable[..., Any]

FILTERED = """
    name: orders
    source: {topics: [%s]}
    engine: inline
    dead_letters: {tolerance: all}
    transforms:
      - {type: Filter, when: {predicate: HasHeaderKey, name: test}}
      - {type: Flatten}
    destinations:
      - {table: shop.orders, columns: {id: {type: long, required: true}, name: string}}
"""
EXPLODED = """
    name: orders
    source: {topics: [%s]}
    engine: inline
    dead_letters: {tolerance: all}
    value: {fields: {id: long, items: "list<string>"}}
    transforms:
      - {type: Explode, field: items, outer: false}
    destinations:
      - {table: shop.orders, columns: {id: long, items: {type: string, required: true}}}
"""
TEXTS = """
    name: orders
    source: {topics: [%s]}
    engine: inline
    value: {format: string}
    destinations:
      - {table: shop.orders, columns: {value: string}}
"""


def order(number: int) -> bytes:
    return json.dumps({"id": number, "name": f"order {number}"}).encode()


def consumed(orders: Any, start: int, end: int) -> list[Any]:
    """Records of partition 0 as Kafka has them."""
    consumer = Consumer({**orders.cluster.properties, "group.id": "peek"})
    try:
        consumer.assign([TopicPartition(orders.topic, 0, start)])
        return consumer.consume(end - start, timeout=10)
    finally:
        consumer.close()


def kinds(verification: Any) -> list[str]:
    return [difference.kind for difference in verification.differences]


def totals(verification: Any, *names: str) -> tuple[int, ...]:
    return tuple(sum(getattr(partition, name) for partition in verification.partitions) for name in names)


@pytest.fixture
def filtered(shop: Make) -> Any:
    """One batch of six records: three rows, a letter, a record that a transform filters, and a tombstone."""
    plain = shop(partitions=1)
    orders = plain.with_pipeline(FILTERED % plain.topic)
    orders.produce([order(1), b"broken", order(2), None])
    producer = Producer(dict(orders.cluster.properties))
    producer.produce(orders.topic, order(3), headers=[("test", b"")])
    producer.flush(10)
    orders.produce([order(4)])
    orders.run()
    return orders


@pytest.fixture
def exploded(shop: Make) -> Any:
    """One batch of four records: one of three rows, one of one row, one of none, and one that is dead."""
    plain = shop(partitions=1)
    orders = plain.with_pipeline(EXPLODED % plain.topic)
    lists = [["a", "b", "c"], ["d"], [], ["e", None]]
    orders.produce(json.dumps({"id": n, "items": items}).encode() for n, items in enumerate(lists))
    orders.run()
    return orders


def test_filtered_records_are_not_missed(filtered: Any, check: Make) -> None:
    """What a transform leaves out is in the ledger's count, and the verdict says what was not compared."""
    report = check(filtered)

    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "records", "rows", "letters", "filtered") == (6, 3, 1, 2)
    assert not report.values_compared
    assert report.values_not_compared_because == "transforms change them (Flatten)"


def test_lost_row_does_not_pass_for_filtered_record(filtered: Any, check: Make, table: Make) -> None:
    """The ledger says how many were left out; one more is missing, although nobody can say which one."""
    table(filtered).delete(id=2)
    report = check(filtered)

    assert kinds(report) == ["missing"]
    assert "batch 1 filtered 2 others" in report.differences[0].expected


def test_row_of_filtered_record_is_found(filtered: Any, check: Make, table: Make) -> None:
    """Somebody who adds a row makes one too many of them, and one too few that were left out."""
    row = table(filtered).rows().to_pylist()[0]
    (record,) = consumed(filtered, 4, 5)
    stamp = datetime.fromtimestamp(record.timestamp()[1] / 1000, UTC)
    table(filtered).append([row | {"_kafka_offset": 4, "_kafka_timestamp": stamp}])

    assert kinds(check(filtered)) == ["ledger"]


def test_doubled_row_or_spoiled_dead_letter_is_found(filtered: Any, check: Make, table: Make) -> None:
    """Doubles, outcomes of nothing and the bytes of letters need no reading of values."""
    row = table(filtered).rows().to_pylist()[0]
    table(filtered).append([row, row | {"_kafka_offset": 99}])
    table(filtered, "shop.orders__dead_letters").overwrite(lambda letter: letter | {"value": b"other"})

    assert sorted(kinds(check(filtered))) == ["changed", "duplicate", "unexpected"]


def test_rows_of_one_list_are_not_called_doubles(exploded: Any, check: Make) -> None:
    """A record may have several rows, or none if its list is empty."""
    report = check(exploded)

    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "records", "rows", "letters", "filtered") == (4, 4, 1, 1)


@pytest.mark.parametrize("item", ["b", "d"])
def test_lost_row_of_list_is_found(exploded: Any, check: Make, table: Make, item: str) -> None:
    """One of several is missed by the count of the batch, the only one by its place."""
    table(exploded).delete(items=item)

    assert kinds(check(exploded)) == (["ledger"] if item == "b" else ["missing"])


def test_row_beside_dead_letter_is_found(exploded: Any, check: Make, table: Make) -> None:
    """Several rows are one outcome; a row and a dead letter are two."""
    row = table(exploded).rows().to_pylist()[0]
    stamp = table(exploded, "shop.orders__dead_letters").rows().to_pylist()[0]["timestamp"]
    table(exploded).append([row | {"_kafka_offset": 3, "_kafka_timestamp": stamp}])

    assert kinds(check(exploded)) == ["duplicate"]


def test_values_of_text_format_are_compared(shop: Make, check: Make, table: Make) -> None:
    """A text alone is the value of its column."""
    plain = shop(partitions=1)
    orders = plain.with_pipeline(TEXTS % plain.topic)
    orders.produce([b"a", None, b"\xff", b"c"])
    orders.run()
    report = check(orders)
    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "records", "rows", "letters", "filtered") == (4, 2, 1, 1)
    assert report.values_compared

    table(orders).overwrite(lambda row: row | ({"value": "b"} if row["value"] == "c" else {}))
    assert kinds(check(orders)) == ["changed"]


def test_removed_transform_does_not_make_older_batches_wrong(filtered: Any, check: Make, table: Make) -> None:
    """Under another file, too, the ledger knows how many records were left out."""
    edited = filtered.with_pipeline(FILTERED.replace("transforms:", "#").replace("- {type: ", "# ") % filtered.topic)
    edited.produce([order(5)])
    edited.run()
    report = check(edited)
    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "records", "filtered", "lenient") == (7, 2, 0)
    assert [batches for why, batches in report.batches_not_judged.items() if "Flatten" in why] == [(1,)]

    table(edited).delete(id=2)
    assert kinds(check(edited)) == ["missing"]


def test_options_are_read_as_written(shop: Make, check: Make) -> None:
    """The whole way: the pipeline file's options on values and columns, landed and checked."""
    plain = shop(partitions=1)
    orders = plain.with_pipeline(OPTIONS % plain.topic)
    orders.produce(
        [
            b'{"ID": 1, "Nested": {"N": 5}, "at": 1704067200123, "extra": [1.50], "by": {"1": "a"}}',
            b'{"id": "x"}',
            b'{"id": 2, "id": 3}',
            b"",
            None,
            b"{}",
        ]
    )
    orders.run()
    report = check(orders)

    assert report.is_clean, list(map(str, report.differences))
    assert report.values_compared
    assert totals(report, "records", "rows", "letters", "filtered") == (6, 2, 2, 2)


OPTIONS = """
    name: orders
    source: {topics: [%s]}
    engine: inline
    dead_letters: {tolerance: all}
    value:
      empty_value: filter
      unknown_fields: rescue
      duplicate_keys: dead_letter
      field_names: case_insensitive
      casts: text
    destinations:
      - table: shop.orders
        columns:
          id: {type: long, default: 7, required: true}
          n: {type: string, from: [nested, n]}
          at: {type: timestamptz, unit: ms}
          by: map<long, string>
          whole: {type: string, from: [raw]}
          _rescued: string
"""
