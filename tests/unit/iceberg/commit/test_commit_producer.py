"""A transaction that looks at its table once per change of it: cheaper than PyIceberg's, and never behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit import commit as producer
from frazil.iceberg.commit.commit import CachedTransaction, commit
from tests.unit.iceberg.orders import TABLE, batch, commit_batches, foreign_append, mark, rows

LOOKS = 3
"""Of a commit: before anything is pending, with the snapshot, and one to spare. PyIceberg's own takes fifteen."""


def without_time(metadata: TableMetadata) -> dict[str, Any]:
    """All but the time of the look, which PyIceberg puts into it while something is pending."""
    return metadata.model_dump(exclude={"last_updated_ms"})


def assert_agrees(transaction: CachedTransaction, table: Table) -> None:
    """It sees what PyIceberg's would see with the same pending updates."""
    plain = Transaction(table)
    plain._updates = transaction._updates
    assert without_time(transaction.table_metadata) == without_time(plain.table_metadata)
    assert transaction.table_metadata is transaction.table_metadata


def test_pending_and_reloaded_updates_are_seen(orders: Lake) -> None:
    """Each pending update is seen, also in the place of another; so is what others committed, once the table is refreshed."""
    commit_batches(orders, 1)
    table = orders.load_table(TABLE)
    transaction = CachedTransaction(table)
    assert_agrees(transaction, table)

    transaction._stage((SetPropertiesUpdate(updates={"a": "1"}),))
    assert_agrees(transaction, table)
    assert transaction.table_metadata.properties["a"] == "1"
    transaction._updates = (SetPropertiesUpdate(updates={"b": "2"}),)
    assert_agrees(transaction, table)
    assert "a" not in transaction.table_metadata.properties

    foreign_append(orders, 7)()
    assert_agrees(transaction, table)
    table.refresh()
    assert_agrees(transaction, table)
    assert len(transaction.table_metadata.snapshots) == 2


def test_commit_copies_the_table_a_bounded_number_of_times(orders: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy is of every snapshot the table still has: on an old table the looks would cost more than the batch."""
    commit_batches(orders, 1)
    change = batch(orders, mark(2), mark(1), rows(2))
    copied: list[object] = []
    really: Callable[..., TableMetadata] = producer.update_table_metadata

    def counted(*arguments: Any) -> TableMetadata:
        copied.append(arguments)
        return really(*arguments)

    monkeypatch.setattr(producer, "update_table_metadata", counted)

    commit(orders, change)

    assert 1 <= len(copied) <= LOOKS
