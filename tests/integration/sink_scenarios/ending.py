"""What must hold when a scenario is over."""

from __future__ import annotations

import re
from typing import Any

from pyiceberg.types import NestedField

from tests.evolving import KAFKA
from tests.integration.sink_scenarios.conftest import Place
from tests.integration.sink_scenarios.scenario import TableContents
from tests.operations import LETTERS, assert_clean, lake


def assert_ends(place: Place) -> None:
    """The tables are as the scenario says, nothing is left to do, and Frazil's own check agrees."""
    scenario, shop = place.scenario, place.shop
    assert {name: table_contents(shop, name, contents) for name, contents in scenario.tables.items()} == scenario.tables
    assert letters(shop) == list(scenario.letters)
    batches = shop.history()
    assert (sum(batch.read for batch in batches), sum(batch.filtered for batch in batches)) == (
        scenario.read,
        scenario.filtered,
    )
    before = place.publishes
    assert (place.run().batches, place.publishes) == (0, before)
    assert_clean(shop)


def table_contents(shop: Any, name: str, contents: TableContents) -> TableContents:
    """What a table holds."""
    table = lake(shop).load_table(name)
    columns = {field.name: type_of(field) for field in table.schema().fields if field.name not in KAFKA}
    order = KAFKA[:3]
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: tuple(row[column] for column in order))
    return TableContents(
        columns,
        tuple(tuple(row[name] for name in contents.columns) for row in rows),
        tuple(f"{field.name} {field.transform}" for field in table.spec().fields),
        contents.files if contents.files is None else len(list(table.scan().plan_files())),
    )


def type_of(column: NestedField) -> str:
    """Without the ids and the nulls of what is inside, with a `!` where null is refused."""
    return re.sub(r"\d+: (\w+): (?:optional|required) ", r"\1: ", str(column.field_type)) + "!" * column.required


def letters(shop: Any) -> list[tuple[int, str | None, str]]:
    """Offset, table and code of the dead letters."""
    if lake(shop).find_table(LETTERS) is None:
        return []
    letters = ((row["offset"], row["destination"], row["code"]) for row in shop.rows(LETTERS))
    return sorted(letters, key=str)
