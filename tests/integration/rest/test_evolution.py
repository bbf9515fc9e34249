"""Tables that follow their records, when a server of Iceberg's own keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.types import StringType

from tests.evolving import put, rewritten, rows, types
from tests.fault_proxy import after
from tests.integration.rest.conftest import path_of
from tests.operations import assert_clean, lake

MakeShop = Callable[..., Any]


@pytest.fixture
def orders(rest_shop: MakeShop) -> Any:
    """A shop on the REST catalog with one table, whose columns nobody declared."""
    return rewritten(rest_shop(partitions=1).shop, "{table: deep.er.orders, partition_by: [kind, 'bucket(4, id)']}")


def test_server_accepts_all_schema_changes(orders: Any) -> None:
    """Columns, nested ones and partitions are the server's in one commit; later ones come beside them."""
    put(orders, {"id": 1, "kind": "a", "at": {"city": "Kiel"}})
    orders.run()
    put(orders, {"id": 2, "kind": "b", "at": {"zip": "1"}, "price": 0.5})

    orders.run()

    table = lake(orders).load_table("deep.er.orders")
    assert [field.name for field in table.spec().fields] == ["kind", "id_bucket"]
    assert rows(orders, "deep.er.orders", "id", "at", "price") == [
        (1, {"city": "Kiel", "zip": None}, None),
        (2, {"city": None, "zip": "1"}, 0.5),
    ]
    assert_clean(orders)


def test_changes_of_rival_and_run_are_both_kept(orders: Any, proxy: Any) -> None:
    """A change that lands while ours is on its way is refused by the server, looked at again, and both are there."""
    put(orders, {"id": 1, "kind": "a"})
    orders.run()
    put(orders, {"id": 2, "ours": 1})
    table = lake(orders).load_table("deep.er.orders")

    def rival() -> None:
        with table.update_schema() as update:
            update.add_column("theirs", StringType())

    proxy.script("POST", path_of("deep.er.orders"), after(rival))
    orders.run()

    assert types(orders, "deep.er.orders") == {"id": "long", "kind": "string", "ours": "long", "theirs": "string"}
    assert_clean(orders)
