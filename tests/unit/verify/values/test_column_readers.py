"""The independent decoder, compared with the documentation and with the decoder that writes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.iceberg.schema.schema import declared_schema
from frazil.pipeline.models.pipeline_file import Column, Destination
from frazil.records.model.rows import KAFKA_SCHEMA
from frazil.records.model.spec import RecordSpec
from frazil.verify.values.canonical import column_values
from frazil.verify.values.column_readers import Bad, Expectation
from frazil.verify.values.json_document import MAX_DEPTH
from tests.unit.records.kafka_batches import OneTable

BAD = "bad"

MICROS = 1_704_067_200_000_000
"""2024-01-01T00:00:00Z."""


def read(type_name: str, value: str) -> Any:
    """The value in a column of this type for `{"x": value}`, or BAD."""
    row = Expectation({"x": Column(type=type_name)}).row(f'{{"x": {value}}}'.encode())
    return BAD if isinstance(row, Bad) else row[0]


CASES = [
    ("boolean", "true", True),
    ("boolean", "1", BAD),
    ("int", "2147483647", 2**31 - 1),
    ("int", "2147483648", BAD),
    ("int", "1.0", 1),
    ("int", "12e-1", BAD),
    ("int", '"1"', BAD),
    ("int", "true", BAD),
    ("long", "-9223372036854775808", -(2**63)),
    ("long", "9223372036854775808", BAD),
    ("long", "1e2", 100),
    ("long", "0e99999999999999999999", 0),
    ("long", "1e99999999999999999999", BAD),
    ("long", "1e-99999999999999999999", BAD),
    ("long", "1e999999", BAD),
    ("double", "1e400", BAD),
    ("double", "1e-400", BAD),
    ("double", "9007199254740993", BAD),
    ("double", "0.10000000000000000555", 0.1),
    ("double", "0.1", 0.1),
    ("float", "0.1", 0.10000000149011612),
    ("float", "1e39", BAD),
    ("double", "NaN", BAD),
    ("decimal(5,2)", "123.45", 12345),
    ("decimal(5,2)", "1e2", 10000),
    ("decimal(5,2)", "1000", BAD),
    ("decimal(5,2)", "1.234", BAD),
    ("decimal(5,2)", "1.2300", 123),
    ("decimal(5,2)", "-0.05", -5),
    ("decimal(5,2)", "999.99", 99999),
    ("decimal(5,2)", "1000.00", BAD),
    ("decimal(38,0)", "9" * 38, int("9" * 38)),
    ("decimal(38,0)", "1" + "0" * 38, BAD),
    ("decimal(2,2)", "-0.05", -5),
    ("decimal(2,2)", "-0e-9", 0),
    ("decimal(5,2)", '"1.5"', BAD),
    ("string", '"é\\u0000"', "é\0"),
    ("string", "5", BAD),
    ("string", "true", BAD),
    ("string", '{ "a": [1.50, -0, null, "\\u00e9", {}] , "b": [] }', '{"a":[1.50,-0,null,"é",{}],"b":[]}'),
    ("string", '"\\ud800"', BAD),
    ("string", '["\\ud800"]', BAD),
    ("string", '"\\ud83d\\ude00"', "😀"),
    ("binary", '"AAE="', b"\0\1"),
    ("binary", '"AAE"', BAD),
    ("binary", '"é"', BAD),
    ("fixed[2]", '"AAE="', b"\0\1"),
    ("fixed[3]", '"AAE="', BAD),
    ("fixed[16]", '"00112233-4455-6677-8899-aabbccddeeff"', bytes.fromhex("00112233445566778899aabbccddeeff")),
    ("uuid", '"00112233-4455-6677-8899-AABBCCDDEEFF"', bytes.fromhex("00112233445566778899aabbccddeeff")),
    ("uuid", '"00112233445566778899aabbccddeeff"', BAD),
    ("date", '"1970-01-02"', 1),
    ("date", '"2023-02-29"', BAD),
    ("date", '"2024-1-1"', BAD),
    ("date", '"1970-01-02Z"', 1),
    ("date", '"1970-01-02+01:00"', BAD),
    ("date", "1", BAD),
    ("time", '"00:00:01.5"', 1_500_000),
    ("time", '"12:30"', 45_000_000_000),
    ("time", '"24:00:00"', BAD),
    ("time", '"12:30:00Z"', 45_000_000_000),
    ("time", '"12:30:00+01:00"', BAD),
    ("timestamp", '"2024-01-01T00:00:00"', MICROS),
    ("timestamp", '"2024-01-01 00:00:00+05:30"', MICROS),
    ("timestamp", '"2024-01-01T00:00:00.1234567"', BAD),
    ("timestamp", '"2024-01-01T00:00:00.123456000"', MICROS + 123_456),
    ("timestamp", '"2024-01-01T00:00:60"', BAD),
    ("timestamptz", '"2024-01-01T05:30:00+0530"', MICROS),
    ("timestamptz", '"2024-01-01T00:00Z"', MICROS),
    ("timestamptz", '"2023-12-31t19:00:00-05"', MICROS),
    ("timestamptz", '"0001-01-01T00:00:00+01:00"', BAD),
    ("timestamptz", '"2024-01-01T00:00:00+24"', BAD),
    ("list<int>", "[1, null]", (1, None)),
    ("list<int>", '[1, "2"]', BAD),
    ("list<int>", "{}", BAD),
    ("map<string, long>", '{"b": 1, "a": null}', (("a", None), ("b", 1))),
    ("map<string, long>", "[]", BAD),
    ("struct<a: int, b: list<date>>", '{"b": ["1970-01-01"], "c": 5}', (None, (0,))),
    ("struct<a: int>", '"x"', BAD),
    ("long", "null", None),
]


@pytest.mark.parametrize(("type_name", "value", "expected"), CASES)
def test_a_value_is_read_as_promised(type_name: str, value: str, expected: object) -> None:
    """Type and value of the expectation must both be right."""
    result = read(type_name, value)

    assert (result, repr(result)) == (expected, repr(expected))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"[]",
        b"1",
        b'{"x": 1',
        b'{"x": 1} 2',
        b'{"x": 01}',
        b'{"x": 1,}',
        b"\xff",
        b'{"x": "\n"}',
        b"{'x': 1}",
    ],
)
def test_value_that_is_no_json_object_is_expected_as_dead_letter(raw: bytes) -> None:
    """Such a record is a dead letter, whatever its columns."""
    assert isinstance(Expectation({"x": Column(type="long")}).row(raw), Bad)


def test_a_byte_order_mark_and_repeated_keys_are_read_as_the_writer_does() -> None:
    """One byte order mark is skipped, and the last of repeated keys counts."""
    assert Expectation({"x": Column(type="long")}).row(b'\xef\xbb\xbf{"x": 1, "x": 2}') == (2,)


@pytest.mark.parametrize(("depth", "is_bad"), [(MAX_DEPTH, False), (MAX_DEPTH + 1, True)])
def test_deepest_value_is_expected_as_a_row(depth: int, is_bad: bool) -> None:
    """The limit is documented; brackets inside texts don't count."""
    raw = b'{"t": "' + b"[" * 600 + b'", "x": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"

    assert isinstance(Expectation({"x": Column(type="string")}).row(raw), Bad) is is_bad


def test_required_field_without_value_is_bad() -> None:
    """Both a missing value and null are bad in a required column."""
    expectation = Expectation({"x": Column(type="long", required=True)})

    assert expectation.row(b'{"x": 0}') == (0,)
    assert isinstance(expectation.row(b"{}"), Bad)
    assert isinstance(expectation.row(b'{"x": null}'), Bad)


def test_one_bad_cell_leaves_the_good_ones_compared() -> None:
    """A cell that is bad under the present file is not compared in rows of an older one; the others are."""
    columns = {"x": Column(type="long"), "y": Column(type="long")}

    assert Expectation(columns).cells(b'{"x": "no", "y": 2}') == (Bad("not a number"), 2)


TYPES = {
    "b": "boolean",
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
    "n": "decimal(6,2)",
    "s": "string",
    "day": "date",
    "t": "time",
    "w": "timestamp",
    "z": "timestamptz",
    "u": "uuid",
    "y": "binary",
    "x": "fixed[2]",
    "li": "list<decimal(4,1)>",
    "m": "map<string, timestamptz>",
    "r": "struct<a: uuid, b: list<struct<c: date, d: float>>, e: map<string, int>>",
}
DESTINATION = Destination(table="a.b", columns=TYPES, kafka_columns=False)
ARROW = schema_to_pyarrow(declared_schema(DESTINATION), include_field_ids=False)
NAMES = st.sampled_from([*TYPES, "a", "b", "c", "d", "e", "other", "é"])
SCALARS = st.one_of(
    st.sampled_from(
        ["null", "true", "0", "-0", "-0.0", "1.0", "1.50", "1e2", "1E-3", "9999.99", "1e38", "1e39", "5e-324"]
    ),
    st.sampled_from(["2147483648", "9223372036854775808", "1e400", "NaN", "Infinity", "01", "1e99999999999999999999"]),
    st.sampled_from([r'"\ud800"', r'"\ud83d\ude00"', r'"\u0000"', '"a\nb"', '"AAE="', '"1.5"', '"\x7f"', r'"\/"']),
    st.sampled_from(
        ['"2024-02-29 01:02:03"', '"2024-02-30T00:00:00Z"', '"2024-01-31T24:00:00"', '"12:30"', '"23:59:59.5"']
    ),
    st.sampled_from(['"2024-01-01T00:00:00.1234567+0130"', '"0001-01-01 00:00:00+01"', '"9999-12-31T23:59:59-01:00"']),
    st.sampled_from(['"00112233-4455-6677-8899-aabbccddeeff"', '"2024-12-31"', '"2024-01-01 00:00:00.25-03:30"']),
    st.integers(-(2**64), 2**64).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-20000, 20000, places=2).map(str),
    st.text(max_size=6).map(json.dumps),
    st.text(max_size=4).map(lambda text: f'"{text}"'),
    st.datetimes().map(lambda moment: f'"{moment.isoformat()}"'),
    st.times().map(lambda moment: f'"{moment.isoformat()}"'),
    st.uuids().map(lambda number: f'"{number}"'),
)


def _object(items: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in items) + "}"


TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(NAMES, inner), max_size=3).map(_object)
    ),
    max_leaves=6,
)


TYPED = st.sampled_from(sorted(TYPES)).flatmap(lambda name: st.tuples(st.just(name), TREES))
RECORDS = st.lists(TYPED, max_size=3).map(lambda items: _object(items).encode("utf-8", "surrogatepass"))
CUT = st.tuples(RECORDS, st.integers(0, 60)).map(lambda part: part[0][: part[1]])


def outcomes(values: list[bytes]) -> list[tuple[Any, ...] | str]:
    """The rows that the write path makes of values, in canonical form, or BAD."""
    spec = RecordSpec(ARROW, kafka_columns=None)
    size = len(values)
    origin = {"topic": ["t"] * size, "partition": [0] * size, "offset": range(size), "value": values}
    batch = pa.RecordBatch.from_arrays(
        [pa.array(origin.get(field.name, [None] * size), field.type) for field in KAFKA_SCHEMA], schema=KAFKA_SCHEMA
    )
    decoded = OneTable(spec, 1).decode(batch)
    bad = set(decoded.dead["offset"].to_pylist())
    columns = [
        column_values(decoded.rows.column(name), column_type.parsed)
        for name, column_type in DESTINATION.columns.items()
    ]
    rows = iter(zip(*columns, strict=True))
    return [BAD if number in bad else next(rows) for number in range(size)]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(RECORDS | RECORDS | CUT, min_size=1, max_size=12))
def test_values_are_expected_as_they_are_written(values: list[bytes]) -> None:
    """Two independent decoders agree which generated values are bad, and on every cell of the others."""
    expectation = Expectation(DESTINATION.columns)
    expected = [BAD if isinstance(row, Bad) else row for row in map(expectation.row, values)]

    assert list(map(repr, expected)) == list(map(repr, outcomes(values)))


@pytest.mark.parametrize("value", [b"null", b"[]", b'"a"', b"5"])
def test_value_that_is_no_object_is_bad_where_no_record_brought_a_column_yet(value: bytes) -> None:
    """A table without columns yet is not a table with one column for values of any kind."""
    nothing = Expectation({})
    assert isinstance(nothing.row(value), Bad)
    assert isinstance(nothing.cells(value), Bad)
    assert nothing.row(b"{}") == ()
