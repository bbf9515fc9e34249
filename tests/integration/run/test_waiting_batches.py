"""Batches that wait between decision and record, and runs that look or sleep while others move the tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from frazil.batch.changes import Coordinates, Removal, RemovedRange
from frazil.batch.manifest import Manifest
from frazil.batch.position import RunRequest
from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.commit.commit import fit_of
from frazil.iceberg.commit.summary_state import BATCH_KEY, MANIFEST_KEY, POSITION_KEY
from frazil.kafka.admin.consumer_group import group_offsets
from frazil.run.batches.plan import plan_run
from frazil.run.commit import commit_followers
from frazil.run.state.pipeline_state import pipeline_state, read_manifest
from frazil.run.state.tables import open_tables
from tests.operations import (
    LEDGER,
    LETTERS,
    ORDERS,
    Killed,
    assert_clean,
    bad,
    catalog,
    lake,
    letters,
    order,
    places,
    repair,
    roll_back,
    scope,
    send,
    to_table,
)

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]
BetweenLoads = Callable[[str, Callable[[], object]], None]


def landed(shop: MakeShop) -> Any:
    """One batch of a good and a bad record, in one partition."""
    orders = shop(partitions=1)
    land(orders, 0)
    return orders


def land(orders: Any, first: int) -> None:
    """Send a good and a bad record, and run."""
    send(orders, {0: [order(first), bad(first + 1)]})
    orders.run()


def decided(orders: Any, at_failpoint: AtFailpoint) -> tuple[Manifest, str]:
    """A second batch that is decided and has to wait; its manifest and where that lies."""
    send(orders, {0: [order(2), bad(3)]})
    at_failpoint("decide.committed")
    with pytest.raises(Killed):
        orders.run()
    tables = open_tables(lake(orders), orders.pipeline)
    now = pipeline_state(orders.pipeline, tables)
    assert now.unfinished
    assert now.mark is not None
    return read_manifest(tables, orders.pipeline, now.mark, now.manifest)


def assert_all(orders: Any, count: int) -> None:
    """Every record has its one outcome: even offsets are rows, odd ones letters."""
    assert places(orders) == [(0, o) for o in range(0, count, 2)]
    assert [(p, o) for p, o, _ in letters(orders)] == [(0, o) for o in range(1, count, 2)]
    assert_clean(orders)


def test_batch_with_deleted_staged_files_is_refused_and_repaired(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Files that were deleted while their batch waited are never committed: refused by name, a repair lands them."""
    orders = landed(shop)
    manifest, _ = decided(orders, at_failpoint)
    table = lake(orders).load_table(LETTERS)
    (staged,) = manifest.followers[0].files
    table.io.delete(staged.path)

    with pytest.raises(Terminal, match="orphan removal") as refused:
        orders.run()

    assert staged.path in str(refused.value)
    assert f"frazil repair orders {LETTERS} --reason" in str(refused.value)
    assert lake(orders).load_table(LETTERS).metadata == table.metadata
    repair(orders, LETTERS)
    assert orders.run().batches == 0
    assert_all(orders, 4)


def test_old_batch_with_its_files_is_finished(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A batch that waited long and lost nothing is finished; so is one whose letters are in already."""
    orders = landed(shop)
    decided(orders, at_failpoint)
    at_failpoint("follow.committed")
    with pytest.raises(Killed):
        orders.run()

    orders.run()

    assert_all(orders, 4)


@pytest.fixture
def between_loads(monkeypatch: pytest.MonkeyPatch) -> BetweenLoads:
    """Do something, once, right after a table was loaded: `between_loads(table, deed)`."""
    load = Lake.find_table

    def arrange(table: str, deed: Callable[[], object]) -> None:
        waiting = [deed]

        def find(self: Lake, name: str) -> Table | None:
            loaded = load(self, name)
            if name == table and waiting:
                waiting.pop()()
            return loaded

        monkeypatch.setattr(Lake, "find_table", find)

    return arrange


def test_dead_letters_of_rival_are_not_taken_for_loss(shop: MakeShop, between_loads: BetweenLoads) -> None:
    """A rival lands a batch with letters and one without between two table loads: nothing was lost, the run goes on."""
    orders = landed(shop)

    def rival() -> None:
        land(orders, 2)
        send(orders, {0: [order(4)]})
        orders.run()

    between_loads(LEDGER, rival)

    assert orders.run().batches == 0
    assert_all(orders, 5)


def test_first_run_of_rival_is_not_taken_for_lost_ledger(shop: MakeShop, between_loads: BetweenLoads) -> None:
    """A rival begins the pipeline right after the empty ledger was loaded: that ledger was not made anew."""
    orders = shop(partitions=1)
    open_tables(lake(orders), orders.pipeline)
    between_loads(LEDGER, lambda: land(orders, 0))

    assert orders.run().batches == 0
    assert_all(orders, 2)


@pytest.mark.parametrize("point", ["decide.committed", "follow.committing"])
def test_late_dead_letters_of_abandoned_batch_do_not_block_rewind(
    shop: MakeShop, at_failpoint: AtFailpoint, point: str
) -> None:
    """A sleeper lands its letters after a rewind was decided in the closing table: they go out with the batch."""
    orders = landed(shop)
    manifest, path = decided(orders, at_failpoint)
    roll_back(orders, ORDERS)
    at_failpoint(point, lambda: commit_followers.commit_follower(scope(orders), manifest, manifest.followers[0], path))

    to_table(orders)
    orders.run()

    assert_all(orders, 4)


def test_late_dead_letters_do_not_land_after_rewind(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """Once the rewind is done, the sleeper is sent back and its letters don't stand twice."""
    orders = landed(shop)
    manifest, path = decided(orders, at_failpoint)
    roll_back(orders, ORDERS)
    to_table(orders)
    orders.run()

    with pytest.raises(Retryable, match="finished by another run"):
        commit_followers.commit_follower(scope(orders), manifest, manifest.followers[0], path)

    assert_all(orders, 4)


def test_paused_run_needs_no_person(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A run that slept over its batch's end and an expiry of the letters is told to run again, and does."""
    orders = landed(shop)

    def others() -> None:
        orders.run()
        land(orders, 4)
        table = lake(orders).load_table(LETTERS)
        now = table.metadata.current_snapshot_id
        old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id != now]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    send(orders, {0: [order(2), bad(3)]})
    at_failpoint("decide.committed", others)
    with pytest.raises(Retryable, match="finished by another run"):
        orders.run()

    assert orders.run().batches == 0
    assert_all(orders, 6)


@pytest.mark.parametrize("is_rolled_back", [False, True], ids=["finished", "rewound"])
def test_consumer_group_follows_plan_that_lands_nothing(
    shop: MakeShop, at_failpoint: AtFailpoint, is_rolled_back: bool
) -> None:
    """A plan that finishes another run's batch moves the consumer group, although it lands none; so does a rewind."""
    orders = landed(shop)
    if is_rolled_back:
        land(orders, 2)
        roll_back(orders, ORDERS)
    else:
        decided(orders, at_failpoint)
    before = committed(orders)

    if is_rolled_back:
        to_table(orders)
    else:
        plan_run(orders.project, orders.pipeline, RunRequest("only-planned"))

    assert (before, committed(orders)) == ((4, 2) if is_rolled_back else (2, 4))


def committed(orders: Any) -> int:
    """The offset that lag tools see."""
    return group_offsets(orders.cluster, orders.pipeline.consumer_group)[orders.topic, 0]


@pytest.mark.parametrize("command", ["run", "repair"])
def test_foreign_manifest_changes_no_tables_of_others(shop: MakeShop, at_failpoint: AtFailpoint, command: str) -> None:
    """Who may commit to the closing table names a manifest of his own there: the other table stays as it is."""
    orders = landed(shop)
    manifest, path = decided(orders, at_failpoint)
    theirs = catalog(orders).create_table("shop.theirs", lake(orders).load_table(LETTERS).schema())
    theirs.append(lake(orders).load_table(LETTERS).scan().to_arrow())
    (part,) = manifest.followers
    columns = Coordinates("topic", "partition", "offset", "_frazil_batch")
    removal = Removal(columns, (RemovedRange(orders.topic, 0, 0, None, 0),))
    forged = replace(part, table="shop.theirs", fit=fit_of(theirs.metadata), after=None, files=(), removal=removal)
    closing = catalog(orders).load_table(ORDERS)
    other = path.replace("frazil-orders", "forged")
    with closing.io.new_output(other).create() as file:
        file.write(replace(manifest, followers=(part, forged)).to_json().encode())
    decided_in, summary = (
        closing.current_snapshot().snapshot_id,
        closing.current_snapshot().summary.additional_properties,
    )
    keys = (POSITION_KEY.format("orders"), BATCH_KEY.format("orders"))
    closing.append(
        closing.schema().as_arrow().empty_table(),
        snapshot_properties={key: summary[key] for key in keys} | {MANIFEST_KEY: other},
    )
    head = closing.current_snapshot().snapshot_id
    values = {key: json.loads(closing.properties[key])["value"] for key in keys}
    properties = {key: json.dumps({"value": value, "snapshot": head}) for key, value in values.items()}
    closing.transaction().set_properties(properties).commit_transaction()
    before = catalog(orders).load_table("shop.theirs").metadata

    with pytest.raises(Terminal, match=r"gives parts to shop\.theirs: neither .* knows them") as refused:
        orders.run() if command == "run" else repair(orders, LETTERS)

    assert "somebody else committed to shop.orders: roll that commit back" in str(refused.value)
    assert catalog(orders).load_table("shop.theirs").metadata == before
    properties = {key: json.dumps({"value": value, "snapshot": decided_in}) for key, value in values.items()}
    roll_back(orders, ORDERS)
    catalog(orders).load_table(ORDERS).transaction().set_properties(properties).commit_transaction()
    orders.run()
    assert_all(orders, 4)


def test_file_that_is_no_manifest_is_not_quoted(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A path in a table may be that of any file that the storage holds."""
    orders = landed(shop)
    _, path = decided(orders, at_failpoint)
    closing = catalog(orders).load_table(ORDERS)
    with closing.io.new_output(path).create(overwrite=True) as file:
        file.write(b'{"password": "s3cret"}')
    with pytest.raises(Terminal, match="this is not a manifest") as refused:
        orders.run()
    assert "s3cret" not in str(refused.value)
