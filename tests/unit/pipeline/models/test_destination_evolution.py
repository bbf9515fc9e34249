"""Undeclared columns, and how tables evolve with their records."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.pipeline.models.pipeline_file import Destination

DECLARED = {"columns": {"id": "long"}}


@pytest.mark.parametrize(
    ("keys", "evolves"),
    [
        (DECLARED, "none"),
        ({}, "widen"),
        (DECLARED | {"evolve": "full", "on_incompatible": "fail", "max_columns": 3}, "full"),
        ({"evolve": "none"}, "none"),
    ],
)
def test_declared_table_evolves_only_on_request(keys: dict[str, Any], evolves: str) -> None:
    """Declared columns stay as they are unless the file says otherwise; without them a table follows its records."""
    assert Destination(table="a.t", **keys).evolves == evolves


@pytest.mark.parametrize("key", ["on_incompatible", "max_columns", "max_depth"])
def test_option_of_evolution_without_evolution_is_refused(key: str) -> None:
    """A table that does not evolve takes no options about it."""
    with pytest.raises(ValidationError, match=f"{key} is for a table that records may change"):
        Destination(table="a.t", **DECLARED, **{key: {"on_incompatible": "fail"}.get(key, 5)})


def test_partition_field_of_a_misspelled_column_is_refused() -> None:
    """Only a table without declared columns may be partitioned by one that is yet to come."""
    assert Destination(table="a.t", partition_by=("day(ts)",)).partition_by
    with pytest.raises(ValidationError, match=r"'ts' is not a column of a\.t"):
        Destination(table="a.t", partition_by=("day(ts)",), **DECLARED, evolve="add")


@pytest.mark.parametrize("options", [{"columns": {"id": "long"}, "evolve": "add"}, {}], ids=["evolves", "no columns"])
def test_refusal_of_undeclared_columns_needs_columns_that_stay(options: dict[str, Any]) -> None:
    """Where records bring columns the file is never all that there is."""
    with pytest.raises(ValidationError, match="undeclared_columns: refuse needs declared columns with evolve: none"):
        Destination.model_validate({"table": "shop.orders", "undeclared_columns": "refuse", **options})
    fixed = {"table": "shop.orders", "undeclared_columns": "refuse", "columns": {"id": "long"}}
    assert Destination.model_validate(fixed).undeclared_columns == "refuse"
