"""What is left of a table's holdings after main was moved back, and that expiry is not taken for it."""

from __future__ import annotations

import pytest

from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import commit
from frazil.iceberg.commit.summary_state import (
    RolledBack,
    SummaryValue,
    landed_snapshot,
    read_summary,
    summary_value_or_refuse,
)
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.iceberg.schema.schema import declared_schema
from tests.unit.iceberg.orders import KEY, TABLE, batch, commit_batches, destination, foreign_append, mark, rows
from tests.unit.iceberg.snapshots import expire, roll_back, set_property, snapshots


def looked_up(lake: Lake) -> SummaryValue | RolledBack | None:
    """The answer; `summary_value_or_refuse` must say the same, or refuse."""
    metadata = lake.load_table(TABLE).metadata
    summary = read_summary(metadata, KEY, TABLE)
    if isinstance(summary, RolledBack):
        with pytest.raises(Terminal, match="rolled back"):
            summary_value_or_refuse(metadata, KEY, TABLE)
    else:
        assert summary_value_or_refuse(metadata, KEY, TABLE) == summary
    return summary


def value_of(value: SummaryValue | RolledBack | None) -> str | None:
    summary_value = value.remaining if isinstance(value, RolledBack) else value
    return summary_value.value if summary_value is not None else None


def test_untouched_table_is_not_rolled_back(orders: Lake) -> None:
    """A table that was never written, one that strangers wrote, and one with a batch."""
    assert looked_up(orders) is None
    foreign_append(orders, 100)()
    assert looked_up(orders) is None

    (ours,) = commit_batches(orders, 1)

    value = looked_up(orders)
    assert isinstance(value, SummaryValue)
    assert (value.value, value.snapshot_id) == (mark(1).to_json(), ours)


def test_expiry_is_not_a_rollback(orders: Lake) -> None:
    """Our snapshot is gone, and the oldest one that is left names a parent that is gone, too: the property counts."""
    (ours,) = commit_batches(orders, 1)
    foreign_append(orders, 100)()
    expire(orders, ours)

    assert looked_up(orders) == SummaryValue(mark(1).to_json(), ours, {})


def test_rollback_to_an_older_batch_is_noticed(orders: Lake) -> None:
    """The ancestry's newest batch is left; the property's is what was taken back, and can be restored."""
    first, second = commit_batches(orders, 1, 2)
    roll_back(orders, first)

    value = looked_up(orders)

    assert isinstance(value, RolledBack)
    assert value.remaining is not None
    assert (value.remaining.value, value.remaining.snapshot_id) == (mark(1).to_json(), first)
    assert value.remaining.summary["frazil.rows.written"] == "1"
    assert (value.newest, value.snapshot_id, value.listed) == (mark(2).to_json(), second, True)


def test_rollback_below_foreign_commits_is_noticed(orders: Lake) -> None:
    """Main was moved back, and others went on from there."""
    first, second = commit_batches(orders, 1, 2)
    roll_back(orders, first)
    foreign_append(orders, 100)()

    value = looked_up(orders)

    assert isinstance(value, RolledBack)
    assert (value_of(value), value.snapshot_id) == (mark(1).to_json(), second)


def test_rollback_is_noticed_after_expiry(orders: Lake) -> None:
    """The abandoned snapshot was expired: an older batch in the ancestry still proves the rollback."""
    first, second = commit_batches(orders, 1, 2)
    roll_back(orders, first)
    foreign_append(orders, 100)()
    expire(orders, second)

    value = looked_up(orders)

    assert value == RolledBack(
        remaining=_summary_value(orders, first), newest=mark(2).to_json(), snapshot_id=second, listed=False
    )


def test_rollback_is_noticed_after_expiry_on_both_sides(orders: Lake) -> None:
    """The abandoned batch and the past of the one that is left were expired: the one that is left still proves it."""
    first, second, third = commit_batches(orders, 1, 2, 3)
    roll_back(orders, second)
    expire(orders, first, third)

    value = looked_up(orders)

    assert value == RolledBack(
        remaining=_summary_value(orders, second), newest=mark(3).to_json(), snapshot_id=third, listed=False
    )


def _summary_value(lake: Lake, snapshot_id: int) -> SummaryValue:
    snapshot = lake.load_table(TABLE).metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    return SummaryValue(
        snapshot.summary.additional_properties[KEY], snapshot_id, snapshot.summary.additional_properties
    )


def test_rollback_is_noticed_after_expiry_below_it(orders: Lake) -> None:
    """The past of main was expired, but the snapshot that the property names is still listed: main was moved back."""
    foreign_append(orders, 100)()
    foreign_append(orders, 101)()
    (ours,) = commit_batches(orders, 1)
    oldest, before_ours, _ = snapshots(orders)
    roll_back(orders, before_ours)
    expire(orders, oldest)

    assert looked_up(orders) == RolledBack(None, mark(1).to_json(), ours, listed=True)


def test_rollback_before_our_first_batch_holds_nothing(orders: Lake) -> None:
    """Onto a stranger's snapshot, from before the pipeline."""
    foreign_append(orders, 100)()
    *_, last = commit_batches(orders, 1, 2)
    roll_back(orders, snapshots(orders)[0])

    assert looked_up(orders) == RolledBack(None, mark(2).to_json(), last, listed=True)
    assert landed_snapshot(orders.load_table(TABLE).metadata, KEY, mark(2), TABLE) is None


def test_rollback_before_our_first_batch_is_noticed_below_foreign_commits(orders: Lake) -> None:
    """The same, and others went on from there; also once the abandoned snapshots are expired."""
    foreign_append(orders, 100)()
    first, last = commit_batches(orders, 1, 2)
    roll_back(orders, snapshots(orders)[0])
    foreign_append(orders, 101)()
    assert looked_up(orders) == RolledBack(None, mark(2).to_json(), last, listed=True)

    expire(orders, first, last)

    assert looked_up(orders) == RolledBack(None, mark(2).to_json(), last, listed=False)


def test_expiry_that_removes_parent_ids_is_not_a_rollback(orders: Lake) -> None:
    """PyIceberg's own expiry takes the parents' ids along; a snapshot that keeps older files still had a past."""
    (ours,) = commit_batches(orders, 1)
    foreign_append(orders, 100)()
    orders.load_table(TABLE).maintenance.expire_snapshots().by_id(ours).commit()

    assert looked_up(orders) == SummaryValue(mark(1).to_json(), ours, {})


def test_emptied_table_is_not_a_new_one(orders: Lake) -> None:
    """No snapshot on main, but the property is there: it held something."""
    (ours,) = commit_batches(orders, 1)
    with orders.load_table(TABLE).manage_snapshots() as manage:
        manage.create_branch(ours, "kept")
        manage.remove_branch("main")

    assert looked_up(orders) == RolledBack(None, mark(1).to_json(), ours, listed=True)


def test_table_recreated_with_old_properties_is_not_a_new_one(orders: Lake) -> None:
    """A table that was replaced and kept its properties held something, too; one without properties holds nothing."""
    (ours,) = commit_batches(orders, 1)
    old = orders.load_table(TABLE).properties[KEY]
    orders._catalog.drop_table(TABLE)
    orders.create_table(TABLE, declared_schema(destination()), UNPARTITIONED, {})
    assert looked_up(orders) is None

    set_property(orders, KEY, old)

    assert looked_up(orders) == RolledBack(None, mark(1).to_json(), ours, listed=False)


def test_replaced_content_has_an_unknown_past(orders: Lake) -> None:
    """REPLACE TABLE … AS SELECT may keep our rows in a head without a past: nobody can tell, so nothing is assumed."""
    (ours,) = commit_batches(orders, 1)
    roll_back_before_everything(orders)
    back = looked_up(orders)
    assert isinstance(back, RolledBack)
    assert back.is_past_known

    foreign_append(orders, 100)()

    replaced = looked_up(orders)
    assert replaced == RolledBack(None, mark(1).to_json(), ours, listed=True)
    assert isinstance(replaced, RolledBack)
    assert not replaced.is_past_known


def roll_back_before_everything(lake: Lake) -> None:
    """Leave main without a snapshot, as a replacing writer finds it."""
    table = lake.load_table(TABLE)
    head = table.metadata.current_snapshot_id
    assert head is not None
    with table.manage_snapshots() as manage:
        manage.create_branch(head, "kept")
        manage.remove_branch("main")


def test_batch_on_a_branch_is_not_on_main(orders: Lake) -> None:
    """A batch on a branch is not held; once main was set to it by hand, the property and the ancestry differ."""
    (first,) = commit_batches(orders, 1)
    table = orders.load_table(TABLE)
    table.manage_snapshots().create_branch(first, "by-hand").commit()
    table = orders.load_table(TABLE)
    table.append(rows(2), snapshot_properties={KEY: mark(2).to_json()}, branch="by-hand")
    assert value_of(looked_up(orders)) == mark(1).to_json()

    tip = orders.load_table(TABLE).refs()["by-hand"].snapshot_id
    orders.load_table(TABLE).manage_snapshots().set_current_snapshot(snapshot_id=tip).commit()

    value = looked_up(orders)
    assert isinstance(value, RolledBack)
    assert (value_of(value), value.newest, value.snapshot_id) == (mark(2).to_json(), mark(1).to_json(), first)


def test_batch_planned_on_a_rollback_lands(orders: Lake) -> None:
    """A commit that was planned on the rollback itself lands, and ends it: what it brings is held from then on."""
    first, _ = commit_batches(orders, 1, 2)
    roll_back(orders, first)
    ours = batch(orders, mark(3), None, rows(3))
    object.__setattr__(ours, "check", lambda _: None)

    snapshot_id = commit(orders, ours)

    value = looked_up(orders)
    assert isinstance(value, SummaryValue)
    assert (value.value, value.snapshot_id) == (mark(3).to_json(), snapshot_id)


@pytest.mark.parametrize("text", ["", "{}", "null", '{"snapshot":"x","value":1}'])
def test_property_edited_by_hand_is_not_believed(orders: Lake, text: str) -> None:
    """Neither a rollback nor anything else is told from a property that is not ours."""
    commit_batches(orders, 1)
    set_property(orders, KEY, text)

    with pytest.raises(Terminal, match=f"property {KEY} is not readable"):
        read_summary(orders.load_table(TABLE).metadata, KEY, TABLE)
