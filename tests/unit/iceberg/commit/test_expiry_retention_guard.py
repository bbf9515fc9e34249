"""What tables keep of pipelines is told before and after snapshots go: all of it, and which snapshots alone carry it."""

from __future__ import annotations

from pyiceberg.table.refs import MAIN_BRANCH

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit import summary_state
from frazil.iceberg.commit.expiry import MARKS, RetainedState, retained_state
from frazil.iceberg.commit.summary_state import (
    BEGUN_KEY,
    BRANCH_KEY,
    CHANGES_KEY,
    CLOSING_KEY,
    IDENTIFIER_KEY,
    MADE_BY_KEY,
)
from tests.unit.iceberg.orders import KEY, TABLE, commit_batches, foreign_append, mark
from tests.unit.iceberg.snapshots import expire, roll_back, set_property


def found(lake: Lake) -> RetainedState:
    return retained_state(lake.load_table(TABLE).metadata, TABLE)


def test_snapshot_whose_position_a_property_carries_may_expire(orders: Lake) -> None:
    """Main and the property say the same, so expiry may take the snapshot; afterwards the table says it still."""
    assert found(orders) == RetainedState({}, None, None)
    (ours,) = commit_batches(orders, 1)
    foreign_append(orders, 100)()
    before = found(orders)
    assert before == RetainedState({KEY: mark(1).to_json()}, None, None)

    expire(orders, ours)

    assert found(orders) == before


def test_snapshot_that_alone_carries_a_mark_stays(orders: Lake) -> None:
    """Where the property is missing or behind, nothing from that snapshot on may go."""
    _, ours = commit_batches(orders, 1, 2)
    with orders.load_table(TABLE).transaction() as change:
        change.remove_properties(KEY)

    snapshot = orders.load_table(TABLE).metadata.snapshot_by_id(ours)
    assert snapshot is not None
    assert found(orders) == RetainedState({KEY: mark(2).to_json()}, snapshot.timestamp_ms, None)


def test_every_key_per_pipeline_is_guarded() -> None:
    """Whatever is kept by pipeline is looked after, but for what properties alone have: no snapshot carries that."""
    keys = {of for name, of in vars(summary_state).items() if name.endswith("_KEY") and "{}" in of}
    looked_after = {*MARKS, *(of for attached in MARKS.values() for of in attached)}
    assert keys - looked_after == {BEGUN_KEY, BRANCH_KEY, CLOSING_KEY, IDENTIFIER_KEY, MADE_BY_KEY, CHANGES_KEY}


def test_rolled_back_table_keeps_its_snapshots(orders: Lake) -> None:
    """A table that was rolled back says so, for any pipeline that ever wrote to it: nothing may go."""
    first, _ = commit_batches(orders, 1, 2)
    roll_back(orders, first)

    refusal = found(orders).refusal
    assert refusal is not None
    assert refusal.startswith(KEY)


def test_pipeline_on_a_branch_is_guarded_on_its_branch(orders: Lake) -> None:
    """A pipeline that lands on a branch keeps its mark there; main need not descend from it."""
    commit_batches(orders, 1)
    table = orders.load_table(TABLE)
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_branch(head, "audit").commit()
    set_property(orders, "frazil.branch.orders", "audit")
    foreign_append(orders, 100)()
    assert MAIN_BRANCH in orders.load_table(TABLE).metadata.refs

    assert found(orders) == RetainedState({KEY: mark(1).to_json()}, None, None)
