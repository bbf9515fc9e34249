"""Every option of the pipeline file for JSON values, in the independent decoder."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.pipeline.models.pipeline_file import Column, Value
from frazil.verify.values.column_readers import Bad, Expectation

BAD = "bad"
MICROS = 1_704_067_200_000_000
"""2024-01-01T00:00:00Z."""

INNER = {"from": ["a", "b"]}
TEXTS = {"casts": "text"}
FOLDED = {"field_names": "case_insensitive"}
CUT = {"sub_micros": "truncate"}
ONCE = {"duplicate_keys": "dead_letter"}
RESCUED = {"unknown_fields": "rescue", "rescued_column": "x"}


def read(column: dict[str, Any], value: dict[str, Any], raw: str) -> Any:
    """The value in the column `x`, or BAD."""
    row = Expectation({"x": Column(**column)}, Value(**value)).row(raw.encode())
    return BAD if isinstance(row, Bad) else row[0]


CASES = [
    ("a path ends at a field", {"type": "int", **INNER}, {}, '{"a": {"b": 1}}', 1),
    ("a path ends early", {"type": "int", **INNER}, {}, '{"a": {}}', None),
    ("a path leads through null", {"type": "int", **INNER, "default": 3}, {}, '{"a": null}', 3),
    ("a path leads through text", {"type": "int", **INNER}, {}, '{"a": "b"}', BAD),
    ("one name", {"type": "int", "from": "a.b"}, {}, '{"a.b": 2, "x": 1}', 2),
    ("the whole value", {"type": "string", "from": []}, {}, '{ "a": [1.50, {}], "é": "\\ud83d\\ude00" }',
     '{"a":[1.50,{}],"é":"😀"}'),
    ("a list as the whole value", {"type": "string", "from": []}, {}, '[1.50, {"a": null}]', '[1.50,{"a":null}]'),
    ("null as the whole value", {"type": "string", "from": []}, {}, "null", "null"),
    ("a name twice in the whole value", {"type": "string", "from": []}, ONCE, '[{"a": 1, "a": 2}]', BAD),
    ("half a pair in the whole value", {"type": "string", "from": []}, {}, '{"\\uD800": "\\udfff"}',
     '{"\\ud800":"\\udfff"}'),
    ("no field and a default", {"type": "int", "default": 3}, {}, "{}", 3),
    ("null and a default", {"type": "int", "default": 3}, {}, '{"x": null}', None),
    ("null where required", {"type": "int", "default": 3, "required": True}, {}, '{"x": null}', 3),
    ("a default of null", {"type": "int", "default": None}, {}, "{}", None),
    ("a default like JSON", {"type": "struct<a: date>", "default": {"a": "1970-01-02"}}, {}, "{}", (1,)),
    ("a counted default", {"type": "timestamp", "unit": "s", "default": 1}, {}, "{}", 1_000_000),
    ("seconds", {"type": "timestamptz", "unit": "s"}, {}, '{"x": 1704067200.000001}', MICROS + 1),
    ("less than a microsecond", {"type": "timestamp", "unit": "s"}, {}, '{"x": 0.0000001}', BAD),
    ("milliseconds", {"type": "timestamp", "unit": "ms"}, {}, '{"x": 17040672e5}', MICROS),
    ("microseconds", {"type": "timestamp", "unit": "us"}, {}, '{"x": -1}', -1),
    ("nanoseconds", {"type": "timestamp", "unit": "ns"}, {}, '{"x": 1000}', 1),
    ("parts of a microsecond", {"type": "timestamp", "unit": "ns"}, {}, '{"x": 1001}', BAD),
    ("parts of a microsecond, cut", {"type": "timestamp", "unit": "ns"}, CUT, '{"x": -1}', -1),
    ("a text, cut", {"type": "timestamp"}, CUT, '{"x": "2024-01-01T00:00:00.0000019"}', MICROS + 1),
    ("the last instant", {"type": "timestamp", "unit": "s"}, {}, '{"x": 253402300799.999999}', 253402300799999999),
    ("after the last instant", {"type": "timestamp", "unit": "s"}, {}, '{"x": 253402300800}', BAD),
    ("the first instant", {"type": "timestamp", "unit": "s"}, {}, '{"x": -62135596800}', -62135596800000000),
    ("before the first instant", {"type": "timestamp", "unit": "s"}, {}, '{"x": -62135596801}', BAD),
    ("a counted time", {"type": "time", "unit": "ms"}, {}, '{"x": 86399999}', 86_399_999_000),
    ("more than a day", {"type": "time", "unit": "ms"}, {}, '{"x": 86400000}', BAD),
    ("before midnight", {"type": "time", "unit": "ms"}, {}, '{"x": -1}', BAD),
    ("zero of any exponent", {"type": "time", "unit": "ns"}, {}, '{"x": 0e-99}', 0),
    ("digits as text where text casts", {"type": "timestamptz", "unit": "ms"}, TEXTS, '{"x": "1704067200000"}', MICROS),
    ("digits as text where it doesn't", {"type": "timestamptz", "unit": "ms"}, {}, '{"x": "1704067200000"}', BAD),
    ("digits with a zero in front", {"type": "timestamptz", "unit": "s"}, TEXTS, '{"x": "01704067200"}', BAD),
    ("text beside a unit", {"type": "timestamptz", "unit": "s"}, {}, '{"x": "2024-01-01T00:00Z"}', MICROS),
    ("a unit inside", {"type": "list<struct<a: time>>", "unit": "s"}, {}, '{"x": [{"a": 1}]}', ((1_000_000,),)),
    ("a number as date", {"type": "struct<a: date, b: time>", "unit": "s"}, {}, '{"x": {"a": 1}}', BAD),
    ("a zone kept out", {"type": "timestamp", "local_time": "dead_letter"}, {}, '{"x": "2024-01-01T00:00+00"}', BAD),
    ("no zone", {"type": "timestamp", "local_time": "dead_letter"}, {}, '{"x": "2024-01-01T00:00"}', MICROS),
    ("a number as text", {"type": "string"}, TEXTS, '{"x": 1.50e0}', "1.50e0"),
    ("truth as text", {"type": "map<string, string>"}, TEXTS, '{"x": {"a": true}}', (("a", "true"),)),
    ("text stays text", {"type": "int"}, TEXTS, '{"x": "1"}', BAD),
    ("a field in another case", {"type": "int"}, FOLDED, '{"X": 1}', 1),
    ("the exact case", {"type": "int"}, {}, '{"X": 1}', None),
    ("the last of several cases", {"type": "int"}, FOLDED, '{"x": 1, "X": 2}', 2),
    ("the last of several cases, named again", {"type": "int"}, FOLDED, '{"x": 1, "X": 2, "x": 3}', 3),
    ("the last case inside, named again", {"type": "struct<a: int>"}, FOLDED, '{"x": {"a": 1, "A": 2, "a": 3}}', (3,)),
    ("a name again where once", {"type": "int"}, FOLDED | ONCE, '{"x": 1, "X": 2, "x": 3}', BAD),
    ("two cases where once", {"type": "int"}, FOLDED | ONCE, '{"x": 1, "X": 2}', BAD),
    ("two cases of no column", {"type": "int"}, FOLDED | ONCE, '{"y": 1, "Y": 2}', None),
    ("a path in another case", {"type": "int", **INNER}, FOLDED, '{"A": {"B": 1}}', 1),
    ("a path with two cases", {"type": "int", **INNER}, FOLDED | ONCE, '{"A": {"B": 1, "b": 2}}', BAD),
    ("a struct in another case", {"type": "struct<a: int>"}, FOLDED, '{"x": {"A": 1}}', (1,)),
    ("keys of maps keep their case", {"type": "map<string, int>"}, FOLDED | ONCE, '{"x": {"A": 1, "a": 2}}',
     (("A", 1), ("a", 2))),
    ("a field twice", {"type": "int"}, ONCE, '{"x": 1, "x": 1}', BAD),
    ("a field twice, far off", {"type": "int"}, ONCE, '{"y": [{"a": 1, "a": 2}]}', BAD),
    ("an unknown field", {"type": "int"}, {"unknown_fields": "fail"}, '{"x": 1, "y": 1}', BAD),
    ("a known field", {"type": "int"}, {"unknown_fields": "fail"}, '{"x": 1}', 1),
    ("a known field's case", {"type": "int"}, {"unknown_fields": "fail"} | FOLDED, '{"X": 1}', 1),
    ("the column's name is no field", {"type": "int", "from": "y"}, {"unknown_fields": "fail"}, '{"x": 1}', BAD),
    ("nothing is unknown beside the whole", {"type": "string", "from": []}, {"unknown_fields": "fail"}, '{"y":1}',
     '{"y":1}'),
    ("rescued", {"type": "string"}, RESCUED, '{"x": 1.0, "y": ["\\ud800"]}', '{"x":1.0,"y":["\\ud800"]}'),
    ("nothing to rescue", {"type": "string"}, RESCUED, "{}", None),
    ("keys of numbers", {"type": "map<long, int>"}, {}, '{"x": {"2": 1, "1e1": 2}}', ((2, 1), (10, 2))),
    ("keys of decimals", {"type": "map<decimal(4,1), int>"}, {}, '{"x": {"1.50": 1}}', ((15, 1),)),
    ("keys of dates", {"type": "map<date, int>"}, {}, '{"x": {"1970-01-02": null}}', ((1, None),)),
    ("keys of truth", {"type": "map<boolean, int>"}, {}, '{"x": {"true": 1, "false": 0}}', ((False, 0), (True, 1))),
    ("keys of uuids", {"type": "map<uuid, int>"}, {}, '{"x": {"00000000-0000-0000-0000-000000000001": 1}}',
     ((bytes(15) + b"\1", 1),)),
    ("keys that are no numbers", {"type": "map<long, int>"}, {}, '{"x": {"01": 1}}', BAD),
    ("keys too large", {"type": "map<int, int>"}, {}, '{"x": {"2147483648": 1}}', BAD),
    ("a key twice", {"type": "map<long, int>"}, {}, '{"x": {"1": 1, "1.0": 1}}', BAD),
    ("counted keys", {"type": "map<timestamp, int>", "unit": "s"}, {}, '{"x": {"1": 1}}', ((1_000_000, 1),)),
    ("entries", {"type": "map<long, int>"}, {}, '{"x": [{"key": 1, "value": 2}, [3, null], {"key": 2}]}',
     ((1, 2), (2, None), (3, None))),
    ("entries of structs", {"type": "map<struct<a: int, b: int>, int>"}, {}, '{"x": [[{"a": 1}, 1], [{"b": 1}, 2]]}',
     (((1, None), 1), ((None, 1), 2))),
    ("an entry with a null key", {"type": "map<long, int>"}, {}, '{"x": [[null, 1]]}', BAD),
    ("an entry of three", {"type": "map<long, int>"}, {}, '{"x": [[1, 2, 3]]}', BAD),
    ("entries for text keys", {"type": "map<string, int>"}, {}, '{"x": [["a", 2]]}', BAD),
    ("a map of text", {"type": "map<long, int>"}, {}, '{"x": "a"}', BAD),
]  # fmt: skip


@pytest.mark.parametrize(("column", "value", "raw", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_options_are_read_as_documented(
    column: dict[str, Any], value: dict[str, Any], raw: str, expected: object
) -> None:
    """The check must expect what the pipeline reference promises, or it reports false differences."""
    result = read(column, value, raw)

    assert (result, repr(result)) == (expected, repr(expected))


def test_invalid_default_is_refused() -> None:
    """No batch can have landed under such a file, so it can't be checked."""
    with pytest.raises(Terminal, match="default of column x"):
        Expectation({"x": Column(type="int", default="one")})


LOOSE = [
    ("a field twice", {"type": "int"}, ONCE, '{"x": 1, "x": 2}', 2),
    ("an unknown field", {"type": "int"}, {"unknown_fields": "fail"}, '{"x": 1, "y": 2}', 1),
    ("a zone", {"type": "timestamp", "local_time": "dead_letter"}, {}, '{"x": "2024-01-01T00:00Z"}', MICROS),
    ("a number as text", {"type": "string"}, {}, '{"x": 1.0}', "1.0"),
    ("no field, which may have had a default", {"type": "int"}, {}, "{}", BAD),
    ("null, which may have had one too", {"type": "int", "default": 3}, {}, '{"x": null}', BAD),
    ("rescued fields", {"type": "string"}, RESCUED, '{"y": 2}', BAD),
    ("a wrong type", {"type": "int"}, {}, '{"x": "1"}', BAD),
]


@pytest.mark.parametrize(("column", "value", "raw", "expected"), [c[1:] for c in LOOSE], ids=[c[0] for c in LOOSE])
def test_older_batches_are_judged_by_every_file(
    column: dict[str, Any], value: dict[str, Any], raw: str, expected: object
) -> None:
    """In rows of older batches only values are compared that every file makes."""
    row = Expectation({"x": Column(**column)}, Value(**value)).cells(raw.encode())

    assert not isinstance(row, Bad)
    assert (BAD if isinstance(row[0], Bad) else row[0]) == expected
