"""Fitting whole arrays has the same outcomes as fitting single values; and fitted numbers can be converted back."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from frazil.records.casting.column import plan_cast, plan_exact_cast
from frazil.records.casting.scalar import FitRules
from frazil.records.model.column import Reading
from tests.unit.records.casting.fitting import fit_one

SIZES = [7, 8, 15, 16, 24, 31, 32, 53, 63, 64]
EDGES = st.builds(
    lambda bits, offset, sign: sign * ((1 << bits) + offset),
    st.sampled_from(SIZES),
    st.integers(-2, 2),
    st.sampled_from([-1, 1]),
)
TENS = st.builds(lambda power, offset: 10**power + offset, st.integers(0, 19), st.integers(-1, 1))
WHOLE = st.integers(-1000, 1000) | EDGES | TENS


def _ints(kind: pa.DataType) -> st.SearchStrategy[int]:
    signed = pa.types.is_signed_integer(kind)
    low, high = (-1 << (kind.bit_width - 1), 1 << (kind.bit_width - 1)) if signed else (0, 1 << kind.bit_width)
    return WHOLE.map(lambda number: min(max(number, low), high - 1))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    rough = st.builds(lambda number, zeros: number * 10**zeros, WHOLE, st.integers(0, max(scale, 0)))
    unscaled = (rough | st.integers(-most, most)).map(lambda number: min(max(number, -most), most))
    return unscaled.map(lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


FLOATS = st.one_of(
    st.floats(),
    WHOLE.map(float),
    st.sampled_from([0.1, 1.5, -0.0, 1e23, 3.4028235e38, 3.5e38, 1e-46, 2.0**63, -(2.0**63), 16777217.0]),
)
NUMBERS = st.sampled_from(
    [
        "1",
        "-0",
        "+1",
        "1.0",
        "1.50",
        "1e2",
        ".5",
        "1.",
        "007",
        "NaN",
        "-inf",
        "1e400",
        "1e-400",
        "0x1",
        "1 ",
        "true",
        "False",
        "",
    ]
)
TIMES = st.sampled_from(
    [
        "2024-02-29",
        "2023-02-29",
        "0001-01-01 00:00:00+01",
        "2024-01-01T00:00:00.1234567+0130",
        "9999-12-31T23:59:59.999999-01:00",
        "12:30",
        "23:59:59.5",
        "24:00:00",
        "2024-01-01 00:00:00Z",
        "2024-01-01T00:00-05",
        "2024-01-01T00:00:00z",
    ]
)
TEXTS = st.one_of(
    st.text(max_size=6),
    NUMBERS,
    TIMES,
    WHOLE.map(str),
    FLOATS.map(repr),
    _decimals(9, 4).map(str),
    st.uuids().map(str),
    st.datetimes().map(str),
    st.dates().map(str),
    st.times().map(str),
    st.binary(max_size=3).map(lambda raw: raw.hex()),
    st.sampled_from(["1\n", "1.5\n", "AAE=", "\u0661", "2024-01-01\n"]),
)
TICKS = st.integers(-(1 << 63), (1 << 63) - 1) | EDGES.map(lambda number: min(max(number, -(1 << 63)), (1 << 63) - 1))
BYTES = st.binary(max_size=4) | st.binary(min_size=16, max_size=16)
INTS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
STAMPS = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Kolkata")]

SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    *((kind, _ints(kind)) for kind in INTS),
    (pa.float32(), FLOATS),
    (pa.float64(), FLOATS),
    *((pa.decimal128(*size), _decimals(*size)) for size in [(1, 0), (5, 2), (9, 9), (15, 4), (20, 0), (38, 10)]),
    (pa.decimal256(60, 20), _decimals(60, 20)),
    (pa.decimal256(9, 2), _decimals(9, 2)),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.binary(), BYTES),
    (pa.large_binary(), BYTES),
    (pa.binary(16), st.binary(min_size=16, max_size=16)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.uuid(), st.binary(min_size=16, max_size=16)),
    (pa.date32(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999) | st.integers(0, 10**10).map(lambda tick: tick * 1000)),
    *((kind, TICKS) for kind in STAMPS),
]
TARGETS = [
    *(pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary()),
    *(pa.decimal128(5, 2), pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal128(9, 0), pa.decimal128(20, 10)),
    *(
        pa.binary(16),
        pa.binary(3),
        pa.uuid(),
        pa.date32(),
        pa.time64("us"),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
    ),
]
NAMES = ["a", "b", "A"]


def _wrap(kind: pa.DataType, values: st.SearchStrategy[Any], shape: str) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    many = st.lists(st.none() | values, max_size=3)
    if shape == "list":
        return pa.list_(kind), many
    if shape == "large_list":
        return pa.large_list(kind), many
    if shape == "struct":
        return pa.struct([("a", kind), ("x", pa.int32())]), st.fixed_dictionaries(
            {"a": st.none() | values, "x": st.none() | st.integers(0, 9)}
        )
    return pa.map_(pa.string(), kind), st.lists(st.tuples(st.sampled_from(NAMES), st.none() | values), max_size=3)


def _storage(kind: pa.DataType) -> pa.DataType:
    return pa.binary(16) if kind == pa.uuid() else kind


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    # Arrow's cast of a nested null type to itself is not valid, so nothing is cast without need.
    return pa.array(values, _storage(kind)).cast(kind) if kind == pa.uuid() else pa.array(values, kind)


SHAPES = ["list", "large_list", "struct", "map"]


@st.composite
def _sources(draw: st.DrawFn) -> pa.Array:
    """An array of any source type, up to two levels deep, sliced at random."""
    kind, values = draw(st.sampled_from(SCALARS))
    levels = draw(st.integers(0, 2))
    kind = _storage(kind) if levels else kind
    for _ in range(levels):
        kind, values = _wrap(kind, values, draw(st.sampled_from(SHAPES)))
    cells = draw(st.lists(st.none() | values | values, max_size=8))
    array = _array(cells, kind)
    return array.slice(draw(st.integers(0, len(array))))


@st.composite
def _targets(draw: st.DrawFn) -> pa.DataType:
    kind = draw(st.sampled_from(TARGETS))
    for _ in range(draw(st.integers(0, 2))):
        kind = _nested_target(kind, draw(st.sampled_from(SHAPES)), nullable=draw(st.booleans()))
    return kind


def _nested_target(kind: pa.DataType, shape: str, *, nullable: bool) -> pa.DataType:
    field = pa.field("element", kind, nullable=nullable)
    if shape == "struct":
        return pa.struct([field.with_name("a"), pa.field("y", pa.string())])
    if shape == "map":
        return pa.map_(pa.string(), field.with_name("value"))
    return pa.list_(field) if shape == "list" else pa.large_list(field)


OPTIONS = st.fixed_dictionaries(
    {
        "text_casts": st.booleans(),
        "reading": st.sampled_from([Reading(), Reading(local_time="dead_letter"), Reading(truncates=True)]),
        "unknown_fields": st.sampled_from(["ignore", "fail"]),
        "case_insensitive": st.booleans(),
    }
)
relaxed = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(
    st.sampled_from(SCALARS).flatmap(
        lambda pair: st.lists(st.none() | pair[1], max_size=12).map(lambda cells: _array(cells, pair[0]))
    ),
    st.sampled_from(TARGETS),
    OPTIONS,
)
def test_any_scalars_have_the_same_outcome_as_arrays_and_one_by_one(
    array: pa.Array, target: pa.DataType, options: dict[str, Any]
) -> None:
    """Rows, reasons and messages are equal whatever the values."""
    fit_one(array, target, **options)


@relaxed
@given(_sources(), _targets(), OPTIONS, st.booleans())
def test_any_nested_values_have_the_same_outcome_as_arrays_and_one_by_one(
    array: pa.Array, target: pa.DataType, options: dict[str, Any], required: bool
) -> None:
    """Neither shapes nor offsets nor nulls at any depth part the two ways; no input raises."""
    fitted = fit_one(array, target, required=required, **options)
    assert len(fitted.input_rows) + len(fitted.dead) == len(array)


@relaxed
@given(_sources(), OPTIONS)
def test_any_unknown_field_can_be_rescued(array: pa.Array, options: dict[str, Any]) -> None:
    """A field that nobody declared never fails a batch; all that it may do is name a map's key twice."""
    fitted = fit_one(array, pa.string(), text_casts=True)
    nested = fit_one(pa.StructArray.from_arrays([array], ["a"]), pa.string())
    assert {reason.code.value for reason in nested.dead.values()} <= {"DUPLICATE_KEY"}
    assert len(fitted.rows) + len(fitted.dead) == len(array)


REVERSIBLE = [
    kind for kind, _ in SCALARS if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
]
NUMERIC = [
    kind for kind in TARGETS if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
]
BACK = [kind for kind in NUMERIC if kind != pa.decimal128(38, 38)]


@relaxed
@given(st.sampled_from(BACK), st.sampled_from([*NUMERIC, pa.string()]), st.data())
@example(pa.float64(), pa.decimal128(38, 0), None)
def test_number_that_fits_comes_back(source: pa.DataType, target: pa.DataType, data: st.DataObject | None) -> None:
    """If the result can be converted back, it is the same number: nothing was rounded."""
    values = {kind: strategy for kind, strategy in SCALARS if kind in BACK}.get(source, _decimals(9, 0))
    if pa.types.is_decimal(source):
        values = _decimals(source.precision, source.scale)
    values_drawn = [1e23] if data is None else data.draw(st.lists(values, max_size=12))
    array = pa.array(values_drawn, source)
    fit = fit_one(array, target, text_casts=True)
    back = fit_one(fit.rows.column(0), source, text_casts=True)
    assert not back.dead
    assert back.rows.column(0).to_pylist() == pytest.approx(
        array.take(fit.input_rows).to_pylist(), rel=0, abs=0, nan_ok=True
    )


FAST = [
    *((pa.int64(), kind) for kind in (pa.int32(), pa.float64(), pa.decimal128(9, 2))),
    *(
        (pa.string(), kind)
        for kind in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.int64(), pa.float64())
    ),
    *((pa.decimal128(9, 2), kind) for kind in (pa.decimal128(5, 2), pa.decimal128(38, 4), pa.int32(), pa.float64())),
    *((pa.timestamp("ms"), kind) for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"))),
    (pa.float64(), pa.float32()),
    (pa.list_(pa.int64()), pa.list_(pa.int32())),
    (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int32())])),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())),
]


@pytest.mark.parametrize(("source", "target"), FAST, ids=str)
def test_common_pairs_have_a_fast_way(source: pa.DataType, target: pa.DataType) -> None:
    """Equal outcomes prove something only if common types have a cast of whole arrays."""
    rules = FitRules(text_casts=True)
    slow = plan_exact_cast(source, target, rules)
    assert isinstance(slow, partial)
    assert getattr(plan_cast(source, target, rules), "func", None) is not slow.func
