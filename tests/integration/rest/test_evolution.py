"""Tables that follow their records, when a server of Iceberg's own keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.types import StringType

from frazil.errors import FrazilError, Terminal
from frazil.run.batches.apply import AppliedFile, apply_file
from frazil.run.commit.commit_batch import recover
from tests.evolving import put, rewritten, rows, types
from tests.fault_proxy import after
from tests.integration.rest.conftest import path_of
from tests.operations import assert_clean, lake, request, scope

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


def test_file_is_applied_on_a_server_there_and_back(rest_shop: MakeShop) -> None:
    """A server adds no layout and no schema twice: those of before are taken up again; all that a file declares is one commit."""
    table = "{table: deep.er.orders, columns: {id: {type: long, required: true, doc: %s}, kind: string}, %s}"
    one_file = table % ("Number", "partition_by: [kind], sort_by: [id]")
    second_file = table % ("Key", "partition_by: ['bucket(4, id)'], sort_by: [kind desc], identifier: [id]")
    orders = rewritten(rest_shop(partitions=1).shop, one_file)
    put(orders, {"id": 1, "kind": "a"})
    orders.run()
    for number, text in enumerate((second_file, one_file, second_file), 2):
        orders = rewritten(orders, text)
        assert apply_file(scope(orders), request()).n is not None
        assert apply_file(scope(orders), request()) == AppliedFile()
        put(orders, {"id": number, "kind": "b"})
        orders.run()

    loaded = lake(orders).load_table("deep.er.orders")
    assert [field.name for field in loaded.spec().fields] == ["id_bucket"]
    assert (loaded.spec().spec_id, loaded.schema().fields[0].doc) == (1, "Key")
    assert rows(orders, "deep.er.orders", "id") == [(1,), (2,), (3,), (4,)]

    orders = rewritten(orders, table % ("Key", "partition_by: [], sort_by: [], identifier: [id]"))
    assert apply_file(scope(orders), request()).n is not None
    assert apply_file(scope(orders), request()) == AppliedFile()
    assert_clean(orders)


def test_change_at_which_a_server_fails_stops_no_run_for_good(rest_shop: MakeShop, proxy: Any) -> None:
    """Some answer what they never take with an error of their own: it may be an outage, so the batch waits an hour."""
    table = "{table: deep.er.orders, columns: {%s}}"
    orders = rewritten(rest_shop(partitions=1).shop, table % "id: long")
    put(orders, {"id": 1})
    orders.run()
    proxy.refuse("add-schema", 500)
    newer = rewritten(orders, table % "id: long, price: double")
    for _ in range(2):
        with pytest.raises(FrazilError) as failure:
            apply_file(scope(newer), request())
        assert not isinstance(failure.value, Terminal)

    later = replace(scope(newer), clock=lambda: datetime.now(UTC) + timedelta(hours=2))
    assert recover(later, is_applying=True)[2].unfinished is False

    put(orders, {"id": 2})
    orders = rewritten(orders, table % "id: long")
    orders.run()
    assert rows(orders, "deep.er.orders", "id") == [(1,), (2,)]
    assert_clean(orders)


def test_change_that_a_server_refuses_stops_no_run(rest_shop: MakeShop, proxy: Any) -> None:
    """Nobody here can know it before: the batch that has it on record is finished without, and who asked is told."""
    table = "{table: deep.er.orders, columns: {%s}}"
    orders = rewritten(rest_shop(partitions=1).shop, table % "id: long")
    put(orders, {"id": 1})
    orders.run()
    proxy.refuse("add-schema", 400)
    lines: list[str] = []
    with pytest.raises(
        Terminal, match=r"batch 2 records changes that were not made: deep\.er\.orders: add price double"
    ):
        apply_file(scope(rewritten(orders, table % "id: long, price: double"), lines.append), request())
    assert any(line.startswith("table deep.er.orders was not changed: changing the schema") for line in lines), lines

    put(orders, {"id": 2})
    orders = rewritten(orders, table % "id: long")
    orders.run()

    assert rows(orders, "deep.er.orders", "id") == [(1,), (2,)]
    assert_clean(orders)
