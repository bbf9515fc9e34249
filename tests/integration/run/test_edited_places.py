"""A file that is edited over a decided batch: the batch is finished where it was decided to, whatever the file names by now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from frazil.errors import Terminal
from tests.integration.run.conftest import COPY
from tests.operations import LETTERS, Killed, assert_clean, bad, catalog, drop, lake, ledger, order, repair, send
from tests.rest_catalog import RestServer

CLOUD = "    catalog: cloud\n"

Spread = Callable[..., Any]
AtFailpoint = Callable[..., Any]


def decided(orders: Any, at_failpoint: AtFailpoint, point: str = "decide.committed") -> str:
    """The text of the pipeline file, after a batch left a letter, and the second one was decided, and killed."""
    send(orders, {0: [bad(9)]})
    orders.run()
    send(orders, {0: [order(0), bad(1), order(2)]})
    at_failpoint(point)
    with pytest.raises(Killed):
        orders.run()
    return (orders.project.pipelines_folder / "orders.yaml").read_text()


def ids_of(table: Table, branch: str | None) -> list[int]:
    """Ids on a branch; None if it was never written."""
    ref = table.metadata.refs.get(branch or "main")
    rows = table.scan(snapshot_id=ref.snapshot_id).to_arrow() if ref is not None else None
    return sorted(rows["id"].to_pylist()) if rows is not None else []


@pytest.mark.parametrize(
    ("branch", "was", "named"),
    [
        (None, CLOUD, ""),
        (None, CLOUD, f"{CLOUD}    branch: day\n"),
        ("night", "branch: night", "branch: day"),
        ("night", "    branch: night\n", ""),
    ],
)
def test_decided_batch_is_finished_before_edit_is_refused(
    spread: Spread, at_failpoint: AtFailpoint, rest_server: RestServer, branch: str | None, was: str, named: str
) -> None:
    """Another catalog or branch is named before the parts are given: they are, then the edit is refused; once, and only there."""
    orders = spread(branch)
    text = decided(orders, at_failpoint)
    moved = orders.with_pipeline(text.replace(was, named))

    with pytest.raises(Terminal, match=COPY):
        moved.run()

    assert ids_of(rest_server.lake().load_table(COPY), branch) == [0, 2]
    assert not catalog(orders).table_exists(COPY)
    assert [row["n"] for row in ledger(orders, "ingest") if row["table"] == COPY and row["rows"]] == [2]
    back = orders.with_pipeline(text)
    assert back.run().batches == 0
    assert_clean(back)


def test_table_of_same_name_in_other_catalog_gets_nothing(
    spread: Spread, at_failpoint: AtFailpoint, rest_server: RestServer
) -> None:
    """The place that the edit names is taken by a table of somebody else: it gets nothing, and the batch is finished."""
    orders = spread()
    text = decided(orders, at_failpoint)
    original = rest_server.lake().load_table(COPY)
    for depth in ("mirror", "mirror.night"):
        catalog(orders).create_namespace_if_not_exists(depth)
    second_table = catalog(orders).create_table(COPY, original.schema())
    moved = orders.with_pipeline(text.replace(CLOUD, ""))

    with pytest.raises(Terminal, match="created again"):
        moved.run()

    assert ids_of(rest_server.lake().load_table(COPY), None) == [0, 2]
    assert second_table.refresh().current_snapshot() is None
    back = orders.with_pipeline(text)
    assert back.run().batches == 0
    assert_clean(back)


@pytest.mark.parametrize("edit", ["moved", "removed"])
def test_repair_finishes_other_tables_of_batch_despite_edit(
    spread: Spread, at_failpoint: AtFailpoint, rest_server: RestServer, edit: str
) -> None:
    """Letters are lost with an unfinished batch, whose other table the file has elsewhere, or no more: it gets its part."""
    orders = spread()
    text = decided(orders, at_failpoint)
    edited = {"moved": text.replace(CLOUD, ""), "removed": text.partition(f"  - table: {COPY}")[0]}[edit]
    now = orders.with_pipeline(edited)
    drop(now, LETTERS)

    repair(now, LETTERS, replays=False)

    assert ids_of(rest_server.lake().load_table(COPY), None) == [0, 2]
    assert [(row["n"], row["rows"]) for row in ledger(now, "ingest") if row["table"] == COPY][-1] == (2, 2)


def test_repair_of_moved_table_ends(spread: Spread, at_failpoint: AtFailpoint, rest_server: RestServer) -> None:
    """A table is gone with its catalog's part of an unfinished batch, and the file names another catalog: it is filled there."""
    orders = spread()
    text = decided(orders, at_failpoint)
    rest_server.empty()
    moved = orders.with_pipeline(text.replace(CLOUD, ""))

    repair(moved, COPY)

    assert [sorted(row["id"] for row in moved.rows(table)) for table in (COPY, "shop.orders")] == [[0, 2], [0, 2]]
    assert moved.run().batches == 0
    assert_clean(moved)
    with pytest.raises(NoSuchTableError):
        rest_server.lake()._catalog.load_table(COPY)


def test_table_that_has_its_part_is_not_repaired(
    spread: Spread, at_failpoint: AtFailpoint, rest_server: RestServer
) -> None:
    """New with this batch, it has its part where that was decided to; that it lacks it elsewhere is no reason to repair it."""
    orders = spread()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    orders.with_pipeline(text.partition(f"  - table: {COPY}")[0]).run()
    orders = orders.with_pipeline(text)
    send(orders, {0: [order(0), bad(1), order(2)]})
    at_failpoint("follow.committed")
    with pytest.raises(Killed):
        orders.run()
    with lake(orders).load_table(LETTERS).update_spec() as change:
        change.add_identity("code")
    moved = orders.with_pipeline(text.replace(CLOUD, ""))

    with pytest.raises(Terminal, match=f"repair orders {LETTERS}"):
        repair(moved, COPY)

    assert ids_of(rest_server.lake().load_table(COPY), None) == [0, 2]
