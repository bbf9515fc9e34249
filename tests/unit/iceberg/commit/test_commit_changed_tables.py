"""A table that somebody changes while a batch is staged, or while its commit is on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, StringType

from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import Refused, commit
from frazil.iceberg.schema.schema import declared_schema, declared_spec
from tests.unit.iceberg.orders import (
    TABLE,
    batch,
    commit_batches,
    destination,
    elsewhere,
    follow,
    foreign_append,
    ids,
    mark,
    overtaken,
    rows,
)


def change_spec(lake: Lake) -> None:
    with elsewhere(lake).load_table(TABLE).update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")


def widen_column(lake: Lake) -> None:
    with elsewhere(lake).load_table(TABLE).update_schema() as update:
        update.update_column("id", LongType())


def drop_column(lake: Lake) -> None:
    with elsewhere(lake).load_table(TABLE).update_spec() as spec:
        spec.remove_field("day")
    with elsewhere(lake).load_table(TABLE).update_schema() as schema:
        schema.delete_column("day")


def replace_table(lake: Lake) -> None:
    second_lake = elsewhere(lake)
    second_lake._catalog.drop_table(TABLE)
    schema = declared_schema(destination())
    second_lake.create_table(TABLE, schema, declared_spec(destination(), schema), {})


def add_column(lake: Lake) -> None:
    with elsewhere(lake).load_table(TABLE).update_schema() as update:
        update.add_column("note", StringType())


def rename_column(lake: Lake) -> None:
    with elsewhere(lake).load_table(TABLE).update_schema() as update:
        update.rename_column("day", "weekday")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_spec, "partition spec changed from 0 to 1"),
        (drop_column, "partition spec changed"),
        (replace_table, "it was replaced"),
    ],
)
def test_changed_table_refuses_files_that_do_not_fit(
    orders: Lake, change: Callable[[Lake], None], message: str
) -> None:
    """A table that changed since the files were staged refuses them, and names the change."""
    ours = batch(orders, mark(1), None, rows(1))
    change(orders)

    with pytest.raises(Refused, match=message):
        commit(orders, ours)

    assert orders.load_table(TABLE).metadata.snapshots == []


@pytest.mark.parametrize("change", [add_column, rename_column, widen_column])
def test_harmless_change_keeps_staged_files(orders: Lake, change: Callable[[Lake], None]) -> None:
    """Files know their columns by id: one that was added, renamed or widened meanwhile does not matter."""
    ours = batch(orders, mark(1), None, rows(1))
    change(orders)

    commit(orders, ours)

    assert ids(orders) == [1]
    assert ids(orders, "id == 1") == [1]


def test_spec_change_below_a_foreign_append_is_noticed(orders: Lake) -> None:
    """The rebuild after a conflict compares the refreshed table, not the one that was loaded."""
    ours = batch(orders, mark(1), None, rows(1))
    follow(orders, overtaken(lambda: change_spec(orders), foreign_append(orders, 100)))

    with pytest.raises(Refused, match="partition spec changed from 0 to 1"):
        commit(orders, ours)

    assert ids(orders) == [100]


def test_spec_change_without_a_new_head_keeps_rows_visible(orders: Lake) -> None:
    """The head did not move, so the commit lands, under the spec its files were written for: filters find them."""
    ours = batch(orders, mark(1), None, rows(1))
    follow(orders, overtaken(lambda: change_spec(orders)))

    commit(orders, ours)
    commit(orders, batch(orders, mark(2), mark(1), rows(2, day="tue")))

    assert ids(orders, "id = 1 and day = 'mon'") == [1]
    assert ids(orders, "id = 2 and day = 'tue'") == [2]


def test_table_replaced_during_a_commit_refuses_the_files(orders: Lake) -> None:
    """The commit asserts the table's UUID, and the next look names the replacement."""
    ours = batch(orders, mark(1), None, rows(1))
    follow(orders, overtaken(lambda: replace_table(orders)))

    with pytest.raises(Refused, match="it was replaced"):
        commit(orders, ours)

    assert ids(orders) == []


def test_concurrent_batch_that_was_rolled_back_is_refused(orders: Lake) -> None:
    """The head is the planned one again, but the property names a batch that was rolled back: a person must look."""
    (first,) = commit_batches(orders, 1)
    ours = batch(orders, mark(2, "b"), mark(1), rows(22))

    def rival() -> None:
        commit_batches(elsewhere(orders), 2)
        elsewhere(orders).load_table(TABLE).manage_snapshots().rollback_to_snapshot(first).commit()

    follow(orders, overtaken(rival))

    with pytest.raises(Terminal, match="rolled back"):
        commit(orders, ours)

    assert ids(orders) == [1]
