"""A table seen on a branch: what is read and moved is the branch, whatever becomes of it meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from pyiceberg.table.refs import MAIN_BRANCH

from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import head_of
from frazil.iceberg.commit.commit import commit
from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog, TablePlace, branch_note
from frazil.iceberg.commit.summary_state import BRANCH_KEY, POSITION_KEY
from tests.unit.iceberg.orders import (
    TABLE,
    batch,
    commit_batches,
    elsewhere,
    follow,
    ids,
    mark,
    on_branch,
    overtaken,
    rows,
)


@pytest.fixture
def audited(orders: Lake) -> PipelineCatalog:
    """The catalog with the table of orders, whose batch 1 is on main; branch `audit` is begun there."""
    commit_batches(orders, 1)
    view = on_branch(orders, "audit")
    view._opened = orders._opened
    view.begin_branch(TABLE)
    return view


def heads(lake: Lake) -> dict[str, int]:
    """Where every branch ends."""
    return {name: ref.snapshot_id for name, ref in lake.load_table(TABLE).metadata.refs.items()}


def test_main_stays_where_it_is_while_the_branch_moves(orders: Lake, audited: PipelineCatalog) -> None:
    """Appends, deletes, changes of columns and rollbacks of such a table are the branch's; a new column is both's."""
    before = heads(orders)[MAIN_BRANCH]
    commit_batches(audited, 2)
    table = audited.load_table(TABLE)
    table.append(rows(3, 4))
    table.delete("id == 4")
    with table.update_schema() as update:
        update.add_column("note", update._schema.find_type("day"))
    rolled = audited.load_table(TABLE)
    rolled.append(rows(5).append_column("note", rows(5)["day"]))
    rolled.manage_snapshots().rollback_to_snapshot(table.metadata.current_snapshot_id).commit()

    assert ids(audited) == [1, 2, 3]
    assert (ids(orders), heads(orders)[MAIN_BRANCH]) == ([1], before)
    assert heads(orders)["audit"] == head_of(audited.load_table(TABLE).metadata)
    assert audited.load_table(TABLE).scan().catalog is None


def test_batch_on_a_dropped_branch_is_refused(orders: Lake, audited: PipelineCatalog) -> None:
    """Between look and commit: the batch is refused with the way back, and main does not get its rows."""
    change = batch(audited, mark(2), mark(1), rows(2))
    follow(audited, overtaken(lambda: orders.load_table(TABLE).manage_snapshots().remove_branch("audit").commit()))

    with pytest.raises(Terminal, match="branch audit was dropped while a batch was committed there"):
        commit(audited, change)

    assert heads(orders).keys() == {MAIN_BRANCH}
    assert ids(orders) == [1]


def test_branch_is_created_once(orders: Lake) -> None:
    """Four runs begin it at once, on an empty table: one branch, and none of them is refused."""
    barrier = Barrier(4)

    def begin(_: int) -> int | None:
        view = on_branch(elsewhere(orders), "audit")
        barrier.wait()
        return head_of(view.begin_branch(TABLE).metadata)

    with ThreadPoolExecutor(4) as pool:
        locations = set(pool.map(begin, range(4)))

    assert locations == {heads(orders)["audit"]}
    assert MAIN_BRANCH not in heads(orders)


def written(orders: Lake, branch: str | None) -> PipelineCatalog:
    """The lake of pipeline `orders`, which lands on that branch."""
    return PipelineCatalog("orders", orders, {TABLE: TablePlace(orders, branch)}, lambda _: orders)


@pytest.mark.parametrize("branch", [None, "night"])
@pytest.mark.parametrize("named", [None, "audit", "night"])
def test_edited_file_that_names_another_branch_is_refused(orders: Lake, branch: str | None, named: str | None) -> None:
    """What the table tells counts, also where its branch is gone; where it tells nothing, the pipeline is new."""
    assert written(orders, named).find_table(TABLE) is not None
    key = POSITION_KEY.format("orders") if branch is None else BRANCH_KEY.format("orders")
    with orders.load_table(TABLE).transaction() as changing:
        changing.set_properties({key: branch or "{}"})

    if branch == named == "night":
        with pytest.raises(Terminal, match=r"branch night of table shop.orders is gone"):
            written(orders, named).begin_branch(TABLE)
    elif branch != named:
        with pytest.raises(
            Terminal, match=f"lands on branch {branch or 'main'} of table .* now names {named or 'main'}"
        ):
            written(orders, named).load_table(TABLE)
    else:
        assert head_of(written(orders, named).load_table(TABLE).metadata) is None
    assert head_of(orders.load_table(TABLE).metadata, "night") is None


def test_tag_is_refused_as_a_branch(orders: Lake) -> None:
    """Nothing can be written to a tag: that is said before anything is decided."""
    orders.load_table(TABLE).append(rows(1))
    table = orders.load_table(TABLE)
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "audit").commit()
    with pytest.raises(Terminal, match=r"audit of table shop\.orders is a tag"):
        written(orders, "audit").find_table(TABLE)


def test_no_branch_property_is_written_for_main(orders: Lake) -> None:
    """Tables on main carry none, so nothing changes for them."""
    assert branch_note(written(orders, None), "orders", TABLE) == {}
    assert branch_note(written(orders, "audit"), "orders", TABLE) == {"frazil.branch.orders": "audit"}
    assert branch_note(written(orders, "audit"), "orders", "shop.other") == {}


def test_location_of_a_decided_batch_is_read_from_its_manifest(orders: Lake) -> None:
    """A batch says where its tables are; parts of an older Frazil say nothing, and the file counts."""
    opened: list[str] = []

    def other(name: str) -> Lake:
        opened.append(name)
        return Lake(name, "", None, {})

    lake = PipelineCatalog("orders", orders, {TABLE: TablePlace(orders, "audit")}, other)
    places = {TABLE: ("lake", "night"), "shop.a": ("cloud", None), "shop.b": (None, None)}
    decided = lake.with_places(places)

    assert [decided.branch_of(table) for table in (TABLE, "shop.a", "shop.b")] == ["night", None, None]
    assert [decided.catalog_of(table).name for table in (TABLE, "shop.a", "shop.b")] == ["lake", "cloud", "lake"]
    assert (opened, lake.branch_of(TABLE)) == (["cloud"], "audit")
