"""Tables that no file declares: made with the position, laid out with their columns, before any row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from frazil.batch.schema_change import Demands, SchemaChange
from frazil.errors import Terminal
from frazil.records.model.spec import Evolution, RecordSpec
from frazil.run.commit import audit
from frazil.run.commit.commit_batch import recover
from frazil.run.state.evolution import DemandFinder, columns_for, columns_of, evolve_for_records
from tests.evolving import PIPELINE, changes, evolving, put, rewritten, rows, task_by_task, types
from tests.integration.run.conftest import AtFailpoint
from tests.integration.run.test_dry_run import preview, state
from tests.letters import run_dead_letter_replay
from tests.operations import LETTERS, ORDERS, Killed, assert_clean, catalog, lake, scope

MakeShop = Callable[..., Any]

LAYOUT = "{table: shop.orders, columns: {at: timestamptz}, evolve: add, partition_by: [day(at)]}"
MANY = "['bucket(4, id)', 'truncate(3, name)', kind, day(_kafka_timestamp)]"


def test_partition_fields_are_set_before_first_rows(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """All partition fields are set with their columns, in one commit before any row; also if the run is killed there."""
    orders = evolving(shop, f"{{table: shop.orders, partition_by: {MANY}, sort_by: [name desc]}}")
    put(orders, *({"id": n, "name": f"name {n}", "kind": "ab"[n % 2]} for n in range(20)))
    at_failpoint("evolved")
    with pytest.raises(Killed):
        orders.run()

    orders.run()

    table = lake(orders).load_table("shop.orders")
    assert [f"{field.name} {field.transform}" for field in table.spec().fields] == [
        "_kafka_timestamp_day day",
        "id_bucket bucket[4]",
        "name_truncate truncate[3]",
        "kind identity",
    ]
    assert {task.file.spec_id for task in table.scan().plan_files()} == {table.spec().spec_id}
    assert table.schema().find_column_name(table.sort_order().fields[0].source_id) == "name"
    assert table.scan(row_filter="kind == 'a'").to_arrow().num_rows == 10
    assert_clean(orders)


def test_declared_partition_does_not_wait_for_records(shop: MakeShop) -> None:
    """Beside declared columns the layout is the table's from the start; columns that come change nothing of it."""
    orders = evolving(shop, LAYOUT)
    put(orders, {"at": "2026-01-02T03:04:05Z", "note": "x"})

    orders.run()

    table = lake(orders).load_table("shop.orders")
    assert ([field.name for field in table.spec().fields], len(table.specs())) == (["at_day"], 1)
    assert types(orders) == {"at": "timestamptz", "note": "string"}


def test_late_partition_column_moves_no_files(shop: MakeShop) -> None:
    """Files from before stay under the spec that they were written for; both are read."""
    orders = evolving(shop, "{table: shop.orders, partition_by: [kind]}")
    put(orders, {"id": 1})
    orders.run()
    put(orders, {"id": 2, "kind": "a"}, {"id": 3})

    orders.run()

    assert rows(orders, "shop.orders", "id", "kind") == [(1, None), (2, "a"), (3, None)]
    scanned = lake(orders).load_table("shop.orders").scan(row_filter="kind is null").to_arrow()
    assert sorted(scanned["id"].to_pylist()) == [1, 3]
    assert_clean(orders)


def test_column_that_can_not_partition_leaves_no_half_table(shop: MakeShop) -> None:
    """Text can't be partitioned by day: nothing is changed and nothing published, and both are named."""
    orders = evolving(shop, "{table: shop.orders, partition_by: [day(at)]}")
    put(orders, {"id": 1, "at": "2026-01-02"})

    with pytest.raises(Terminal, match=r"day\(at\) can't partition a column of type string"):
        orders.run()

    assert types(orders) == {}
    assert orders.rows() == []


def test_advice_for_column_that_can_not_partition_works(shop: MakeShop) -> None:
    """Declared as the message says, the column comes with its partition field, and is on record; a dry run says so first."""
    orders = evolving(shop, "{table: shop.orders, partition_by: [day(at)]}")
    put(orders, {"id": 1, "at": "2026-01-02T00:00:00Z"})
    with pytest.raises(Terminal, match="day"):
        orders.run()
    orders = rewritten(
        orders,
        "{table: shop.orders, columns: {at: {type: timestamptz, required: true}}, evolve: widen, partition_by: [day(at)]}",
    )

    remarks = preview(orders).remarks
    orders.run()

    table = lake(orders).load_table("shop.orders")
    assert remarks == tuple(
        f"a run would change table shop.orders first: {change}"
        for change in ("add at timestamptz", "partition at_day day(at)", "add id long")
    )
    assert ([field.name for field in table.spec().fields], types(orders)) == (
        ["at_day"],
        {"at": "timestamptz", "id": "long"},
    )
    assert [change.path for change in changes(orders)[-1]["shop.orders"]] == [("at",), ("at_day",), ("id",)]
    assert_clean(orders)


def test_declared_column_waits_for_decided_batch(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A column and a partition field that were declared since wait for the end of the batch that was staged without."""
    orders = evolving(shop, "{table: shop.orders}")
    orders.run()
    put(orders, {"id": 1})
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        orders.run()
    put(orders, {"id": 2})
    orders = rewritten(
        orders, "{table: shop.orders, columns: {kind: {type: string, default: a}}, evolve: add, partition_by: [kind]}"
    )

    orders.run()

    assert rows(orders, "shop.orders", "id", "kind") == [(1, None), (2, "a")]
    assert [field.name for field in lake(orders).load_table("shop.orders").spec().fields] == ["kind"]
    assert_clean(orders)


def test_declared_column_in_another_case_is_refused(shop: MakeShop) -> None:
    """Where case means nothing the file is refused before the table has both, and lands all once its case is right."""
    orders = evolving(shop)

    def declaring(destination: str) -> Any:
        definition = PIPELINE.format(topic=orders.topic, destinations=destination, max_records=1000)
        return orders.with_pipeline(definition + "value: {field_names: case_insensitive}\n")

    orders = declaring("{table: shop.orders}")
    put(orders, {"price": 1})
    orders.run()
    put(orders, {"Price": 2})

    with pytest.raises(Terminal, match="column Price: declared long, the table has price"):
        declaring("{table: shop.orders, columns: {Price: long}, evolve: widen}").run()
    orders = declaring("{table: shop.orders, columns: {price: long}, evolve: widen}")
    orders.run()

    assert types(orders) == {"price": "long"}
    assert rows(orders, "shop.orders", "price") == [(1,), (2,)]
    assert_clean(orders)


def test_missing_nested_namespaces_are_created(shop: MakeShop) -> None:
    """The namespaces of a new table are made, level by level, for it and for ledger and letters."""
    orders = evolving(shop, "{table: lake.raw.shop.orders}")
    put(orders, {"id": 1})

    orders.run()

    assert rows(orders, "lake.raw.shop.orders", "id") == [(1,)]
    assert lake(orders).tables() == [f"lake.raw.shop.orders{suffix}" for suffix in ("", "__dead_letters", "__ledger")]


def test_branch_gets_its_columns(shop: MakeShop) -> None:
    """A destination on a branch of its table gets its columns and rows there; what is on main stays."""
    orders = evolving(shop, "{table: shop.orders, branch: staged, partition_by: [kind]}")
    put(orders, {"id": 1, "kind": "a"})
    orders.run()
    put(orders, {"id": 2, "kind": "b", "note": "x"})

    orders.run()

    table = catalog(orders).load_table("shop.orders")
    on_branch = table.scan().use_ref("staged").to_arrow().to_pylist()
    assert sorted((row["id"], row["kind"], row["note"]) for row in on_branch) == [(1, "a", None), (2, "b", "x")]
    assert table.scan().to_arrow().num_rows == 0
    assert_clean(orders)


def test_table_without_any_column_is_created(shop: MakeShop) -> None:
    """Without Kafka columns a new table has none at all, until the first record."""
    orders = evolving(shop, "{table: shop.orders, kafka_columns: false}")
    orders.run()
    put(orders, {"id": 1})

    orders.run()

    assert orders.rows() == [{"id": 1}]


def test_records_do_not_explode_schema(shop: MakeShop) -> None:
    """Fields beyond the limit are kept in one column, none is lost, and the next batch changes nothing more."""
    orders = evolving(shop, "{table: shop.orders, max_columns: 3}")
    put(orders, {f"f{n}": n for n in range(6)})
    orders.run()
    put(orders, {f"f{n}": n for n in range(4, 9)})

    orders.run()

    assert types(orders) == {"f0": "long", "f1": "long", "f2": "long", "_rescued": "string"}
    assert rows(orders, "shop.orders", "f0", "_rescued") == [
        (0, '{"f3":3,"f4":4,"f5":5}'),
        (None, '{"f4":4,"f5":5,"f6":6,"f7":7,"f8":8}'),
    ]
    assert len(changes(orders)) == 1
    assert_clean(orders)


def test_dry_run_changes_no_tables(shop: MakeShop) -> None:
    """It counts as a run would, says what that would change first, and changes nothing; also before the first run."""
    orders = evolving(shop, "{table: shop.orders, columns: {id: int}, evolve: widen}")
    put(orders, {"id": 1, "note": "x"}, {"id": "bad"}, {"id": 2**40})
    before = state(orders)

    first = preview(orders)

    assert (first.counts.written, first.counts.dead) == (2, 1)
    remarks = [remark for remark in first.remarks if "would change" in remark]
    assert remarks == [
        "a run would change table shop.orders first: widen id long",
        "a run would change table shop.orders first: add note string",
    ]
    assert state(orders) == before
    orders.run()
    assert (len(orders.rows()), len(orders.rows(LETTERS))) == (2, 1)
    assert not [remark for remark in preview(orders).remarks if "would change" in remark]


def test_replayed_dead_letters_bring_their_columns(shop: MakeShop) -> None:
    """Dead letters that another file takes get the columns that they need, on record, in their batch."""
    orders = evolving(shop, "{table: shop.orders, columns: {id: int}}")
    put(orders, {"id": 2**40, "note": "x"}, {"id": 1})
    orders.run()
    orders = rewritten(orders, "{table: shop.orders, columns: {id: int}, evolve: widen}")

    assert run_dead_letter_replay(orders, dry_run=True).landed == 1
    assert types(orders) == {"id": "int"}
    assert run_dead_letter_replay(orders).landed == 1

    assert types(orders) == {"id": "long", "note": "string"}
    assert rows(orders, "shop.orders", "id", "note") == [(2**40, "x"), (1, None)]
    assert changes(orders)[-1]["shop.orders"] == (
        SchemaChange(("id",), "widen", "long"),
        SchemaChange(("note",), "add", "string"),
    )
    assert_clean(orders)


def test_superseded_staged_files_are_deleted(shop: MakeShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was staged before a table changed and is not used is deleted."""
    dropped: list[str] = []
    really = audit.delete_files
    monkeypatch.setattr(audit, "delete_files", lambda table, paths: (dropped.extend(paths), really(table, paths)))
    orders = evolving(shop, "{table: shop.orders, partition_by: [kind]}", partitions=2)
    put(orders, {"id": 1})
    orders.run()
    put(orders, {"id": 2}, partition=0)
    put(orders, {"id": 3, "kind": "a"}, partition=1)

    staged: list[Any] = []
    orders.run(stage=task_by_task(staged))

    assert [len(specs) for specs in staged] == [2, 2]  # a new spec: all of it is staged again
    assert len(dropped) == 1
    assert not lake(orders).load_table("shop.orders").io.new_input(dropped[0]).exists()
    assert_clean(orders)


def demanding(columns: int) -> DemandFinder:
    """Letters that show one missing column at a time, each behind the one before."""

    def find(schemas: Mapping[str, pa.Schema]) -> tuple[Demands, Mapping[str, RecordSpec]]:
        specs = {ORDERS: RecordSpec(schemas[ORDERS], evolution=Evolution())}
        lacking = [f"field{n}" for n in range(columns) if f"field{n}" not in schemas[ORDERS].names]
        demands = {ORDERS: tuple(SchemaChange((name,), "add", "long") for name in lacking[:1])} if lacking else {}
        return demands, specs

    return find


def test_letters_get_their_columns_round_by_round(shop: MakeShop) -> None:
    """Each round brings the table further, so another one follows; a dry run goes as far."""
    orders = evolving(shop)
    put(orders, {"id": 1})
    orders.run()
    tables = recover(scope(orders))[1]

    after, applied = evolve_for_records(scope(orders), tables, 2, demanding(7))

    names = [f"field{n}" for n in range(7)]
    assert [change.path for change in applied[ORDERS]] == [(name,) for name in names]
    assert columns_of(orders.pipeline, after)[ORDERS].names[-7:] == names
    assert columns_for(columns_of(orders.pipeline, tables), demanding(7))[ORDERS].names[-7:] == names


def test_letters_that_no_column_helps_end_after_few_rounds(shop: MakeShop) -> None:
    """Rounds that change nothing would be followed by the same ones for ever; a few may follow a catalog that lags."""
    orders = evolving(shop)
    put(orders, {"id": 1})
    orders.run()
    tables = recover(scope(orders))[1]
    requests = []

    def find(schemas: Mapping[str, pa.Schema]) -> tuple[Demands, Mapping[str, RecordSpec]]:
        requests.append(schemas)
        demands = {ORDERS: (SchemaChange(("id",), "add", "long"),)}
        return demands, {ORDERS: RecordSpec(schemas[ORDERS], evolution=Evolution())}

    with pytest.raises(Terminal, match=r"changed 4 times and still lack shop\.orders: add id long"):
        evolve_for_records(scope(orders), tables, 2, find)

    assert len(requests) == 4
