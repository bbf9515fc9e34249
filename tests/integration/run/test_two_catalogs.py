"""A pipeline with tables in two catalogs of the settings: SQLite and REST. What follows is in the other one than what decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.report.history import files, history
from tests.integration.run.conftest import COPY
from tests.operations import Killed, assert_clean, bad, catalog, order, repair, replay, reset, roll_back, send
from tests.rest_catalog import RestServer


def copies(orders: Any) -> list[int]:
    return sorted(row["id"] for row in orders.rows(COPY))


@pytest.mark.short("decide.committed-night", "follow.committed:2-None")
@pytest.mark.parametrize("branch", [None, "night"])
@pytest.mark.parametrize(
    "point", ["manifest.written", "decide.committed", "follow.committing", "follow.committed:2", "record.committing"]
)
def test_table_of_other_catalog_is_not_left_behind(
    spread: Callable[..., Any],
    at_failpoint: Callable[..., Any],
    rest_server: RestServer,
    point: str,
    branch: str | None,
) -> None:
    """Killed between any two commits: the next run rolls both forward; rows, letters and ledger are where they belong."""
    orders = spread(branch)
    send(orders, {0: [order(0), bad(1)]})
    orders.run()
    send(orders, {0: [order(2), bad(3), order(4)]})
    name, _, nth = point.partition(":")
    at_failpoint(name, nth=int(nth or 1))
    with pytest.raises(Killed):
        orders.run()

    orders.run()

    assert (orders.ids(), copies(orders)) == ([0, 2, 4], [0, 2, 4])
    assert catalog(orders).list_tables("shop") == [("shop", table) for table in _own()]
    assert rest_server.lake().tables() == [COPY]
    assert (rest_server.lake().load_table(COPY).current_snapshot() is None) == (branch is not None)
    assert_clean(orders)
    assert {file.table for file in files(orders.project, orders.pipeline)} == {"shop.orders", COPY}
    assert [batch.read for batch in history(orders.project, orders.pipeline) if batch.kind == "ingest"] == [2, 3]


def _own() -> list[str]:
    return ["orders", "orders__dead_letters", "orders__ledger"]


def test_commands_reach_tables_of_both_catalogs(spread: Callable[..., Any]) -> None:
    """Replay, reset and repair reach the table in the other catalog."""
    orders = spread()
    send(orders, {0: [order(0), bad(1), order(2)]})
    orders.run()
    replay(orders, "earliest")
    assert_clean(orders)
    reset(orders, "earliest")
    assert (orders.ids(), copies(orders)) == ([], [])
    orders.run()
    roll_back(orders, COPY)
    with pytest.raises(Terminal, match="repair"):
        orders.run()
    repair(orders, COPY)

    assert (orders.ids(), copies(orders)) == ([0, 2], [0, 2])
    assert_clean(orders)


def test_pipeline_does_not_start_over_in_another_catalog(spread: Callable[..., Any]) -> None:
    """The first destination, with the ledger beside it, is named in the other catalog by an edit: refused, nothing lands twice."""
    orders = spread()
    orders.produce_orders(range(3))
    orders.run()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    moved = orders.with_pipeline(
        text.replace("  - table: shop.orders\n", "  - table: shop.orders\n    catalog: cloud\n")
    )

    with pytest.raises(Terminal):
        moved.run()

    elsewhere = orders.with_pipeline(text.replace("name: orders\n", "name: orders\ncatalog: cloud\n", 1))
    with pytest.raises(Terminal):
        elsewhere.run()

    orders.with_pipeline(text).run()
    assert orders.ids() == [0, 1, 2]


def test_follower_is_not_recreated_in_another_catalog(spread: Callable[..., Any]) -> None:
    """An edit names another catalog for a table that has rows: it is gone from where it should be, and the pipeline says so."""
    orders = spread()
    orders.produce_orders(range(3))
    orders.run()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    moved = orders.with_pipeline(text.replace("    catalog: cloud\n", ""))

    with pytest.raises(Terminal, match=COPY):
        moved.run()

    assert catalog(orders).table_exists(COPY) is False


@pytest.mark.parametrize("branch", [None, "night"])
def test_decided_part_ignores_edit_of_file(
    spread: Callable[..., Any], at_failpoint: Callable[..., Any], rest_server: RestServer, branch: str | None
) -> None:
    """The file drops the destination between decision and commit: its part goes where it was decided to, not to main."""
    orders = spread(branch)
    orders.produce_orders(range(2))
    at_failpoint("decide.committed", nth=2)  # the first begins the pipeline
    with pytest.raises(Killed):
        orders.run()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    alone = orders.with_pipeline(text.partition(f"  - table: {COPY}")[0])

    alone.run()

    table = rest_server.lake().load_table(COPY)
    head = table.metadata.refs[branch or "main"].snapshot_id
    assert sorted(table.scan(snapshot_id=head).to_arrow()["id"].to_pylist()) == [0, 1]
    assert (table.current_snapshot() is None) == (branch is not None)
