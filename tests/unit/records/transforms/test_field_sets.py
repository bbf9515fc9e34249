"""Adding, keeping, renaming, extracting, wrapping and hiding fields."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.records.model.format import Frame
from frazil.records.transforms.fields import split_path
from frazil.records.transforms.kinds.field_sets import (
    ExtractField,
    HoistField,
    InsertField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from frazil.records.transforms.kinds.field_values import MaskField
from tests.unit.records.transforms.frames import run

Build = Callable[..., Frame]

NESTED = {"a": {"b": 1, "c.d": 2}, "a.b": 3, "m": [("k", 4)]}
NESTED_TYPES = {
    "a": pa.struct([("b", pa.int32()), ("c.d", pa.int32())]),
    "a.b": pa.int32(),
    "m": pa.map_(pa.string(), pa.int32()),
}


def nested() -> dict[str, pa.Array]:
    return {name: pa.array([NESTED[name], None], data_type) for name, data_type in NESTED_TYPES.items()}


def test_metadata_of_each_record_is_inserted(frame: Build) -> None:
    """Topic (as routed), partition, offset, timestamp and text come under their names; a name that is there is replaced."""
    transform = InsertField("topic?", "partition", "offset!", "at", "a", "fixed")
    done = run(transform, frame(value={"a": [1, 2]}, topics=["x", "y"], timestamps=[5, None]))
    instant = dt.datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=dt.UTC)
    assert done.frame.value.to_pylist() == [
        {"a": "fixed", "topic": "x", "partition": 3, "offset": 100, "at": instant},
        {"a": "fixed", "topic": "y", "partition": 3, "offset": 101, "at": None},
    ]


def test_missing_required_metadata_is_a_dead_letter(frame: Build) -> None:
    """A record without a timestamp is a dead letter where the timestamp is required, and only that one."""
    done = run(InsertField(timestamp_field="at!"), frame(value={"a": [1, 2]}, timestamps=[None, 7]))
    assert set(done.dead) == {0}
    assert done.frame.value["a"].to_pylist() == [2]


def test_tombstone_stays_a_tombstone(frame: Build) -> None:
    """A record without value gets no fields, so that it is a tombstone still; the key of it may get some."""
    given_frame = frame(value={"a": [1, None]}, key={"k": [1, 2]}, values=[b"v", None])
    assert run(InsertField(topic_field="t"), given_frame).frame.value["t"].to_pylist() == ["orders", None]
    assert run(InsertField(topic_field="t", target="key"), given_frame).frame.key["t"].to_pylist() == ["orders"] * 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"include": ("b", "a", "x")}, {"a": 1, "b": 2}),
        ({"exclude": ("b",)}, {"a": 1, "c": 3}),
        ({"include": ("a", "b"), "exclude": ("b",)}, {"a": 1}),
        ({"renames": {"a": "b", "b": "a"}}, {"b": 1, "a": 2, "c": 3}),
        ({"include": ("a",), "renames": {"a": "z"}}, {"z": 1}),
        ({"exclude": ("a", "b", "c")}, {}),
    ],
)
def test_fields_are_kept_and_renamed_in_order(frame: Build, options: dict[str, Any], expected: Any) -> None:
    """Fields stay in their order; renaming goes by the names as they came."""
    done = run(ReplaceField(**options), frame(value={"a": [1, 1], "b": [2, 2], "c": [3, 3]}))
    assert (done.frame.value.num_rows, len(done.frame)) == (2, 2)
    assert [list(row.items()) for row in done.frame.value.to_pylist()] == [list(expected.items())] * 2


def test_two_fields_of_one_name_make_a_dead_letter(frame: Build) -> None:
    """A rename onto a field that stays makes dead letters of the records of that shape."""
    done = run(ReplaceField(renames={"a": "b"}), frame(value={"a": [1], "b": [2]}))
    assert "two fields named b" in done.dead[0].message


@pytest.mark.parametrize(
    ("path", "version", "expected"),
    [
        ("a", "V2", [{"b": 1, "c.d": 2}, {"b": None, "c.d": None}]),
        ("a.b", "V2", [{"value": 3}, {"value": None}]),
        ("a.`b`", "V2", [{"value": 1}, {"value": None}]),
        ("a.`c.d`", "V2", [{"value": 2}, {"value": None}]),
        ("`a.b`", "V2", [{"value": 3}, {"value": None}]),
        ("m.k", "V2", [{"value": 4}, {"value": None}]),
        ("m.x", "V2", [{"value": None}, {"value": None}]),
        ("m.k", "V1", None),
        ("a.x", "V2", None),
        ("a.b.c", "V2", None),
    ],
)
def test_named_field_is_extracted(frame: Build, path: str, version: Any, expected: Any) -> None:
    """A name comes before a path; records of a shape without the field are dead letters."""
    done = run(ExtractField(path, version), frame(value=nested()))
    if expected is None:
        assert set(done.dead) == {0, 1}
        assert f"expected a field {path}" in done.dead[0].message
    else:
        assert done.frame.value.to_pylist() == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a", ["a"]),
        ("a.b", ["a", "b"]),
        ("`a.b`.c", ["a.b", "c"]),
        ("a.`b.c`", ["a", "b.c"]),
        ("`a``b`.c", ["a`b", "c"]),
        ("a`b.c", ["a`b", "c"]),
        ("`a.b", ["`a", "b"]),
        ("a.", ["a", ""]),
        ("", [""]),
    ],
)
def test_path_is_split_at_dots_outside_of_backticks(path: str, expected: Any) -> None:
    """Dots part steps, except within backticks."""
    assert split_path(path) == expected


@given(st.text(alphabet="a.`\\", max_size=12))
def test_any_text_is_a_path(path: str) -> None:
    """Any text is a path of steps."""
    assert split_path(path)


@given(st.lists(st.text(alphabet="ab. ", max_size=5), min_size=1, max_size=4))
def test_quoted_step_survives(names: list[str]) -> None:
    """Steps in backticks come back as they were."""
    assert split_path(".".join(f"`{name}`" for name in names)) == names


def test_hoisted_fields_are_kept(frame: Build) -> None:
    """All fields are wrapped, extracting them again gives them back; a bare value gets the name."""
    given_frame = frame(value=nested())
    hoisted = run(HoistField("h"), given_frame).frame
    assert hoisted.value.schema.names == ["h"]
    assert run(ExtractField("h"), hoisted).frame.value.to_pylist() == given_frame.value.to_pylist()
    assert run(HoistField("h"), frame(value={"value": [1, 2]})).frame.value.to_pylist() == [{"h": 1}, {"h": 2}]
    bare = run(ReplaceField(exclude=("a",)), frame(value={"a": [1, 2]})).frame
    assert len(run(HoistField("h"), bare).frame) == 2


def test_key_has_the_fields_of_the_option(frame: Build) -> None:
    """The key has the fields in the order of the option; the value keeps them."""
    done = run(ValueToKey(("b", "a")), frame(value={"a": [1], "b": ["x"]}))
    assert [list(row) for row in done.frame.key.to_pylist()] == [["b", "a"]]
    assert done.frame.value.num_columns == 2
    assert "did you mean aa" in run(ValueToKey(("a",)), frame(value={"aa": [1]})).dead[0].message


def test_schema_metadata_leaves_columns_unchanged(frame: Build) -> None:
    """Name and version are metadata of the schema, kept by later transforms, and nothing else changes."""
    given_frame = frame(value={"a": [1], "b": [1]})
    done = run(SetSchemaMetadata("n", 3), given_frame).frame
    assert done.value.equals(given_frame.value)
    later = run(ReplaceField(exclude=("a",)), done).frame
    assert later.value.schema.metadata == {b"schema.name": b"n", b"schema.version": b"3"}


@pytest.mark.parametrize(
    ("data_type", "value", "replacement", "expected"),
    [
        (pa.string(), "secret", None, ""),
        (pa.string(), "secret", "***", "***"),
        (pa.int32(), 5, None, 0),
        (pa.int64(), 5, "-1", -1),
        (pa.int32(), 5, "2147483648", "dead"),
        (pa.int32(), 5, "x", "dead"),
        (pa.float64(), 5.0, "1.5", 1.5),
        (pa.decimal128(5, 2), Decimal("5.55"), "1.5", Decimal("1.50")),
        (pa.decimal128(5, 2), Decimal("5.55"), "1.555", "dead"),
        (pa.decimal128(5, 2), Decimal("5.55"), "x", "dead"),
        (pa.decimal128(5, 2), Decimal("5.55"), None, Decimal("0.00")),
        (pa.bool_(), True, None, False),
        (pa.bool_(), True, "x", "dead"),
        (pa.binary(), b"x", None, b""),
        (pa.binary(2), b"xx", None, b"\0\0"),
        (pa.date32(), dt.date(2024, 1, 1), None, dt.date(1970, 1, 1)),
        (pa.time64("us"), dt.time(1), None, dt.time(0)),
        (
            pa.timestamp("us", "UTC"),
            dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
            None,
            dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
        ),
        (pa.list_(pa.int32()), [1], None, []),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], None, []),
        (pa.struct([("a", pa.int32())]), {"a": 1}, None, "dead"),
    ],
)
def test_masked_field_shows_no_secret(
    frame: Build, data_type: Any, value: Any, replacement: Any, expected: Any
) -> None:
    """No value is left, null stays null, the type stays; what can't be masked does not go on."""
    done = run(MaskField(("a", "missing"), replacement), frame(value={"a": pa.array([value, None], data_type)}))
    if expected == "dead":
        assert set(done.dead) == {0}
        assert str(value) not in done.dead[0].message
    else:
        assert done.frame.value.to_pylist() == [{"a": expected}, {"a": None}]
        assert done.frame.value.schema.field("a").type == data_type


def test_masked_uuid_is_all_zeros(frame: Build) -> None:
    """A uuid becomes the one of zeros."""
    ids = pa.array([b"x" * 16, None], pa.uuid())
    assert [u and u.int for u in run(MaskField(("a",)), frame(value={"a": ids})).frame.value["a"].to_pylist()] == [
        0,
        None,
    ]
