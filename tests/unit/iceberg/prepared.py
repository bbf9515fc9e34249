"""Batches whose rows an engine prepared on a branch, as they become main."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.table.refs import MAIN_BRANCH

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import branch_name, head_of
from frazil.iceberg.commit.commit import CachedTransaction, Change, SnapshotRequest, append_producer
from frazil.iceberg.commit.pipeline_catalog import PreparedBranch, publish_branch
from frazil.iceberg.files.data_files import data_file
from tests.unit.iceberg.orders import TABLE, elsewhere


def passed(really: Callable[[], Any]) -> Any:
    """A commit that goes as ever."""
    return really()


def prepare(lake: Lake, change: Change, summary: Mapping[str, str] | None = None) -> PreparedBranch:
    """Make a branch at the head of main, and add the change's rows there, as an engine does it."""
    name, table = branch_name("orders", 2), elsewhere(lake).load_table(TABLE)
    head = head_of(table.metadata)
    assert head is not None
    table.manage_snapshots().create_branch(head, name).commit()
    transaction = CachedTransaction(table)
    request = SnapshotRequest(change.summary if summary is None else summary, lambda _: None, branch=name)
    producer = append_producer(transaction, request, [data_file(file, table.metadata) for file in change.files])
    producer.commit()
    transaction.commit_transaction()
    return PreparedBranch(name, head, producer.snapshot_id)


def decide(lake: Lake, change: Change) -> int:
    """Land a change by way of a branch."""
    snapshot_id = publish_branch(lake, change, prepare(lake, change))
    assert snapshot_id is not None
    return snapshot_id


def branches(lake: Lake) -> list[str]:
    """Names of all branches but main."""
    return sorted(name for name in lake.load_table(TABLE).metadata.refs if name != MAIN_BRANCH)
