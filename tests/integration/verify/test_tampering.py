"""A check that can't fail is worthless: every way to spoil the tables must be found, with its coordinates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.verify.result import Verification

Make = Callable[..., Any]


@pytest.fixture
def orders(shop: Make) -> Any:
    """Two partitions, two batches: 42 good records, 2 bad ones, a tombstone."""
    orders = shop()
    orders.produce_orders(range(30))
    orders.produce([b"broken", None])
    orders.run()
    orders.produce_orders(range(30, 42))
    orders.produce([b'{"id": "x"}'])
    orders.run()
    return orders


def kinds(found: Verification) -> dict[str, int]:
    return dict(Counter(difference.kind for difference in found.differences))


def test_a_row_that_was_deleted_is_not_missed(orders: Any, check: Make, table: Make) -> None:
    """A record without outcome is missing, and named."""
    row = table(orders).rows().to_pylist()[0]
    table(orders).delete(id=row["id"])

    found = check(orders)

    assert kinds(found) == {"missing": 1}
    assert (found.differences[0].partition, found.differences[0].offset) == (
        row["_kafka_partition"],
        row["_kafka_offset"],
    )
    assert f"offset {row['_kafka_offset']}" in str(found.differences[0])


def test_a_row_that_was_doubled_is_not_seen(orders: Any, check: Make, table: Make) -> None:
    """The same row twice is a duplicate even if a count elsewhere would make up for it."""
    doubled, deleted = table(orders).rows().to_pylist()[:2]
    table(orders).append([doubled])
    table(orders).delete(id=deleted["id"])

    assert kinds(check(orders)) == {"duplicate": 1, "missing": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"name": None},
        {"id": 99},
        {"_kafka_timestamp": None},
    ],
)
def test_a_value_that_was_changed_is_not_seen(orders: Any, check: Make, table: Make, change: dict[str, Any]) -> None:
    """Values are compared, not only counts; the difference names the column."""
    table(orders).overwrite(lambda row: row | change if row["id"] == 7 else row)

    found = check(orders)

    assert kinds(found) == {"changed": 1}
    assert next(iter(change)).removeprefix("_kafka_") in str(found.differences[0])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"_kafka_offset": 10_000}, {"missing": 1, "unexpected": 1}),
        ({"_kafka_partition": 9}, {"missing": 1, "unexpected": 1}),
        ({"_kafka_offset": None}, {"missing": 1, "unexpected": 1}),
        ({"_kafka_topic": "elsewhere"}, {"missing": 1, "unexpected": 1}),
        ({"_frazil_batch": 2}, {"missing": 1, "unexpected": 1}),
        ({"_frazil_batch": None}, {"missing": 1, "unexpected": 1}),
    ],
)
def test_coordinates_that_were_changed_are_not_seen(
    orders: Any, check: Make, table: Make, change: dict[str, Any], expected: dict[str, int]
) -> None:
    """A row that claims another record leaves its own without outcome."""
    table(orders).overwrite(lambda row: row | change if row["id"] == 7 else row)

    assert kinds(check(orders)) == expected


def test_a_letter_that_was_removed_is_not_missed(orders: Any, check: Make, table: Make) -> None:
    """A bad record without letter was dropped silently."""
    table(orders, "shop.orders__dead_letters").delete(code="INVALID_JSON")

    found = check(orders)

    assert kinds(found) == {"missing": 1}
    assert "broken" in str(found.differences[0])


@pytest.mark.parametrize(
    "change", [{"value": b"Broken"}, {"key": b""}, {"headers": [{"key": "a", "value": b""}]}, {"timestamp": None}]
)
def test_bytes_of_a_letter_that_were_changed_are_not_seen(
    orders: Any, check: Make, table: Make, change: dict[str, Any]
) -> None:
    """A dead letter is the record as it came."""
    table(orders, "shop.orders__dead_letters").overwrite(
        lambda row: row | change if row["code"] == "INVALID_JSON" else row
    )

    assert kinds(check(orders)) == {"changed": 1}


def test_a_good_record_that_became_a_letter_is_not_seen(orders: Any, check: Make, table: Make) -> None:
    """Moving a good record to the dead letters keeps every count, and loses a row."""
    letters = table(orders, "shop.orders__dead_letters")
    row = next(row for row in table(orders).rows().to_pylist() if row["id"] == 7)
    place = {"topic": row["_kafka_topic"], "partition": row["_kafka_partition"], "offset": row["_kafka_offset"]}
    letter = letters.rows().to_pylist()[0] | place
    letter |= {"value": b'{"id": 7, "name": "order 7"}', "timestamp": row["_kafka_timestamp"], "_frazil_batch": 1}
    letters.append([letter])
    table(orders).delete(id=7)

    found = check(orders)

    assert kinds(found) == {"changed": 1}
    assert "expected a row" in str(found.differences[0])


def test_a_row_that_was_invented_is_not_seen(orders: Any, check: Make, table: Make) -> None:
    """Rows beyond the position, at a tombstone, or at a bad record have no business there."""
    some = table(orders).rows().to_pylist()[0]
    letter = table(orders, "shop.orders__dead_letters").rows().to_pylist()[0]
    at = {"_kafka_partition": letter["partition"], "_kafka_offset": letter["offset"]}
    tombstone = tombstone_of(orders)
    table(orders).append(
        [
            some | {"_kafka_offset": 2**40},
            some | at | {"_frazil_batch": letter["_frazil_batch"]},
            some | {"_kafka_partition": tombstone[0], "_kafka_offset": tombstone[1], "_frazil_batch": 1},
        ]
    )

    assert kinds(check(orders)) == {"unexpected": 2, "duplicate": 1, "changed": 1}


def tombstone_of(orders: Any) -> tuple[int, int]:
    """Coordinates of the one record without row and letter."""
    taken = {(row["_kafka_partition"], row["_kafka_offset"]) for row in orders.rows()}
    taken |= {(row["partition"], row["offset"]) for row in orders.rows("shop.orders__dead_letters")}
    (left,) = {
        (partition, offset)
        for partition in (0, 1)
        for offset in range(max(at for p, at in taken if p == partition))
        if (partition, offset) not in taken
    }
    return left


def test_a_batch_that_the_ledger_lost_is_not_missed(orders: Any, check: Make, table: Make) -> None:
    """A hole in the books is one: rows of that batch have nobody who read them, and its records were read by nobody."""
    table(orders, "shop.orders__ledger").delete(n=1)

    found = check(orders)

    assert kinds(found).keys() == {"ledger", "unexpected", "missing"}
    assert "batch 1" in str(found.differences[0])


def test_the_last_batch_that_the_ledger_lost_is_taken_for_unfinished(orders: Any, check: Make, table: Make) -> None:
    """The ledger's own mark tells a lost row from one that is still to come."""
    table(orders, "shop.orders__ledger").delete(n=2)

    found = check(orders)

    assert "which the ledger marks as finished" in str(found.differences[0])


@pytest.mark.parametrize(
    "change",
    [
        {"records_read": 99},
        {"rows": 99},
        {"role": "destination"},
        {"n": 1},
    ],
)
def test_books_that_were_edited_are_believed(orders: Any, check: Make, table: Make, change: dict[str, Any]) -> None:
    """Counts, numbers and the position of the ledger are checked against each other and the table."""

    def edit(row: dict[str, Any]) -> dict[str, Any]:
        is_meant = row["n"] == 2 and (row["role"] == "dead_letters" or change.keys() & {"records_read", "rows"})
        return row | change if is_meant else row

    table(orders, "shop.orders__ledger").overwrite(edit)

    assert "ledger" in kinds(check(orders))


def test_a_position_of_another_cluster_is_compared(orders: Any, check: Make, table: Make) -> None:
    """Offsets of one cluster mean nothing in another."""
    position = '{"v":1,"n":2,"epoch":0,"cluster":"c","topics":{}}'
    table(orders, "shop.orders__ledger").overwrite(lambda row: row | ({"position": position} if row["n"] == 2 else {}))

    with pytest.raises(Terminal, match="belongs to Kafka cluster c"):
        check(orders)


def test_a_position_that_was_edited_is_believed(orders: Any, check: Make) -> None:
    """Property, snapshot and ledger must name one position."""
    found = orders.project.lake("lake").load_table("shop.orders")
    key = "kafka.offsets.orders"
    with found.transaction() as transaction:
        transaction.set_properties({key: found.properties[key].replace('epoch\\":0', 'epoch\\":1')})

    assert not check(orders).is_clean


def test_a_batch_in_between_is_called_clean(shop: Make, check: Make) -> None:
    """Decided and not finished: the reader is told what to do."""

    class Killed(BaseException):
        """Ends a run like a kill."""

    def report(line: str) -> None:
        if "decided" in line:
            raise Killed

    orders = shop()
    orders.produce_orders(range(5))
    with pytest.raises(Killed):
        orders.run(report=report)

    found = check(orders)

    assert not found.is_clean
    assert "batch 1 is decided and not finished yet: run `frazil run orders`" in str(found.differences[0])
    orders.run()
    assert check(orders).is_clean


def test_a_rolled_back_table_is_called_clean(orders: Any, check: Make) -> None:
    """The ledger knows a batch that the table holds no more."""
    table = orders.project.lake("lake").load_table("shop.orders")
    first = table.metadata.snapshots[1].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()

    found = check(orders)

    assert {"ledger", "missing"} <= kinds(found).keys()


def test_rows_of_another_pipeline_are_called_unexpected(orders: Any, check: Make, table: Make) -> None:
    """Topics that a neighbour's position names in the same table are its own."""
    row = table(orders).rows().to_pylist()[0]
    table(orders).append([row | {"_kafka_topic": "elsewhere"}])
    position = {
        "v": 1,
        "n": 1,
        "epoch": 0,
        "cluster": "c",
        "topics": {"elsewhere": {"id": None, "from": [0], "next": [9]}},
    }
    with orders.project.lake("lake").load_table("shop.orders").transaction() as transaction:
        mirrored = json.dumps({"snapshot": 1, "value": json.dumps(position)})
        transaction.set_properties({"kafka.offsets.neighbour": mirrored})

    found = check(orders)

    assert (found.count, found.foreign) == (0, 1)
