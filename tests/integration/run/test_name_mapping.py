"""Tables with files that have no field ids, as `add_files` brings them from Hive: the name mapping says what their columns are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import TableProperties

from frazil.batch.position import EARLIEST
from tests.evolving import evolving, put, rewritten, types
from tests.operations import assert_clean, lake, replay

MakeShop = Callable[..., Any]


def add_file(orders: Any, row: dict[str, Any], **unmapped: Any) -> None:
    """Add a file of one row without field ids. PyIceberg adds none with a column that has no name, as Spark does: it comes later."""
    table = lake(orders).load_table("shop.orders")
    path = f"{table.location()}/data/{row['id']}.parquet"
    pq.write_table(pa.Table.from_pylist([row]), path.removeprefix("file://"))
    table.add_files([path])
    pq.write_table(pa.Table.from_pylist([row | unmapped]), path.removeprefix("file://"))


def values(orders: Any, *names: str) -> list[tuple[Any, ...]]:
    """All rows, those of others with them."""
    rows = lake(orders).load_table("shop.orders").scan(selected_fields=names).to_arrow().to_pylist()
    return sorted((tuple(row[name] for name in names) for row in rows), key=lambda row: row[0])


def test_mapping_follows_columns_of_records(shop: MakeShop) -> None:
    """New columns, and fields inside, are read in files that come later without ids, also beside columns that nobody mapped."""
    orders = evolving(shop)
    put(orders, {"id": 1, "at": {"city": "Kiel"}})
    orders.run()
    add_file(orders, {"id": 100, "at": {"city": "Ulm"}})

    put(orders, {"id": 2, "at": {"city": "Bonn", "zip": "5"}, "price": 1.5})
    orders.run()
    add_file(orders, {"id": 101, "at": {"zip": "8"}, "price": 2.5}, at={"zip": "8", "road": "x"}, colour="red")

    expected = [
        (1, {"city": "Kiel", "zip": None}, None),
        (2, {"city": "Bonn", "zip": "5"}, 1.5),
        (100, {"city": "Ulm", "zip": None}, None),
        (101, {"city": None, "zip": "8"}, 2.5),
    ]
    assert values(orders, "id", "at", "price") == expected
    assert_clean(orders)
    replay(orders, EARLIEST)
    assert values(orders, "id", "at", "price") == expected
    assert_clean(orders)


def test_name_in_mapping_stays_with_renamed_column(shop: MakeShop) -> None:
    """Somebody renames a column; a record brings the old name as a new one. Files that are there go on showing what they showed."""
    orders = evolving(shop)
    put(orders, {"id": 1, "cost": 0.5})
    orders.run()
    add_file(orders, {"id": 100, "cost": 7.5})
    with lake(orders).load_table("shop.orders").update_schema() as update:
        update.rename_column("cost", "price")
    put(orders, {"id": 2, "cost": 1.5})

    orders.run()

    assert values(orders, "id", "price", "cost") == [(1, 0.5, None), (2, None, 1.5), (100, 7.5, None)]


def test_records_of_the_old_name_go_to_a_renamed_column_that_is_declared_so(shop: MakeShop) -> None:
    """What docs/column-names.md says to do after a rename: the mapping is for files, `from` for records."""
    orders = evolving(shop)
    put(orders, {"id": 1, "cost": 0.5})
    orders.run()
    with lake(orders).load_table("shop.orders").update_schema() as update:
        update.rename_column("cost", "price")
    orders = rewritten(orders, "{table: shop.orders, columns: {price: {type: double, from: cost}}, evolve: widen}")
    put(orders, {"id": 2, "cost": 1.5, "note": "x"})

    orders.run()

    assert values(orders, "id", "price", "note") == [(1, 0.5, None), (2, 1.5, "x")]
    assert types(orders) == {"id": "long", "price": "double", "note": "string"}
    assert_clean(orders)


def test_unreadable_mapping_stops_no_record(shop: MakeShop) -> None:
    """A mapping that is no mapping stays as it is, and the column that records bring comes all the same."""
    orders = evolving(shop)
    put(orders, {"id": 1})
    orders.run()
    text = json.dumps([{"field-id": "x"}])
    with lake(orders).load_table("shop.orders").transaction() as transaction:
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: text})
    put(orders, {"id": 2, "price": 1.5})

    orders.run()

    assert types(orders) == {"id": "long", "price": "double"}
    assert lake(orders).load_table("shop.orders").properties[TableProperties.DEFAULT_NAME_MAPPING] == text
