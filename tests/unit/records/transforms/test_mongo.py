"""Documents of MongoDB become plain values: nothing of Extended JSON is left, nothing of the document is lost."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.records.transforms.kinds.change_events import DebeziumTransform
from frazil.records.transforms.kinds.mongo import MongoDebezium
from tests.unit.records.transforms.frames import dead_messages, frame_of, run

UPDATE = pa.struct(
    [
        ("removedFields", pa.list_(pa.string())),
        ("updatedFields", pa.string()),
        ("truncatedArrays", pa.list_(pa.struct([("field", pa.string()), ("size", pa.int32())]))),
    ]
)
SHAPE = pa.schema(
    [
        ("before", pa.string()),
        ("after", pa.string()),
        ("updateDescription", UPDATE),
        ("source", pa.struct([("db", pa.string()), ("collection", pa.string())])),
        ("op", pa.string()),
    ]
)
GOOD: dict[str, object] = {"after": '{"_id":1}', "op": "c", "source": {"db": "d", "collection": "c"}}
UUID_BASE64 = "AAAAAAAAAAAAAAAAAAAAAQ=="
DEEP = '{"x":' * 49 + "1" + "}" * 49

FORMS = [
    ("object id", '{"$oid":"5f"}', '"5f"'),
    ("decimal", '{"$numberDecimal":"1.50E+3"}', '"1.50E+3"'),
    ("int", '{"$numberInt":"-007"}', "-7"),
    ("long", '{"$numberLong":"9223372036854775807"}', "9223372036854775807"),
    ("double", '{"$numberDouble":"1.5"}', "1.5"),
    ("NaN", '{"$numberDouble":"NaN"}', '"NaN"'),
    ("canonical date", '{"$date":{"$numberLong":"-1"}}', '"1969-12-31T23:59:59.999Z"'),
    ("relaxed date", '{"$date":"2026-01-01T00:00:00Z"}', '"2026-01-01T00:00:00Z"'),
    ("strict date", '{"$date":1500}', '"1970-01-01T00:00:01.500Z"'),
    ("last date", '{"$date":253402300799999}', '"9999-12-31T23:59:59.999Z"'),
    ("timestamp", '{"$timestamp":{"t":1,"i":7}}', '"1970-01-01T00:00:01.000Z"'),
    ("uuid", f'{{"$binary":{{"base64":"{UUID_BASE64}","subType":"04"}}}}', '"00000000-0000-0000-0000-000000000001"'),
    ("binary", '{"$binary":{"base64":"/w==","subType":"00"}}', '"/w=="'),
    ("strict binary", '{"$binary":"/w==","$type":"00"}', '"/w=="'),
    ("regex", '{"$regularExpression":{"pattern":"a","options":"i"}}', '{"regex":"a","options":"i"}'),
    ("strict regex", '{"$regex":"a","$options":""}', '{"regex":"a","options":""}'),
    ("code", '{"$code":"f()"}', '"f()"'),
    ("symbol", '{"$symbol":"s"}', '"s"'),
    ("undefined", '{"$undefined":true}', "null"),
    ("keys", '[{"$minKey":1},{"$maxKey":1}]', '["MinKey","MaxKey"]'),
    ("reference", '{"$ref":"c","$id":{"$oid":"5f"}}', '{"$ref":"c","$id":"5f"}'),
    ("field with a dollar", '{"$price":1.0}', '{"$price":1.0}'),
    ("more than a wrapper", '{"$oid":"5f","x":1}', '{"$oid":"5f","x":1}'),
    ("digits", "1.10", "1.10"),
    ("nested", '{"a":[{"b":{"$numberLong":"1"}},[]]}', '{"a":[{"b":1},[]]}'),
    ("deep", DEEP, DEEP),
    ("int that is none", '{"$numberInt":"1.5"}', "expected a whole number in $numberInt"),
    ("id that is none", '{"$oid":{}}', "expected text in $oid"),
    ("double that is a list", '{"$numberDouble":[]}', "expected a number in $numberDouble"),
    ("double that is none", '{"$numberDouble":"1..5"}', "expected a number in $numberDouble"),
    ("date beyond years", '{"$date":99999999999999999999}', "expected a time of the years 1 to 9999 in $date"),
    ("date of a fraction", '{"$date":1.5}', "expected a whole number in $date"),
    ("timestamp that is none", '{"$timestamp":1}', 'expected {"t": seconds, "i": number} in $timestamp'),
    ("binary that is none", '{"$binary":{"base64":"é"}}', "expected base64 text in $binary"),
    ("regex that is none", '{"$regularExpression":1}', 'expected {"pattern": text, "options": text} in $regular'),
    ("half a character", r'"\ud800"', "half a surrogate pair"),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in FORMS], ids=[row[0] for row in FORMS])
def test_every_form_of_extended_json_is_unwrapped(text: str, expected: object):
    """Canonical, relaxed and strict; a wrapper that holds something else fails alone."""
    rows = [GOOD, {**GOOD, "after": f'{{"v":{text}}}'}, GOOD]

    done = run(MongoDebezium(), frame_of(rows, SHAPE))

    afters = done.frame.value["after"].to_pylist()
    assert (afters[0], afters[-1]) == ('{"_id":1}', '{"_id":1}')
    if done.dead:
        assert expected in dead_messages(done)[1]
    else:
        assert afters[1] == f'{{"v":{expected}}}'


BEFORE = '{"_id":1,"a":{"b":1},"l":[1,2,3],"z":0}'
UPDATES = [
    ("a field", {"updatedFields": '{"n":{"$numberInt":"1"}}'}, BEFORE, '{"_id":1,"a":{"b":1},"l":[1,2,3],"z":0,"n":1}'),
    ("a path", {"updatedFields": '{"a.c":2,"l.0":9}'}, BEFORE, '{"_id":1,"a":{"b":1,"c":2},"l":[9,2,3],"z":0}'),
    ("appended", {"updatedFields": '{"l.3":4}'}, BEFORE, '{"_id":1,"a":{"b":1},"l":[1,2,3,4],"z":0}'),
    ("removed", {"removedFields": ["z", "a.b", "no.such"]}, BEFORE, '{"_id":1,"a":{},"l":[1,2,3]}'),
    ("cut", {"truncatedArrays": [{"field": "l", "size": 1}]}, BEFORE, '{"_id":1,"a":{"b":1},"l":[1],"z":0}'),
    ("without before", {"updatedFields": '{"n":1}'}, None, '{"_id":"5f","n":1}'),
    ("path without before", {"updatedFields": '{"a.b":1}'}, None, '{"_id":"5f","a":{"b":1}}'),
    ("nothing to cut", {"truncatedArrays": [{"field": "l", "size": 1}]}, None, None),
    ("a path through a number", {"updatedFields": '{"z.x":1}'}, BEFORE, None),
    ("a path of too many steps", {"updatedFields": f'{{"{".".join("a" * 3_000)}":1}}'}, BEFORE, None),
    ("no JSON", {"updatedFields": "{"}, BEFORE, None),
]


@pytest.mark.parametrize(("update", "before", "after"), [row[1:] for row in UPDATES], ids=[row[0] for row in UPDATES])
def test_an_update_without_its_row_is_merged(update: dict[str, object], before: str | None, after: str | None):
    """The document before stays as it was; what can't be merged fails."""
    key = pa.record_batch({"id": ['{"$oid":"5f"}'] * 2})
    row: dict[str, object] = {**GOOD, "op": "u", "before": before, "after": None, "updateDescription": update}

    done = run(MongoDebezium(), frame_of([row, GOOD], SHAPE, key))

    assert done.frame.value["after"].to_pylist() == [*([after] if after else []), '{"_id":1}']
    assert len(done.dead) == (after is None)
    if after:
        assert done.frame.value["before"].to_pylist() == [before, None]


def test_envelope_without_content_fails_unless_its_op_has_no_row():
    """The sink stops at such a record."""
    empty = {"after": None, "op": "u", "source": None}

    done = run(MongoDebezium(), frame_of([empty, {**empty, "op": "t"}, GOOD], SHAPE))

    assert done.frame.positions.to_pylist() == [1, 2]
    assert "expected before, after or updateDescription" in dead_messages(done)[0]


def test_arrays_become_objects_where_wanted():
    """Lists of several types have no column otherwise."""
    row = {**GOOD, "after": '{"l":[1,["x"]]}'}

    value = run(MongoDebezium(array_handling_mode="document"), frame_of([row], SHAPE)).frame.value

    assert value["after"].to_pylist() == ['{"l":{"_0":1,"_1":{"_0":"x"}}}']


def test_declared_types_make_rows_of_documents():
    """MongoDebezium, then DebeziumTransform, with a row that does not fit and a delete between."""
    types = pa.struct([pa.field("_id", pa.string(), nullable=False), pa.field("p", pa.decimal128(5, 2))])
    document = '{"_id":{"$oid":"5f"},"p":{"$numberDecimal":"1.50"},"more":1}'
    rows = [{**GOOD, "after": document}, GOOD, {**GOOD, "op": "d", "after": None, "before": document}]

    read = run(MongoDebezium(types=types, decimals="number"), frame_of(rows, SHAPE))
    value = run(DebeziumTransform(), read.frame).frame.value.to_pylist()

    assert {position: reason.path for position, reason in read.dead.items()} == {1: "after._id"}
    assert [(row["_id"], row["p"], row["_cdc"]["op"]) for row in value] == [("5f", Decimal("1.50"), op) for op in "ID"]


def test_documents_that_are_no_text_are_refused():
    """A fault of the declaration: the connector sends text."""
    with pytest.raises(Terminal, match="expected after as string, found long"):
        MongoDebezium().apply(frame_of([{"after": 1, "op": "c"}]))


WRAPPERS = [
    "$oid",
    "$date",
    "$numberInt",
    "$numberLong",
    "$numberDecimal",
    "$numberDouble",
    "$binary",
    "$type",
    "$regex",
    "$timestamp",
    "t",
    "$code",
    "$uuid",
    "base64",
    "$regularExpression",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.sampled_from(["1", "-0", "NaN"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WRAPPERS) | st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_no_document_raises_and_all_that_lands_is_json(values: list):
    """Whatever stands in a wrapper: plain JSON or a reason, and the neighbour behind it lands."""
    rows = [*({**GOOD, "after": json.dumps({"v": value})} for value in values), GOOD]

    done = run(MongoDebezium(), frame_of(rows, SHAPE))

    afters = done.frame.value["after"].to_pylist()
    assert [json.loads(text) for text in afters][-1] == {"_id": 1}
