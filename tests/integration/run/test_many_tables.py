"""Two dozen tables of several namespaces in two catalogs, and one that can't take its files: it holds the batch open, alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from tests.integration.run.conftest import AtFailpoint
from tests.operations import LEDGER, assert_clean, lake, ledger, repair, send

PLACES = {f"{namespace}.t{number}": catalog for catalog, namespace, number in (
    (catalog, namespace, number)
    for catalog, namespaces in (("lake", ("shop", "shop.europe.north")), ("cloud", ("mirror", "mirror.night.south")))
    for namespace in namespaces
    for number in range(6)
)}  # fmt: skip
"""Table -> its catalog."""

FILE = """
name: orders
source: {{topics: [{topic}]}}
engine: inline
destinations:
{tables}
route: {{field: {{name: to, allow: ['shop\\..*', 'mirror\\..*']}}}}
"""


@pytest.fixture
def many(spread: Callable[..., Any]) -> Any:
    """The pipeline, begun; nothing is landed."""
    orders = spread()
    tables = "\n".join(
        f"  - {{table: {table}, catalog: {catalog}, columns: {{id: long}}}}" for table, catalog in PLACES.items()
    )
    pipeline = orders.with_pipeline(FILE.format(topic=orders.topic, tables=tables))
    pipeline.run()
    return pipeline


def fill(shop: Any, first: int) -> None:
    """Send one record for each table, by numbers from `first` on, and one for none of them."""
    values = [{"id": number, "to": destination} for number, destination in enumerate((*PLACES, "elsewhere"), first)]
    send(shop, {0: [json.dumps(value).encode() for value in values]})


def landed(shop: Any) -> dict[str, list[int]]:
    """Ids in every table."""
    return {table: sorted(row["id"] for row in shop.rows(table)) for table in PLACES}


def expected(*firsts: int) -> dict[str, list[int]]:
    return {table: [first + number for first in firsts] for number, table in enumerate(PLACES)}


def partition(shop: Any, table: str) -> None:
    """Another spec: files that were staged for the table don't fit it any more."""
    with lake(shop).load_table(table).update_spec() as update:
        update.add_identity("id")


def take(shop: Any, table: str) -> None:
    """The table is gone."""
    lake(shop).catalog_of(table)._catalog.drop_table(table)


@pytest.mark.short("shop.europe.north.t3-take-False")
@pytest.mark.parametrize(
    ("table", "damage", "fills"), [("shop.europe.north.t3", take, False), ("mirror.night.south.t0", partition, True)]
)
def test_table_that_refuses_its_files_does_not_stop_others(
    many: Any, at_failpoint: AtFailpoint, table: str, damage: Callable[[Any, str], None], fills: bool
) -> None:
    """The others have theirs, the pipeline stops with its name, the next run tries again, a repair lets it go on."""
    fill(many, 0)
    at_failpoint("decide.committed", lambda: damage(many, table))
    with pytest.raises(Terminal) as stopped:
        many.run()

    assert table in stopped.value.message
    assert not [other for other in PLACES if other != table and other in stopped.value.message]
    assert f"frazil repair orders {table} --reason" in str(stopped.value)
    other_ids = {name: ids for name, ids in expected(0).items() if name != table}
    assert {name: ids for name, ids in _landed_ids(many).items() if name != table} == other_ids
    assert [row["destination"] for row in many.rows(f"{LEDGER.removesuffix('ledger')}dead_letters")] == [None]
    fill(many, 100)
    with pytest.raises(Terminal, match=table):
        many.run()
    assert {name: ids for name, ids in _landed_ids(many).items() if name != table} == other_ids
    assert ledger(many, "ingest") == []

    done = repair(many, table, replays=fills)

    assert done is not None
    assert many.run().batches == 1
    assert landed(many) == {**expected(0, 100), **({} if fills else {table: expected(100)[table]})}
    assert_clean(many)


def _landed_ids(shop: Any) -> dict[str, list[int]]:
    tables = {table: lake(shop).find_table(table) for table in PLACES}
    return {
        name: sorted(table.scan().to_arrow()["id"].to_pylist()) for name, table in tables.items() if table is not None
    }


def test_recovered_table_needs_no_repair(many: Any, at_failpoint: AtFailpoint) -> None:
    """Out of reach behind the decision and back before the next run: that run gives it its part, and nobody has to repair."""
    table = "mirror.t2"
    location = lake(many).load_table(table).metadata_location
    fill(many, 0)
    at_failpoint("decide.committed", lambda: take(many, table))
    with pytest.raises(Terminal, match=table):
        many.run()
    lake(many).catalog_of(table)._catalog.register_table(table, location)

    many.run()

    assert landed(many) == expected(0)
    assert repair(many, table) is None
    assert_clean(many)
