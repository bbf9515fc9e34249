"""Values and what they become in columns of each type."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal

from tests.integration.sink_scenarios.scenario import Scenario, TableContents, sink_records

_UUID = "9bb1f4b2-5b2e-4c4e-8f3a-000000000001"

_ALL = {
    "i": "int",
    "l": "long",
    "f": "float",
    "d": "double",
    "p": "decimal(10, 2)",
    "b": "boolean",
    "s": "string",
    "u": "uuid",
    "x": "binary",
    "da": "date",
    "t": "time",
    "ts": "timestamp",
    "tz": "timestamptz",
    "li": "list<string>",
    "st": "struct<a: long>",
}

_FULL = {
    "i": 1, "l": 2**40, "f": 0.5, "d": 0.1, "p": 12.34, "b": True, "s": "text", "u": _UUID, "x": "3q2+7w==",
    "da": "2026-05-01", "t": "10:30:00.5", "ts": "2026-05-01T10:30:00.123", "tz": "2026-05-01T10:30:00+02:00",
    "li": ["a", None], "st": {"a": 1},
}  # fmt: skip

_FULL_ROW = (
    1, 2**40, 0.5, 0.1, Decimal("12.34"), True, "text", uuid.UUID(_UUID), b"\xde\xad\xbe\xef",
    date(2026, 5, 1), time(10, 30, 0, 500_000), datetime(2026, 5, 1, 10, 30, 0, 123_000),
    datetime(2026, 5, 1, 8, 30, tzinfo=UTC), ["a", None], {"a": 1},
)  # fmt: skip

_ZONED = (
    "2026-05-01T10:30:00+00:00", "2026-05-01T12:30:00.000+0200", "2026-05-01 12:30:00+02", "2026-05-01T10:30:00Z",
    "2026-05-01T10:30:00", "2026-05-01 08:30:00.000-02:00", 1777631400000,
)  # fmt: skip

_DECLARED = "{" + ", ".join(f'{name}: "{type_name}"' for name, type_name in _ALL.items()) + "}"

CONVERSION = (
    Scenario(
        "a value of each type, nulls, and nothing",
        "TestRecordConverter.testMapConvert, testNestedMapConvert, and each type's test",
        f"destinations: [{{table: shop.events, columns: {_DECLARED}}}]",
        (sink_records(_FULL, dict.fromkeys(_FULL), {}, _FULL),),
        {"shop.events": TableContents(_ALL, (_FULL_ROW, (None,) * len(_ALL), (None,) * len(_ALL), _FULL_ROW))},
    ),
    Scenario(
        "objects and lists in text columns, and empty ones",
        "TestRecordConverter.testMapToString, testStructToString, testEmptyListAndMapConvert",
        "destinations: [{table: shop.events, columns: {s: string, l: list<long>, m: 'map<string, long>'}}]",
        (
            sink_records(
                {"s": {"a": [1, None]}, "l": [], "m": {}}, {"s": ["x"], "l": [1, None], "m": {"k": 1, "n": None}}
            ),
        ),
        {
            "shop.events": TableContents(
                {"s": "string", "l": "list<long>", "m": "map<string, long>"},
                (('{"a":[1,null]}', [], []), ('["x"]', [1, None], [("k", 1), ("n", None)])),
            )
        },
    ),
    Scenario(
        "names in another case",
        "TestRecordConverter.testCaseSensitivity",
        """
value: {field_names: case_insensitive}
destinations: [{table: shop.events, columns: {ii: int, other: string}}]
""",
        (sink_records({"II": 1, "Other": "a"}, {"ii": 2, "OTHER": None}),),
        {"shop.events": TableContents({"ii": "int", "other": "string"}, ((1, "a"), (2, None)))},
    ),
    Scenario(
        "names in another case are others",
        "TestRecordConverter.testCaseSensitivity, case-sensitive",
        "destinations: [{table: shop.events, columns: {ii: int}}]",
        (sink_records({"II": 1}, {"ii": 2}),),
        {"shop.events": TableContents({"ii": "int"}, ((None,), (2,)))},
    ),
    Scenario(
        "times with all spellings of an offset",
        "TestRecordConverter.testTimestampWithZoneConversion, testTimestampWithZoneAndFractionalSecondsConversion",
        "destinations: [{table: shop.events, columns: {tz: {type: timestamptz, unit: ms}}}]",
        (sink_records(*({"tz": zoned} for zoned in _ZONED), {"tz": "May 1st"}),),
        {
            "shop.events": TableContents(
                {"tz": "timestamptz"}, ((datetime(2026, 5, 1, 10, 30, tzinfo=UTC),),) * len(_ZONED)
            )
        },
        letters=((len(_ZONED), None, "INVALID_TIME"),),
    ),
    Scenario(
        "numbers that the sink would bend",
        "TestRecordConverter.testIntConversion, testDecimalConversion: overflow and rounding in silence",
        "destinations: [{table: shop.events, columns: {i: int, p: 'decimal(5,2)', s: string}}]",
        (
            sink_records(
                {"i": 2**31}, {"i": 1.5}, {"i": "1"}, {"p": 1.005}, {"p": 1234.5}, {"s": 1}, {"i": 1.0, "p": 1.5}
            ),
        ),
        {
            "shop.events": TableContents(
                {"i": "int", "p": "decimal(5, 2)", "s": "string"}, ((1, Decimal("1.50"), None),)
            )
        },
        letters=(
            (0, None, "OUT_OF_RANGE"),
            (1, None, "LOSSY_CAST"),
            (2, None, "WRONG_TYPE"),
            (3, None, "LOSSY_CAST"),
            (4, None, "OUT_OF_RANGE"),
            (5, None, "WRONG_TYPE"),
        ),
    ),
    Scenario(
        "numbers and booleans in text columns",
        "RecordConverter.convertString of numbers and booleans",
        "value: {casts: text}\ndestinations: [{table: shop.events, columns: {s: string}}]",
        (sink_records({"s": 1}, {"s": True}, {"s": 1.50}, {"s": "x"}),),
        {"shop.events": TableContents({"s": "string"}, (("1",), ("true",), ("1.5",), ("x",)))},
    ),
)
