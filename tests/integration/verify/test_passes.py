"""Batches that don't just read on: replay, reset, rewind and repair leave exactly what the ledger says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.operations import (
    LEDGER,
    LETTERS,
    ORDERS,
    bad,
    drop,
    lake,
    offsets,
    order,
    recreate_topic,
    repair,
    replay,
    reset,
    roll_back,
    send,
    to_table,
)

Make = Callable[..., Any]


@pytest.fixture
def orders(shop: Make) -> Any:
    """One partition, three batches of two good and two bad records each."""
    orders = shop(partitions=1)
    for n in range(3):
        send(orders, {0: [order(4 * n), bad(4 * n + 1), order(4 * n + 2), bad(4 * n + 3)]})
        orders.run()
    return orders


def outcomes(verification: Any) -> tuple[int, int, int]:
    """Records, rows and letters, of a clean verification."""
    assert verification.is_clean, list(map(str, verification.differences))
    (partition,) = verification.partitions
    return partition.records, partition.rows, partition.letters


def test_replayed_range_is_expected_once(orders: Any, check: Make, table: Make) -> None:
    """A replay replaces; what it left of the older batch would be a double."""
    replay(orders, offsets(orders, 3), offsets(orders, 10))
    assert outcomes(check(orders)) == (12, 6, 6)

    row = next(row for row in table(orders).rows().to_pylist() if row["_kafka_offset"] == 4)
    table(orders).append([row | {"_frazil_batch": 2}])
    assert [difference.kind for difference in check(orders).differences] == ["unexpected"]


def test_range_removed_by_backward_reset_is_expected_once(orders: Any, check: Make) -> None:
    """What lies beyond is gone until it is read again."""
    reset(orders, offsets(orders, 6))
    assert outcomes(check(orders)) == (6, 3, 3)
    orders.run()
    assert outcomes(check(orders)) == (12, 6, 6)


def test_allowed_duplicates_are_no_differences(orders: Any, check: Make, table: Make) -> None:
    """Each pass has its outcome, and one that is missing is missed although the other is there."""
    reset(orders, offsets(orders, 6), allow_duplicates=True)
    orders.run()
    assert outcomes(check(orders)) == (12, 9, 9)

    table(orders).overwrite(lambda row: None if (row["_kafka_offset"], row["_frazil_batch"]) == (8, 3) else row)
    assert [difference.kind for difference in check(orders).differences] == ["missing"]


def test_skipped_offsets_are_not_missed(orders: Any, check: Make) -> None:
    """A forward reset gives up what it jumps over."""
    send(orders, {0: [order(n) for n in range(20, 26)]})
    reset(orders, offsets(orders, 15))
    orders.run()

    assert outcomes(check(orders)) == (15, 9, 6)


@pytest.mark.parametrize("with_replay", [False, True])
def test_rolled_back_batches_are_not_missed(orders: Any, check: Make, with_replay: bool) -> None:
    """The position goes back with the table that was rolled back, and the records come again."""
    if with_replay:
        replay(orders, offsets(orders, 3), offsets(orders, 10))
    roll_back(orders, ORDERS, 2)
    assert not check(orders).is_clean
    to_table(orders)
    orders.run()

    assert outcomes(check(orders)) == (12, 6, 6)


def test_rows_of_recreated_topic_are_kept_apart_from_older_ones(orders: Any, check: Make) -> None:
    """After the reset that adopts it, the new incarnation is compared and the older one counted."""
    recreate_topic(orders, 1)
    send(orders, {0: [order(100), bad(101)]})
    reset(orders, "earliest")
    orders.run()
    report = check(orders)

    assert outcomes(report) == (2, 1, 1)
    assert report.older_incarnation == 12


@pytest.mark.parametrize("is_replayed", [True, False])
def test_lost_dead_letters_are_missed_unless_given_up(orders: Any, check: Make, is_replayed: bool) -> None:
    """Letters that came back are compared, those that were given up on record are counted."""
    drop(orders, LETTERS)
    repair(orders, LETTERS, replays=is_replayed)
    report = check(orders)

    assert outcomes(report) == (12, 6, 6 if is_replayed else 0)
    assert report.partitions[0].given_up == (0 if is_replayed else 6)


def test_rewritten_ledger_is_trusted(orders: Any, check: Make) -> None:
    """Its rows come back from the manifests and say what they said."""
    drop(orders, LEDGER)
    repair(orders, LEDGER)

    assert outcomes(check(orders)) == (12, 6, 6)


def test_rows_of_unknown_batches_are_counted_as_uncompared(orders: Any, check: Make) -> None:
    """Ledger rows that were given up on record leave rows that can't be compared: counted, and said."""
    table = lake(orders).load_table(ORDERS)
    older = table.metadata.snapshots[:-1]
    table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in older]).commit()
    for manifest in (
        snapshot.summary.additional_properties.get("frazil.manifest") for snapshot in older if snapshot.summary
    ):
        if manifest is not None:
            table.io.delete(manifest)  # else a repair finds it: each manifest names the batch before
    drop(orders, LEDGER)
    repair(orders, LEDGER)
    send(orders, {0: [order(20)]})
    orders.run()
    report = check(orders)

    assert outcomes(report)[0] == 5  # the last batch's manifest is known
    assert report.partitions[0].unchecked == 8
