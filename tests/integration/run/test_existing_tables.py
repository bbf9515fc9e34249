"""Tables that records name and that others made: they take records where the pipeline file says so, and where they fit."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.batch.changes import LetterChoice
from frazil.errors import Terminal
from frazil.failpoints import Failpoint
from frazil.iceberg.commit.summary_state import LETTERS_KEY
from frazil.kafka.admin.topics import create_topic
from frazil.run.repair.dead_letter_replay import replay_dead_letters
from tests import made as shops
from tests.integration.run.conftest import AtFailpoint
from tests.integration.run.test_shared_tables import run_other
from tests.made import LETTERS, auto_created, fill, ids, letters
from tests.operations import Killed, assert_clean, catalog, lake, offsets, replay, request, scope

THEIRS = "shop.theirs"

WRITE = f"{shops.COLUMNS}\n    existing_tables: write"


def with_existing(shop: Callable[..., Any], template: str = WRITE, **options: Any) -> Any:
    """A shop that has made a table, beside one of the same columns that somebody else made."""
    orders = shops.auto_creating(shop, template=template, **options)
    fill(orders, (1, "shop.a"))
    orders.run()
    catalog(orders).create_table(THEIRS, lake(orders).load_table("shop.a").schema())
    return orders


def messages(orders: Any) -> list[str]:
    """What open letters say."""
    return [row["message"] for row in orders.rows(LETTERS) if row["landed_batch"] is None]


def test_records_land_in_an_existing_table_that_fits(shop: Callable[..., Any]) -> None:
    """It is a destination from then on, beside those that the pipeline makes."""
    orders = with_existing(shop)
    fill(orders, (2, THEIRS), (3, "shop.b"), (4, THEIRS))
    orders.run()
    fill(orders, (5, THEIRS))
    orders.run()
    assert ids(orders, ("shop.a", "shop.b", THEIRS)) == {"shop.a": [1], "shop.b": [3], THEIRS: [2, 4, 5]}
    assert auto_created(orders) == ("shop.a", "shop.b", THEIRS)
    assert letters(orders) == []
    assert_clean(orders)


def test_existing_table_that_does_not_fit_stays_as_it_is(shop: Callable[..., Any]) -> None:
    """Its records are dead letters that say why, as are those of a table for dead letters; all others land."""
    orders = with_existing(shop)
    catalog(orders).create_table("shop.odd", shops.SCHEMA)
    schema = lake(orders).load_table("shop.a").schema()
    catalog(orders).create_table("shop.refusals", schema, properties={LETTERS_KEY: "another"})
    fill(orders, (2, "shop.odd"), (3, "shop.refusals"), (4, THEIRS))
    orders.run()
    assert ids(orders, (THEIRS,)) == {THEIRS: [4]}
    assert letters(orders) == [(1, "TABLE_NOT_MADE"), (2, "TABLE_NOT_MADE")]
    odd, refusals = messages(orders)
    assert "does not fit its pipeline: column name: declared string, the table has no such column" in odd
    assert "a table of that name is there, for dead letters" in refusals
    assert [lake(orders).load_table(name).current_snapshot() for name in ("shop.odd", "shop.refusals")] == [None, None]
    assert_clean(orders)


def test_existing_tables_count_towards_the_limit(shop: Callable[..., Any]) -> None:
    """Whoever only writes records can't draw any number of tables into a pipeline."""
    orders = with_existing(shop, most=1)
    fill(orders, (2, "shop.b"), (3, THEIRS))
    orders.run()
    assert auto_created(orders) == ("shop.a", "shop.b")
    assert letters(orders) == [(2, "TABLE_NOT_MADE")]
    assert_clean(orders)


@pytest.mark.short("created")
@pytest.mark.parametrize(
    "point",
    [Failpoint.CREATING, Failpoint.CREATED, Failpoint.AUDITED, Failpoint.DECIDE_COMMITTING, Failpoint.DECIDE_COMMITTED],
)
def test_killed_run_lands_records_of_existing_table_once(
    shop: Callable[..., Any], at_failpoint: AtFailpoint, point: Failpoint
) -> None:
    orders = with_existing(shop)
    fill(orders, (2, THEIRS), (3, "shop.b"))
    at_failpoint(point)
    with pytest.raises(Killed):
        orders.run()
    fill(orders, (4, THEIRS))
    orders.run()
    assert ids(orders, ("shop.b", THEIRS)) == {"shop.b": [3], THEIRS: [2, 4]}
    assert letters(orders) == []
    assert_clean(orders)


@pytest.mark.short("audited")
@pytest.mark.parametrize("point", [Failpoint.AUDITED, Failpoint.DECIDE_COMMITTING])
def test_of_two_pipelines_that_take_one_table_one_lands_each_record(
    shop: Callable[..., Any], at_failpoint: AtFailpoint, point: Failpoint
) -> None:
    """The other one has dead letters that name the rival, whoever claims the topic first; both go on."""
    orders = with_existing(shop)
    text = shops.file_of(orders, template=WRITE)
    (orders.project.pipelines_folder / "other.yaml").write_text(text.replace("name: orders", "name: other", 1))
    orders = orders.with_pipeline(text)
    fill(orders, (2, THEIRS))
    at_failpoint(point, lambda: run_other(orders))
    orders.run()
    fill(orders, (3, THEIRS))
    orders.run()
    run_other(orders)
    assert ids(orders, ("shop.a", THEIRS)) == {"shop.a": [1], THEIRS: [2, 3]}
    lost = {name: orders.rows(f"shop.{name}__dead_letters") for name in ("orders", "other")}
    assert sorted(row["offset"] for rows in lost.values() for row in rows) == [0, 1, 2]
    assert all("landed topic" in row["message"] for rows in lost.values() for row in rows)


def test_dead_letters_land_once_the_file_allows_existing_tables(shop: Callable[..., Any]) -> None:
    """Without the key such a table gets nothing; with it a replay lands what waited."""
    orders = with_existing(shop, shops.COLUMNS)
    fill(orders, (2, THEIRS))
    orders.run()
    assert messages(orders) == [
        f"to: table {THEIRS} was not created: a table of that name is there, and this pipeline did not make it"
    ]
    orders = orders.with_pipeline(shops.file_of(orders, template=WRITE))
    replay_dead_letters(scope(orders), LetterChoice(), request())
    assert ids(orders, (THEIRS,)) == {THEIRS: [2]}
    assert letters(orders) == []
    assert_clean(orders)


def test_rows_of_others_in_an_existing_table_stay(shop: Callable[..., Any]) -> None:
    """What was there before is nobody's record: a check of the pipeline leaves it alone, and so does a replay."""
    orders = with_existing(shop)
    table = catalog(orders).load_table(THEIRS)
    rows = [{"id": 99} | {field.name: None for field in table.schema().fields if not field.required}]
    table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))
    fill(orders, (2, THEIRS))
    orders.run()
    assert_clean(orders)
    replay(orders, offsets(orders, 0), offsets(orders, 2))
    assert ids(orders, (THEIRS,)) == {THEIRS: [2, 99]}
    assert_clean(orders)


def with_rival(orders: Any, template: str = WRITE, listed: str = "") -> Any:
    """The shop beside pipeline `other`, whose records may go to tables of others."""
    rivals = shops.file_of(orders, template=WRITE, listed=listed).replace("name: orders", "name: other", 1)
    (orders.project.pipelines_folder / "other.yaml").write_text(rivals)
    return orders.with_pipeline(shops.file_of(orders, template=template))


@pytest.mark.short("committed-write")
@pytest.mark.parametrize("template", [shops.COLUMNS, WRITE], ids=["refuse", "write"])
@pytest.mark.parametrize(
    "point",
    [Failpoint.AUDITED, Failpoint.DECIDE_COMMITTING, Failpoint.DECIDE_COMMITTED],
    ids=["audited", "committing", "committed"],
)
def test_table_in_which_its_maker_has_landed_nothing_yet_is_left_to_it(
    shop: Callable[..., Any], at_failpoint: AtFailpoint, point: Failpoint, template: str
) -> None:
    """Whoever makes a table claims its topics before the decision: one who found it earlier would land them in its place."""
    orders = with_rival(shops.auto_creating(shop, template=template), template)
    fill(orders, (1, "shop.a"))
    orders.run()
    fill(orders, (2, "shop.new"))
    at_failpoint(point, lambda: run_other(orders))
    orders.run()
    fill(orders, (3, "shop.new"))
    orders.run()
    run_other(orders)
    assert ids(orders, ("shop.a", "shop.new")) == {"shop.a": [1], "shop.new": [2, 3]}
    reason = "made it, and has landed nothing in it yet" if point is Failpoint.AUDITED else "landed topic"
    assert f"pipeline orders {reason}" in "".join(row["message"] for row in orders.rows("shop.other__dead_letters"))
    assert letters(orders) == []
    assert_clean(orders)


def test_maker_of_a_table_has_its_topics_before_records_of_each_came(
    shop: Callable[..., Any], at_failpoint: AtFailpoint
) -> None:
    """A second topic brings its first record to a table that the first one named: only its maker lands it."""
    orders = shops.auto_creating(shop)
    second = f"{orders.topic}-two"
    create_topic(orders.project.cluster("local"), second, 1)
    rivals = shops.file_of(orders, template=WRITE).replace("name: orders", "name: other", 1)
    (orders.project.pipelines_folder / "other.yaml").write_text(rivals.replace(f"[{orders.topic}]", f"[{second}]"))
    orders = orders.with_pipeline(shops.file_of(orders).replace(f"[{orders.topic}]", f"[{orders.topic}, {second}]"))
    fill(orders, (1, "shop.a"))
    orders.run()
    fill(replace(orders, topic=second), (2, "shop.a"))
    at_failpoint(Failpoint.DECIDE_COMMITTED, lambda: run_other(orders))
    orders.run()
    run_other(orders)
    assert ids(orders, ("shop.a",)) == {"shop.a": [1, 2]}
    assert_clean(orders)


def test_letter_does_not_ask_to_drop_a_table_with_rows_of_another_pipeline(
    shop: Callable[..., Any], at_failpoint: AtFailpoint
) -> None:
    """A run that made it was killed, and another pipeline lists it and landed there before the next one."""
    orders = shops.auto_creating(shop)
    fill(orders, (1, "shop.new"))
    at_failpoint(Failpoint.CREATED)
    with pytest.raises(Killed):
        orders.run()
    listed = f"{{table: shop.new, {shops.COLUMNS}}}"
    orders = with_rival(orders, shops.COLUMNS, listed)
    run_other(orders)
    orders.run()
    assert ids(orders, ("shop.new",)) == {"shop.new": [1]}
    (message,) = messages(orders)
    assert "pipeline other landed topic" in message
    assert "drop it" not in message


@pytest.mark.embedded
def test_existing_table_from_the_future_holds_up_only_its_records(shop: Callable[..., Any]) -> None:
    """As a destination it would hold up every run until its time has come."""
    orders = with_existing(shop)
    file = Path(catalog(orders).load_table(THEIRS).metadata_location.removeprefix("file://"))
    body = json.loads(file.read_text())
    file.write_text(json.dumps(body | {"last-updated-ms": body["last-updated-ms"] + 3_600_000}))
    fill(orders, (2, THEIRS), (3, "shop.a"))
    orders.run()
    assert ids(orders, ("shop.a",)) == {"shop.a": [1, 3]}
    (message,) = messages(orders)
    assert f"table {THEIRS} was changed last at" in message
    assert_clean(orders)


@pytest.mark.short("finds-committed")
@pytest.mark.parametrize(
    "point",
    [Failpoint.AUDITED, Failpoint.DECIDE_COMMITTING, Failpoint.DECIDE_COMMITTED],
    ids=["audited", "committing", "committed"],
)
@pytest.mark.parametrize("rival", ["lists", "finds"])
def test_table_that_two_pipelines_begin_to_write_gets_each_record_once(
    shop: Callable[..., Any], at_failpoint: AtFailpoint, rival: str, point: Failpoint
) -> None:
    """One pipeline makes the table that another one lists newly, or lists one that records of another name."""
    listed = f"{{table: shop.y, {shops.COLUMNS}}}"
    orders = with_rival(shops.auto_creating(shop), shops.COLUMNS)
    fill(orders, (1, "shop.a"))
    orders.run()
    run_other(orders)
    fill(orders, (2, "shop.y"))

    def run(deed: Callable[[], object]) -> None:
        with contextlib.suppress(Terminal):  # of the second one to list it
            deed()

    if rival == "lists":
        orders = with_rival(orders, shops.COLUMNS, listed)
    else:
        orders = orders.with_pipeline(shops.file_of(orders, listed=listed))
    at_failpoint(point, lambda: run(lambda: run_other(orders)))
    for _ in range(2):
        run(orders.run)
        run(lambda: run_other(orders))
    assert ids(orders, ("shop.a", "shop.y")) == {"shop.a": [1], "shop.y": [2]}
