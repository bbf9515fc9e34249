"""Paths of letters whose payloads are secret: they show declared names, and nothing that comes with a record."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.redaction import DeclaredNames, redacted
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import FormatSpec
from frazil.records.model.spec import RecordSpec
from tests.format_specs import format_spec
from tests.unit.records.kafka_batches import kafka_batch

SECRET = "4111111111111111"
LABELS = pa.map_(pa.string(), pa.int64())
NUMBERS = pa.map_(pa.int64(), pa.struct([("price", pa.int64())]))
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("labels", LABELS),
        ("numbers", NUMBERS),
        ("lines", pa.list_(pa.struct([("price", pa.int64()), ("a.b", pa.int64())]))),
        ("zip", pa.int64()),
    ]
)
SPEC = RecordSpec(COLUMNS, sources={"zip": ("customer", "zip")}, unknown_fields="fail")
NAMES = DeclaredNames.from_specs([SPEC])


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("id", "id"),
        ("customer.zip", "customer.zip"),
        ("customer", "customer"),
        ("lines[3].price", "lines[3].price"),
        ("lines[3].a.b", "lines[3].a.b"),
        (f'labels["{SECRET}"]', "labels[…]"),
        (f'labels["a]\\"{SECRET}"]', "labels[…]"),
        (f"numbers[{SECRET}].price", "numbers[…].price"),
        (f"numbers[3].{SECRET}", "numbers[…].…"),
        (f'labels["{SECRET}…', "labels…"),
        (SECRET, "…"),
        (f"id.{SECRET}", "id.…"),
        (f"id{SECRET}", "…"),
        (f"lines[{SECRET}].price", "lines…"),
        (f"lines[3].{SECRET}.price", "lines[3].…"),
        (f"customer.{SECRET}", "customer.…"),
        ("key", "key"),
        (f"key.{SECRET}", "key.…"),
    ],
)
def test_path_shows_declared_names_only(path: str, shown: str) -> None:
    """Keys of maps and undeclared names come with it; what is declared and where in a list it is stays."""
    assert NAMES.visible_path(path) == shown


@given(st.text(alphabet='id.[]"labels34\\…', max_size=20))
def test_any_path_is_shown_safely(path: str) -> None:
    """Whatever names a path has, the beginning of the path is shown, or nothing."""
    NAMES.visible_path(path)


@pytest.mark.parametrize(
    ("value", "code", "path"),
    [
        ({SECRET: 1}, DeadCode.UNKNOWN_FIELD, "…"),
        ({"labels": {SECRET: "x"}}, DeadCode.WRONG_TYPE, "labels[…]"),
        ({"numbers": {SECRET: {"price": "x"}}}, DeadCode.WRONG_TYPE, "numbers[…].price"),
        ({"lines": [{"price": 1}, {"price": SECRET}]}, DeadCode.WRONG_TYPE, "lines[1].price"),
        ({"customer": {"zip": SECRET}}, DeadCode.WRONG_TYPE, "customer.zip"),
    ],
)
@pytest.mark.parametrize("tables", [1, 2])
def test_redacted_dead_letter_keeps_the_declared_part_of_its_path(
    tables: int, value: Any, code: DeadCode, path: str
) -> None:
    """Through the decoder: a letter keeps its code and the declared part of its path."""
    decoder = Decoder({f"a.t{number}": SPEC for number in range(tables)}, None, 1)
    redacted_letters = redacted(
        decoder.decode(kafka_batch([json.dumps(value).encode()])).dead, "redacted", decoder.declared
    )

    assert {(row["code"], row["path"]) for row in redacted_letters.to_pylist()} == {(code.value, path)}
    assert SECRET not in str(redacted_letters.to_pylist())


def test_local_schema_declares_its_fields() -> None:
    """The fields of one schema of all values are declared as well as those of columns; so are those of a key."""
    fields = [{"name": "card", "type": {"type": "map", "values": "long"}}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    columns = pa.schema([("x", pa.int64()), ("who", pa.int64())])
    key = pa.schema([("region", pa.string())])
    names = DeclaredNames.from_specs(
        [
            RecordSpec(
                columns,
                format=format_spec("avro", schema=schema),
                key=FormatSpec(),
                key_fields=key,
                of_key=frozenset({"who"}),
            )
        ]
    )

    paths = [names.visible_path(path) for path in ('card["1"]', "x", "key.region", "key.who", "region", "who")]
    assert paths == ["card[…]", "x", "key.region", "key.who", "…", "…"]
