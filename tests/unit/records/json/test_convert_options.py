"""Options of columns and of the value: the outcome of records under each, in blocks and one by one."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from frazil.errors import Terminal
from frazil.records.model.rows import FilterReason, PartitionCounts
from frazil.records.model.spec import RecordSpec
from tests.unit.records.kafka_batches import OneTable, decode_both, kafka_batch

I64, TEXT, CLOCK = pa.int64(), pa.string(), pa.time64("us")
WALL, INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
UTC = dt.UTC


def _outcome(spec: RecordSpec, value: bytes) -> object:
    outcomes = decode_both(spec, kafka_batch([value]))
    if outcomes.dead.num_rows:
        return outcomes.dead.column("code")[0].as_py()
    (row,) = outcomes.rows.select(spec.columns.names).to_pylist()
    return next(iter(row.values())) if len(row) == 1 else row


@pytest.mark.parametrize(
    ("data_type", "unit", "number", "expected"),
    [
        (WALL, "s", "1714979289", dt.datetime(2024, 5, 6, 7, 8, 9)),
        (WALL, "s", "1714979289.123456", dt.datetime(2024, 5, 6, 7, 8, 9, 123456)),
        (WALL, "s", "1714979289.1234560", dt.datetime(2024, 5, 6, 7, 8, 9, 123456)),
        (WALL, "s", "1714979289.1234561", "LOSSY_CAST"),
        (WALL, "s", "1.714979289e9", dt.datetime(2024, 5, 6, 7, 8, 9)),
        (WALL, "s", "-1", dt.datetime(1969, 12, 31, 23, 59, 59)),
        (WALL, "s", "-62135596800", dt.datetime(1, 1, 1)),
        (WALL, "s", "-62135596801", "OUT_OF_RANGE"),
        (WALL, "s", "253402300799.999999", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
        (WALL, "s", "253402300800", "OUT_OF_RANGE"),
        (WALL, "s", "1e999999999", "OUT_OF_RANGE"),
        (WALL, "s", "1e-999999999", "LOSSY_CAST"),
        (WALL, "s", "0e5", dt.datetime(1970, 1, 1)),
        (WALL, "s", "null", None),
        (WALL, "s", "true", "WRONG_TYPE"),
        (WALL, "s", '"1714979289"', "INVALID_TIME"),
        (WALL, "s", '"2024-05-06T07:08:09"', dt.datetime(2024, 5, 6, 7, 8, 9)),
        (INSTANT, "ms", "1714979289123", dt.datetime(2024, 5, 6, 7, 8, 9, 123000, UTC)),
        (INSTANT, "ms", "1714979289123.5", dt.datetime(2024, 5, 6, 7, 8, 9, 123500, UTC)),
        (INSTANT, "ms", "1714979289123.0001", "LOSSY_CAST"),
        (INSTANT, "ms", "253402300800000", "OUT_OF_RANGE"),
        (INSTANT, "us", "1714979289123456", dt.datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)),
        (INSTANT, "us", "0.5", "LOSSY_CAST"),
        (INSTANT, "us", "9223372036854775807", "OUT_OF_RANGE"),
        (INSTANT, "ns", "1714979289123456000", dt.datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)),
        (INSTANT, "ns", "1714979289123456001", "LOSSY_CAST"),
        (INSTANT, "ns", "-1000", dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        (INSTANT, "ns", "-1", "LOSSY_CAST"),
        (INSTANT, "ns", "9223372036854776000", dt.datetime(2262, 4, 11, 23, 47, 16, 854776, UTC)),
        (CLOCK, "ms", "86399999", dt.time(23, 59, 59, 999000)),
        (CLOCK, "ms", "86400000", "OUT_OF_RANGE"),
        (CLOCK, "ms", "-1", "OUT_OF_RANGE"),
        (CLOCK, "s", "0.5", dt.time(0, 0, 0, 500000)),
        (CLOCK, "ns", "1000", dt.time(0, 0, 0, 1)),
        (CLOCK, "ns", "999", "LOSSY_CAST"),
        (pa.list_(WALL), "s", "[0, null]", [dt.datetime(1970, 1, 1), None]),
        (pa.map_(WALL, I64), "s", '{"0": 1}', [(dt.datetime(1970, 1, 1), 1)]),
    ],
)  # fmt: skip
def test_counted_time_is_exact_or_a_reason(data_type: pa.DataType, unit: Any, number: str, expected: object) -> None:
    """A number becomes exactly the time that it counts in its unit, or a reason."""
    spec = RecordSpec(pa.schema([pa.field("x", data_type)]), units={"x": unit})
    assert _outcome(spec, f'{{"x": {number}}}'.encode()) == expected


@pytest.mark.parametrize("zone", ["Z", "z", "+00", "-0330", "+02:00"])
def test_offset_in_a_local_time_is_refused_on_request(zone: str) -> None:
    """With `local_time: dead_letter` a text with an offset is a dead letter; a text without one lands."""
    spec = RecordSpec(pa.schema([pa.field("x", WALL)]), local_times={"x": "dead_letter"})
    assert _outcome(spec, f'{{"x": "2024-05-06T07:08:09{zone}"}}'.encode()) == "INVALID_TIME"
    assert _outcome(spec, b'{"x": "2024-05-06T07:08:09"}') == dt.datetime(2024, 5, 6, 7, 8, 9)


AB = pa.schema([pa.field("a", I64), pa.field("more", TEXT)])
RESCUE = RecordSpec(AB, unknown_fields="rescue", rescued_column="more")
FAIL = RecordSpec(AB, unknown_fields="fail")
ONCE = RecordSpec(AB, duplicate_keys="dead_letter")
FOLDED = RecordSpec(AB, field_names="case_insensitive")
FOLDED_ONCE = RecordSpec(AB, field_names="case_insensitive", duplicate_keys="dead_letter")
CAST = RecordSpec(AB, casts="text")
COUNTED = RecordSpec(pa.schema([pa.field("at", WALL)]), units={"at": "ms"}, casts="text")
WHOLE = RecordSpec(AB, sources={"more": ()}, unknown_fields="fail")
ONLY_WHOLE = RecordSpec(pa.schema([AB.field("more")]), sources={"more": ()})
ONLY_WHOLE_ONCE = replace(ONLY_WHOLE, duplicate_keys="dead_letter")
STRUCT = RecordSpec(pa.schema([pa.field("s", pa.struct([("A", I64)]))]), field_names="case_insensitive")


@pytest.mark.parametrize(
    ("spec", "value", "expected"),
    [
        (RESCUE, b'{"a":1}', {"a": 1, "more": None}),
        (RESCUE, b'{"a":1,"z":{"b": [1.50, 1E+37]},"y":null}', {"a": 1, "more": '{"z":{"b":[1.50,1E+37]},"y":null}'}),
        (RESCUE, b'{"a":1,"more":"x"}', {"a": 1, "more": '{"more":"x"}'}),
        (RESCUE, b'{"A":1}', {"a": None, "more": '{"A":1}'}),
        (RESCUE, rb'{"z":"\ud800\u00e9"}', {"a": None, "more": '{"z":"\\ud800é"}'}),
        (FAIL, b'{"a":1,"more":"x"}', {"a": 1, "more": "x"}),
        (FAIL, b'{"a":1,"z":null}', "UNKNOWN_FIELD"),
        (FAIL, b'{"a":1,"":2}', "UNKNOWN_FIELD"),
        (ONCE, b'{"a":1,"a":1}', "DUPLICATE_KEY"),
        (ONCE, rb'{"a":1,"\u0061":1}', "DUPLICATE_KEY"),
        (ONCE, b'{"a":1,"z":[{"y":1,"y":2}]}', "DUPLICATE_KEY"),
        (ONCE, b'{"a":1,"z":{"a":2}}', {"a": 1, "more": None}),
        (FOLDED, b'{"A":1,"MORE":"x"}', {"a": 1, "more": "x"}),
        (FOLDED, b'{"A":1,"a":2}', {"a": 2, "more": None}),
        (FOLDED, b'{"a":1,"A":2}', {"a": 2, "more": None}),
        (FOLDED, b'{"a":1,"A":2,"a":3}', {"a": 3, "more": None}),
        (FOLDED, b'{"A":1,"a":2,"A":3,"more":"x","a":null}', {"a": None, "more": "x"}),
        (FOLDED, b'{"more":{"A":1,"a":2}}', {"a": None, "more": '{"A":1,"a":2}'}),
        (FOLDED_ONCE, b'{"A":1,"a":2}', "DUPLICATE_KEY"),
        (FOLDED_ONCE, b'{"a":1,"A":2,"a":3}', "DUPLICATE_KEY"),
        (FOLDED_ONCE, b'{"a":1,"Z":2,"z":3}', {"a": 1, "more": None}),
        (STRUCT, b'{"S":{"a":1}}', {"A": 1}),
        (STRUCT, b'{"S":{"a":1,"A":2,"a":3}}', {"A": 3}),
        (COUNTED, b'{"at":"1714979289123"}', dt.datetime(2024, 5, 6, 7, 8, 9, 123000)),
        (COUNTED, b'{"at":1714979289123}', dt.datetime(2024, 5, 6, 7, 8, 9, 123000)),
        (COUNTED, b'{"at":"1.714979289e12"}', dt.datetime(2024, 5, 6, 7, 8, 9)),
        (COUNTED, b'{"at":"2024-05-06T07:08:09"}', dt.datetime(2024, 5, 6, 7, 8, 9)),
        (COUNTED, b'{"at":"01714979289"}', "INVALID_TIME"),
        (COUNTED, b'{"at":"0.0001"}', "LOSSY_CAST"),
        (COUNTED, b'{"at":"253402300800000"}', "OUT_OF_RANGE"),
        (CAST, b'{"more":1.50}', {"a": None, "more": "1.50"}),
        (CAST, b'{"more":12345678901234567890123}', {"a": None, "more": "12345678901234567890123"}),
        (CAST, b'{"more":true}', {"a": None, "more": "true"}),
        (CAST, b'{"a":"1"}', "WRONG_TYPE"),
        (WHOLE, b' { "a" : 1, "z" : [ 1.0, 1E400 ] } ', {"a": 1, "more": '{"a":1,"z":[1.0,1E400]}'}),
        (WHOLE, rb'{"z":"\ud800"}', {"a": None, "more": '{"z":"\\ud800"}'}),
        (WHOLE, b"{}", {"a": None, "more": "{}"}),
        (WHOLE, b"[1]", "NOT_AN_OBJECT"),
        (ONLY_WHOLE, b' [ 1.50 , {"a" : null} ]', '[1.50,{"a":null}]'),
        (ONLY_WHOLE, b'"text"', '"text"'),
        (ONLY_WHOLE, b"null", "null"),
        (ONLY_WHOLE, b"1 2", "INVALID_JSON"),
        (ONLY_WHOLE, b'{"a":1,"a":2}', '{"a":2}'),
        (ONLY_WHOLE_ONCE, b'[{"a":1,"a":2}]', "DUPLICATE_KEY"),
    ],
)  # fmt: skip
def test_policy_decides_as_documented(spec: RecordSpec, value: bytes, expected: object) -> None:
    """Unknown fields are kept, counted or refused as the pipeline file says."""
    assert _outcome(spec, value) == expected


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (("a.b",), b'{"a.b":5,"a":{"b":6}}'),
        (("a", "b"), b'{"a.b":6,"a":{"b":5}}'),
        (("$a", "b c", "é"), '{"$a":{"b c":{"é":5}}}'.encode()),
        (("",), b'{"":5}'),
        (("select",), b'{"select":5}'),
        (('"',), rb'{"\"":5}'),
    ],
)
def test_source_is_a_plain_name_or_a_list_of_them(source: tuple[str, ...], value: bytes) -> None:
    """A dot or a dollar in a name has no meaning of its own."""
    spec = RecordSpec(pa.schema([pa.field("x", I64, nullable=False)]), sources={"x": source})
    assert _outcome(spec, value) == 5
    assert decode_both(spec, kafka_batch([value] * 50)).rows.num_rows == 50


def test_empty_values_are_filtered_on_request_and_counted() -> None:
    """Some producers send an empty value for a tombstone; it is counted apart from tombstones."""
    outcomes = decode_both(RecordSpec(AB, empty_value="filter"), kafka_batch([b"", None, b'{"a":1}', b" "]))
    (counts,) = outcomes.counts.values()
    assert counts.filtered == {FilterReason.EMPTY_VALUE: 1, FilterReason.TOMBSTONE: 1}
    assert isinstance(counts, PartitionCounts)
    assert (counts.read, counts.written, sum(counts.dead.values())) == (4, 1, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"units": {"z": "s"}},
        {"local_times": {"z": "keep"}},
        {"sources": {"a": ()}},
        {"unknown_fields": "rescue"},
        {"unknown_fields": "rescue", "rescued_column": "a"},
        {"unknown_fields": "rescue", "rescued_column": "more", "defaults": {"more": "x"}},
        {"field_names": "case_insensitive", "sources": {"more": ("A",)}},
    ],
    ids=str,
)
def test_option_without_its_column_is_refused(arguments: dict[str, Any]) -> None:
    """A mistake of the pipeline file is found before a record is read."""
    with pytest.raises(Terminal, match="record shape"):
        RecordSpec(AB, **arguments)


def test_struct_fields_that_differ_in_case_can_not_be_folded() -> None:
    """No rule can tell which of the two a field would fill."""
    twice = pa.schema([pa.field("s", pa.struct([("a", I64), ("A", I64)]))])
    with pytest.raises(Terminal, match="differ in case only"):
        OneTable(RecordSpec(twice, field_names="case_insensitive"), 1)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (RecordSpec(pa.schema([pa.field("x", INSTANT)])), b'{"x":"0001-01-01T00:00:00.%s+02:00"}' % (b"0" * 100_000)),
        (RecordSpec(pa.schema([pa.field("x", I64)]), unknown_fields="fail"), b'{"%s":1}' % (b"n" * 100_000)),
    ],
    ids=["a time", "a name"],
)
def test_dead_letter_quotes_a_bounded_part_of_the_payload(spec: RecordSpec, value: bytes) -> None:
    """Message and path quote some characters, however long the text or the name is."""
    letter = decode_both(spec, kafka_batch([value])).dead.to_pylist()[0]

    assert len(letter["message"]) + len(letter["path"]) < 400
