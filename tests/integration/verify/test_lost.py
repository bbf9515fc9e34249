"""Records that nobody read, that are gone, or that go while they are compared; a catalog that says nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from frazil.verify.catalogs import TimedRestCatalog
from frazil.verify.kafka import PartitionReader

Make = Callable[..., Any]


def totals(verification: Any, *names: str) -> tuple[int, ...]:
    return tuple(sum(getattr(partition, name) for partition in verification.partitions) for name in names)


def test_rows_that_vanished_with_their_records_are_missed(
    shop: Make, check: Make, table: Make, delete_records: Make
) -> None:
    """Where Kafka holds nothing to compare with, the ledger's counts per batch still do."""
    orders = shop(partitions=1)
    orders.produce_orders(range(6))
    orders.run()
    row = next(row for row in table(orders).rows().to_pylist() if row["_frazil_batch"] == 1)
    delete_records(orders.topic, {0: -1})
    assert check(orders).count == 0
    assert not check(orders).is_clean
    table(orders).delete(id=row["id"])

    report = check(orders)

    assert [difference.kind for difference in report.differences] == ["ledger"]
    assert "rows of batch 1 in shop.orders" in str(report.differences[0])


def test_records_that_retention_deletes_meanwhile_do_not_end_check(
    shop: Make, check: Make, delete_records: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log start moves after it was read: what is gone is counted, the rest is compared."""
    orders = shop(partitions=1)
    orders.produce_orders(range(30))
    orders.run()
    ask = PartitionReader.log

    def then_delete(reader: PartitionReader) -> tuple[int, int]:
        answer = ask(reader)
        delete_records(orders.topic, {0: 20})
        return answer

    monkeypatch.setattr(PartitionReader, "log", then_delete)

    report = check(orders)

    assert report.is_clean, list(map(str, report.differences))
    assert totals(report, "records", "rows", "unchecked", "expired") == (10, 30, 20, 20)


def test_hanging_catalog_ends_check_in_time() -> None:
    """Whoever verifies every night must hear of it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OSError, match=r"[Tt]imed? ?out"):
            TimedRestCatalog("lake", uri=uri, **{"rest.client.socket-timeout-ms": "100"})
