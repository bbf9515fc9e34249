"""What must hold when a scenario is over."""

from __future__ import annotations

import re
from typing import Any

from pyiceberg.types import NestedField

from tests.evolving import KAFKA
from tests.integration.sink_scenarios.conftest import Place
from tests.integration.sink_scenarios.scenario import TableContents
from tests.operations import LETTERS, assert_clean, lake


def assert_ends(made: Place) -> None:
    """The tables are as the scenario says, nothing is left to do, and Frazil's own check agrees."""
    scenario, shop = made.scenario, made.shop
    assert {name: table_contents(shop, name, of) for name, of in scenario.tables.items()} == scenario.tables
    assert letters(shop) == list(scenario.letters)
    batches = shop.history()
    assert (sum(of.read for of in batches), sum(of.filtered for of in batches)) == (scenario.read, scenario.filtered)
    before = made.publishes
    assert (made.run().batches, made.publishes) == (0, before)
    assert_clean(shop)


def table_contents(shop: Any, name: str, asked: TableContents) -> TableContents:
    """What a table holds."""
    table = lake(shop).load_table(name)
    columns = {of.name: type_of(of) for of in table.schema().fields if of.name not in KAFKA}
    order = KAFKA[:3]
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: tuple(row[of] for of in order))
    return TableContents(
        columns,
        tuple(tuple(row[name] for name in asked.columns) for row in found),
        tuple(f"{of.name} {of.transform}" for of in table.spec().fields),
        asked.files if asked.files is None else len(list(table.scan().plan_files())),
    )


def type_of(column: NestedField) -> str:
    """Without the ids and the nulls of what is inside, with a `!` where null is refused."""
    return re.sub(r"\d+: (\w+): (?:optional|required) ", r"\1: ", str(column.field_type)) + "!" * column.required


def letters(shop: Any) -> list[tuple[int, str | None, str]]:
    """Offset, table and code of the dead letters."""
    if lake(shop).find_table(LETTERS) is None:
        return []
    found = ((row["offset"], row["destination"], row["code"]) for row in shop.rows(LETTERS))
    return sorted(found, key=str)
