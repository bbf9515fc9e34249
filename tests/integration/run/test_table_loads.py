"""How often a run asks the catalog for a table: each load is a round trip, and they are what a small batch costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from frazil.iceberg.catalog.catalog import Lake
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from tests.operations import LEDGER, ORDERS, assert_clean, order, request, send

MakeShop = Callable[..., Any]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Table -> how often it was loaded since the test began to count."""
    counted, find = Counter[str](), Lake.find_table

    def counting(lake: Lake, name: str) -> Any:
        if type(lake) is Lake:  # a pipeline's lake asks its catalogs
            counted[name] += 1
        return find(lake, name)

    monkeypatch.setattr(Lake, "find_table", counting)
    return counted


@pytest.mark.parametrize(
    ("destinations", "to_plan", "to_ingest", "of_closing"), [(1, 3, 7, (ORDERS, 3)), (10, 12, 35, (LEDGER, 4))]
)
def test_batch_loads_its_tables_few_times(
    shop: MakeShop, loads: Counter[str], destinations: int, to_plan: int, to_ingest: int, of_closing: tuple[str, int]
) -> None:
    """A look before the plan, one before the batch, one at the followers before the decision, and one before each commit."""
    orders = shop(partitions=1)
    names = [ORDERS, *(f"shop.t{number}" for number in range(1, destinations))]
    tables = "".join(f"  - {{table: {name}, columns: {{id: long, name: string}}}}\n" for name in names)
    head = f"name: orders\nsource: {{topics: [{orders.topic}]}}\nengine: inline\ndestinations:\n"
    orders = orders.with_pipeline(head + tables)
    send(orders, {0: [order(1)]})
    orders.run()
    send(orders, {0: [order(2)]})
    loads.clear()

    planned = plan_run(orders.project, orders.pipeline, request())
    assert planned.plan is not None
    assert loads.total() == to_plan
    loads.clear()
    assert ingest(orders.project, orders.pipeline, planned.plan, stage_inline, lambda _: None) == 1

    table, times = of_closing
    assert (loads.total(), loads[table]) == (to_ingest, times)
    assert {len(orders.rows(name)) for name in names} == {2}
    assert_clean(orders)
