"""Tables that follow their records: changed once, before the data, and never in the way of anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from frazil.batch.facts import Staged
from frazil.batch.schema_change import SchemaChange
from frazil.errors import Terminal
from frazil.records.model.spec import Evolution
from frazil.run.staging.stage import StageOrder, stage_inline
from tests.evolving import changes, evolving, files, put, rewritten, rows, task_by_task, types
from tests.integration.run.conftest import AtFailpoint
from tests.operations import LETTERS, Killed, assert_clean, drop, lake, ledger, repair, replay

MakeShop = Callable[..., Any]


def test_table_without_columns_holds_position(shop: MakeShop) -> None:
    """The table is there with the position before any record is; the first batch brings its columns, once."""
    orders = evolving(shop)
    assert orders.run().batches == 0
    assert types(orders) == {}
    put(orders, {"id": 1, "at": {"city": "Kiel", "zip": None}, "tags": ["a"]}, {"id": 2, "paid": True, "sum": 1.5})

    assert orders.run().batches == 1

    assert set(types(orders)) == {"at", "id", "paid", "sum", "tags"}
    assert rows(orders, "shop.orders", "id", "paid", "sum", "tags") == [
        (1, None, None, ["a"]),
        (2, True, 1.5, None),
    ]
    assert len(lake(orders).load_table("shop.orders").metadata.schemas) == 2
    assert_clean(orders)
    assert orders.run().batches == 0


def test_field_named_as_a_partition_field_that_the_owner_added_is_kept_beside_the_columns(shop: MakeShop) -> None:
    """No table has a column and a partition field of one name: who sends such a field stops no pipeline."""
    orders = evolving(shop)
    put(orders, {"id": 1})
    orders.run()
    with lake(orders).load_table("shop.orders").update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "id_bucket")
    put(orders, {"id": 2, "id_bucket": 7, "more": 1}, {"id": 3})

    orders.run()

    assert rows(orders, "shop.orders", "id", "more", "_rescued") == [
        (1, None, None),
        (2, 1, '{"id_bucket":7}'),
        (3, None, None),
    ]
    assert_clean(orders)


def test_field_that_appears_later_rewrites_no_files(shop: MakeShop) -> None:
    """A thousand rows without a price, then some with one: one new optional column, old rows null, old files untouched."""
    orders = evolving(shop)
    put(orders, *({"id": n} for n in range(1000)))
    orders.run()
    before = files(orders)
    put(orders, *({"id": n, "price": n / 4} for n in range(1000, 1010)))

    orders.run()

    landed_rows = rows(orders, "shop.orders", "id", "price")
    assert landed_rows == [(n, None) for n in range(1000)] + [(n, n / 4) for n in range(1000, 1010)]
    assert before < files(orders)
    assert types(orders) == {"id": "long", "price": "double"}
    assert changes(orders) == [
        {"shop.orders": (SchemaChange(("id",), "add", "long"),)},
        {"shop.orders": (SchemaChange(("price",), "add", "double"),)},
    ]
    assert_clean(orders)


def test_first_record_of_a_new_field_does_not_stop_those_that_follow(shop: MakeShop) -> None:
    """An object under a new name, then 900 numbers: all land, told by the ledger; verify expects the same."""
    orders = evolving(shop)
    put(orders, {"id": 0, "price": {"amount": 1}})
    orders.run()
    put(orders, *({"id": n, "price": n + 0.5} for n in range(1, 901)))

    orders.run()

    assert orders.rows(LETTERS) == []
    assert rows(orders, "shop.orders", "id", "price", "_rescued")[1:] == [
        (n, None, f'{{"price":{n + 0.5}}}') for n in range(1, 901)
    ]
    assert json.loads(ledger(orders)[-1]["unknown_fields"]) == {"_rescued: price": 900}
    assert_clean(orders)


def test_nested_fields_are_added(shop: MakeShop) -> None:
    """Fields of structs, in lists and beside others, come as columns do, in the batch that has them first."""
    orders = evolving(shop)
    put(orders, {"at": {"city": "Kiel"}, "lines": [{"sku": "a"}]})
    orders.run()
    put(orders, {"at": {"city": "Ulm", "geo": {"lat": 48.4}}, "lines": [{"sku": "b", "count": 2}, {"count": 3}]})

    orders.run()

    assert rows(orders, "shop.orders", "at", "lines") == [
        ({"city": "Kiel", "geo": None}, [{"sku": "a", "count": None}]),
        ({"city": "Ulm", "geo": {"lat": 48.4}}, [{"sku": "b", "count": 2}, {"sku": None, "count": 3}]),
    ]
    assert changes(orders)[-1]["shop.orders"] == (
        SchemaChange(("at", "geo"), "add", "struct<lat: double>"),
        SchemaChange(("lines", "element", "count"), "add", "long"),
    )
    assert_clean(orders)


def test_wider_value_widens_its_column(shop: MakeShop) -> None:
    """A declared int becomes long when a record needs it; what was landed before stays, and is read as before."""
    orders = evolving(shop, "{table: shop.orders, columns: {id: int, size: float}, evolve: widen}")
    put(orders, {"id": 1, "size": 0.5})
    orders.run()
    put(orders, {"id": 2**40, "size": 1e300}, {"id": 3, "size": 1})

    orders.run()

    assert types(orders) == {"id": "long", "size": "double"}
    assert rows(orders, "shop.orders", "id", "size") == [(1, 0.5), (2**40, 1e300), (3, 1.0)]
    assert orders.rows(LETTERS) == []
    assert_clean(orders)


def test_only_records_that_request_columns_are_read_again(shop: MakeShop) -> None:
    """Of a batch of several partitions, those whose records fit are staged once; all land in the one batch."""
    orders = evolving(shop, partitions=3)
    put(orders, {"id": 0})
    orders.run()
    for partition in range(3):
        put(orders, *({"id": 10 * partition + n} for n in range(5)), partition=partition)
    put(orders, {"id": 99, "note": "x"}, partition=2)
    staged: list[Sequence[tuple[int, int, int]]] = []

    result = orders.run(stage=task_by_task(staged))

    assert result.batches == 1
    assert staged == [[(0, 1, 6), (1, 0, 5), (2, 0, 6)], [(2, 0, 6)]]
    assert len(rows(orders, "shop.orders", "id")) == 17
    assert_clean(orders)


@pytest.mark.short("evolved")
@pytest.mark.parametrize("point", ["staged", "evolving", "evolved", "audited", "decide.committing", "decide.committed"])
def test_killed_run_changes_table_once(shop: MakeShop, at_failpoint: AtFailpoint, point: str) -> None:
    """Killed before or behind the change of a table, the next run finds what is there and lands every record once."""
    orders = evolving(shop)
    put(orders, {"id": 1})
    orders.run()
    put(orders, {"id": 2, "note": "x"})
    at_failpoint(point)
    with pytest.raises(Killed):
        orders.run()

    orders.run()

    assert rows(orders, "shop.orders", "id", "note") == [(1, None), (2, "x")]
    assert len(lake(orders).load_table("shop.orders").metadata.schemas) == 3
    assert_clean(orders)


def test_two_pipelines_keep_each_others_columns(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A rival adds columns to the same table at the same moment: it has those of both, and both pipelines land."""
    orders = evolving(shop)
    put(orders, {"id": 1})
    orders.run()
    put(orders, {"id": 2, "ours": 1, "both": {"a": 1}})

    def rival() -> None:
        with lake(orders).load_table("shop.orders").update_schema() as update:
            update.add_column("theirs", StringType())
            update.add_column("both", StructType(NestedField(1, "b", StringType(), required=False)))

    at_failpoint("evolving", rival)
    orders.run()

    assert set(types(orders)) == {"id", "ours", "theirs", "both"}
    assert rows(orders, "shop.orders", "id", "ours", "both") == [(1, None, None), (2, 1, {"a": 1, "b": None})]
    assert_clean(orders)


def test_column_of_another_type_from_a_rival_stays_and_the_value_is_rescued(
    shop: MakeShop, at_failpoint: AtFailpoint
) -> None:
    """A rival makes the column with a type that does not go with ours: the record is held against the column that is there."""
    orders = evolving(shop)
    put(orders, {"id": 1})
    orders.run()
    put(orders, {"id": 2, "note": "x"})

    def rival() -> None:
        with lake(orders).load_table("shop.orders").update_schema() as update:
            update.add_column("note", LongType())

    at_failpoint("staged", rival)
    orders.run()

    assert types(orders) == {"id": "long", "note": "long", "_rescued": "string"}
    assert rows(orders, "shop.orders", "id", "note", "_rescued") == [(1, None, None), (2, None, '{"note":"x"}')]
    assert orders.rows(LETTERS) == []
    assert_clean(orders)


def test_endless_column_requests_are_given_up(shop: MakeShop) -> None:
    """An engine that asks again and again is given up, by name; nothing is published."""
    orders = evolving(shop)
    put(orders, {"id": 1})
    requests = []

    def stage(order: StageOrder) -> Staged:
        requests.append(order.ranges)
        return Staged(demands={"shop.orders": (SchemaChange(("id",), "add", "long"),)}, again=order.ranges)

    with pytest.raises(Terminal, match=r"changed 4 times and still lack shop\.orders: add id long"):
        orders.run(stage=stage)

    assert (len(requests), orders.rows()) == (5, [])  # one round more, in which tables are made
    # The last rounds make no columns of records any more, but the one for their fields.
    assert len(lake(orders).load_table("shop.orders").metadata.schemas) == 3
    orders.run()
    assert_clean(orders)


def test_fields_with_endless_column_requests_are_rescued(shop: MakeShop) -> None:
    """Records of which each round remembers other fields: the table gets some of them, and the batch lands."""
    orders = evolving(shop)
    put(orders, {"id": 1, "late": 2})
    rounds: list[Evolution | None] = []

    def stage(order: StageOrder) -> Staged:
        rounds.append(order.specs["shop.orders"].evolution)
        if len(rounds) < 4:
            return Staged(
                demands={"shop.orders": (SchemaChange((f"new_{len(rounds)}",), "add", "long"),)}, again=order.ranges
            )
        return stage_inline(order)

    orders.run(stage=stage)

    assert [staging.max_columns > 0 for staging in rounds if staging] == [True, True, True, False, False]
    assert rows(orders, "shop.orders", "_rescued") == [('{"id":1,"late":2}',)]
    assert_clean(orders)


def test_columns_of_others_are_filled(shop: MakeShop) -> None:
    """Columns that somebody adds, renames or drops are what the next batch lands into."""
    orders = evolving(shop)
    put(orders, {"id": 1, "old": "a", "gone": 1})
    orders.run()
    with lake(orders).load_table("shop.orders").update_schema(allow_incompatible_changes=True) as update:
        update.add_column("by", StringType())
        update.rename_column("old", "new")
        update.delete_column("gone")
    put(orders, {"id": 2, "by": "me", "new": "b"})

    orders.run()

    assert types(orders) == {"id": "long", "by": "string", "new": "string"}
    assert rows(orders, "shop.orders", "id", "by", "new") == [(1, None, "a"), (2, "me", "b")]


def test_declared_table_does_not_change_by_itself(shop: MakeShop) -> None:
    """With declared columns and no evolve nothing is added: fields that no column takes are left out, as ever."""
    orders = evolving(shop, "{table: shop.orders, columns: {id: int}}")
    put(orders, {"id": 1, "note": "x"}, {"id": 2**40})

    orders.run()

    assert types(orders) == {"id": "int"}
    assert (rows(orders, "shop.orders", "id"), len(orders.rows(LETTERS))) == ([(1,)], 1)
    assert changes(orders) == []


def test_each_of_several_tables_gets_only_its_columns(shop: MakeShop) -> None:
    """Each table of a pipeline follows by its own rule; the ledger says which was changed."""
    orders = evolving(
        shop,
        "{table: shop.orders}",
        "{table: shop.strict, columns: {id: long}}",
        "{table: shop.ids, columns: {id: int}, evolve: widen}",
    )
    put(orders, {"id": 2**40, "note": "x"})

    orders.run()

    assert types(orders) == {"id": "long", "note": "string"}
    assert (types(orders, "shop.strict"), types(orders, "shop.ids")["id"]) == ({"id": "long"}, "long")
    changes_by_table = {row["table"]: row["schema_changes"] for row in ledger(orders, "ingest")}
    assert changes_by_table["shop.strict"] is None
    assert json.loads(changes_by_table["shop.ids"])[0] == {"path": ["id"], "kind": "widen", "type": "long"}
    assert_clean(orders)


def test_replay_of_records_before_change_fills_new_columns(shop: MakeShop) -> None:
    """Records that were landed when fields were left out get their columns by a replay under a file that evolves."""
    orders = evolving(shop, "{table: shop.orders, columns: {id: long}}", max_records=2)
    put(orders, {"id": 1}, {"id": 2, "note": "x"}, {"id": 3}, {"id": 4, "size": 1.5})
    orders.run()
    orders = rewritten(orders, "{table: shop.orders, columns: {id: long}, evolve: add}", max_records=2)

    replay(orders, "earliest")

    assert rows(orders, "shop.orders", "id", "note", "size") == [
        (1, None, None),
        (2, "x", None),
        (3, None, None),
        (4, None, 1.5),
    ]
    assert {change.path for change in changes(orders)[-1]["shop.orders"]} == {("note",), ("size",)}
    assert_clean(orders)


def test_recreated_table_gets_its_columns(shop: MakeShop) -> None:
    """A follower that was dropped gets its rows again, and the columns that they need."""
    orders = evolving(shop, "{table: shop.orders}", "{table: shop.copies, partition_by: [kind]}")
    put(orders, {"id": 1, "kind": "a"}, {"id": 2, "kind": "b", "note": "x"})
    orders.run()
    expected = rows(orders, "shop.copies", "id", "kind", "note")
    drop(orders, "shop.copies")

    repair(orders, "shop.copies")

    assert rows(orders, "shop.copies", "id", "kind", "note") == expected
    assert [field.name for field in lake(orders).load_table("shop.copies").spec().fields] == ["kind"]
    assert_clean(orders)
