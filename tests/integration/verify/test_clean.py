"""What is right must be called right: a check that cries wolf is switched off."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.errors import Terminal
from frazil.kafka.admin.topics import create_topic
from frazil.verify.check import verify
from tests.evolving import evolving, put
from tests.operations import lake
from tests.raw_producer import send_with_header
from tests.servers import delete_topic

Make = Callable[..., Any]


def totals(verification: Any, *names: str) -> tuple[int, ...]:
    return tuple(sum(getattr(partition, name) for partition in verification.partitions) for name in names)


def test_good_bad_and_filtered_records_are_told_apart(shop: Make, check: Make) -> None:
    """Rows, dead letters and tombstones over several batches and partitions are all accounted for."""
    orders = shop(partitions=3, max_records=40)
    orders.produce_orders(range(100))
    orders.produce([b"broken", None, b"{}", b'{"id": 1e3}', b'{"id": 5, "name": {"a": [1.50]}}'])
    orders.run()
    orders.produce_orders(range(100, 120))
    orders.run()

    report = check(orders)

    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "records", "rows", "letters", "filtered") == (125, 122, 2, 1)
    assert totals(report, "missing", "duplicate", "unexpected", "changed", "unchecked") == (0,) * 5


def test_aborted_records_are_not_missed(shop: Make, check: Make, transactions: Make) -> None:
    """Aborted records and the markers of transactions have no outcome, at the end of the log too."""
    orders = shop(partitions=1)
    orders.produce_orders(range(5))
    for index, is_committed in enumerate([True, False, True, False, False]):
        values = [json.dumps({"id": 10 * index + n}).encode() for n in range(4)]
        transactions(orders.topic, values, commit=is_committed)
    orders.run()

    report = check(orders)

    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "records", "rows") == (13, 13)
    assert totals(report, "covered") > (20,)


TYPES = """
    name: orders
    source: {topics: [%s]}
    engine: inline
    destinations:
      - table: shop.orders
        partition_by: [day(z)]
        columns:
          id: long
          f: float
          n: decimal(20,4)
          s: string
          day: date
          t: time
          w: timestamp
          z: timestamptz
          u: uuid
          x: fixed[3]
          y: binary
          li: list<decimal(4,1)>
          m: map<string, timestamptz>
          r: "struct<a: uuid, b: list<struct<c: date, d: float>>>"
"""
FULL = {
    "id": 1,
    "f": 0.1,
    "n": 1.25,
    "s": {"é": [1.5, None]},
    "day": "2024-02-29",
    "t": "12:30:00.5",
    "w": "2024-02-29T12:30:00",
    "z": "2024-02-29T12:30:00+02:00",
    "u": "00112233-4455-6677-8899-aabbccddeeff",
    "x": "AAEC",
    "y": "AAECAw==",
    "li": [1.5, None],
    "m": {"b": "2024-02-29T12:30:00Z", "a": None},
    "r": {"a": "00112233-4455-6677-8899-aabbccddeeff", "b": [{"c": "2024-02-29", "d": 0.1}, None]},
}


def test_stored_types_are_compared_equal(shop: Make, check: Make) -> None:
    """A value of every type reads the same from the table as from Kafka."""
    plain = shop(partitions=1)
    orders = plain.with_pipeline(TYPES % plain.topic)
    ones = [{key: value} for key, value in FULL.items()]
    orders.produce(json.dumps(document).encode() for document in [FULL, {}, {"r": {}}, *ones])
    orders.run()

    report = check(orders)

    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "rows") == (len(FULL) + 3,)


def test_records_that_retention_deleted_are_not_missed(shop: Make, check: Make) -> None:
    """Below the log start nothing is missing and nothing unexpected; doubles would still be found."""
    orders = shop(partitions=1)
    orders.produce_orders(range(30))
    orders.run()
    admin = AdminClient(dict(orders.cluster.properties))
    admin.delete_records([TopicPartition(orders.topic, 0, 20)])[TopicPartition(orders.topic, 0, 20)].result()

    report = check(orders)

    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "records", "rows", "unchecked") == (10, 30, 20)


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_outcome_may_outlive_compacted_record(
    shop: Make, check: Make, table: Make, transactions: Make, set_policy: Make, policy: str
) -> None:
    """Only compaction takes records from the middle of a log: there a row without record proves nothing; counts do."""
    orders = shop(partitions=1)
    orders.produce_orders(range(3))
    transactions(orders.topic, [b"never committed"], commit=False)
    orders.produce_orders(range(3, 6))
    orders.run()
    table(orders).append([table(orders).rows().to_pylist()[0] | {"_kafka_offset": 3}])
    set_policy(orders.topic, policy)

    report = check(orders)

    assert totals(report, "unexpected", "unchecked") == ((0, 1) if policy == "compact" else (1, 0))
    assert [difference.kind for difference in report.differences] == ["ledger" if policy == "compact" else "unexpected"]


def test_foreign_rows_are_not_taken_for_ours(shop: Make, check: Make, table: Make) -> None:
    """Rows that somebody else appends carry no Kafka columns and are left alone."""
    orders = shop()
    orders.produce_orders(range(6))
    orders.run()
    table(orders).append([{"id": 77, "name": "by hand"}])
    orders.produce_orders(range(6, 9))
    orders.run()

    report = check(orders)

    assert report.is_clean, list(map(str, report.differences))
    assert report.foreign == 1


def test_rows_of_earlier_topic_are_not_compared_with_recreated_one(shop: Make, check: Make) -> None:
    """Offsets of the older incarnation mean nothing in the new one."""
    orders = shop(partitions=1)
    orders.produce_orders(range(5))
    orders.run()
    delete_topic(orders.cluster, orders.topic)
    create_topic(orders.cluster, orders.topic, 1)
    orders.produce_orders(range(100, 120))

    report = check(orders)

    assert (report.count, report.older_incarnation, report.partitions) == (0, 5, ())
    assert not report.is_clean  # nothing was compared


def test_changed_file_does_not_make_older_batches_wrong(shop: Make, check: Make) -> None:
    """What an older file called bad may be good today, and a column it did not have is empty."""
    orders = shop(partitions=1)
    orders.produce([b'{"id": 1, "name": "a"}', b'{"id": 2, "name": "b"}', b'{"name": "without id"}', None])
    orders.run()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    edited = orders.with_pipeline(text.replace("name: string", "name: string\n      more: long"))
    table = edited.project.lake("lake").load_table("shop.orders")
    with table.update_schema() as update:
        from pyiceberg.types import LongType

        update.add_column("more", LongType())
    edited.produce([b'{"id": 3, "more": 4}', b'{"id": 3, "more": "x"}'])
    edited.run()

    report = check(edited)

    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "rows", "letters", "filtered", "lenient") == (3, 2, 1, 0)


def test_edit_that_changes_no_outcome_does_not_weaken_check(shop: Make, check: Make, table: Make) -> None:
    """A new owner makes no batch an older file's: its empty cells are differences still."""
    orders = shop(partitions=1)
    orders.produce_orders(range(3))
    orders.run()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    edited = orders.with_pipeline(text + "owner: somebody else\n")
    table(edited).overwrite(lambda row: row | ({"name": None} if row["id"] == 1 else {}))

    report = check(edited)

    assert [difference.kind for difference in report.differences] == ["changed"]
    assert totals(report, "lenient") == (0,)


def test_table_that_cannot_be_checked_is_not_called_clean(shop: Make) -> None:
    """Without Kafka columns, and before the first run, there is nothing to compare: that is no success."""
    orders = shop()
    with pytest.raises(Terminal, match="no table"):
        verify(orders.project, orders.pipeline)
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    bare = orders.with_pipeline(text.replace("columns:", "kafka_columns: false\n    columns:"))
    with pytest.raises(Terminal, match="without Kafka columns"):
        verify(bare.project, bare.pipeline)


def test_verify_leaves_no_trace(shop: Make, check: Make) -> None:
    """Verifying commits no offset to any group and writes to no table."""
    orders = shop(partitions=1)
    orders.produce_orders(range(5))
    orders.run()
    before = [orders.snapshots(name) for name in ("shop.orders", "shop.orders__dead_letters", "shop.orders__ledger")]

    assert check(orders).is_clean

    after = [orders.snapshots(name) for name in ("shop.orders", "shop.orders__dead_letters", "shop.orders__ledger")]
    consumer = Consumer({**orders.cluster.properties, "group.id": "frazil-verify"})
    try:
        (committed,) = consumer.committed([TopicPartition(orders.topic, 0)], timeout=10)
    finally:
        consumer.close()
    assert (after, committed.offset) == (before, -1001)
    assert isinstance(orders.project.lake("lake").load_table("shop.orders").scan().to_arrow(), pa.Table)


def test_records_with_headers_that_cannot_be_read_are_dead_letters(shop: Make, check: Make) -> None:
    """The name of a header may be any bytes. Such a record keeps its value, and the check knows it."""
    orders = shop(partitions=1)
    for number, name in enumerate((b"good", b"bad\xff\xfe", b"also good")):
        send_with_header(orders.cluster.bootstrap_servers, orders.topic, b'{"id": %d}' % number, name)
    orders.run()

    report = check(orders)

    (letter,) = orders.rows("shop.orders__dead_letters")
    assert (letter["code"], letter["offset"], letter["value"]) == ("INVALID_HEADERS", 1, b'{"id": 1}')
    assert orders.ids() == [0, 2]
    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "records", "rows", "letters") == (3, 2, 1)


def test_renamed_column_is_no_difference_and_its_values_are_named(shop: Make, check: Make, table: Make) -> None:
    """Somebody renames columns, and later records bring the old names as new ones: all other values are still compared."""
    orders = evolving(shop)
    put(orders, {"id": 1, "price": 3, "at": {"x": 1}, "note": "a"})
    orders.run()
    with lake(orders).load_table("shop.orders").update_schema() as update:
        update.rename_column("price", "cost")
        update.rename_column("at.x", "y")
    put(orders, {"id": 2, "price": 4, "at": {"x": 2}, "note": "b"}, {"id": 3, "cost": 5, "at": {"y": 6}})
    orders.run()

    report = check(orders)

    assert report.is_clean, list(map(str, report.differences))
    why = "the column, or a field of it, had another name"
    assert report.cells_not_compared == {"shop.orders": {"cost": (1, why), "at": (1, why)}}
    assert report.notes == ("shop.orders: null was accepted for price in rows from before these columns changed",)
    table(orders).overwrite(lambda row: row | ({"note": None} if row["id"] == 1 else {"cost": None}))
    assert [difference.offset for difference in check(orders).differences] == [0, 2]
