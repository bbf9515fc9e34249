"""What each format makes of what is sent, for columns of each type: one row per case, tested here and shown in the docs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from frazil.records.model.dead_letter import DeadCode
from tests.unit.records.formats.case import COLUMN, Case, column_of
from tests.unit.records.formats.cases_with_schema import avro, envelope, json_schema, protobuf


def cases() -> list[Case]:
    """Every case, in the order of the docs."""
    return [*_json(), *envelope(), *avro(), *protobuf(), *json_schema(), *_delimited(), *_scalars()]


_UUID = "7b5c1e0a-3f52-4a53-9d5e-0d7a3c1b2f44"
_TIMES_IN_TEXT: list[tuple[str, str | dict[str, Any], str | DeadCode]] = [
    ('"2026-05-01"', "date", "2026-05-01"),
    ('"2026-02-30"', "date", DeadCode.INVALID_TIME),
    ('"12:30:00.5"', "time", "12:30:00.500000"),
    ('"2026-05-01T12:30:00Z"', "timestamptz", "2026-05-01T12:30:00+00:00"),
    ('"2026-05-01 12:30:00+0200"', "timestamptz", "2026-05-01T10:30:00+00:00"),
    ('"2026-05-01 12:30:00"', "timestamptz", "2026-05-01T12:30:00+00:00"),
    ('"2026-05-01T12:30:00.123456789Z"', "timestamptz", DeadCode.LOSSY_CAST),
    ('"2026-05-01T12:30:00+02:00"', "timestamp", "2026-05-01T12:30:00"),
    ('"2026-05-01T12:30:00+02:00"', {"type": "timestamp", "local_time": "dead_letter"}, DeadCode.INVALID_TIME),
    ("1777638600123", {"type": "timestamptz", "unit": "ms"}, "2026-05-01T12:30:00.123000+00:00"),
    ("1777638600123", {"type": "timestamp", "unit": "ms"}, "2026-05-01T12:30:00.123000"),
    ("45000", {"type": "time", "unit": "s"}, "12:30:00"),
    ("1777638600", "timestamptz", DeadCode.WRONG_TYPE),
]


def _json() -> Iterator[Case]:
    rows: list[tuple[str, str | dict[str, Any], str | DeadCode]] = [
        ("true", "boolean", "true"),
        ("1", "boolean", DeadCode.WRONG_TYPE),
        ("7", "int", "7"),
        ("7.0", "int", "7"),
        ("7.5", "int", DeadCode.LOSSY_CAST),
        ('"7"', "int", DeadCode.WRONG_TYPE),
        ("2147483648", "int", DeadCode.OUT_OF_RANGE),
        ("9223372036854775807", "long", "9223372036854775807"),
        ("0.1", "float", "0.1"),
        ("1e39", "float", DeadCode.OUT_OF_RANGE),
        ("0.1", "double", "0.1"),
        ("1e400", "double", DeadCode.OUT_OF_RANGE),
        ("NaN", "double", DeadCode.INVALID_JSON),
        ("12345678901234567890123456789012345678", "decimal(38,0)", "12345678901234567890123456789012345678"),
        ("1.10", "decimal(10,2)", "1.10"),
        ("1.105", "decimal(10,2)", DeadCode.LOSSY_CAST),
        ('"1.10"', "decimal(10,2)", DeadCode.WRONG_TYPE),
        ('"München"', "string", '"München"'),
        ("7", "string", DeadCode.WRONG_TYPE),
        ("7.10", "string", '"7.10"'),
        ('{"a": [1.0, null]}', "string", '"{\\"a\\":[1.0,null]}"'),
        (r'"\ud800"', "string", DeadCode.LONE_SURROGATE),
        *_TIMES_IN_TEXT,
        (f'"{_UUID}"', "uuid", _UUID),
        ('"no uuid"', "uuid", DeadCode.INVALID_TEXT),
        ('"AP8="', "binary", "0x00ff"),
        ('"AP8="', "fixed[2]", "0x00ff"),
        ('"AP8="', "fixed[3]", DeadCode.INVALID_TEXT),
        ('{"a": 1, "b": 2}', "struct<a: int, z: int>", "{a: 1, z: null}"),
        ("[1, null]", "list<int>", "[1, null]"),
        ('{"a": 1}', "map<string, int>", '{"a": 1}'),
        ('{"7": 1.5}', "map<int, double>", "{7: 1.5}"),
        ("null", "int", "null"),
        ("null", {"type": "int", "required": True}, DeadCode.MISSING_REQUIRED),
        ("null", {"type": "int", "required": True, "default": 0}, "0"),
    ]
    for value_sent, column, result in rows:
        casts = {"casts": "text"} if (value_sent, column) == ("7.10", "string") else {}
        yield Case("json", value_sent, column_of(column), result, f'{{"{COLUMN}": {value_sent}}}'.encode(), casts)


def _delimited() -> Iterator[Case]:
    rows: list[tuple[str, str | dict[str, Any], str | DeadCode]] = [
        ("7", "int", "7"),
        ("7.5", "int", DeadCode.LOSSY_CAST),
        ("seven", "int", DeadCode.INVALID_TEXT),
        ("9223372036854775807", "long", "9223372036854775807"),
        ("9223372036854775808", "long", DeadCode.OUT_OF_RANGE),
        ("0.1", "float", "0.1"),
        ("0.1", "double", "0.1"),
        ("NaN", "double", "nan"),
        ("1.10", "decimal(10,2)", "1.10"),
        ("1.105", "decimal(10,2)", DeadCode.LOSSY_CAST),
        ("true", "boolean", "true"),
        ("1", "boolean", DeadCode.INVALID_TEXT),
        ("2026-05-01", "date", "2026-05-01"),
        ("12:30:00", "time", "12:30:00"),
        ("2026-05-01 12:30:00", "timestamp", "2026-05-01T12:30:00"),
        ("2026-05-01 12:30:00", "timestamptz", "2026-05-01T12:30:00+00:00"),
        ("1777638600", {"type": "timestamptz", "unit": "s"}, "2026-05-01T12:30:00+00:00"),
        ("1777638600", {"type": "timestamp", "unit": "s"}, "2026-05-01T12:30:00"),
        ("45000", {"type": "time", "unit": "s"}, "12:30:00"),
        ("1777638600", "timestamptz", DeadCode.INVALID_TIME),
        (_UUID, "uuid", _UUID),
        ("AP8=", "binary", "0x00ff"),
        ("AP8=", "fixed[2]", "0x00ff"),
        ("{1}", "struct<a: int>", DeadCode.WRONG_TYPE),
        ("[1]", "list<int>", DeadCode.WRONG_TYPE),
        ("{}", "map<string, int>", DeadCode.WRONG_TYPE),
        ('"a,""b"""', "string", '"a,\\"b\\""'),
        ("", "string", "null"),
        ('""', "string", '""'),
        (r"\N", "string", "null"),
        ("a,b", "string", DeadCode.INVALID_DELIMITED),
    ]
    for value_sent, column, result in rows:
        section = {"format": "delimited", "fields": ["first", COLUMN]} | (
            {"null_text": value_sent} if value_sent == r"\N" else {}
        )
        yield Case("delimited", value_sent, column_of(column), result, f"x,{value_sent}\r\n".encode(), section)


def _scalars() -> Iterator[Case]:
    rows: list[tuple[str, str, bytes, str | dict[str, Any], str | DeadCode]] = [
        ("string", "Grüße", "Grüße".encode(), "string", '"Grüße"'),
        ("string", "0xff", b"\xff", "string", DeadCode.INVALID_UTF8),
        ("string", "7", b"7", "int", DeadCode.WRONG_TYPE),
        ("string", "1.10", b"1.10", "decimal(10,2)", DeadCode.WRONG_TYPE),
        ("string", "2026-05-01", b"2026-05-01", "date", "2026-05-01"),
        ("string", "12:30:00", b"12:30:00", "time", "12:30:00"),
        ("string", "2026-05-01T12:30:00", b"2026-05-01T12:30:00", "timestamp", "2026-05-01T12:30:00"),
        ("string", "2026-05-01T12:30:00Z", b"2026-05-01T12:30:00Z", "timestamptz", "2026-05-01T12:30:00+00:00"),
        ("string", _UUID, _UUID.encode(), "uuid", _UUID),
        ("string", '{"a": 1}', b'{"a": 1}', "struct<a: int>", DeadCode.WRONG_TYPE),
        ("string", "[1]", b"[1]", "list<int>", DeadCode.WRONG_TYPE),
        ("string", '{"a": 1}', b'{"a": 1}', "map<string, int>", DeadCode.WRONG_TYPE),
        ("bytes", "0x00ff", b"\0\xff", "binary", "0x00ff"),
        ("bytes", "0x00ff", b"\0\xff", "fixed[2]", "0x00ff"),
        ("bytes", "0x00ff", b"\0\xff", "fixed[3]", DeadCode.OUT_OF_RANGE),
        ("bytes", "0x00ff", b"\0\xff", "string", DeadCode.WRONG_TYPE),
        ("boolean", "0x01", b"\1", "boolean", "true"),
        ("short", "0x0007", b"\0\7", "int", "7"),
        ("int", "0x00000007", b"\0\0\0\7", "int", "7"),
        ("long", "0x0000000000000007", b"\0" * 7 + b"\7", "long", "7"),
        ("long", "7", b"7", "long", DeadCode.INVALID_SCALAR),
        ("long", "0x000000000000afc8", b"\0" * 6 + b"\xaf\xc8", {"type": "time", "unit": "s"}, "12:30:00"),
        (
            "long",
            "0x0000000069f49cc8",
            b"\0" * 4 + b"\x69\xf4\x9c\xc8",
            {"type": "timestamp", "unit": "s"},
            "2026-05-01T12:30:00",
        ),
        (
            "long",
            "0x0000000069f49cc8",
            b"\0" * 4 + b"\x69\xf4\x9c\xc8",
            {"type": "timestamptz", "unit": "s"},
            "2026-05-01T12:30:00+00:00",
        ),
        ("float", "0x3dcccccd", b"\x3d\xcc\xcc\xcd", "float", "0.1"),
        ("double", "0x4022000000000000", b"\x40\x22" + b"\0" * 6, "decimal(10,2)", "9.00"),
        ("double", "0x3fb999999999999a", b"\x3f\xb9" + b"\x99" * 5 + b"\x9a", "double", "0.1"),
    ]
    for name, value_sent, data, column, result in rows:
        declared = {**column_of(column), "from": "value"}
        yield Case("one value alone", f"{name}: {value_sent}", declared, result, data, {"format": name})
