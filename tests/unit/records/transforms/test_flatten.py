"""Structs become columns, and nothing of them is lost on the way."""

from __future__ import annotations

import json
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.records.transforms.java_casts import json_texts
from frazil.records.transforms.kinds.nested import Flatten
from tests.unit.records.transforms.frames import frame_of, frame_of_array, run, sliced

INNER = pa.struct([pa.field("c", pa.int64(), nullable=False), pa.field("l", pa.list_(pa.struct([("x", pa.int64())])))])
SHAPE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a", pa.struct([pa.field("b", INNER), pa.field("t", pa.string(), nullable=False)])),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
    ]
)
ROWS: list[dict[str, object]] = [
    {"id": 1, "a": {"b": {"c": 7, "l": [{"x": 1}, None]}, "t": "one"}, "m": [("k", 1)]},
    {"id": 2, "a": None, "m": None},
    {"id": 3, "a": {"b": None, "t": "three"}, "m": []},
]

OPTIONS = [
    ("all levels", {}, ["id", "a.b.c", "a.b.l", "a.t", "m"], [1, 7, [{"x": 1}, None], "one", [("k", 1)]]),
    ("underscores", {"delimiter": "_"}, ["id", "a_b_c", "a_b_l", "a_t", "m"], None),
    ("one level", {"depth": 1}, ["id", "a.b", "a.t", "m"], [1, {"c": 7, "l": [{"x": 1}, None]}, "one", [("k", 1)]]),
    ("lists as JSON", {"lists": "json"}, None, [1, 7, '[{"x":1},null]', "one", [("k", 1)]]),
]


@pytest.mark.parametrize(("options", "names", "first"), [row[1:] for row in OPTIONS], ids=[row[0] for row in OPTIONS])
def test_structs_open_as_far_as_wanted(options: dict, names: list[str] | None, first: list | None):
    """Names are paths, lists and maps stay or become text, and the first row keeps its values."""
    value = run(Flatten(**options), frame_of(ROWS, SHAPE)).frame.value

    assert names is None or value.schema.names == names
    assert first is None or list(value.slice(0, 1).to_pylist()[0].values()) == first


def test_fields_beneath_a_null_struct_are_null_and_optional():
    """A required field of an optional struct would otherwise refuse each row without the struct."""
    value = run(Flatten(), frame_of(ROWS, SHAPE)).frame.value

    assert value.column("a.t").to_pylist() == ["one", None, "three"]
    assert value.column("a.b.c").to_pylist() == [7, None, None]
    assert [field.nullable for field in value.schema] == [False, True, True, True, True]


def test_two_paths_of_one_name_are_refused_by_name():
    """A field that hid another one would be lost without a word."""
    frame = frame_of([{"a": {"b": 1}, "a.b": 2}])

    with pytest.raises(Terminal, match=r"a > b and a\.b both become a\.b"):
        Flatten().apply(frame)


def test_a_struct_without_fields_stays():
    """It has no fields that could become columns; without it the frame would lose its number of rows."""
    frame = frame_of_array("e", pa.array([{}, None], pa.struct([])))

    assert run(Flatten(), frame).frame.value.to_pylist() == [{"e": {}}, {"e": None}]


def test_keys_flatten_too():
    """Kafka Connect's Flatten$Key."""
    frame = frame_of([{"x": 1}], key=pa.record_batch({"k": pa.array([{"id": 5}])}))

    done = run(Flatten(target="key"), frame).frame

    assert done.key.to_pylist() == [{"k.id": 5}]
    assert done.value.to_pylist() == [{"x": 1}]


TEXTS = [
    ("digits of a decimal", pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)), ["1.50", None]),
    ("doubles that JSON lacks", pa.array([float("nan"), float("-inf")]), ['"NaN"', '"-Infinity"']),
    ("float32 without noise", pa.array([0.1], pa.float32()), ["0.1"]),
    ("instant", pa.array([1], pa.timestamp("us", "UTC")), ['"1970-01-01T00:00:00.000001Z"']),
    (
        "far wall time",
        pa.array([2**62, 0, None], pa.timestamp("us")),
        [str(2**62), '"1970-01-01T00:00:00.000000"', None],
    ),
    ("far date", pa.array([2**31 - 1, -(2**31)], pa.date32()), [str(2**31 - 1), str(-(2**31))]),
    ("year 10000", pa.array([2932897], pa.date32()), ["2932897"]),
    ("time", pa.array([1], pa.time64("us")), ['"00:00:00.000001"']),
    ("date", pa.array([-1], pa.date32()), ['"1969-12-31"']),
    ("bytes", pa.array([b"\xff", b""]), ['"/w=="', '""']),
    ("uuid", pa.array([UUID(int=1).bytes], pa.binary(16)).cast(pa.uuid()), [f'"{UUID(int=1)}"']),
    ("map of numbers", pa.array([[(1, None)], [], None], pa.map_(pa.int64(), pa.string())), ['{"1":null}', "{}", None]),
    ("text with quotes", pa.array(['"\n\\é😀']), ['"\\"\\n\\\\é😀"']),
    ("struct without fields", pa.array([{}], pa.struct([])), ["{}"]),
    ("large list", pa.array([[True], None], pa.large_list(pa.bool_())), ["[true]", None]),
]


@pytest.mark.parametrize(("values", "texts"), [row[1:] for row in TEXTS], ids=[row[0] for row in TEXTS])
def test_values_have_one_json_text(values: pa.Array, texts: list):
    """No digit, no instant and no byte is lost, also in slices."""
    assert json_texts(values).to_pylist() == texts
    assert json_texts(sliced(values)).to_pylist() == texts


LEAVES = st.none() | st.integers(-(2**63), 2**63 - 1)
DEEP = pa.list_(
    pa.struct([("n", pa.int64()), ("l", pa.list_(pa.list_(pa.int64()))), ("m", pa.map_(pa.string(), pa.int64()))])
)


@st.composite
def _deep(draw: st.DrawFn) -> object:
    entries = st.dictionaries(st.text(max_size=3), LEAVES, max_size=2)
    item = st.none() | st.fixed_dictionaries(
        {"n": LEAVES, "l": st.none() | st.lists(st.none() | st.lists(LEAVES, max_size=2), max_size=2), "m": entries}
    )
    return draw(st.none() | st.lists(item, max_size=3))


@settings(max_examples=60)
@given(st.lists(_deep(), max_size=5))
def test_json_text_reads_back_as_the_value(rows: list):
    """Whatever is nested, a JSON parser returns it."""
    plain = [None if row is None else [item and {**item, "m": list(item["m"].items())} for item in row] for row in rows]
    values = sliced(pa.array(plain, DEEP))

    assert [None if text is None else json.loads(text) for text in json_texts(values).to_pylist()] == rows
