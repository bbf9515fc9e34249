"""Keys about maintenance in a pipeline file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.pipeline.models.maintenance import Compaction, Maintenance
from frazil.pipeline.models.pipeline_file import Pipeline


def maintenance(**options: Any) -> Maintenance:
    return Maintenance.model_validate(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"orphans": {"older_than": "2d"}}, "less than 3d"),
        ({"orphans": {"every": "0 3 * * *"}}, "no duration"),
        ({"expiry": {"keep": 0}}, "greater than or equal to 1"),
        ({"schedule": "now and then"}, "neither a duration"),
        ({"compaction": {"strategy": "z-order"}}, "are needed by strategy z-order"),
        ({"compaction": {"columns": ["a"]}}, "are needed by strategy z-order"),
        ({"compaction": True}, "compaction"),
        ({"stats": {"min_change": 0}}, "greater than 0"),
    ],
)
def test_impossible_value_is_refused(options: dict[str, Any], message: str) -> None:
    """What can't be meant is refused when the file is read. Orphans younger than three days may be a batch's."""
    with pytest.raises(ValidationError, match=message):
        maintenance(**options)


def test_step_of_a_table_replaces_that_of_the_pipeline() -> None:
    """A step that a table names stands instead of the pipeline's; the others stay; `false` leaves the table alone."""
    rules = maintenance(
        compaction={"min_files": 3},
        manifests=False,
        tables={"a.b": {"compaction": {"min_deletes": 2}, "orphans": False}, "a.c": False},
    )
    own = rules.for_table("a.b")
    assert own is not None
    assert (own.compaction, own.manifests, own.orphans) == (Compaction(min_deletes=2), False, False)
    rules_of_table = rules.for_table("a.d")
    assert rules_of_table is not None
    assert (rules_of_table.compaction, bool(rules_of_table.orphans)) == (Compaction(min_files=3), True)
    assert rules.for_table("a.c") is None


def test_misspelt_table_is_refused() -> None:
    """A table that the pipeline does not have is refused, with those that it has."""
    body = {
        "name": "orders",
        "source": {"topics": ["orders"]},
        "destinations": [{"table": "shop.orders", "columns": {"id": "long"}}],
    }
    with pytest.raises(ValidationError, match=r"is none of its tables: shop.orders, shop.orders__dead_letters"):
        Pipeline.model_validate(body | {"maintenance": {"tables": {"shop.order": False}}})
    for table in ("shop.orders", "shop.orders__ledger", "shop.orders__dead_letters"):
        assert (
            Pipeline.model_validate(body | {"maintenance": {"tables": {table: False}}}).maintenance.for_table(table)
            is None
        )
