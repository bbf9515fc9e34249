"""What a table holds of a pipeline: told from its ancestry, and expiry told apart from rollback."""

from __future__ import annotations

import pytest

from frazil.batch.position import BatchMark
from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import commit, snapshot_time
from frazil.iceberg.commit.summary_state import (
    TABLES_KEY,
    SummaryValue,
    landed_snapshot,
    ledger_tables,
    mirror,
    summary_value_or_refuse,
)
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.iceberg.schema.schema import declared_schema
from tests.unit.iceberg.orders import KEY, TABLE, batch, commit_batches, destination, foreign_append, ids, mark, rows
from tests.unit.iceberg.snapshots import expire, roll_back, set_property, snapshots


def held_by(lake: Lake) -> SummaryValue | None:
    return summary_value_or_refuse(lake.load_table(TABLE).metadata, KEY, TABLE)


def landed_in(lake: Lake, mark: BatchMark) -> int | None:
    return landed_snapshot(lake.load_table(TABLE).metadata, KEY, mark, TABLE)


def test_table_that_was_never_written_holds_nothing(orders: Lake) -> None:
    """Neither a new table nor one that only others wrote holds anything of the pipeline."""
    assert held_by(orders) is None

    foreign_append(orders, 100)()

    assert held_by(orders) is None
    assert landed_in(orders, mark(1)) is None


def test_newest_batch_is_the_one_that_is_held(orders: Lake) -> None:
    """The youngest of our snapshots counts, with its whole summary."""
    *_, last = commit_batches(orders, 1, 2, 3)

    value = held_by(orders)

    assert value is not None
    assert (value.value, value.snapshot_id) == (mark(3).to_json(), last)
    assert value.summary["frazil.rows.written"] == "1"


def test_position_is_found_below_foreign_commits_and_compaction(orders: Lake) -> None:
    """Snapshots on top that append, or rewrite every file, don't carry the key: it is found below them."""
    *_, last = commit_batches(orders, 1, 2)
    foreign_append(orders, 100)()
    table = orders.load_table(TABLE)
    table.overwrite(table.scan().to_arrow())  # as compaction does: other files, the same rows

    value = held_by(orders)

    assert value is not None
    assert value.snapshot_id == last
    assert landed_in(orders, mark(1)) is not None
    commit_batches(orders, 3)
    assert ids(orders) == [1, 2, 3, 100]


def test_expiry_of_our_snapshot_keeps_the_position(orders: Lake) -> None:
    """Our snapshot was expired below a stranger's: the property answers, and the next batch lands."""
    (ours,) = commit_batches(orders, 1)
    foreign_append(orders, 100)()
    expire(orders, ours)

    assert held_by(orders) == SummaryValue(mark(1).to_json(), ours, {})
    assert landed_in(orders, mark(1)) == ours
    assert landed_in(orders, mark(1, "other")) is None
    assert snapshot_time(orders.load_table(TABLE), ours) is None

    commit_batches(orders, 2)
    assert ids(orders) == [1, 2, 100]


def test_expiry_of_older_batches_keeps_the_answer(orders: Lake) -> None:
    """The newest batch stands in the ancestry, whatever was expired below it."""
    first, second, third = commit_batches(orders, 1, 2, 3)
    expire(orders, first, second)

    value = held_by(orders)

    assert value is not None
    assert value.snapshot_id == third
    assert landed_in(orders, mark(1)) is None


def test_expiry_between_foreign_snapshots_is_not_a_rollback(orders: Lake) -> None:
    """Expiry may leave a stranger's snapshot whose parents are gone: still expiry."""
    foreign_append(orders, 100)()
    commit_batches(orders, 1, 2)
    foreign_append(orders, 101)()
    foreign_append(orders, 102)()
    expire(orders, *snapshots(orders)[:-1])

    value = held_by(orders)

    assert value is not None
    assert value.value == mark(2).to_json()


def test_expiry_by_pyiceberg_below_our_newest_batch_is_accepted(orders: Lake) -> None:
    """As long as our newest snapshot is in the ancestry, nobody needs its past."""
    first, second = commit_batches(orders, 1, 2)
    orders.load_table(TABLE).maintenance.expire_snapshots().by_id(first).commit()

    value = held_by(orders)

    assert value is not None
    assert value.snapshot_id == second


def test_rollback_before_our_first_batch_is_refused(orders: Lake) -> None:
    """Nothing in the ancestry carries the key, but the snapshot that the property names is still there."""
    foreign_append(orders, 100)()
    commit_batches(orders, 1, 2)
    roll_back(orders, snapshots(orders)[0])

    with pytest.raises(Terminal, match=rf"{TABLE} was rolled back or replaced.*{snapshots(orders)[-1]}"):
        held_by(orders)


def test_rollback_to_an_older_batch_is_refused(orders: Lake) -> None:
    """The ancestry carries batch 1, the property names batch 2: the position never goes back by itself."""
    first, second = commit_batches(orders, 1, 2)
    roll_back(orders, first)

    with pytest.raises(Terminal, match=rf"{TABLE} was rolled back.*{second}.*{first}") as caught:
        held_by(orders)
    assert str(second) in str(caught.value.next_step)
    with pytest.raises(Terminal, match="rolled back"):
        commit(orders, batch(orders, mark(2), mark(1), rows(2)))


def test_rollback_whose_snapshot_expired_is_refused(orders: Lake) -> None:
    """The abandoned snapshot is gone from the metadata, but an older batch in the ancestry proves the rollback."""
    first, second = commit_batches(orders, 1, 2)
    roll_back(orders, first)
    expire(orders, second)

    with pytest.raises(Terminal, match="rolled back"):
        held_by(orders)


def test_rollback_above_expired_snapshots_is_refused(orders: Lake) -> None:
    """The oldest snapshot names a missing parent, but ours is still listed: main was rolled back."""
    foreign_append(orders, 100)()
    foreign_append(orders, 101)()
    commit_batches(orders, 1)
    oldest, before_ours, _ = snapshots(orders)
    roll_back(orders, before_ours)
    expire(orders, oldest)

    with pytest.raises(Terminal, match="rolled back"):
        held_by(orders)


def test_rollback_of_foreign_commits_only_is_accepted(orders: Lake) -> None:
    """Main goes back to our own newest snapshot: nothing of ours is lost."""
    (ours,) = commit_batches(orders, 1)
    foreign_append(orders, 100)()
    roll_back(orders, ours)

    commit_batches(orders, 2)

    assert ids(orders) == [1, 2]


def test_restored_table_is_accepted(orders: Lake) -> None:
    """After a rollback was undone, the table holds what it held."""
    first, second = commit_batches(orders, 1, 2)
    roll_back(orders, first)
    table = orders.load_table(TABLE)
    table.manage_snapshots().set_current_snapshot(snapshot_id=second).commit()

    value = held_by(orders)

    assert value is not None
    assert value.snapshot_id == second


def test_recreated_table_does_not_hold_the_old_position(orders: Lake) -> None:
    """Dropped and created, it holds nothing; replaced with its old properties, it is refused."""
    commit_batches(orders, 1)
    old = orders.load_table(TABLE).properties[KEY]
    orders._catalog.drop_table(TABLE)
    orders.create_table(TABLE, declared_schema(destination()), UNPARTITIONED, {})

    assert held_by(orders) is None

    set_property(orders, KEY, old)
    with pytest.raises(Terminal, match="rolled back or replaced"):
        held_by(orders)
    foreign_append(orders, 100)()
    with pytest.raises(Terminal, match="rolled back or replaced"):
        held_by(orders)


def test_removed_property_keeps_the_position(orders: Lake) -> None:
    """Without the property the ancestry still answers."""
    (ours,) = commit_batches(orders, 1)
    set_property(orders, KEY, None)

    value = held_by(orders)

    assert value is not None
    assert value.snapshot_id == ours


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '{"snapshot":"x","value":1}', '{"value":"{}"}', pytest.param("[" * 100_000, id="nested")],
)
def test_property_edited_by_hand_is_refused(orders: Lake, text: str) -> None:
    """A property that is not ours any more stops the pipeline, whether it is needed or only compared."""
    (ours,) = commit_batches(orders, 1)
    set_property(orders, KEY, text)

    with pytest.raises(Terminal, match=f"property {KEY} is not readable"):
        held_by(orders)

    foreign_append(orders, 100)()
    expire(orders, ours)
    with pytest.raises(Terminal, match=f"property {KEY} is not readable"):
        held_by(orders)


@pytest.mark.parametrize(
    "entry", ["{}", '{"uuid":"u","n":"1","batch":"b","epoch":0,"role":"destination"}', '"u"', '{"uuid":"u","n":1}']
)
def test_ledger_entry_edited_by_hand_is_refused(orders: Lake, entry: str) -> None:
    """A field that is gone or has another type is told by the property's name, and not by a stack trace."""
    key = TABLES_KEY.format("p")
    set_property(orders, key, mirror(f'{{"shop.a":{entry}}}', 1))
    with pytest.raises(Terminal, match=f"property {key} is not readable"):
        ledger_tables(orders.load_table(TABLE).metadata, "p", TABLE)


def test_two_pipelines_in_one_table_keep_their_own_positions(orders: Lake) -> None:
    """Keys carry the pipeline's name: another pipeline's batches are strangers."""
    commit_batches(orders, 1, 2)

    assert summary_value_or_refuse(orders.load_table(TABLE).metadata, "frazil.batch.payments", TABLE) is None


def test_batch_is_identified_by_number_and_id(orders: Lake) -> None:
    """Number and batch id both count: a rival's batch of the same number is not ours."""
    first, second, _ = commit_batches(orders, 1, 2, 3)

    assert landed_in(orders, mark(1)) == first
    assert landed_in(orders, mark(2)) == second
    assert landed_in(orders, mark(2, "rival")) is None
    assert landed_in(orders, mark(4)) is None


def test_property_names_its_snapshot() -> None:
    """The written form, which other engines' jobs may read."""
    assert mirror('{"n":1}', 77) == r'{"snapshot":77,"value":"{\"n\":1}"}'
