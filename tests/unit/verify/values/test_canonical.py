"""Hashes that must differ, and canonical forms that must be equal."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

from frazil.pipeline.syntax.types import parse_type
from frazil.verify.facts.result import DESCRIBED_DIFFERENCES, SHOWN_CHARACTERS, Difference, Findings, shorten
from frazil.verify.values.canonical import column_values, digest

DIFFERENT = [
    None,
    0,
    0.0,
    -0.0,
    False,
    "0",
    b"0",
    "",
    b"",
    (),
    (None,),
    ((),),
    ("a", "b"),
    ("ab",),
    ("a,b",),
    1,
    1.0,
    True,
]


@pytest.mark.parametrize(("one", "second"), list(combinations(DIFFERENT, 2)))
def test_different_values_have_different_hashes(one: object, second: object) -> None:
    """Some of these values are equal in Python, but not in a table."""
    assert digest(one) != digest(second)
    assert digest(one) == digest(one)


MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
MICROS = 1_704_067_200_000_000
SIXTEEN = uuid.UUID(int=5)
NESTED = pa.struct([("u", pa.binary(16)), ("b", pa.large_list(pa.struct([("c", pa.date32())])))])


@pytest.mark.parametrize(
    ("type_name", "array", "expected"),
    [
        ("date", pa.array([date(1970, 1, 2), None]), [1, None]),
        ("time", pa.array([time(0, 0, 1)], pa.time64("us")), [1_000_000]),
        ("timestamptz", pa.array([MOMENT], pa.timestamp("us", "UTC")), [MICROS]),
        ("timestamp", pa.array([2**62], pa.timestamp("us")), [2**62]),
        ("decimal(5,2)", pa.array([Decimal("-1.50")], pa.decimal128(5, 2)), [-150]),
        ("uuid", pa.array([SIXTEEN.bytes], pa.binary(16)).cast(pa.uuid()), [SIXTEEN.bytes]),
        ("float", pa.array([0.1], pa.float32()), [0.10000000149011612]),
        (
            "list<decimal(3,1)>",
            pa.array([[Decimal("1.5"), None], [], None], pa.list_(pa.decimal128(3, 1))),
            [(15, None), (), None],
        ),
        (
            "map<string, int>",
            pa.array([[("b", 1), ("a", None)]], pa.map_(pa.string(), pa.int32())),
            [(("a", None), ("b", 1))],
        ),
        (
            "struct<u: uuid, b: list<struct<c: date>>>",
            pa.array([{"u": SIXTEEN.bytes, "b": [{"c": date(1970, 1, 2)}]}, {"u": None, "b": []}], NESTED),
            [(SIXTEEN.bytes, ((1,),)), (None, None)],
        ),
    ],
)
def test_stored_values_have_one_form(type_name: str, array: pa.Array, expected: list[Any]) -> None:
    """Stored values become whole numbers, bytes and tuples, in any type of Arrow."""
    assert list(map(repr, column_values(array, parse_type(type_name)))) == list(map(repr, expected))


def test_difference_is_cut_and_counted() -> None:
    """Long values are cut, all differences are counted, the first are kept."""
    findings = Findings()
    findings.add(*(Difference("missing", "a", "b", "t", 0, offset) for offset in range(DESCRIBED_DIFFERENCES + 5)))

    assert (len(findings.described), findings.count, findings.has_room) == (
        DESCRIBED_DIFFERENCES,
        DESCRIBED_DIFFERENCES + 5,
        False,
    )
    assert len(shorten("x" * 10_000)) == SHOWN_CHARACTERS + 1
    assert str(findings.described[3]) == "missing: topic t, partition 0, offset 3: expected a, found b"
