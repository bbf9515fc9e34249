"""`frazil apply`: tables become what the file declares, on record, whatever is killed or works beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField

from frazil.batch.schema_change import SchemaChange
from frazil.errors import Terminal
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.report.history import history
from frazil.run.batches.apply import AppliedFile, apply_file, preview_changes
from frazil.run.batches.plan import plan_run
from frazil.run.staging.stage import stage_inline
from tests.evolving import changes, put, rewritten
from tests.integration.run.conftest import AtFailpoint
from tests.operations import Killed, assert_clean, catalog, lake, ledger, location, request, scope

MakeShop = Callable[..., Any]

COPY = "shop.copies"
BEFORE = (
    "{table: shop.orders, columns: {id: {type: int, required: true}}, partition_by: ['bucket(4, id)']}",
    "{table: shop.copies, columns: {id: {type: int, required: true}, note: string}}",
)
AFTER = (
    """{table: shop.orders, columns: {id: {type: long, required: true, doc: Number}, price: double}, partition_by: [id],
    sort_by: [price desc], identifier: [id], properties: {write.parquet.page-row-limit: 10}}""",
    "{table: shop.copies, columns: {id: {type: long, required: true}, note: string}, partition_by: ['bucket(2, id)']}",
)
CREATED = {
    "shop.orders": (
        SchemaChange(("id",), "widen", "long"),
        SchemaChange(("id",), "doc", "Number"),
        SchemaChange(("price",), "add", "double"),
        SchemaChange(("id",), "identifier"),
        SchemaChange(("id_bucket",), "partition"),
        SchemaChange(("id",), "partition", "id"),
        SchemaChange((), "sort", "price desc"),
        SchemaChange(("write.parquet.page-row-limit",), "property"),
    ),
    COPY: (SchemaChange(("id",), "widen", "long"), SchemaChange(("id_bucket",), "partition", "bucket(2, id)")),
}


def apply(shop: Any, report: Callable[[str], None] = lambda _: None) -> AppliedFile:
    """Apply the file as it is."""
    return apply_file(scope(shop, report), request("prices"))


def edited(shop: MakeShop, partitions: int = 1) -> Any:
    """A shop that landed two orders, and whose file says something else by now of both tables."""
    orders = rewritten(shop(partitions=partitions), *BEFORE)
    put(orders, {"id": 1}, {"id": 2})
    orders.run()
    return rewritten(orders, *AFTER)


def assert_applied(orders: Any, ids: list[int]) -> None:
    """Both tables are what the file declares, in one batch of the ledger, and every record is in both once."""
    assert preview_changes(scope(orders)) == {}
    assert apply(orders) == AppliedFile()
    assert changes(orders) == [CREATED]
    table = lake(orders).load_table("shop.orders")
    assert [(field.name, field.doc) for field in table.schema().fields][:1] == [("id", "Number")]
    assert [field.name for field in table.spec().fields] == ["id"]
    assert table.properties["write.parquet.page-row-limit"] == "10"
    assert [sorted(row["id"] for row in orders.rows(name)) for name in ("shop.orders", COPY)] == [ids, ids]
    assert_clean(orders)


def test_file_is_applied_once_and_on_record(shop: MakeShop) -> None:
    """One batch without a record has all changes, who made them and why; rows land in the new layout then."""
    orders = edited(shop)
    assert preview_changes(scope(orders)) == CREATED

    assert apply(orders) == AppliedFile(2, CREATED)

    put(orders, {"id": 3, "price": 1.5})
    orders.run()
    assert_applied(orders, [1, 2, 3])
    (row,) = [row for row in ledger(orders, "apply") if row["table"] == "shop.orders"]
    assert (row["n"], row["reason"], row["started_by"]) == (2, "prices", "cli:tester@here")
    assert json.loads(row["schema_changes"])[-1]["type"] == "", (
        "the value of a property is nowhere but in file and table"
    )


POINTS = ["manifest.written", "decide.committing", "decide.committed", "evolving", "evolved", "evolving:2", "evolved:2"]


@pytest.mark.short("decide.committed-apply", "evolved-run")
@pytest.mark.parametrize("again", ["apply", "run"])
@pytest.mark.parametrize("point", [*POINTS, "record.committing", "record.committed"])
def test_killed_apply_is_finished_by_the_next_command(
    shop: MakeShop, at_failpoint: AtFailpoint, point: str, again: str
) -> None:
    """Once it is decided all changes are made, by whoever comes next; before, none is."""
    orders = edited(shop)
    name, _, nth = point.partition(":")
    at_failpoint(name, nth=int(nth or 1))
    with pytest.raises(Killed):
        apply(orders)

    put(orders, {"id": 3, "price": 1.5})
    if again == "run" and point not in POINTS[:2]:
        orders.run()
    apply(orders)
    orders.run()

    assert_applied(orders, [1, 2, 3])


@pytest.mark.short("decide.committing", "decide.committed")
@pytest.mark.parametrize("point", ["staged", "audited", "manifest.written", "decide.committing", "decide.committed"])
def test_batch_beside_an_apply_lands_once(shop: MakeShop, at_failpoint: AtFailpoint, point: str) -> None:
    """A batch that was staged for the tables as they were is refused; one that was decided is finished first."""
    orders = edited(shop)
    put(orders, {"id": 3})
    older, newer = rewritten(orders, *BEFORE), rewritten(orders, *AFTER)
    at_failpoint(point, lambda: apply(newer))

    with suppress(Terminal):  # by its file, which was read before the edit, the tables don't fit any more
        older.run()

    newer.run()
    assert_applied(newer, [1, 2, 3])


@pytest.mark.short("evolving")
@pytest.mark.parametrize("point", ["decide.committing", "decide.committed", "evolving", "evolved", "record.committing"])
def test_run_beside_an_apply_lands_once(shop: MakeShop, at_failpoint: AtFailpoint, point: str) -> None:
    """A run that comes between finishes a decided apply first, and lands in the tables as they are then."""
    orders = edited(shop)
    put(orders, {"id": 3})
    older, newer = rewritten(orders, *BEFORE), rewritten(orders, *AFTER)
    at_failpoint(point, (older if point == "decide.committing" else newer).run)

    apply(newer)

    newer.run()
    assert_applied(newer, [1, 2, 3])


@pytest.mark.short("decide.committing", "evolving")
@pytest.mark.parametrize(
    "point", ["manifest.written", "decide.committing", "decide.committed", "evolving", "record.committing"]
)
def test_two_applies_at_once_change_and_record_once(shop: MakeShop, at_failpoint: AtFailpoint, point: str) -> None:
    """One decides; the other finds it decided, helps it to its end, and has nothing to change."""
    orders = edited(shop)
    applied: list[AppliedFile] = []
    at_failpoint(point, lambda: applied.append(apply(orders)))

    applied.append(apply(orders))

    assert sorted(len(applied_file.changes) for applied_file in applied) == [0, 2]
    assert_applied(orders, [1, 2])


def test_refusal_leaves_every_table_as_it_was(shop: MakeShop) -> None:
    """One column that would get narrower: neither that table nor the other one is changed, and the reason is told."""
    orders = edited(shop)
    orders = rewritten(orders, AFTER[0], "{table: shop.copies, columns: {id: string, note: int, more: long}}")
    before = {table: location(orders, table) for table in ("shop.orders", COPY, orders.pipeline.ledger_table)}

    for deed in (lambda: preview_changes(scope(orders)), lambda: apply(orders)):
        with pytest.raises(Terminal, match="nothing was changed") as refusal:
            deed()
        assert "table shop.copies: column id: declared string, the table has int: a column only gets" in str(
            refusal.value
        )
        assert "column note: declared int, the table has string" in str(refusal.value)
    assert {table: location(orders, table) for table in before} == before


def test_table_of_others_is_changed_before_the_first_run(shop: MakeShop) -> None:
    """A table that is there already becomes what the file declares; the first batch has that on record."""
    orders = rewritten(shop(partitions=1), "{table: shop.orders, columns: {id: long, name: string}}")
    lake(orders).create_table("shop.orders", Schema(NestedField(1, "id", IntegerType())), UNPARTITIONED, {})
    put(orders, {"id": 1, "name": "a"})
    with pytest.raises(Terminal, match="does not fit its pipeline"):
        orders.run()

    assert apply(orders).n is None
    assert apply(orders) == AppliedFile()

    orders.run()
    assert [(row["id"], row["name"]) for row in orders.rows()] == [(1, "a")]
    (creation,) = changes(orders)
    assert {change.kind for change in creation["shop.orders"]} == {"add", "doc", "widen"}
    assert_clean(orders)


@pytest.mark.parametrize("point", ["evolving", "evolved"])
def test_first_run_that_begins_meanwhile_waits_for_nothing(
    shop: MakeShop, at_failpoint: AtFailpoint, point: str
) -> None:
    """Batch 0 is decided while a table gets another layout: the table takes its mark, which no file comes with."""
    text = "{table: %s, columns: {id: long}, kafka_columns: false, partition_by: [id]}"
    orders = rewritten(shop(partitions=1), *(text % table for table in ("shop.orders", COPY)))
    for table in ("shop.orders", COPY):
        lake(orders).create_table(table, Schema(NestedField(1, "id", LongType())), UNPARTITIONED, {})
    put(orders, {"id": 1})

    def rival() -> None:
        at_failpoint("decide.committed")
        with pytest.raises(Killed):
            orders.run()

    at_failpoint(point, rival)
    apply(orders)

    orders.run()
    assert preview_changes(scope(orders)) == {}
    assert [[row["id"] for row in orders.rows(table)] for table in ("shop.orders", COPY)] == [[1], [1]]


def test_branch_and_merged_table_are_changed_without_an_engine(shop: MakeShop) -> None:
    """A table whose rows land on a branch, and one that only Spark writes: their columns are main's as well."""
    table = "{table: shop.orders, branch: audit, columns: {id: {type: int, required: true}}}"
    merged = "{table: shop.copies, write: upsert, identifier: [id], columns: {id: {type: int, required: true}}}"
    text = "name: orders\nsource: {{topics: [{}]}}\nengine: spark\ndestinations: [{}]"
    new_shop = shop(partitions=1)
    orders = new_shop.with_pipeline(text.format(new_shop.topic, f"{table}, {merged}"))
    assert plan_run(orders.project, orders.pipeline, request()).plan is None

    orders = orders.with_pipeline(text.format(new_shop.topic, f"{table}, {merged}".replace("type: int", "type: long")))
    assert len(apply(orders).changes) == 2

    for name in ("shop.orders", COPY):
        assert str(catalog(orders).load_table(name).schema().find_field("id").field_type) == "long"
    assert [batch.kind for batch in history(orders.project, orders.pipeline)] == ["start", "apply"]


def test_next_run_widens_declared_columns_where_the_table_evolves(shop: MakeShop) -> None:
    """With `evolve: widen` an edit of the file needs no command; without, the run names the command."""
    orders = rewritten(shop(partitions=1), "{table: shop.orders, columns: {id: int}}")
    put(orders, {"id": 1})
    orders.run()
    put(orders, {"id": 2**40})
    with pytest.raises(Terminal, match="column id: declared long, the table has int") as refusal:
        rewritten(orders, "{table: shop.orders, columns: {id: long}}").run()
    assert "frazil apply orders" in str(refusal.value.next_step)

    orders = rewritten(orders, "{table: shop.orders, columns: {id: long}, evolve: widen}")
    orders.run(stage=stage_inline)

    assert sorted(row["id"] for row in orders.rows()) == [1, 2**40]
    assert changes(orders) == [{"shop.orders": (SchemaChange(("id",), "widen", "long"),)}]
    assert_clean(orders)


def test_destination_that_is_new_to_the_file_gets_its_layout_and_then_rows(shop: MakeShop) -> None:
    """A table of others that a later file names: its part of the next batch fits the table as the apply left it."""
    orders = rewritten(shop(partitions=1), BEFORE[0])
    put(orders, {"id": 1})
    orders.run()
    lake(orders).create_table(COPY, Schema(NestedField(1, "id", IntegerType(), required=True)), UNPARTITIONED, {})
    orders = rewritten(
        orders, BEFORE[0], "{table: shop.copies, columns: {id: {type: int, required: true}}, partition_by: [id]}"
    )

    assert apply(orders).n == 2

    put(orders, {"id": 2})
    orders.run()
    assert [field.name for field in lake(orders).load_table(COPY).spec().fields] == ["id"]
    assert [[row["id"] for row in orders.rows(table)] for table in ("shop.orders", COPY)] == [[1, 2], [2]]
    assert_clean(orders)


def test_apply_that_slept_changes_nothing_behind_later_batches(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Another run finished it, and the next apply took the change back: the first one must not make it again."""
    text = "{table: shop.copies, columns: {id: {type: int, required: true}}, partition_by: [%s]}"
    plain, split = (text % fields for fields in ("", "id"))
    orders = rewritten(shop(partitions=1), BEFORE[0], plain)
    put(orders, {"id": 1})
    orders.run()
    put(orders, {"id": 2})
    newer = rewritten(orders, BEFORE[0], split)

    def rival() -> None:
        assert apply(newer) == AppliedFile()
        back = rewritten(orders, BEFORE[0], plain)
        assert apply(back).n == 3
        at_failpoint("decide.committed")  # its files are staged for the table as it is
        with suppress(Killed):
            back.run()

    at_failpoint("evolving", rival)
    with suppress(Terminal):  # batch 2 has a change on record that is not there any more
        apply(newer)

    orders.run()
    assert [field.name for field in lake(orders).load_table(COPY).spec().fields] == []
    assert sorted(row["id"] for row in orders.rows(COPY)) == [1, 2]
    assert_clean(orders)


@pytest.mark.parametrize("after", ["", ", sort_by: [note]"])
def test_order_is_what_the_batch_decided_whatever_the_file_says_by_then(
    shop: MakeShop, at_failpoint: AtFailpoint, after: str
) -> None:
    """Decided, killed, and the file edited, or without an order: the table is not left unsorted."""
    text = "{table: shop.orders, columns: {id: int, note: string}%s}"
    orders = rewritten(shop(partitions=1), text % "")
    put(orders, {"id": 1})
    orders.run()
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        apply(rewritten(orders, text % ", sort_by: ['bucket(4, id)', note desc]"))

    rewritten(orders, text % after).run()

    order = lake(orders).load_table("shop.orders").sort_order()
    assert [str(field.transform) for field in order.fields] == ["bucket[4]", "identity"]


def test_order_ends_in_a_table_that_always_had_one(shop: MakeShop) -> None:
    """A table that was made with an order does not know an empty one."""
    text = "{table: shop.orders, columns: {id: int}, sort_by: [%s]}"
    orders = rewritten(shop(partitions=1), text % "id")
    put(orders, {"id": 1})
    orders.run()

    assert apply(rewritten(orders, text % "")).n == 2
    assert lake(orders).load_table("shop.orders").sort_order().fields == []
    assert apply(rewritten(orders, text % "")) == AppliedFile()


def test_rows_in_other_files_are_not_declared_away(shop: MakeShop) -> None:
    """Rows in ORC files stay what they are, whatever the property says: neither runs nor applies take the table."""
    orders = rewritten(shop(partitions=1), BEFORE[0])
    put(orders, {"id": 1})
    orders.run()
    with lake(orders).load_table("shop.orders").transaction() as transaction:
        transaction.set_properties({"write.format.default": "orc"})

    orders = rewritten(orders, BEFORE[0][:-1] + ", properties: {write.format.default: parquet}}")

    for deed in (orders.run, lambda: apply(orders)):
        with pytest.raises(Terminal, match=r"write\.format\.default is orc"):
            deed()
