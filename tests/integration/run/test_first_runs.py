"""Two first runs of a pipeline at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import Table
from frazil.run.state import tables
from tests.operations import assert_clean

SECOND = "  - {table: shop.copies, columns: {id: {type: long, required: true}}}\n"


@pytest.mark.parametrize("more", ["", SECOND])
def test_tables_created_by_rival_do_not_count_as_lost(
    shop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """They are not taken for gone: the slower run finds nothing left to do."""
    orders = shop()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    orders = orders.with_pipeline(text.replace("limits:", f"{more}limits:"))
    orders.produce_orders(range(3))
    real, rivals = tables._find_each, []

    def found(lake: Lake, names: list[str]) -> dict[str, Table | None]:
        if len(names) == 1 and not rivals:  # the closing table, which is read last
            rivals.append(None)
            rivals.append(orders.run())
        return real(lake, names)

    monkeypatch.setattr(tables, "_find_each", found)
    assert orders.run().batches == 0
    assert rivals[1].written == 3
    assert orders.ids() == [0, 1, 2]
    assert_clean(orders)
