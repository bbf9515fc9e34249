"""Tables that the pipeline file does not list, and that records name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest

from frazil.batch.changes import LetterChoice
from frazil.batch.facts import Staged
from frazil.batch.manifest import Manifest
from frazil.batch.position import RunRequest
from frazil.errors import Terminal
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.table import read_text
from frazil.iceberg.commit.summary_state import MANIFEST_KEY, POSITION_KEY, summary_value_or_refuse
from frazil.run.batches.dry_run import dry_run, plan_dry_run
from frazil.run.repair.dead_letter_replay import replay_dead_letters
from frazil.run.staging.stage import StageOrder, stage_inline
from frazil.run.state.context import EngineNeeded
from tests import made as shops
from tests.integration.run.conftest import AtFailpoint
from tests.made import auto_created, fill, ids, letters
from tests.operations import (
    LEDGER,
    Killed,
    assert_clean,
    catalog,
    drop,
    lake,
    ledger,
    repair,
    replay,
    request,
    reset,
    scope,
    send,
)

MAKING = (Failpoint.CREATING, Failpoint.CREATED, Failpoint.AUDITED, Failpoint.MANIFEST_WRITTEN)
"""Nobody is told of the new tables yet."""

POINTS = (Failpoint.DECIDE_COMMITTED, Failpoint.FOLLOW_COMMITTED, Failpoint.RECORD_COMMITTED)
"""They are the pipeline's, and the batch is not finished."""


def test_unlisted_table_is_created_and_filled(shop: Callable[..., Any]) -> None:
    """It is made with the template's columns, gets its rows in the batch that names it, and is the pipeline's from then on."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"), (2, "shop.b"), (3, "shop.a"))
    orders.run()
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [1, 3], "shop.b": [2]}
    assert auto_created(orders) == ("shop.a", "shop.b")
    fill(orders, (4, "shop.b"), (5, "shop.c"))
    orders.run()
    assert ids(orders, ("shop.b", "shop.c")) == {"shop.b": [2, 4], "shop.c": [5]}
    assert {row["table"] for row in ledger(orders) if row["role"] == "destination"} == {"shop.a", "shop.b", "shop.c"}
    assert orders.run().batches == 0
    assert_clean(orders)


def test_auto_created_tables_get_columns_of_their_records(shop: Callable[..., Any]) -> None:
    """A template without columns: each new table gets those of its own records, in the same batch."""
    orders = shops.auto_creating(shop, template="partition_by: ['day(_kafka_timestamp)']")
    fill(orders, (1, "shop.a"), (2, "shop.b"))
    send(orders, {0: [shops.record(3, "shop.b", price=1.5)]})
    orders.run()
    assert [row["price"] for row in orders.rows("shop.b")] == [None, 1.5]
    assert "price" not in orders.rows("shop.a")[0]
    assert len(lake(orders).load_table("shop.a").spec().fields) == 1
    assert_clean(orders)


def test_forbidden_table_names_are_dead_letters(shop: Callable[..., Any]) -> None:
    """Refused names, own tables, other writers' tables and what is no name are dead letters, and nothing is made."""
    orders = shops.auto_creating(shop)
    orders.run()  # now there is a catalog
    catalog(orders).create_table("shop.theirs", shops.SCHEMA)
    bad = ["other.a", "shop.secret", "shop.x__ledger", "shop.x__dead_letters", "shop.a b", "shop.a/../b", None, 7]
    fill(orders, (1, "shop.ok"), *((2, table) for table in bad), (3, "shop.theirs"))
    orders.run()
    assert auto_created(orders) == ("shop.ok",)
    codes = [code for _, code in letters(orders)]
    assert codes == ["UNROUTED"] * len(bad) + ["TABLE_NOT_MADE"]
    assert lake(orders).load_table("shop.theirs").current_snapshot() is None
    assert_clean(orders)


def test_run_creates_at_most_permitted_number_of_tables(shop: Callable[..., Any]) -> None:
    """The first names in their order are made, in whatever batch; the rest are open dead letters, which a replay lands later."""
    orders = shops.auto_creating(shop, most=2, max_records=3)
    fill(orders, (1, "shop.d"), (2, "shop.b"), (3, "shop.c"), (4, "shop.a"), (5, "shop.b"))
    orders.run()
    assert auto_created(orders) == ("shop.b", "shop.c")
    assert letters(orders) == [(0, "TABLE_NOT_MADE"), (3, "TABLE_NOT_MADE")]
    assert_clean(orders)
    fill(orders, (6, "shop.d"))
    orders.run()
    assert auto_created(orders) == ("shop.b", "shop.c", "shop.d")
    assert_clean(orders)  # the letter of a table that is there by now is still its record's outcome
    replay_dead_letters(scope(orders), LetterChoice(), request())
    assert ids(orders, ("shop.a", "shop.d")) == {"shop.a": [4], "shop.d": [1, 6]}
    assert letters(orders) == []
    assert_clean(orders)


@pytest.mark.short("created")
@pytest.mark.parametrize("point", [*MAKING, *POINTS])
def test_kill_around_table_creation_lands_every_record_once(
    shop: Callable[..., Any], at_failpoint: AtFailpoint, point: Failpoint
) -> None:
    """The next run takes the tables that are there for its own, makes what is missing, and lands every record once."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"), (2, "shop.b"), (3, "shop.a"))
    first = 2 if point in (Failpoint.DECIDE_COMMITTED, Failpoint.RECORD_COMMITTED) else 1
    at_failpoint(point, nth=1 if point in MAKING or point is Failpoint.FOLLOW_COMMITTED else first)
    with pytest.raises(Killed):
        orders.run()
    fill(orders, (4, "shop.b"), (5, "shop.c"))
    orders.run()
    assert ids(orders, ("shop.a", "shop.b", "shop.c")) == {"shop.a": [1, 3], "shop.b": [2, 4], "shop.c": [5]}
    assert_clean(orders)


def test_two_runs_create_same_table_once(shop: Callable[..., Any], at_failpoint: AtFailpoint) -> None:
    """The one that comes second finds the table made, and its batch refused; every record is there once."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"), (2, "shop.b"))
    at_failpoint(Failpoint.CREATING, orders.run)
    orders.run()
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [1], "shop.b": [2]}
    assert auto_created(orders) == ("shop.a", "shop.b")
    assert_clean(orders)


def test_table_created_by_others_meanwhile_stays_theirs(shop: Callable[..., Any], at_failpoint: AtFailpoint) -> None:
    """It is theirs then: the record is a dead letter, and their table stays as they made it."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"), (2, "shop.b"))
    at_failpoint(Failpoint.CREATING, lambda: catalog(orders).create_table("shop.a", shops.SCHEMA))
    orders.run()
    assert auto_created(orders) == ("shop.b",)
    assert letters(orders) == [(0, "TABLE_NOT_MADE")]
    assert_clean(orders)


@pytest.mark.embedded
def test_table_names_differing_in_case_only_do_not_share_table(shop: Callable[..., Any]) -> None:
    """Where case means nothing, the first name has the table; records of the other one are dead letters, not lost rows."""
    orders = shops.auto_creating(shop)
    ignore_case(orders)
    fill(orders, (1, "shop.A"), (2, "shop.a"), (3, "shop.A"))
    orders.run()
    fill(orders, (4, "shop.a"), (5, "shop.A"))
    orders.run()
    assert auto_created(orders) == ("shop.A",)
    assert ids(orders, ("shop.A",)) == {"shop.A": [1, 3, 5]}
    assert letters(orders) == [(1, "TABLE_NOT_MADE"), (3, "TABLE_NOT_MADE")]
    assert_clean(orders)


def ignore_case(shop: Any) -> None:
    """Make a catalog in which names that differ by case are one, as some servers have it."""
    file = Path(shop.project.settings.catalogs["lake"].uri.removeprefix("sqlite:///"))
    file.parent.mkdir(parents=True)
    with closing(connect(file)) as database:
        names = ", ".join(
            f"{name} VARCHAR(255) COLLATE NOCASE" for name in ("catalog_name", "table_namespace", "table_name")
        )
        more = "metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5)"
        key = "PRIMARY KEY (catalog_name, table_namespace, table_name)"
        database.execute(f"CREATE TABLE iceberg_tables ({names}, {more}, {key})")
        database.commit()


def test_many_new_tables_are_created_in_one_batch(shop: Callable[..., Any]) -> None:
    """Forty tables are made, written and decided together, in three looks at the records at most."""
    orders = shops.auto_creating(shop, template="evolve: widen", most=50)
    names = [f"shop.t{number:03}" for number in range(40)]
    fill(orders, *((number, names[number % 40]) for number in range(120)))
    looks = []

    def counted(order: StageOrder) -> Staged:
        looks.append(sum(r.span for r in order.ranges))
        return stage_inline(order)

    orders.run(counted)
    assert auto_created(orders) == tuple(names)
    assert looks == [120, 120, 120]
    assert ids(orders, names) == {name: [index, index + 40, index + 80] for index, name in enumerate(names)}


def test_dry_run_creates_no_tables(shop: Callable[..., Any]) -> None:
    """It says which ones a run would make, and counts as if they were there."""
    orders = shops.auto_creating(shop, most=1)
    fill(orders, (1, "shop.b"), (2, "shop.a"), (3, "shop.a"))
    planned = plan_dry_run(orders.project, orders.pipeline, RunRequest("look", mode="dry_run"))
    report = dry_run(orders.project, orders.pipeline, planned, stage_inline)
    assert (report.counts.written, report.dead_codes) == (2, {"TABLE_NOT_MADE": 1})
    assert "a run would make table shop.a, records name it" in report.remarks
    assert lake(orders).find_table("shop.a") is None


def test_refused_table_names_are_filtered_and_counted(shop: Callable[..., Any]) -> None:
    """`filter` counts them, and they stay left out when a later run makes their table."""
    orders = shops.auto_creating(shop, most=1, otherwise="filter")
    fill(orders, (1, "shop.b"), (2, "shop.a"), (3, "other.a"))
    exit_code = orders.run()
    assert (exit_code.written, exit_code.filtered) == (1, 2)
    fill(orders, (4, "shop.b"))
    orders.run()
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [2], "shop.b": [4]}
    assert_clean(orders)


def test_dropped_auto_created_table_is_repaired(shop: Callable[..., Any]) -> None:
    """It is made anew to the template, with the rows that Kafka still has, as any follower."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"), (2, "shop.b"), (3, "shop.b"))
    orders.run()
    drop(orders, "shop.b")
    repair(orders, "shop.b")
    fill(orders, (4, "shop.b"))
    orders.run()
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [1], "shop.b": [2, 3, 4]}
    assert_clean(orders)


def test_dropped_auto_created_table_stops_pipeline(shop: Callable[..., Any]) -> None:
    """The pipeline stops by its name, as for any follower, until it is repaired; a file that refuses the name lets it go."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.a"), (2, "shop.b"))
    orders.run()
    drop(orders, "shop.b")
    fill(orders, (3, "shop.a"), (4, "shop.b"))
    with pytest.raises(Terminal, match=r"shop\.b is gone"):
        orders.run()
    text = shops.file_of(orders).replace("'.*secret.*'", "'.*secret.*', 'shop.b'")
    orders = orders.with_pipeline(text)
    orders.run()
    assert ids(orders, ("shop.a",)) == {"shop.a": [1, 3]}
    assert letters(orders) == [(3, "UNROUTED")]
    assert [row["table"] for row in ledger(orders) if row["role"] == "left"] == ["shop.b"]
    assert_clean(orders)


def test_auto_created_tables_left_by_file_count_as_removed(shop: Callable[..., Any]) -> None:
    """They are destinations that left the file; named by it, they go on."""
    orders = shops.auto_creating(shop, listed="{table: shop.l, columns: {id: long}}")
    fill(orders, (1, "shop.a"), (2, "shop.l"))
    orders.run()
    text = shops.file_of(orders, listed="{table: shop.l, columns: {id: long}}")
    without_create = text[: text.index("  create:")]
    orders = orders.with_pipeline(without_create)
    fill(orders, (3, "shop.a"), (4, "shop.l"))
    orders.run()
    assert ids(orders, ("shop.a", "shop.l")) == {"shop.a": [1], "shop.l": [2, 4]}
    assert [row["table"] for row in ledger(orders) if row["role"] == "left"] == ["shop.a"]
    assert_clean(orders)
    orders = orders.with_pipeline(text)
    fill(orders, (5, "shop.a"))
    orders.run()
    assert ids(orders, ("shop.a",)) == {"shop.a": [1, 5]}


def test_replay_and_reset_work_over_auto_created_tables(shop: Callable[..., Any]) -> None:
    """A replay makes tables as a run does; a reset takes rows out of the made ones, which come again once."""
    orders = shops.auto_creating(shop, most=1)
    fill(orders, (1, "shop.a"), (2, "shop.b"), (3, "shop.a"))
    orders.run()
    assert letters(orders) == [(1, "TABLE_NOT_MADE")]
    replay(orders, "earliest")
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [1, 3], "shop.b": [2]}
    assert letters(orders) == []
    assert_clean(orders)
    reset(orders, "earliest")
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [], "shop.b": []}
    orders.run()
    assert ids(orders, ("shop.a", "shop.b")) == {"shop.a": [1, 3], "shop.b": [2]}
    assert_clean(orders)


def test_merged_table_is_created_and_waits_for_engine(shop: Callable[..., Any]) -> None:
    """The table is made and the batch decided; its part waits for the engine, as that of any merged table."""
    template = "write: upsert\n    identifier: [id]\n    columns: {id: {type: long, required: true}, name: string}"
    orders = shops.auto_creating(shop)
    orders = orders.with_pipeline(shops.file_of(orders, template=template).replace("engine: inline", "engine: spark"))
    fill(orders, (1, "shop.a"), (2, "shop.b"), (1, "shop.a"))
    with pytest.raises(EngineNeeded, match=r"shop\.a.*shop\.b"):
        orders.run()
    assert auto_created(orders) == ("shop.a", "shop.b")
    path = summary_value_or_refuse(
        lake(orders).load_table(LEDGER).metadata, POSITION_KEY.format("orders"), LEDGER
    ).summary[MANIFEST_KEY]
    manifest = Manifest.from_json(read_text(lake(orders).load_table(LEDGER), path))
    assert [(part.table, part.rows, part.operation.kind) for part in manifest.followers] == [
        ("shop.a", 2, "merge"),
        ("shop.b", 1, "merge"),
    ]
