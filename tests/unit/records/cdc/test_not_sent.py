"""Large values that Debezium's Postgres connector does not send, and which of them are needed."""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest

from frazil.records.cdc.debezium import Debezium
from frazil.run.staging.change_spec import merge_spec
from frazil.verify.values.canonical import column_values
from frazil.verify.values.cdc_expectation import ChangeReader
from frazil.verify.values.column_readers import Bad
from tests.unit.records.cdc.landing import COLUMNS, TABLE, landed, ops_of, pipeline, refused
from tests.unit.records.cdc.test_debezium import DEBEZIUM, TOO_LARGE, ann, event

BYTES = [*TOO_LARGE.encode()]
BASE64 = b64encode(TOO_LARGE.encode()).decode()


def test_missing_value_that_no_column_takes_is_ignored() -> None:
    """Values have more fields than the table: those that no column takes need not be sent."""
    image = "struct<id: long, name: string, notes: string>"
    declared = {
        "value": {"fields": {"before": image, "after": image, "op": "string"}},
        "key": {"fields": {"notes": "string"}},
    }
    document = event("u", None, ann() | {"notes": "__debezium_unavailable_value"})
    taken = {**COLUMNS, "notes": "string"}
    of_key = {**COLUMNS, "notes": {"type": "string", "part": "key"}}
    for columns, is_bad in ((COLUMNS, False), (of_key, False), (taken, True)):
        outcomes = landed(pipeline(declared, changes=DEBEZIUM, columns=columns), [document], [{"notes": "n"}])
        assert ops_of(outcomes) == ([] if is_bad else [("upsert", 1, "Ann")])
        assert outcomes.dead.column("path").to_pylist() == (["after.notes"] if is_bad else [])


@pytest.mark.parametrize(
    "value", [{"unknown_fields": "rescue"}, {"unknown_fields": "fail"}, {"field_names": "case_insensitive"}]
)
def test_placeholder_is_searched_in_all_fields_where_used_ones_are_unknown(value: dict[str, Any]) -> None:
    """If any field may matter, each that was not sent makes a dead letter."""
    rescuing = pipeline({"value": value}, changes=DEBEZIUM, columns={**COLUMNS, "_rescued": "string"})
    merge = merge_spec(rescuing, rescuing.destinations[0])
    assert merge is not None
    assert isinstance(merge.changes, Debezium)
    assert merge.changes.used_fields is None


@pytest.mark.parametrize(
    ("type_name", "before", "placeholder", "kept_value"),
    [
        ("list<long>", [7, 8], BYTES, [7, 8]),
        ("list<double>", [1.5], BYTES, [1.5]),
        ("list<decimal(9,2)>", [1.5], BYTES, [Decimal("1.50")]),
        ("binary", "AAAA", BASE64, bytes(3)),
        ("string", "AAAA", BASE64, "AAAA"),
        ("string", ["a"], [TOO_LARGE], '["a"]'),
        ("string", [7], BYTES, "[7]"),
    ],
)
def test_placeholders_of_lists_and_bytes_leave_the_row(
    type_name: str, before: object, placeholder: object, kept_value: object
) -> None:
    """Each type has its own form of the placeholder; staging and verify know them all."""
    merged = pipeline(changes=DEBEZIUM, columns={"id": {"type": "long", "required": True}, "big": type_name})
    placeholder_known = event("u", {"id": 1, "big": before}, {"id": 1, "big": placeholder})
    placeholder_unknown = event("u", {"id": 1, "big": None}, {"id": 1, "big": placeholder})
    outcomes = landed(merged, [placeholder_known, placeholder_unknown])
    assert ops_of(outcomes, "id", "big") == [("upsert", 1, kept_value)]
    assert "REPLICA IDENTITY FULL" in refused(outcomes)[0]
    destination = merged.destinations[0]
    teller = ChangeReader(destination, destination.columns, merged.value)
    row = teller.row(json.dumps(placeholder_known).encode())
    assert not isinstance(row, Bad)
    staged = column_values(outcomes.rows[TABLE].column("big"), destination.columns["big"].parsed)
    assert [change.row for change in row] == [(1, *staged)]
    assert isinstance(teller.row(json.dumps(placeholder_unknown).encode()), Bad)


def test_list_that_resembles_the_placeholder_is_a_value() -> None:
    """All its numbers count, and how many there are."""
    merged = pipeline(changes=DEBEZIUM, columns={"id": {"type": "long", "required": True}, "big": "list<int>"})
    lists = [[95], BYTES[:-1], [*BYTES[:-1], 7], [*BYTES, 1], [None] * len(BYTES), [], None]
    documents = [event("u", {"id": 1, "big": [1]}, {"id": 1, "big": values}) for values in lists]
    assert ops_of(landed(merged, documents), "id", "big") == [("upsert", 1, values) for values in lists]
