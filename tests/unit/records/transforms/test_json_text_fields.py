"""JSON in text fields: every digit of it, or a reason."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.records.model.dead_letter import DeadCode
from frazil.records.transforms.kinds.nested import JsonToMap
from tests.unit.records.transforms.frames import dead_messages, frame_of, frame_of_array, run

TYPES = pa.struct([pa.field("a", pa.decimal128(20, 2)), pa.field("t", pa.string(), nullable=False)])
NINES = "9" * 400

MAPS = [
    ("number", '{"a": 1.500}', [("a", "1.500")]),
    ("long number", f'{{"a": {NINES}}}', [("a", NINES)]),
    ("nothing", "{}", []),
    ("null", '{"a": null}', [("a", None)]),
    ("truth", '{"a": true}', [("a", "true")]),
    ("text", '{"a": "é\\n"}', [("a", "é\n")]),
    ("nested", '{"a": {"b": [1.0, null]}}', [("a", '{"b":[1.0,null]}')]),
    ("list", "[1]", "expected a JSON object, found list [1] (NOT_AN_OBJECT)"),
    ("empty text", "", "expected a JSON document, found a value of 0 bytes (EMPTY_VALUE)"),
    ("half a character", r'{"a": "\ud800"}', r"expected text, found half a surrogate pair: \ud800 (LONE_SURROGATE)"),
    (
        "half a character as name",
        r'{"\ud800": 1}',
        r"expected text, found half a surrogate pair: \ud800 (LONE_SURROGATE)",
    ),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in MAPS], ids=[row[0] for row in MAPS])
def test_an_object_becomes_a_map_of_texts(text: str, expected: object):
    """Numbers keep their digits; what is no object fails alone, between its neighbours."""
    done = run(JsonToMap(json_root=True), frame_of_array("value", pa.array(['{"n":1}', text, None])))

    rows = done.frame.value.to_pylist()
    assert (rows[0], rows[-1]) == ({"payload": [("n", "1")]}, {"payload": None})
    if isinstance(expected, str):
        assert dead_messages(done) == {1: f"JsonToMap: {expected}"}
    else:
        assert rows[1] == {"payload": expected}


def test_declared_types_become_columns():
    """One row fits, one has a wrong kind, one lacks a required field, one is null."""
    texts = pa.array(['{"a": 1.5, "t": {"x": 1.0}, "more": 1}', '{"a": "1", "t": ""}', '{"a": 1}', None])

    done = run(JsonToMap(types=TYPES), frame_of_array("value", texts))

    assert done.frame.value.to_pylist() == [{"a": Decimal("1.50"), "t": '{"x":1.0}'}, {"a": None, "t": None}]
    assert {position: reason.path for position, reason in done.dead.items()} == {1: "value.a", 2: "value.t"}


def test_a_text_field_beside_others_becomes_a_struct_in_its_place():
    """The other fields stay as they are."""
    rows: list[dict[str, object]] = [{"j": '{"a": 1, "t": "x"}', "id": 1}, {"j": None, "id": 2}]

    value = run(JsonToMap(types=TYPES, field="j"), frame_of(rows)).frame.value

    assert value.to_pylist() == [{"j": {"a": Decimal("1.00"), "t": "x"}, "id": 1}, {"j": None, "id": 2}]


def test_declarations_that_mean_nothing_are_refused():
    """Both ways at once, and a field that is no text."""
    with pytest.raises(ValueError, match="either json"):
        JsonToMap(json_root=True, types=TYPES)
    with pytest.raises(Terminal, match="expected value as string, found long"):
        JsonToMap(json_root=True).apply(frame_of([{"value": 1}]))
    assert run(JsonToMap(json_root=True), frame_of([{"other": "{}"}])).dead


TYPED = [
    ('{"a": 1, "b": -9223372036854775808}', {"a": 1, "b": -(2**63)}),
    ('{"a": 18446744073709551616}', {"a": Decimal(2**64)}),
    (f'{{"a": {NINES}}}', {"a": NINES}),
    ('{"a": 1.5, "b": 1e2}', {"a": 1.5, "b": 100.0}),
    ('{"a": 0.12345678901234567890123}', {"a": "0.12345678901234567890123"}),
    ('{"a": null, "b": {}, "c": [], "d": [null, {}]}', {}),
    ('{"a": true, "b": "x"}', {"a": True, "b": "x"}),
    ('{"a": {"n": 1.50, "o": null, "p": [1]}}', {"a": [("n", "1.50"), ("o", None), ("p", "[1]")]}),
    ('{"a": [1, null, 2]}', {"a": [1, None, 2]}),
    ('{"a": [1, "x", null, {"b": 1}]}', {"a": ["1", "x", None, '{"b":1}']}),
    ('{"a": [{"b": 1}, {"c": "d"}]}', {"a": [[("b", "1")], [("c", "d")]]}),
    ('{"a": [[1], [2, 3]]}', {"a": [[1], [2, 3]]}),
]


@pytest.mark.parametrize(("text", "expected"), TYPED)
def test_object_tells_its_own_types(text: str, expected: dict[str, object]) -> None:
    """As the sink infers them, record by record: neighbours of another shape go on in frames of their own."""
    done = run(JsonToMap(), frame_of_array("value", pa.array(['{"a": "text"}', text, "[1]", None])))

    rows = {
        position: row
        for frame in done.frames
        for position, row in zip(frame.positions.to_pylist(), frame.value.to_pylist(), strict=True)
    }
    assert rows == {0: {"a": "text"}, 1: expected, 3: {}}
    assert list(done.dead) == [2]


def test_inferred_object_takes_the_place_of_its_text() -> None:
    """A text field beside others becomes a struct."""
    done = run(JsonToMap(field="j"), frame_of([{"j": '{"a": 1}', "id": 1}, {"j": None, "id": 2}]))

    assert [row for frame in done.frames for row in frame.value.to_pylist()] == [
        {"j": {"a": 1}, "id": 1},
        {"j": None, "id": 2},
    ]


def test_names_without_end_are_dead_letters_beyond_a_bound() -> None:
    """Objects whose keys are data make a limited number of frames; the dead letters say that they depend on neighbours."""
    texts = pa.array([f'{{"k{number}": 1}}' for number in range(260)])

    done = run(JsonToMap(), frame_of_array("value", texts))

    assert (len(done.frames), len(done.dead)) == (250, 10)
    assert {reason.code for reason in done.dead.values()} == {DeadCode.TOO_MANY_NAMES}


def test_object_with_too_many_names_is_a_dead_letter_and_its_neighbours_go_on() -> None:
    """Its names don't count for them."""
    wide = json.dumps({f"k{number}": 1 for number in range(2_001)})

    done = run(JsonToMap(), frame_of_array("value", pa.array([wide, '{"a": 1}'])))

    assert list(done.dead) == [0]
    assert done.frame.value.to_pylist() == [{"a": 1}]


def test_optional_fields_of_known_names_are_no_dead_letters() -> None:
    """Ten fields, each of which may be absent, make a thousand shapes: none is too many."""
    texts = [
        json.dumps({f"f{field}": 1 if number >> field & 1 else None for field in range(10)}) for number in range(1_024)
    ]

    done = run(JsonToMap(), frame_of_array("value", pa.array(texts)))

    assert not done.dead
    assert sum(map(len, done.frames)) == len(texts)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=80)
@given(st.lists(st.text() | JSON.map(json.dumps), min_size=1, max_size=5))
def test_no_text_raises(texts: list):
    """Each text becomes a map that holds what the parser of the standard library finds, or a reason."""
    done = run(
        JsonToMap(json_root=True),
        frame_of_array("value", pa.array([t.encode("utf-8", "replace").decode() for t in texts])),
    )

    for position, row in zip(done.frame.positions.to_pylist(), done.frame.value.to_pylist(), strict=True):
        assert [name for name, _ in row["payload"]] == list(json.loads(texts[position]))
