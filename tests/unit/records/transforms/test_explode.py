"""Lists become rows, and every record still has one outcome."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.records.transforms.kinds.nested import Explode
from frazil.records.transforms.kinds.sql import Sql
from tests.unit.records.transforms.frames import dead_messages, frame_of, frame_of_array, run, sliced

ROWS: list[dict[str, object]] = [
    {"id": 1, "l": [{"x": 1, "y": "a"}, {"x": 2, "y": None}]},
    {"id": 2, "l": []},
    {"id": 3, "l": None},
    {"id": 4, "l": [None]},
]
STRUCTS = [{"x": 1, "y": "a"}, {"x": 2, "y": None}]

OPTIONS = [
    (
        "outer",
        {},
        [{"id": 1, "l": STRUCTS[0]}, {"id": 1, "l": STRUCTS[1]}, *({"id": i, "l": None} for i in (2, 3, 4))],
    ),
    ("inner", {"outer": False}, [{"id": 1, "l": STRUCTS[0]}, {"id": 1, "l": STRUCTS[1]}, {"id": 4, "l": None}]),
    (
        "spread",
        {"spread": True, "position_field": "at"},
        [
            {"id": 1, "x": 1, "y": "a", "at": 0},
            {"id": 1, "x": 2, "y": None, "at": 1},
            {"id": 2, "x": None, "y": None, "at": None},
            {"id": 3, "x": None, "y": None, "at": None},
            {"id": 4, "x": None, "y": None, "at": 0},
        ],
    ),
]


@pytest.mark.parametrize(("options", "expected"), [row[1:] for row in OPTIONS], ids=[row[0] for row in OPTIONS])
def test_each_element_is_a_row(options: dict, expected: object):
    """Null and empty lists are one row with null, or a counted filter; a null element is an element."""
    done = run(Explode("l", **options), frame_of(ROWS))

    assert done.frame.value.to_pylist() == expected
    assert done.filtered == (frozenset({1, 2}) if options.get("outer") is False else frozenset())


REFUSED = [
    ("no list", {"field": "id"}, "expected id as a list, found long"),
    ("nothing to spread", {"field": "n", "spread": True}, "as a list of structs"),
    ("names that clash", {"field": "l", "spread": True, "position_field": "x"}, "named x"),
]


@pytest.mark.parametrize(("options", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_declaration_that_no_record_can_meet_is_refused(options: dict, message: str):
    """A fault of the pipeline file is no dead letter."""
    with pytest.raises(Terminal, match=message):
        Explode(**options).apply(frame_of([{**row, "n": [1]} for row in ROWS]))


def test_records_of_a_shape_without_the_list_fail_by_name():
    """An old writer schema must not stop the pipeline."""
    assert set(dead_messages(run(Explode("nope"), frame_of(ROWS))).values()) == {
        "Explode: expected a field nope, found id, l"
    }


def test_a_long_list_does_not_multiply_the_bytes_of_its_record():
    """A record of megabytes with thousands of elements must not become gigabytes."""
    frame = frame_of_array("l", pa.array([list(range(1000)), [1]]))

    values = run(Explode("l"), frame).frame.records["value"].to_pylist()

    assert values == [b"0", *[b""] * 999, b"1"]


def test_one_failing_element_takes_its_record_and_no_other():
    """A record can't be a dead letter and have rows."""
    exploded = run(Explode("l"), frame_of([{"l": ["1", "x", "3"]}, {"l": ["4", "5"]}])).frame

    done = run(Sql("l::int AS n"), exploded)

    assert done.frame.value.to_pylist() == [{"n": 4}, {"n": 5}]
    assert list(done.dead) == [0]


def test_a_record_is_filtered_only_if_no_row_of_it_is_left():
    """Its rows are its outcome as long as there is one."""
    exploded = run(Explode("l"), frame_of([{"l": [1, 20]}, {"l": [1, 2]}])).frame

    done = run(Sql(where="l > 9"), exploded)

    assert done.frame.value.to_pylist() == [{"l": 20}]
    assert done.filtered == {1}


KINDS = [pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_(pa.int64(), 2)]


@settings(max_examples=60)
@given(
    st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=4), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from(KINDS),
)
def test_rows_reconcile_with_elements(lists: list, outer: bool, kind: pa.DataType):
    """Rows are elements, plus one per empty list if wanted; in order; also of slices and of lists of fixed length."""
    if pa.types.is_fixed_size_list(kind):
        lists = [None if one is None else [*one, None, None][:2] for one in lists]
    done = run(Explode("l", outer=outer, position_field="at"), frame_of_array("l", sliced(pa.array(lists, kind))))

    expected = [
        (position, item, index)
        for position, one in enumerate(lists)
        for index, item in (enumerate(one) if one else [(None, None)] * outer)
    ]
    value = done.frame.value
    assert expected == list(
        zip(done.frame.positions.to_pylist(), value["l"].to_pylist(), value["at"].to_pylist(), strict=True)
    )
