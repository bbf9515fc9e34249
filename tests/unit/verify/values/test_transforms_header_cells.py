"""Cells of headers: verify and the decoder that writes derive the same values."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.decoder.decode import Decoder
from frazil.records.model.rows import KAFKA_SCHEMA
from frazil.run.staging.record_spec import record_specs, route_of
from frazil.verify.rules import rules_of
from frazil.verify.values.canonical import column_values
from frazil.verify.values.column_readers import Bad

NAMES = ("text", "raw", "four", "number", "amount", "flag", "at", "day", "uid", "ratio")
TYPES = ("string", "binary", "fixed[4]", "int", "decimal(6,2)", "boolean", "timestamptz", "date", "uuid", "double")
WORDS = [
    *(
        b"",
        b"\xff",
        b"caf\xc3\xa9",
        b"true",
        b"False",
        b"1",
        b"-7",
        b"2147483648",
        b"12.50",
        b"1.255",
        b"1e3",
        b" 1",
        b"NaN",
    ),
    *(b"0001", b"2026-02-30", b"2026-02-03", b"2026-01-02T03:04:05Z", b"6ba7b810-9dad-11d1-80b4-00c04fd430c8", None),
]
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(WORDS) | st.binary(max_size=5)), max_size=6)

FILES: list[dict[str, Any]] = [
    {},
    {"value": {"unknown_fields": "fail"}},
    {"value": {"field_names": "case_insensitive"}},
    {"key": {"format": "string"}},
    {"value": {"format": "delimited", "fields": ["id"]}},
    {
        "transforms": [
            {"type": "InsertHeader", "header": "text", "value.literal": "é"},
            {"type": "DropHeaders", "headers": ["raw"]},
        ]
    },
]


def pipeline(required: str | None, **keys: Any) -> Pipeline:
    columns: dict[str, Any] = {"id": "long"}
    for name, kind in zip(NAMES, TYPES, strict=True):
        columns[name] = {"type": kind, "part": "header", "required": name == required}
    destination = {"table": "a.b", "columns": columns}
    return Pipeline.model_validate({"name": "p", "source": {"topics": ["t"]}, "destinations": [destination], **keys})


@pytest.mark.parametrize("keys", FILES)
@given(headers=HEADERS, required=st.sampled_from([None, *NAMES]), is_good=st.booleans())
def test_expected_row_is_the_row_that_lands(
    keys: dict[str, Any], headers: list[tuple[str, bytes | None]], required: str | None, is_good: bool
) -> None:
    file = pipeline(required, **keys)
    is_line = keys.get("value", {}).get("format") == "delimited"
    value = (b"1" if is_line else b'{"id": 1}') if is_good else b"{"

    row = landed_row(file, value, headers)
    rules = rules_of(file, [], "a.b", file.destinations[0].columns)
    expected = rules.row(value, "t", Message(topic="t", partition=0, offset=0, value=value, headers=headers))

    if isinstance(expected, Bad) or row is None:
        assert isinstance(expected, Bad) or any(isinstance(cell, Bad) for cell in expected)
        assert row is None
    else:
        assert [cell for cell, e in zip(row, expected, strict=True) if not isinstance(e, Bad)] == [
            e for e in expected if not isinstance(e, Bad)
        ]


def landed_row(file: Pipeline, value: bytes, sent: list[tuple[str, bytes | None]]) -> list[Any] | None:
    """The canonical values of the row that a record becomes; None if it is a dead letter."""
    columns = {"a.b": declared_columns(file.destinations[0])}
    headers = [{"key": name, "value": content} for name, content in sent]
    record = {"topic": "t", "partition": 0, "offset": 0, "timestamp": 0, "value": value, "headers": headers}
    outcomes = Decoder(record_specs(file, columns), route_of(file, columns), 1).decode(
        pa.RecordBatch.from_pylist([record], KAFKA_SCHEMA)
    )
    rows = outcomes.rows["a.b"]
    assert rows.num_rows + outcomes.dead.num_rows == 1
    if not rows.num_rows:
        return None
    declared = file.destinations[0].columns
    return [column_values(rows.column(name), column.parsed)[0] for name, column in declared.items()]


@pytest.mark.parametrize("part", ["static", "field"])
def test_header_routes_to_the_table_that_it_names(part: str) -> None:
    by_list = {"part": "header", "field": "x.kind", "tables": {"a.b": "b", "a.c": "c"}}
    by_name = {"part": "header", "name": "x.kind"}
    tables = [{"table": name, "columns": {"id": "long"}} for name in ("a.b", "a.c")]
    raw = {"name": "p", "source": {"topics": ["t"]}, "destinations": tables}
    file = Pipeline.model_validate({**raw, "route": {part: by_list if part == "static" else by_name}})
    rules = rules_of(file, [], "a.b", file.destinations[0].columns)
    value = json.dumps({"id": 1}).encode()

    def expected(*contents: bytes | None) -> object:
        return rules.row(value, "t", Message(topic="t", value=value, headers=[("x.kind", each) for each in contents]))

    prefix = b"" if part == "static" else b"a."
    assert expected(prefix + b"c", prefix + b"b") == (1,)
    for contents in ([prefix + b"c"], [prefix + b"b", None], [b"\xff"], []):
        assert isinstance(expected(*contents), Bad)


@pytest.mark.parametrize("value", [{}, {"format": "delimited", "fields": ["id"]}])
@pytest.mark.parametrize(
    "route", [{"static": {"part": "header", "field": "k", "tables": {"a.c": "c"}}}, {"topic": {"rename": {"t": "a.c"}}}]
)
def test_broken_record_is_expected_in_every_table(value: dict[str, Any], route: dict[str, Any]) -> None:
    tables = [{"table": name, "columns": {"id": "long"}} for name in ("a.b", "a.c")]
    raw = {"name": "p", "source": {"topics": ["t"]}, "destinations": tables, "route": route, "value": value}
    file = Pipeline.model_validate(raw)
    rules = rules_of(file, [], "a.b", file.destinations[0].columns)
    good = b"1" if value else b"{}"

    def is_filtered(content: bytes) -> bool:
        return rules.filters_record(content, "t", Message(topic="t", value=content, headers=[("k", b"c")]))

    assert is_filtered(good)
    assert not is_filtered(b"\xff" if value else b"{")
