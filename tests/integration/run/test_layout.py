"""A pipeline that makes a table with everything a file may ask for, in either catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.project import SETTINGS_VARIABLE, Project
from tests.integration.conftest import environment
from tests.layouts import DECLARED, EXPECTED, NAME, described, orders
from tests.operations import Killed, assert_clean, lake

pytestmark = pytest.mark.embedded


@pytest.fixture(params=["sqlite", pytest.param("rest", marks=pytest.mark.full)])
def ordering(shop: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    """A shop with the destination of `tests.layouts`, nothing landed."""
    new_shop = shop(partitions=2)
    if request.param == "rest":
        settings: Path = request.getfixturevalue("rest_settings")()
        project = Project.load(environment(new_shop.project) | {SETTINGS_VARIABLE: str(settings)})
        new_shop = replace(new_shop, project=project)
    file = {"name": "orders", "source": {"topics": [new_shop.topic]}, "engine": "inline", "destinations": [DECLARED]}
    return new_shop.with_pipeline(json.dumps(file))


@pytest.mark.short("sqlite-decide.committed")
@pytest.mark.parametrize("point", ["planned", "manifest.written", "decide.committing", "decide.committed"])
def test_table_of_killed_first_run_is_filled_by_next_run(
    ordering: Any, at_failpoint: Callable[..., Any], point: str
) -> None:
    """Ten partition fields, sorted, identified: made, killed before or in its first commit, then filled; every value is there."""
    ordering.produce(
        json.dumps(
            {name: value and str(value) for name, value in order.items() if name != "id"} | {"id": order["id"]}
        ).encode()
        for order in orders()
    )
    at_failpoint(point)
    with pytest.raises(Killed):
        ordering.run()

    ordering.run()

    assert described(lake(ordering).load_table(NAME)) == EXPECTED
    assert sorted(row["id"] for row in ordering.rows(NAME)) == sorted(order["id"] for order in orders())
    assert_clean(ordering)
