"""JSON values in columns of each type: the outcome of each, decoded in blocks and one by one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.errors import Terminal
from frazil.records.model.spec import RecordSpec
from tests.unit.records.kafka_batches import OneTable, outcome_of

I32, I64, F32, F64 = pa.int32(), pa.int64(), pa.float32(), pa.float64()
D10_2, D38 = pa.decimal128(10, 2), pa.decimal128(38, 0)
WALL, INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
TEXT, BYTES, FIXED4, FIXED16 = pa.string(), pa.binary(), pa.binary(4), pa.binary(16)
POINT = pa.struct([pa.field("a", I32, nullable=False), pa.field("b", TEXT)])
DEEP = pa.struct([pa.field("when", pa.list_(INSTANT)), pa.field("ids", pa.list_(pa.uuid()))])
UUID_TEXT = "00112233-4455-6677-8899-AABBccddeeff"
NINES = "9" * 10_000
UTC = dt.UTC

NUMBERS = [
    (pa.bool_(), "true", True),
    (pa.bool_(), "false", False),
    (pa.bool_(), "1", "WRONG_TYPE"),
    (pa.bool_(), '"true"', "WRONG_TYPE"),
    (I32, "2147483647", 2147483647),
    (I32, "-2147483648", -2147483648),
    (I32, "2147483648", "OUT_OF_RANGE"),
    (I32, "-2147483649", "OUT_OF_RANGE"),
    (I32, "-0", 0),
    (I32, "1.0", 1),
    (I32, "10e-1", 1),
    (I32, "1e3", 1000),
    (I32, "1.5", "LOSSY_CAST"),
    (I32, "1e-400", "LOSSY_CAST"),
    (I32, "0e999999999999999999999", 0),
    (I32, "1e999999999999999999999", "OUT_OF_RANGE"),
    (I32, '"1"', "WRONG_TYPE"),
    (I32, "true", "WRONG_TYPE"),
    (I32, "{}", "WRONG_TYPE"),
    (I64, "9223372036854775807", 2**63 - 1),
    (I64, "-9223372036854775808", -(2**63)),
    (I64, "9223372036854775808", "OUT_OF_RANGE"),
    (I64, "9007199254740993", 9007199254740993),
    (I64, "9007199254740993.0", 9007199254740993),
    (I64, "12345678901234567890.5", "OUT_OF_RANGE"),
    (I64, NINES, "OUT_OF_RANGE"),
    (F64, "1", 1.0),
    (F64, "0.1", 0.1),
    (F64, "9007199254740993", "LOSSY_CAST"),
    (F64, "1.7976931348623157e308", 1.7976931348623157e308),
    (F64, "1.7976931348623159e308", "OUT_OF_RANGE"),
    (F64, "1e400", "OUT_OF_RANGE"),
    (F64, "1e-400", "LOSSY_CAST"),
    (F64, NINES, "OUT_OF_RANGE"),
    (F64, '"0.1"', "WRONG_TYPE"),
    (F64, "NaN", "INVALID_JSON"),
    (F64, "-Infinity", "INVALID_JSON"),
    (F64, '"NaN"', "WRONG_TYPE"),
    (F32, "0.5", 0.5),
    (F32, "16777217", 16777216.0),
    (F32, "1e39", "OUT_OF_RANGE"),
    (F32, "3.4028235e38", 3.4028234663852886e38),
    (F32, "3.4028236e38", "OUT_OF_RANGE"),
    (F32, "1e400", "OUT_OF_RANGE"),
    (D10_2, "0.1", Decimal("0.10")),
    (D10_2, "-12345678.90", Decimal("-12345678.90")),
    (D10_2, "1.230", Decimal("1.23")),
    (D10_2, "1e2", Decimal("100.00")),
    (D10_2, "1.234", "LOSSY_CAST"),
    (D10_2, "123456789.1", "OUT_OF_RANGE"),
    (D10_2, "0.89E-725", "LOSSY_CAST"),
    (D10_2, f"0.{'0' * 725}89", "LOSSY_CAST"),
    (D10_2, f"1.{'0' * 725}", Decimal("1.00")),
    (D10_2, "0e-99", Decimal("0.00")),
    (D10_2, '"1.5"', "WRONG_TYPE"),
    (D10_2, r'"\u0031.5"', "WRONG_TYPE"),
    (pa.decimal128(2, 2), "0.01", Decimal("0.01")),
    (pa.decimal128(2, 2), "1", "OUT_OF_RANGE"),
    (
        D38,
        "12345678901234567890123456789012345678",
        Decimal(12345678901234567890123456789012345678),
    ),
    (pa.decimal128(38, 10), "379352722942883154594186998727", "OUT_OF_RANGE"),
    (
        pa.decimal128(38, 10),
        "-3793527229428831545941869987.5",
        Decimal("-3793527229428831545941869987.5"),
    ),
    (D38, "1E+37", Decimal(10) ** 37),
    (D38, "1E+38", "OUT_OF_RANGE"),
    (D38, NINES, "OUT_OF_RANGE"),
    (D38, "NaN", "INVALID_JSON"),
]

TEXTS = [
    (TEXT, '""', ""),
    (TEXT, r'"\u00e9\ud83d\ude00\n\/"', "é😀\n/"),
    (TEXT, r'"\u0000"', "\0"),
    (TEXT, r'"\ud800"', "LONE_SURROGATE"),
    (TEXT, r'"\udc00 after"', "LONE_SURROGATE"),
    (TEXT, "1", "WRONG_TYPE"),
    (TEXT, "true", "WRONG_TYPE"),
    (TEXT, '{"n": 1.10, "big": 12345678901234567890123, "e": 1E+2}',
     '{"n":1.10,"big":12345678901234567890123,"e":1E+2}'),
    (TEXT, '[ "a\\"\\u00e9", null, {}, [], true, -0 ]', '["a\\"é",null,{},[],true,-0]'),
    (TEXT, '{"k": 1, "k": 2}', '{"k":2}'),
    (TEXT, r'["\ud800"]', "LONE_SURROGATE"),
    (pa.large_string(), '"x"', "x"),
    (BYTES, '"AAH/"', b"\x00\x01\xff"),
    (BYTES, '""', b""),
    (BYTES, '"AAH"', "INVALID_TEXT"),
    (BYTES, '"A A="', "INVALID_TEXT"),
    (BYTES, '"é"', "INVALID_TEXT"),
    (BYTES, "1", "WRONG_TYPE"),
    (pa.large_binary(), '"AAH/"', b"\x00\x01\xff"),
    (FIXED4, '"AAECAw=="', b"\x00\x01\x02\x03"),
    (FIXED4, '"AAEC"', "INVALID_TEXT"),
    (FIXED16, f'"{UUID_TEXT}"', UUID(UUID_TEXT).bytes),
    (FIXED16, '"ABEiM0RVZneImaq7zN3u/w=="', UUID(UUID_TEXT).bytes),
    (pa.uuid(), f'"{UUID_TEXT}"', UUID(UUID_TEXT)),
    (pa.uuid(), '"00112233445566778899aabbccddeeff"', "INVALID_TEXT"),
    (pa.uuid(), "5", "WRONG_TYPE"),
]  # fmt: skip

DATES_AND_TIMES = [
    (pa.date32(), '"2024-02-29"', dt.date(2024, 2, 29)),
    (pa.date32(), '"0001-01-01"', dt.date(1, 1, 1)),
    (pa.date32(), '"9999-12-31"', dt.date(9999, 12, 31)),
    (pa.date32(), '"2023-02-29"', "INVALID_TIME"),
    (pa.date32(), '"0000-01-01"', "INVALID_TIME"),
    (pa.date32(), '"2024-1-1"', "INVALID_TIME"),
    (pa.date32(), '"２０２４-01-01"', "INVALID_TIME"),
    (pa.date32(), '"2024-01-01T00:00:00"', "INVALID_TIME"),
    (pa.date32(), '"2024-01-01Z"', dt.date(2024, 1, 1)),
    (pa.date32(), '"2024-01-01z"', dt.date(2024, 1, 1)),
    (pa.date32(), '"2024-01-01ZZ"', "INVALID_TIME"),
    (pa.date32(), '"2024-01-01+01:00"', "INVALID_TIME"),
    (pa.date32(), "19000", "WRONG_TYPE"),
    (pa.time64("us"), '"23:59:59.999999"', dt.time(23, 59, 59, 999999)),
    (pa.time64("us"), '"12:30"', dt.time(12, 30)),
    (pa.time64("us"), '"12:30:00.1234560"', dt.time(12, 30, 0, 123456)),
    (pa.time64("us"), '"12:30:00.1234561"', "LOSSY_CAST"),
    (pa.time64("us"), '"24:00:00"', "INVALID_TIME"),
    (pa.time64("us"), '"12:30:00Z"', dt.time(12, 30)),
    (pa.time64("us"), '"12:30z"', dt.time(12, 30)),
    (pa.time64("us"), '"12:30:00.5+00:00"', dt.time(12, 30, 0, 500000)),
    (pa.time64("us"), '"12:30:00-0000"', dt.time(12, 30)),
    (pa.time64("us"), '"12:30:00+01:00"', "INVALID_TIME"),
    (pa.time64("us"), '"12:30:00ZZ"', "INVALID_TIME"),
    (WALL, '"2024-05-06T07:08:09"', dt.datetime(2024, 5, 6, 7, 8, 9)),
    (WALL, '"2024-05-06 07:08:09.5"', dt.datetime(2024, 5, 6, 7, 8, 9, 500000)),
    (WALL, '"2024-05-06T07:08"', dt.datetime(2024, 5, 6, 7, 8)),
    (WALL, '"2024-05-06T07:08:09+02:00"', dt.datetime(2024, 5, 6, 7, 8, 9)),
    (WALL, '"2024-05-06T07:08:09Z"', dt.datetime(2024, 5, 6, 7, 8, 9)),
    (WALL, '"2024-05-06"', "INVALID_TIME"),
    (WALL, '"2024-05-06T07:08:60"', "INVALID_TIME"),
    (WALL, '"2024-05-06T07:08:09."', "INVALID_TIME"),
    (WALL, '"2024-05-06T07:08:09 "', "INVALID_TIME"),
    (WALL, '"2024-05-06T07:08:09\\n"', "INVALID_TIME"),
    (WALL, '"2024-05-06T07:08:09.123456789"', "LOSSY_CAST"),
    (WALL, '"2024-05-06T07:08:09.123456000"', dt.datetime(2024, 5, 6, 7, 8, 9, 123456)),
    (WALL, '"2024-05-06T07:08:09.0000000001"', "LOSSY_CAST"),
    (WALL, '"2024-05-06T07:08:09.12345600000000"', dt.datetime(2024, 5, 6, 7, 8, 9, 123456)),
    (WALL, "1714979289000", "WRONG_TYPE"),
    (INSTANT, '"2022-09-13T00:00:00"', dt.datetime(2022, 9, 13, tzinfo=UTC)),
    (INSTANT, '"2022-09-13T00:00:00Z"', dt.datetime(2022, 9, 13, tzinfo=UTC)),
    (INSTANT, '"2022-09-13t00:00:00z"', dt.datetime(2022, 9, 13, tzinfo=UTC)),
    (INSTANT, '"2022-09-13 00:00:00+00"', dt.datetime(2022, 9, 13, tzinfo=UTC)),
    (INSTANT, '"2022-09-13 00:00:00-00:00"', dt.datetime(2022, 9, 13, tzinfo=UTC)),
    (INSTANT, '"2022-09-13 00:00:00+0000"', dt.datetime(2022, 9, 13, tzinfo=UTC)),
    (INSTANT, '"2022-09-13T00:00:00.25-03:30"', dt.datetime(2022, 9, 13, 3, 30, 0, 250000, UTC)),
    (INSTANT, '"2022-09-13T00:00:00+24:00"', "INVALID_TIME"),
    (INSTANT, '"2022-09-13T00:00:00+00:60"', "INVALID_TIME"),
    (INSTANT, '"0001-01-01T00:00:00+00:01"', "OUT_OF_RANGE"),
    (INSTANT, '"9999-12-31T23:59:59-00:01"', "OUT_OF_RANGE"),
    (INSTANT, "0", "WRONG_TYPE"),
]

NESTED = [
    (POINT, '{"a": 1, "b": "x", "c": [1]}', {"a": 1, "b": "x"}),
    (POINT, '{"a": 1, "a": 2}', {"a": 2, "b": None}),
    (POINT, "null", None),
    (POINT, '{"b": "x"}', "MISSING_REQUIRED"),
    (POINT, '{"a": null}', "MISSING_REQUIRED"),
    (POINT, "[]", "WRONG_TYPE"),
    (pa.list_(I32), "[1, null, 2.0]", [1, None, 2]),
    (pa.list_(I32), "[]", []),
    (pa.list_(I32), "null", None),
    (pa.list_(I32), '[1, "2"]', "WRONG_TYPE"),
    (pa.list_(I32), "{}", "WRONG_TYPE"),
    (pa.list_(pa.field("element", I32, nullable=False)), "[1, null]", "MISSING_REQUIRED"),
    (pa.list_(pa.decimal128(3, 1)), "[0.5]", [Decimal("0.5")]),
    (pa.list_(pa.decimal128(3, 1)), '["0.5"]', "WRONG_TYPE"),
    (pa.large_list(pa.large_string()), '["a", null]', ["a", None]),
    (pa.list_(pa.list_(POINT)), '[[{"a": 1}], [], null]', [[{"a": 1, "b": None}], [], None]),
    (DEEP, f'{{"when": ["2024-01-01 00:00:00", null], "ids": ["{UUID_TEXT}"]}}',
     {"when": [dt.datetime(2024, 1, 1, tzinfo=UTC), None], "ids": [UUID(UUID_TEXT)]}),
    (DEEP, '{"when": ["soon"]}', "INVALID_TIME"),
    (pa.struct([pa.field("d", D10_2)]), '{"d": "1"}', "WRONG_TYPE"),
    (pa.map_(TEXT, I32), '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
    (pa.map_(TEXT, I32), "{}", []),
    (pa.map_(TEXT, I32), '{"a": "1"}', "WRONG_TYPE"),
    (pa.map_(TEXT, I32), r'{"\ud800": 1}', "LONE_SURROGATE"),
    (pa.map_(TEXT, I32), "[]", "WRONG_TYPE"),
    (pa.map_(I32, TEXT), '{"1": "x", "-2": null}', [(1, "x"), (-2, None)]),
    (pa.map_(I32, TEXT), '{"1.0": "x", "2e1": "y"}', [(1, "x"), (20, "y")]),
    (pa.map_(I32, TEXT), '{"1": "x", "1.0": "y"}', "DUPLICATE_KEY"),
    (pa.map_(I32, TEXT), '{"01": "x"}', "WRONG_TYPE"),
    (pa.map_(I32, TEXT), '{"": "x"}', "WRONG_TYPE"),
    (pa.map_(I32, TEXT), '{"2147483648": "x"}', "OUT_OF_RANGE"),
    (pa.map_(I32, TEXT), '{"1.5": "x"}', "LOSSY_CAST"),
    (pa.map_(I32, TEXT), '[{"key": 1, "value": "x"}, {"key": 2}]', [(1, "x"), (2, None)]),
    (pa.map_(I32, TEXT), '[[1, "x"], [2, null]]', [(1, "x"), (2, None)]),
    (pa.map_(I32, TEXT), '[{"key": 1, "value": "x"}, {"key": 1, "value": "x"}]', "DUPLICATE_KEY"),
    (pa.map_(I32, TEXT), '[{"key": null, "value": "x"}]', "MISSING_REQUIRED"),
    (pa.map_(I32, TEXT), '[{"key": "1", "value": "x"}]', "WRONG_TYPE"),
    (pa.map_(I32, TEXT), '[{"value": "x"}]', "WRONG_TYPE"),
    (pa.map_(I32, TEXT), "[1]", "WRONG_TYPE"),
    (pa.map_(I32, TEXT), "5", "WRONG_TYPE"),
    (pa.map_(I32, TEXT), "{}", []),
    (pa.map_(I64, I32), '{"9007199254740993": 1}', [(9007199254740993, 1)]),
    (pa.map_(D10_2, I32), '{"0.10": 1}', [(Decimal("0.10"), 1)]),
    (pa.map_(F64, I32), '{"0.5": 1}', [(0.5, 1)]),
    (pa.map_(F32, I32), '{"0.1": 1, "0.2": 2}', [(0.10000000149011612, 1), (0.20000000298023224, 2)]),
    (pa.map_(F32, I32), '{"0.1": 1, "0.10000000001": 2}', "DUPLICATE_KEY"),
    (pa.map_(F32, I32), "[[16777216, 1], [16777217, 2]]", "DUPLICATE_KEY"),
    (pa.map_(F64, I32), "[[16777216, 1], [16777217, 2]]", [(16777216.0, 1), (16777217.0, 2)]),
    (pa.map_(pa.struct([("f", F32)]), I32), '[[{"f": 0.1}, 1], [{"f": 0.10000000001}, 2]]', "DUPLICATE_KEY"),
    (pa.map_(pa.bool_(), I32), '{"true": 1, "false": 2}', [(True, 1), (False, 2)]),
    (pa.map_(pa.bool_(), I32), '{"yes": 1}', "WRONG_TYPE"),
    (pa.map_(pa.date32(), I32), '{"2024-02-29": 1}', [(dt.date(2024, 2, 29), 1)]),
    (pa.map_(pa.date32(), I32), '{"2024-02-30": 1}', "INVALID_TIME"),
    (pa.map_(INSTANT, I32), '{"2024-01-01T00:00:00Z": 1, "2024-01-01T01:00:00+01": 2}', "DUPLICATE_KEY"),
    (pa.map_(pa.uuid(), I32), f'{{"{UUID_TEXT}": 1}}', [(UUID(UUID_TEXT), 1)]),
    (pa.map_(BYTES, I32), '{"1234": 1}', [(b"\xd7m\xf8", 1)]),
    (pa.map_(POINT, I32), '[{"key": {"a": 1}, "value": 2}]', [({"a": 1, "b": None}, 2)]),
    (pa.map_(POINT, I32), '[[{"a": 1}, 2], [{"a": 1.0}, 3]]', "DUPLICATE_KEY"),
    (pa.map_(I32, pa.map_(I32, I32)), '{"1": {"2": 3}}', [(1, [(2, 3)])]),
    (pa.map_(pa.large_string(), pa.uuid()), f'{{"a": "{UUID_TEXT}"}}', [("a", UUID(UUID_TEXT))]),
]  # fmt: skip


def _case_id(part: object) -> str:
    text = str(part)
    return text if len(text) <= 60 else f"{text[:40]}…{len(text)}"


@pytest.mark.parametrize(
    ("data_type", "json_value", "expected"),
    [*NUMBERS, *TEXTS, *DATES_AND_TIMES, *NESTED],
    ids=_case_id,
)
def test_value_becomes_its_exact_value_or_a_reason(data_type: pa.DataType, json_value: str, expected: object) -> None:
    """No value is cast, rounded or truncated silently, in blocks or one by one."""
    cell = outcome_of(data_type, json_value)
    assert cell == expected
    assert type(cell) is type(expected)


@pytest.mark.parametrize("json_value", ["-0", "-0.0", "-0e5"])
def test_negative_zero_keeps_its_sign(json_value: str) -> None:
    """A float's -0.0 equals 0.0, so that only its text shows a lost sign."""
    assert str(outcome_of(F64, json_value)) == "-0.0"


@pytest.mark.parametrize("data_type", [I32, TEXT, POINT, pa.map_(TEXT, I32), pa.uuid()], ids=str)
def test_null_is_a_value_only_where_it_is_allowed(data_type: pa.DataType) -> None:
    """Null lands as null in an optional column and is a dead letter in a required one."""
    assert outcome_of(data_type, "null") is None
    assert outcome_of(data_type, "null", nullable=False) == "MISSING_REQUIRED"


@pytest.mark.parametrize(
    "data_type",
    [
        pa.int16(),
        pa.uint32(),
        pa.timestamp("ns"),
        pa.decimal128(5, -2),
        pa.decimal256(50, 2),
        pa.duration("us"),
        pa.list_(pa.int8()),
        pa.map_(pa.int8(), pa.int32()),
    ],
    ids=str,
)
def test_type_without_json_form_is_refused_before_any_record(data_type: pa.DataType) -> None:
    """A table that no record can fill is an error of the pipeline file."""
    with pytest.raises(Terminal, match=r"can't become"):
        OneTable(RecordSpec(pa.schema([pa.field("x", data_type)])), 1)
