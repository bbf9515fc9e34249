"""What Frazil needs of a catalog, asked of each kind that it takes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from frazil.batch.facts import Staged
from frazil.batch.position import RunRequest
from frazil.errors import OutcomeUnknown, Retryable, Terminal
from frazil.iceberg.catalog import hive
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.hive import SharedHiveCatalog
from frazil.iceberg.commit import expiry
from frazil.iceberg.commit.summary_state import POSITION_KEY
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.project import catalog_of
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import StageOrder, stage_inline
from tests.evolving import put, rewritten, rows, types
from tests.integration.catalogs.conftest import Store
from tests.operations import (
    LETTERS,
    ORDERS,
    TABLES,
    assert_clean,
    bad,
    drop,
    lake,
    landed,
    ledger,
    letters,
    order,
    places,
    position,
    repair,
    replay,
    roll_back,
    send,
    state,
    to_table,
)

pytestmark = [
    pytest.mark.tried("Catalog in SQLite", "real"),
    pytest.mark.tried("Catalog in PostgreSQL", "real"),
    pytest.mark.tried("REST catalog: Iceberg's own server", "real"),
    pytest.mark.tried("Hive Metastore", "real"),
    pytest.mark.tried("AWS Glue as a catalog", "test double"),
]

MakeShop = Callable[..., Any]

IDS = Schema(NestedField(1, "id", LongType(), required=False))


def outcomes(shop: Any) -> tuple[list[int], list[int]]:
    """Offsets of rows and of dead letters, of one partition."""
    return [offset for _, offset in places(shop)], [offset for _, offset, _ in letters(shop)]


def batch_of(shop: Any, n: int) -> None:
    """Send four records: two good, two bad."""
    send(shop, {0: [order(4 * n), bad(4 * n + 1), order(4 * n + 2), bad(4 * n + 3)]})


def assert_all(shop: Any, batches: int) -> None:
    """Every record of so many batches has its one outcome, and another run changes nothing."""
    assert outcomes(shop) == (list(range(0, 4 * batches, 2)), list(range(1, 4 * batches, 2)))
    assert_clean(shop)
    before = state(shop)
    assert (shop.run().read, state(shop)) == (0, before)


def test_position_and_rows_move_in_one_snapshot(catalog_shop: MakeShop) -> None:
    """The first commit holds the start and no row; each later one rows and position in one snapshot; letters and ledger follow."""
    orders = catalog_shop(partitions=1, start="latest")
    batch_of(orders, 0)
    orders.run()
    assert (position(orders).n, outcomes(orders)) == (0, ([], []))
    batch_of(orders, 1)

    result = orders.run()

    assert (result.read, result.written, result.dead) == (4, 2, 2)
    assert outcomes(orders) == ([4, 6], [5, 7])
    summary = lake(orders).load_table(ORDERS).current_snapshot().summary
    assert (summary["added-records"], summary[POSITION_KEY.format("orders")]) == ("2", position(orders).moves_json())
    assert sorted({row["n"] for row in ledger(orders)}) == [0, 1]
    assert lake(orders).tables() == sorted(TABLES)
    assert_clean(orders)


def test_rival_does_not_land_same_records_again(catalog_shop: MakeShop) -> None:
    """Who staged the same records and commits second is refused, and so is a plan that was overtaken."""
    orders = landed(catalog_shop, 1)
    batch_of(orders, 1)
    overtaken = plan_run(orders.project, orders.pipeline, RunRequest("overtaken")).plan
    rivals: list[Any] = []

    def overtaken_while_staging(staging: StageOrder) -> Staged:
        staged = stage_inline(staging)
        if not rivals:
            rivals.append(orders.run())
        return staged

    orders.run(stage=overtaken_while_staging)
    ingest(orders.project, orders.pipeline, overtaken, stage_inline, lambda _: None)

    assert ([rival.written for rival in rivals], position(orders).n) == ([2], 2)
    assert_all(orders, 2)


def test_lost_answer_neither_doubles_nor_loses_records(catalog_shop: MakeShop, store: Store) -> None:
    """A commit that landed and is told to have failed: the run reads the table again and goes on, whichever table it is."""
    orders = landed(catalog_shop, 1)
    for number, table in enumerate(TABLES, 1):
        batch_of(orders, number)
        store.faults.lose_answer(table)

        result = orders.run()

        assert (result.written, store.faults.unused) == (2, 0)
    assert_all(orders, 4)


def test_silent_catalog_leaves_outcome_unknown_until_next_run(catalog_shop: MakeShop, store: Store) -> None:
    """With no answer and no way to read the table the run says that it does not know; the next one finds out."""
    orders = landed(catalog_shop, 1)
    for number, table in enumerate(TABLES, 1):
        batch_of(orders, number)
        store.faults.fall_silent(table)
        with pytest.raises(OutcomeUnknown, match=f"a commit to table {table} was sent and the table can't be read"):
            orders.run()
        assert store.faults.unused == 0

        orders.run()
    assert_all(orders, 4)


def test_table_follows_its_records(catalog_shop: MakeShop) -> None:
    """Columns and partitions of an undeclared table, then a new column and a wider one."""
    orders = rewritten(catalog_shop(partitions=1), "{table: shop.orders, partition_by: [kind]}")
    put(orders, {"id": 1, "kind": "a"})
    orders.run()
    put(orders, {"id": 2, "kind": "b", "price": 0.5})

    orders.run()

    assert types(orders) == {"id": "long", "kind": "string", "price": "double"}
    assert [field.name for field in lake(orders).load_table(ORDERS).spec().fields] == ["kind"]
    assert rows(orders, ORDERS, "id", "kind", "price") == [(1, "a", None), (2, "b", 0.5)]
    assert_clean(orders)


def test_replay_shows_whole_range_once(catalog_shop: MakeShop, store: Store) -> None:
    """Shown by one commit; an answer that is lost on the way changes nothing."""
    orders = landed(catalog_shop, 2)
    store.faults.lose_answer(ORDERS)

    replay(orders, "earliest")

    assert store.faults.unused == 0
    [n] = {row["n"] for row in ledger(orders, "replay")}
    assert {row["_frazil_batch"] for row in orders.rows()} == {n}
    assert list(lake(orders).load_table(ORDERS).metadata.refs) == ["main"]
    assert_all(orders, 2)


def test_expiry_keeps_position(catalog_shop: MakeShop) -> None:
    """Somebody commits on top and expires everything of ours: the property still tells."""
    orders = landed(catalog_shop, 2)
    table = lake(orders).load_table(ORDERS)
    table.append(pa.Table.from_pylist([], schema=table.schema().as_arrow()))
    table = lake(orders).load_table(ORDERS)
    head = table.metadata.current_snapshot_id
    ours = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id != head]
    table.maintenance.expire_snapshots().by_ids(ours).commit()
    batch_of(orders, 2)

    assert orders.run().read == 4

    assert_all(orders, 3)


def test_batches_take_old_snapshots_out_and_tag_hours(catalog_shop: MakeShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """B1: in the commits of a batch. An hour is read by its tag, and the batches go on."""
    orders = landed(catalog_shop, 1)
    for name in TABLES:
        with lake(orders).load_table(name).transaction() as change:
            change.set_properties({"history.expire.min-snapshots-to-keep": "1"})
    monkeypatch.setattr(expiry, "RECENT", 1)
    for n in range(1, 6):
        monkeypatch.setattr(expiry, "_HOUR_MS", 1 if n == 5 else 1_000 * 3_600_000)
        batch_of(orders, n)
        assert orders.run().read == 4

    for name in TABLES:
        table = lake(orders).load_table(name)
        [hour] = (ref for of, ref in table.metadata.refs.items() if of.startswith("frazil-hourly-"))
        assert len(table.metadata.snapshots) == 3
        assert hour.max_ref_age_ms is not None
        assert 0 < table.scan(snapshot_id=hour.snapshot_id).count() < table.scan().count()
    assert_all(orders, 6)
    roll_back(orders, ORDERS)
    to_table(orders)
    orders.run()
    assert_all(orders, 6)


def test_rollback_or_drop_is_noticed(catalog_shop: MakeShop) -> None:
    """Rolled back records come again, on demand; tables that are gone are refused by name, with the way on."""
    orders = landed(catalog_shop, 2)
    roll_back(orders, ORDERS)
    to_table(orders)
    orders.run()
    assert position(orders).epoch == 1
    assert_all(orders, 2)
    drop(orders, LETTERS)
    batch_of(orders, 2)
    with pytest.raises(Terminal, match=f"frazil repair orders {LETTERS} --reason"):
        orders.run()
    repair(orders, LETTERS)
    orders.run()
    assert_all(orders, 3)

    drop(orders, ORDERS)

    with pytest.raises(Terminal, match="frazil reset orders --to earliest"):
        orders.run()


def own_lake(store: Store) -> Lake:
    """The catalog, opened anew as another process does."""
    return catalog_of("lake", CatalogSettings(**store.entry))


def test_table_is_created_once(store: Store) -> None:
    """Catalog, namespace and table are made by many at the same moment: there is one, and nobody fails."""
    name = "shop.orders" if store.kind in ("hive", "glue") else "shop.eu.orders"

    def make(_: int) -> str:
        own = own_lake(store)
        try:
            return str(own.create_table(name, IDS, UNPARTITIONED_PARTITION_SPEC, {}).metadata.table_uuid)
        finally:
            own.close()

    with ThreadPoolExecutor(8) as pool:
        locations = set(pool.map(make, range(8)))

    assert len(locations) == 1


def commits_at_once(store: Store) -> tuple[list[int], int]:
    """Those of 18 commits of six at one moment, each sent until it is confirmed, that the table lacks; and how many it counts."""
    own_lake(store).create_table("shop.orders", IDS, UNPARTITIONED_PARTITION_SPEC, {})

    def commit(number: int) -> None:
        own = own_lake(store)
        for _ in range(50):
            with suppress(Retryable):
                return own.set_property("shop.orders", f"of.{number}", "landed")
        raise AssertionError(number)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(commit, range(18)))
    table = own_lake(store).load_table("shop.orders")
    return [n for n in range(18) if f"of.{n}" not in table.properties], len(table.metadata.metadata_log)


def test_commits_of_many_all_land(store: Store) -> None:
    """Commits at one moment take turns: each is in the table, or its sender hears that it is not, and sends it again."""
    assert commits_at_once(store) == ([], 18)


@pytest.mark.parametrize("store", ["hive", "glue"], indirect=True)
def test_metastore_compares_what_a_commit_replaces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the lock ended before the commit: here each commit locks a name of its own."""
    lock = SharedHiveCatalog._create_lock_request
    monkeypatch.setattr(
        SharedHiveCatalog, "_create_lock_request", lambda catalog, space, _: lock(catalog, space, uuid4().hex)
    )
    assert commits_at_once(store) == ([], 18)


@pytest.mark.parametrize("store", ["hive"], indirect=True)
def test_lock_of_a_killed_run_is_taken_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next one, once it is old enough that nobody can be at work under it."""
    lake = own_lake(store)
    lake.create_table("shop.orders", IDS, UNPARTITIONED_PARTITION_SPEC, {})
    catalog: Any = lake._catalog
    with catalog._client as client:
        client.lock(catalog._create_lock_request("shop", "orders"))
    monkeypatch.setattr(hive, "_LOCKS", {"lock-check-max-wait-time": "0.1", "lock-check-retries": "2"})
    with pytest.raises(Retryable, match="Failed to acquire lock"):
        own_lake(store).set_property("shop.orders", "of", "nobody")

    monkeypatch.setattr(hive, "_STALE_SECONDS", -60)
    own_lake(store).set_property("shop.orders", "of", "next")

    assert lake.load_table("shop.orders").properties["of"] == "next"


@pytest.mark.parametrize("store", ["hive"], indirect=True)
def test_letters_that_a_metastore_may_lack_stop_no_commit(store: Store) -> None:
    """In columns and properties that it refuses: they are in the table all the same, only Hive's copy is without them."""
    lake = own_lake(store)
    table = lake.create_table("shop.orders", IDS, UNPARTITIONED_PARTITION_SPEC, {"of": "nobody", "comment": "注文"})
    with table.update_schema() as change:
        change.add_column("x" * 800, LongType(), doc="注文")  # refused by its length: Derby takes all letters

    loaded, catalog = lake.load_table("shop.orders"), lake._catalog
    assert (loaded.properties["comment"], loaded.schema().fields[-1].doc) == ("注文", "注文")
    with catalog._client as client:  # type: ignore[attr-defined]  # Hive's
        copy = client.get_table("shop", "orders")
    assert (copy.sd.cols, copy.parameters["of"], copy.parameters.get("comment")) == ([], "nobody", None)


@pytest.mark.parametrize("name", ["x" * 800, "Id", "a b.c", "ü"])
def test_odd_columns_stop_no_table(store: Store, name: str) -> None:
    """A record's field may have any name: what the catalog can't show of it is in the table all the same."""
    lake = own_lake(store)
    table = lake.create_table("shop.orders", IDS, UNPARTITIONED_PARTITION_SPEC, {})
    parts = StructType(*(NestedField(10 + n, f"part{n}", StringType(), required=False) for n in range(400)))

    with table.update_schema() as change:
        change.add_column((name,), parts)
    with lake.load_table("shop.orders").update_schema() as change:
        change.add_column((name, "more"), LongType())

    assert lake.load_table("shop.orders").schema().find_type(f"{name}.more") == LongType()
