"""Rows that land on a branch: main stays as it is until somebody publishes, and every promise holds on the branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from frazil.errors import Terminal
from frazil.iceberg.catalog.table import head_of, send, set_branch
from frazil.report.sql import query
from frazil.verify.check import verify
from tests.operations import (
    ORDERS,
    Killed,
    assert_clean,
    bad,
    catalog,
    landed,
    letters,
    order,
    places,
    repair,
    replay,
    reset,
    roll_back,
    to_table,
)
from tests.operations import send as produce

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]

POINTS = (
    "planned",
    "manifest.written",
    "decide.committing",
    "decide.committed",
    "follow.committing",
    "follow.committed",
    "record.committing",
    "record.committed",
)


def on_branch(orders: Any, branch: str | None = "audit", *more: str) -> Any:
    """The same shop, with rows on a branch."""
    path = orders.project.pipelines_folder / "orders.yaml"
    lines = [line for line in path.read_text().splitlines() if not line.strip().startswith("branch:")]
    line_number = lines.index("  - table: shop.orders")
    lines[line_number + 1 : line_number + 1] = [] if branch is None else [f"    branch: {branch}"]
    return orders.with_pipeline("\n".join([*lines, *more]))


@pytest.fixture
def audited(shop: MakeShop) -> MakeShop:
    """Make a shop whose rows land on branch `audit`."""
    return lambda **options: on_branch(shop(**options))


def main(orders: Any) -> Table:
    """The table as everybody else sees it."""
    return catalog(orders).load_table(ORDERS)


def publish(orders: Any) -> None:
    """Fast-forward main to the branch, as a person does who has looked at it."""
    table = main(orders)
    send(table, (set_branch("main", table.metadata.refs["audit"].snapshot_id),), ())


def test_rows_on_branch_can_be_queried(shop: MakeShop) -> None:
    """Spark's names for branches and tags, in any catalog; what is not there is told with what is."""
    orders = on_branch(shop(partitions=1), '"Night-2"')
    orders.produce_orders(range(3))
    orders.run()
    table = main(orders)
    table.manage_snapshots().create_tag(table.metadata.refs["Night-2"].snapshot_id, "first").commit()
    orders.produce_orders(range(3, 5))
    orders.run()

    def answer(name: str) -> object:
        return query(orders.project, f"SELECT count(*) AS n, max(id) AS id FROM {name}").to_pylist()[0]  # noqa: S608

    assert answer("shop.orders") == {"n": 0, "id": None}
    assert answer('shop.orders."branch_Night-2"') == {"n": 5, "id": 4}
    assert answer("shop.orders.tag_first") == {"n": 3, "id": 2}
    for wrong in ("branch_first", "branch_night", "tag_none"):
        with pytest.raises(Terminal, match="it has: branch_Night-2, tag_first"):
            answer(f"shop.orders.{wrong}")


def ids_on_main(orders: Any) -> list[int]:
    return sorted(main(orders).scan().to_arrow()["id"].to_pylist())


def test_rows_are_not_visible_before_they_are_published(audited: MakeShop) -> None:
    """Main has no rows until it is moved, then those of the branch; the pipeline goes on on its branch."""
    orders = landed(audited)

    assert main(orders).current_snapshot() is None
    assert places(orders) == [(0, o) for o in range(0, 12, 2)]
    assert_clean(orders)

    publish(orders)
    produce(orders, {0: [order(12), bad(13)]})
    orders.run()

    assert ids_on_main(orders) == list(range(0, 12, 2))
    assert places(orders) == [(0, o) for o in range(0, 14, 2)]
    assert_clean(orders)


def test_branch_of_filled_table_begins_with_its_rows(shop: MakeShop) -> None:
    """It is made from what main is at the first run."""
    orders = shop(partitions=1)
    plain = orders.project.lake("lake")
    orders.run()
    table = plain.load_table(ORDERS)
    catalog(orders).drop_table(ORDERS)
    for name in ("shop.orders__ledger", "shop.orders__dead_letters"):
        catalog(orders).drop_table(name)
    table_of_orders = catalog(orders).create_table(ORDERS, table.schema())
    table_of_orders.append(pa.Table.from_pylist([{"id": 999, "name": "theirs"}], table_of_orders.schema().as_arrow()))

    audited = on_branch(orders)
    audited.produce_orders(range(3))
    audited.run()

    assert (audited.ids(), ids_on_main(audited)) == ([0, 1, 2, 999], [999])


@pytest.mark.short("replay-decide.committing")
@pytest.mark.parametrize(
    ("deed", "point"), [*(("run", point) for point in POINTS), ("replay", "decide.committing")], ids=str
)
def test_run_killed_on_branch_is_finished_by_next_run(
    audited: MakeShop, at_failpoint: AtFailpoint, deed: str, point: str
) -> None:
    """At every point of a batch on a branch, and in a replay: the next run finishes it, and each record has its one outcome."""
    orders = landed(audited, 1)
    produce(orders, {0: [order(4), bad(5), order(6)]})
    at_failpoint(point)
    with pytest.raises(Killed):
        replay(orders, "earliest") if deed == "replay" else orders.run()

    orders.run()

    assert places(orders) == [(0, 0), (0, 2), (0, 4), (0, 6)]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, 1), (0, 3), (0, 5)]
    assert main(orders).current_snapshot() is None
    assert_clean(orders)
    assert orders.run().batches == 0


@pytest.mark.parametrize("point", ["planned", "manifest.written", "decide.committing"])
def test_first_run_killed_after_table_creation_is_begun_by_next_run(
    audited: MakeShop, at_failpoint: AtFailpoint, point: str
) -> None:
    """Tables and branch are there, and nothing else: the next run begins the pipeline."""
    orders = audited(partitions=1)
    orders.produce_orders(range(3))
    at_failpoint(point)
    with pytest.raises(Killed):
        orders.run()

    orders.run()

    assert orders.ids() == [0, 1, 2]
    assert_clean(orders)


def test_commands_work_on_branch(audited: MakeShop) -> None:
    """Replay, reset and a rollback of the branch: rows go and come on the branch, main is not touched."""
    orders = landed(audited)
    replay(orders, "earliest")
    assert_clean(orders)
    reset(orders, "earliest")
    assert places(orders) == []
    orders.run()
    assert places(orders) == [(0, o) for o in range(0, 12, 2)]
    produce(orders, {0: [order(12), bad(13)]})
    orders.run()
    roll_back(orders, ORDERS)
    to_table(orders)
    orders.run()

    assert places(orders) == [(0, o) for o in range(0, 14, 2)]
    assert main(orders).current_snapshot() is None
    assert_clean(orders)


def test_dropped_branch_is_never_recreated_silently(audited: MakeShop) -> None:
    """It is never made again in silence; made where it ended, the pipeline goes on."""
    orders = landed(audited, 1)
    table = main(orders)
    ended = table.metadata.refs["audit"].snapshot_id
    table.manage_snapshots().remove_branch("audit").commit()

    for deed in (orders.run, lambda: verify(orders.project, orders.pipeline)):
        with pytest.raises(Terminal, match=r"audit.*gone|no branch audit"):
            deed()

    send(main(orders), (set_branch("audit", ended),), ())
    produce(orders, {0: [order(4)]})
    orders.run()
    assert places(orders) == [(0, 0), (0, 2), (0, 4)]
    assert_clean(orders)


@pytest.mark.parametrize("branch", [None, "other"])
def test_edit_of_branch_is_refused(audited: MakeShop, branch: str | None) -> None:
    """Rows would be missing there, or come twice: refused, whatever is new; the way is an act of its own."""
    orders = landed(audited, 1)
    edited = on_branch(orders, branch)

    with pytest.raises(
        Terminal, match=f"lands on branch audit of table shop.orders, the pipeline file now names {branch or 'main'}"
    ):
        edited.run()

    table = main(orders)
    send(table, (set_branch(branch or "main", table.metadata.refs["audit"].snapshot_id),), ())
    with main(orders).transaction() as changing:
        changing.remove_properties("frazil.branch.orders")
        if branch:
            changing.set_properties({"frazil.branch.orders": branch})
    produce(edited, {0: [order(4)]})
    edited.run()
    assert places(edited) == [(0, 0), (0, 2), (0, 4)]
    assert_clean(edited)


def test_edit_from_main_to_branch_is_refused(shop: MakeShop) -> None:
    """The other way round: it was on main, and a branch is written into its file."""
    orders = landed(shop, 1)

    with pytest.raises(Terminal, match=r"lands on branch main of table shop.orders, the pipeline file now names audit"):
        on_branch(orders).run()


def test_follower_on_branch_hides_its_rows_from_main(audited: MakeShop) -> None:
    """One of two destinations is on a branch; a lost one is repaired there."""
    orders = audited(partitions=1)
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    second = "  - {table: shop.copies, columns: {id: {type: long, required: true}}, branch: night}\nlimits:"
    with_both = orders.with_pipeline(text.replace("limits:", second))
    produce(with_both, {0: [order(0), bad(1), order(2)]})
    with_both.run()
    assert [row["id"] for row in with_both.rows("shop.copies")] == [0, 2]
    assert catalog(with_both).load_table("shop.copies").current_snapshot() is None

    roll_back(with_both, "shop.copies")
    with pytest.raises(Terminal, match="repair"):
        with_both.run()
    repair(with_both, "shop.copies")

    assert [row["id"] for row in with_both.rows("shop.copies")] == [0, 2]
    assert head_of(catalog(with_both).load_table("shop.copies").metadata) is None
    assert_clean(with_both)
