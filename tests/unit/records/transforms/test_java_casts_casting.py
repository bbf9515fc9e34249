"""Casts: what each value becomes in each type; a value that does not fit is a dead letter."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.records.model.format import Frame
from frazil.records.transforms.kinds.field_values import Cast
from tests.unit.records.transforms.frames import dead_messages, run

Build = Callable[..., Frame]

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 5000, tzinfo=dt.UTC)
FAILS = "a dead letter"
DECIMAL = pa.decimal128(38, 2)


CASES = [
    (pa.string(), "12", "int32", 12),
    (pa.string(), "+12", "int32", 12),
    (pa.string(), "-0", "int64", 0),
    (pa.string(), "1.5", "int32", FAILS),
    (pa.string(), " 1", "int32", FAILS),
    (pa.string(), "1\n", "int32", FAILS),
    (pa.string(), "0x1F", "int32", FAILS),
    (pa.string(), "١", "int32", FAILS),
    (pa.string(), "", "int32", FAILS),
    (pa.string(), "9" * 10_000, "int64", FAILS),
    (pa.string(), "9223372036854775807", "int64", 2**63 - 1),
    (pa.string(), "9223372036854775808", "int64", FAILS),
    (pa.string(), "2147483648", "int32", FAILS),
    (pa.int64(), 127, "int8", 127),
    (pa.int64(), 128, "int8", FAILS),
    (pa.int64(), -32769, "int16", FAILS),
    (pa.int64(), 2**31, "int32", FAILS),
    (pa.int64(), -(2**31), "int32", -(2**31)),
    (pa.int32(), 5, "int64", 5),
    (pa.float64(), 1.9, "int32", 1),
    (pa.float64(), -1.9, "int32", -1),
    (pa.float64(), 2.0**63, "int64", FAILS),
    (pa.float64(), -(2.0**63), "int64", -(2**63)),
    (pa.float64(), math.nan, "int64", FAILS),
    (pa.float64(), math.inf, "int64", FAILS),
    (pa.float32(), 1.5, "int64", 1),
    (DECIMAL, Decimal("-1.99"), "int32", -1),
    (DECIMAL, Decimal(10**30), "int64", FAILS),
    (pa.bool_(), True, "int32", 1),
    (pa.date32(), dt.date(1970, 1, 11), "int32", 10),
    (pa.time64("us"), dt.time(0, 0, 1, 1999), "int32", 1001),
    (pa.timestamp("us", "UTC"), NOON, "int64", 1709208000005),
    (pa.timestamp("us"), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), "int64", -1),
    (pa.string(), "1e3", "float64", 1000.0),
    (pa.string(), "Infinity", "float64", math.inf),
    (pa.string(), "inf", "float64", FAILS),
    (pa.string(), "1e400", "float64", FAILS),
    (pa.string(), "1_000", "float64", FAILS),
    (pa.string(), "1e39", "float32", FAILS),
    (pa.float64(), 1e39, "float32", FAILS),
    (pa.float64(), 3.4028235e38, "float32", 3.4028234663852886e38),
    (pa.float64(), math.inf, "float32", math.inf),
    (pa.int64(), 16777217, "float32", 16777216.0),
    (pa.int64(), 2**53 + 1, "float64", 9007199254740992.0),
    (pa.bool_(), True, "float64", 1.0),
    (DECIMAL, Decimal("0.10"), "float64", 0.1),
    (pa.string(), "True", "boolean", True),
    (pa.string(), "false", "boolean", False),
    (pa.string(), "yes", "boolean", FAILS),
    (pa.int64(), 2, "boolean", True),
    (pa.float64(), 0.5, "boolean", False),
    (pa.float64(), -1.5, "boolean", True),
    (pa.float64(), math.nan, "boolean", False),
    (DECIMAL, Decimal("0.99"), "boolean", False),
    (pa.date32(), dt.date(1970, 1, 1), "boolean", FAILS),
    (pa.int64(), -5, "string", "-5"),
    (pa.bool_(), False, "string", "false"),
    (pa.float64(), 1.0, "string", "1.0"),
    (pa.float64(), 1e7, "string", "1.0E7"),
    (pa.float64(), 9999999.5, "string", "9999999.5"),
    (pa.float64(), 0.001, "string", "0.001"),
    (pa.float64(), 0.00012, "string", "1.2E-4"),
    (pa.float64(), -0.0, "string", "-0.0"),
    (pa.float64(), 1e22, "string", "1.0E22"),
    (pa.float64(), math.nan, "string", "NaN"),
    (pa.float64(), -math.inf, "string", "-Infinity"),
    (pa.float32(), 0.1, "string", "0.1"),
    (DECIMAL, Decimal("10.50"), "string", "10.50"),
    (pa.binary(), b"\x00\xff", "string", "AP8="),
    (pa.uuid(), UUID(int=1).bytes, "string", "00000000-0000-0000-0000-000000000001"),
    (pa.date32(), dt.date(2024, 2, 29), "string", "2024-02-29"),
    (pa.time64("us"), dt.time(1, 2, 3), "string", "01:02:03.000"),
    (pa.timestamp("us", "UTC"), NOON, "string", "2024-02-29T12:00:00.005Z"),
    (pa.timestamp("us"), dt.datetime(2024, 2, 29, 1, 2, 3, 4), "string", "2024-02-29T01:02:03.000004"),
    (pa.list_(pa.int32()), [1], "string", FAILS),
    (pa.struct([("a", pa.int32())]), {"a": 1}, "int32", FAILS),
]


@pytest.mark.parametrize(("data_type", "value", "type_name", "expected"), CASES, ids=lambda x: str(x)[:30])
def test_cast_is_exact_or_a_dead_letter(
    frame: Build, data_type: Any, value: Any, type_name: str, expected: Any
) -> None:
    """A value becomes what Java makes of it, or its record is a dead letter; null stays null beside it."""
    done = run(Cast({"a": type_name}), frame(value={"a": pa.array([None, value], data_type), "b": [1, 2]}))
    rows = done.frame.value.to_pylist()
    assert rows[0] == {"a": None, "b": 1}
    if expected is FAILS:
        assert set(done.dead) == {1}
        assert f"expected {type_name}, found " in done.dead[1].message
        assert done.dead[1].path == "a"
    else:
        assert repr(rows[1]["a"]) == repr(expected)


def test_bare_value_is_cast(frame: Build) -> None:
    """A bare value takes the one type; a value with fields under it is a dead letter."""
    assert run(Cast("int32"), frame(value={"value": ["1", "x"]})).frame.value.to_pylist() == [{"value": 1}]
    assert set(run(Cast("int32"), frame(value={"a": ["1", "2"]})).dead) == {0, 1}


def test_key_is_cast_only_by_target(frame: Build) -> None:
    """With `target: key` only the key changes; without keys the pipeline file is at fault."""
    done = run(Cast({"a": "string"}, target="key"), frame(value={"a": [1]}, key={"a": [1]}))
    assert (done.frame.value.to_pylist(), done.frame.key.to_pylist()) == ([{"a": 1}], [{"a": "1"}])
    with pytest.raises(Terminal, match="keys are not decoded"):
        run(Cast({"a": "string"}, target="key"), frame(value={"a": [1]}))


@given(
    texts=st.lists(st.one_of(st.text(), st.integers().map(str), st.floats().map(str)), min_size=1, max_size=8),
    type_name=st.sampled_from(["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"]),
)
def test_any_text_is_cast_or_a_dead_letter_alone(frame: Build, texts: list[str], type_name: str) -> None:
    """Any text is cast or a dead letter, and other records have the outcome that they have alone."""
    done = run(Cast({"a": type_name}), frame(value={"a": pa.array(texts, pa.string())}))
    alone = [run(Cast({"a": type_name}), frame(value={"a": pa.array([text], pa.string())})) for text in texts]
    rows = [row for one in alone for row in one.frame.value.to_pylist()]
    assert repr(done.frame.value.to_pylist()) == repr(rows)
    assert list(dead_messages(done).values()) == [message for one in alone for message in dead_messages(one).values()]


@given(st.lists(st.floats(), min_size=1, max_size=5), st.lists(st.floats(width=32), min_size=1, max_size=5))
def test_number_written_as_text_keeps_its_digits(frame: Build, doubles: list[float], singles: list[float]) -> None:
    """Java's spelling of a number reads as the same number."""
    for data_type, numbers, type_name in ((pa.float64(), doubles, "float64"), (pa.float32(), singles, "float32")):
        text_frame = run(Cast({"a": "string"}), frame(value={"a": pa.array(numbers, data_type)})).frame
        back = run(Cast({"a": type_name}), text_frame)
        assert not back.dead
        assert repr(back.frame.value["a"].to_pylist()) == repr(numbers)
