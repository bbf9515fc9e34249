"""Large values that Debezium's Postgres connector does not send: where they are missed."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.records.changes.debezium import Debezium
from frazil.run.change_spec import merge_spec
from tests.unit.records.changes.landing import COLUMNS, landed, pipeline, told
from tests.unit.records.changes.test_debezium import DEBEZIUM, ann, event


def test_a_value_that_nobody_takes_makes_a_letter() -> None:
    """Values declare more than the table takes of them: what was not sent there is not missed."""
    image = "struct<id: long, name: string, notes: string>"
    declared = {
        "value": {"fields": {"before": image, "after": image, "op": "string"}},
        "key": {"fields": {"notes": "string"}},
    }
    sent = event("u", None, ann() | {"notes": "__debezium_unavailable_value"})
    taken = {**COLUMNS, "notes": "string"}
    of_key = {**COLUMNS, "notes": {"type": "string", "of": "key"}}
    for columns, is_bad in ((COLUMNS, False), (of_key, False), (taken, True)):
        outcomes = landed(pipeline(declared, changes=DEBEZIUM, columns=columns), [sent], [{"notes": "n"}])
        assert told(outcomes) == ([] if is_bad else [("upsert", 1, "Ann")])
        assert outcomes.dead.column("path").to_pylist() == (["after.notes"] if is_bad else [])


@pytest.mark.parametrize(
    "value", [{"unknown_fields": "rescue"}, {"unknown_fields": "fail"}, {"field_names": "case_insensitive"}]
)
def test_a_placeholder_is_kept_as_a_value(value: dict[str, Any]) -> None:
    """Where a field may count that no column names as it is, what was not sent is missed in all of them."""
    made = pipeline({"value": value}, changes=DEBEZIUM, columns={**COLUMNS, "_rescued": "string"})
    merge = merge_spec(made, made.destinations[0])
    assert merge is not None
    assert isinstance(merge.changes, Debezium)
    assert merge.changes.taken is None
