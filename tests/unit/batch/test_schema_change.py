"""What tasks ask of a table's schema comes together on the driver."""

from __future__ import annotations

from frazil.batch.facts import Staged
from frazil.batch.schema_change import SchemaChange

PRICE = SchemaChange(("price",), "add", "long")
WIDER = SchemaChange(("price",), "add", "double")
OPTIONAL = SchemaChange(("lines", "element", "sku"), "optional")


def test_schema_change_survives_the_way_to_the_driver() -> None:
    """Demands come from executors as text and are the same afterwards."""
    staged = Staged(demands={"a.t": (PRICE, OPTIONAL), "a.u": ()})
    assert Staged.from_json(staged.to_json()) == staged


def test_schema_changes_of_all_tasks_are_kept_once() -> None:
    """Tasks may ask for one column with different types: both are kept, each once, whichever came first."""
    first, right = Staged(demands={"a.t": (PRICE,)}), Staged(demands={"a.t": (OPTIONAL, PRICE, WIDER), "a.u": (PRICE,)})
    assert first.merge(right).demands == {"a.t": (OPTIONAL, WIDER, PRICE), "a.u": (PRICE,)}
    assert first.merge(right).demands == right.merge(first).demands
