"""Protocol Buffers: every kind of field, presence and known messages."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from frazil.records.model.dead_letter import DeadCode
from tests.unit.records.formats.protobuf_messages import UNSET, decoder, message

KINDS = pa.struct([("x", pa.int32())])
NUMBER = pa.decimal128(20, 0)
FIELDS: list[tuple[str, object, pa.DataType, object]] = [
    ("i32", -(2**31), pa.int32(), -(2**31)),
    ("i64", 2**63 - 1, pa.int64(), 2**63 - 1),
    ("u32", 2**32 - 1, pa.int64(), 2**32 - 1),
    ("u64", 2**64 - 1, NUMBER, Decimal(2**64 - 1)),
    ("s32", -5, pa.int32(), -5),
    ("s64", -(2**63), pa.int64(), -(2**63)),
    ("f32", 2**32 - 1, pa.int64(), 2**32 - 1),
    ("f64", 2**64 - 1, NUMBER, Decimal(2**64 - 1)),
    ("sf32", -1, pa.int32(), -1),
    ("sf64", -1, pa.int64(), -1),
    ("f", 1.5, pa.float32(), 1.5),
    ("d", 0.1, pa.float64(), 0.1),
    ("b", True, pa.bool_(), True),
    ("s", "a\0🧊", pa.string(), "a\0🧊"),
    ("y", b"\0\xff", pa.binary(), b"\0\xff"),
    ("e", 1, pa.string(), "BLUE"),
    ("e", 77, pa.string(), "77"),
    ("o", 0, pa.int32(), 0),
    ("m", {"x": 1}, KINDS, {"x": 1}),
    ("m", {}, KINDS, {"x": 0}),
    ("r", [1, 2], pa.list_(pa.int32()), [1, 2]),
    ("rm", [{"x": 1}, {}], pa.list_(KINDS), [{"x": 1}, {"x": 0}]),
    ("mp", {"k": 1}, pa.map_(pa.string(), pa.int64()), [("k", 1)]),
    ("mb", {True: "t"}, pa.map_(pa.bool_(), pa.string()), [(True, "t")]),
    ("oi", 0, pa.int32(), 0),
    ("os", "x", pa.string(), "x"),
    (
        "ts",
        {"seconds": -1, "nanos": 999_999_000},
        pa.timestamp("us", "UTC"),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    ),
    (
        "du",
        {"seconds": 1, "nanos": 1},
        pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())]),
        {"seconds": 1, "nanos": 1},
    ),
    ("w", {"value": 0}, pa.int64(), 0),
    ("ws", {"value": "q"}, pa.string(), "q"),
    ("gd", {"year": 2024, "month": 2, "day": 29}, pa.date32(), date(2024, 2, 29)),
    ("gt", {"hours": 23, "minutes": 59, "seconds": 59, "nanos": 1000}, pa.time64("us"), time(23, 59, 59, 1)),
    ("gdec", {"value": "1.23e4"}, pa.string(), "1.23e4"),
    ("cd", {"value": b"\xff\x85", "scale": 2}, pa.decimal128(6, 2), Decimal("-1.23")),
    ("cd", {"value": b"\x0c", "scale": 1}, pa.decimal128(6, 2), Decimal("1.20")),
    ("free", {"value": b"\x7b", "scale": -2}, pa.string(), "12300"),
    ("self", {"s": "y", "i64": 5}, pa.string(), '{"i64":"5","s":"y"}'),
    ("nothing", {}, pa.string(), "{}"),
    ("any", {"type_url": "t/acme.First", "value": b"\x0a\1x"}, pa.string(), '{"@type":"t/acme.First","s":"x"}'),
    ("any", {"type_url": "t/no.Such", "value": b"x"}, pa.string(), '{"@type":"t/no.Such","value":"eA=="}'),
]


@pytest.mark.parametrize(
    ("name", "value", "kind", "expected"), FIELDS, ids=[f"{f[0]}-{n}" for n, f in enumerate(FIELDS)]
)
def test_each_kind_of_field_lands_as_what_it_means(
    name: str, value: object, kind: pa.DataType, expected: object
) -> None:
    """The column has the type and the value; all other fields are as unset ones are."""
    (shaped,) = decoder().decode(pa.array([message(**{name: value}).SerializeToString()], pa.binary())).groups

    assert shaped.columns.schema.field(name).type == kind
    (row,) = shaped.columns.to_pylist()
    assert row == {**dict.fromkeys(row), **UNSET, name: expected}


def test_a_struct_is_json_text(decode: Any) -> None:
    """Free-form messages keep their names and values."""
    sent_message = message()
    sent_message.st.update({"a": [1.5, None, {"b": "ü"}]})
    (row,) = decode(decoder(), [sent_message.SerializeToString()])

    assert json.loads(row["st"]) == {"a": [1.5, None, {"b": "ü"}]}


DEAD: list[tuple[str, object, DeadCode]] = [
    ("ts", {"nanos": 1}, DeadCode.LOSSY_CAST),
    ("ts", {"nanos": -1000}, DeadCode.OUT_OF_RANGE),
    ("ts", {"seconds": 2**62}, DeadCode.OUT_OF_RANGE),
    ("gd", {"year": 2023, "month": 2, "day": 29}, DeadCode.INVALID_TIME),
    ("gd", {"month": 2, "day": 29}, DeadCode.INVALID_TIME),
    ("gt", {"hours": 24}, DeadCode.OUT_OF_RANGE),
    ("gt", {"minutes": 60}, DeadCode.OUT_OF_RANGE),
    ("cd", {"value": b"\x7b", "scale": 3}, DeadCode.LOSSY_CAST),
    ("cd", {"value": b"\x7b", "scale": -9}, DeadCode.OUT_OF_RANGE),
    ("free", {"value": b"\x7b", "scale": 2**31 - 1}, DeadCode.OUT_OF_RANGE),
    ("self", {"ts": {"seconds": 2**62}}, DeadCode.INVALID_PROTOBUF),
]


@pytest.mark.parametrize(("name", "value", "code"), DEAD, ids=[f"{d[0]}-{n}" for n, d in enumerate(DEAD)])
def test_values_that_no_column_holds_are_dead(name: str, value: object, code: DeadCode, decode: Any) -> None:
    """A value that is too large, too precise or no date has a reason with the path of its field."""
    raw = message(**{name: value}).SerializeToString()

    assert decode(decoder(), [raw, b""])[0] is code
    assert decoder().decode(pa.array([raw])).dead[0].path == name


@pytest.mark.parametrize(
    "raw",
    [b"\x72\1\xff", b"\x72\5x", b"\x08", b"\xff", b"\x0b", b"\x9a\x02\1" + b"\x9a" * 5, b"\x92\1\xff\xff\xff\xff\x0f"],
)
def test_bytes_that_are_no_message_are_dead(raw: bytes, decode: Any) -> None:
    """Bad text, cut fields, unknown wire types; the neighbour lands."""
    results = decode(decoder(), [raw, message(s="x").SerializeToString()])

    assert results[0] is DeadCode.INVALID_PROTOBUF
    assert results[1]["s"] == "x"
