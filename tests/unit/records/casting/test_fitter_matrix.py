"""Every kind of source into every type of a table: the value, or the reason why not."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.records.model.dead_letter import DeadCode as C
from tests.unit.records.casting.fitting import fit_one

UTC = timezone(timedelta(0))
U = UUID("00112233-4455-6677-8899-aabbccddeeff")
DAY = date(2024, 2, 29)
NOON = datetime(2024, 2, 29, 12, 0, 0, 5)
NOON_UTC = NOON.replace(tzinfo=UTC)
STRUCT = pa.struct([("a", pa.int64())])
LIST = pa.list_(pa.int64())
MAP = pa.map_(pa.string(), pa.int64())

SOURCES = {
    "bool": (pa.bool_(), True),
    "int32": (pa.int32(), 7),
    "int64": (pa.int64(), 7),
    "float32": (pa.float32(), 1.5),
    "float64": (pa.float64(), 1.5),
    "decimal": (pa.decimal128(9, 2), Decimal("1.50")),
    "decimal256": (pa.decimal256(40, 2), Decimal("1.50")),
    "string": (pa.string(), "x"),
    "binary": (pa.binary(), b"x"),
    "fixed16": (pa.binary(16), U.bytes),
    "uuid": (pa.uuid(), U.bytes),
    "date": (pa.date32(), DAY),
    "time": (pa.time64("us"), time(12, 0, 0, 5)),
    "timestamp": (pa.timestamp("us"), NOON),
    "timestamptz": (pa.timestamp("us", "UTC"), NOON_UTC),
    "struct": (STRUCT, {"a": 1}),
    "list": (LIST, [1, None]),
    "map": (MAP, [("a", 1)]),
    "duration": (pa.duration("us"), timedelta(1)),
}
TARGETS = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "decimal": pa.decimal128(5, 2),
    "string": pa.string(),
    "binary": pa.binary(),
    "fixed16": pa.binary(16),
    "uuid": pa.uuid(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "struct": STRUCT,
    "list": LIST,
    "map": MAP,
}
NUMBERS = ("int32", "int64")
OF_INT = {"int32": 7, "int64": 7, "float32": 7.0, "float64": 7.0, "decimal": Decimal("7.00")}
OF_FRACTION = {"int32": C.LOSSY_CAST, "int64": C.LOSSY_CAST, "float32": 1.5, "float64": 1.5, "decimal": Decimal("1.50")}
OF_TEXT = dict.fromkeys(["fixed16", "uuid"], C.INVALID_TEXT) | dict.fromkeys(
    ["date", "time", "timestamp", "timestamptz"], C.INVALID_TIME
)
OF_UUID = {"string": str(U), "binary": U.bytes, "fixed16": U.bytes, "uuid": U}
EXPECTED: dict[str, dict[str, object]] = {
    "bool": {"bool": True},
    "int32": OF_INT,
    "int64": OF_INT,
    "float32": OF_FRACTION,
    "float64": OF_FRACTION,
    "decimal": OF_FRACTION,
    "decimal256": OF_FRACTION,
    "string": OF_TEXT | {"string": "x"},
    "binary": {"binary": b"x", "fixed16": C.OUT_OF_RANGE, "uuid": C.OUT_OF_RANGE},
    "fixed16": OF_UUID,
    "uuid": OF_UUID,
    "date": {"date": DAY, "timestamp": datetime(2024, 2, 29), "timestamptz": datetime(2024, 2, 29, tzinfo=UTC)},
    "time": {"time": time(12, 0, 0, 5), "string": "12:00:00.000005"},
    "timestamp": {"timestamp": NOON, "timestamptz": NOON_UTC},
    "timestamptz": {"timestamp": NOON, "timestamptz": NOON_UTC},
    "struct": {"struct": {"a": 1}, "map": [("a", 1)], "string": '{"a":1}'},
    "list": {"list": [1, None], "string": "[1,null]"},
    "map": {"struct": {"a": 1}, "map": [("a", 1)], "string": '{"a":1}'},
    "duration": {},
}
"""What becomes of the sample of a source; a target that is not named refuses the type."""

OF_TEXT_CAST: dict[str, dict[str, object]] = {
    "bool": {"string": "true"},
    "int32": {"string": "7"},
    "int64": {"string": "7"},
    "float32": {"string": "1.5"},
    "float64": {"string": "1.5"},
    "decimal": {"string": "1.50"},
    "decimal256": {"string": "1.50"},
    "string": dict.fromkeys(["bool", "int32", "int64", "float32", "float64", "decimal", "binary"], C.INVALID_TEXT),
    "binary": {"string": "eA=="},
    "date": {"string": "2024-02-29"},
    "timestamp": {"string": "2024-02-29T12:00:00.000005"},
    "timestamptz": {"string": "2024-02-29T12:00:00.000005Z"},
}
"""What `text_casts` adds."""


def _sample(source: str) -> pa.Array:
    kind, value = SOURCES[source]
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return pa.array([None, value, None, value], storage).cast(kind)


@pytest.mark.parametrize("casts", [False, True], ids=["strict", "text-casts"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_each_pair_of_types_gives_the_value_or_its_code(source: str, target: str, casts: bool) -> None:
    """Each pair of types has a value or a code, and a null stays null."""
    more = OF_TEXT_CAST.get(source, {}) if casts else {}
    expected = (EXPECTED[source] | more).get(target, C.WRONG_TYPE)
    # Sliced, so that no offset is forgotten.
    fitted = fit_one(_sample(source).slice(1), TARGETS[target], text_casts=casts)
    if isinstance(expected, C):
        assert {row: reason.code for row, reason in fitted.dead.items()} == {0: expected, 2: expected}
        assert fitted.rows.column(0).to_pylist() == [None]
    else:
        assert fitted.rows.column(0).to_pylist() == [expected, None, expected]
        assert fitted.input_rows.to_pylist() == [0, 1, 2]


BIG = 1 << 53
MAX = (1 << 63) - 1
VALUES = [
    # id, source type, value, target type, expected
    ("int64-max-int32", pa.int64(), (1 << 31) - 1, pa.int32(), (1 << 31) - 1),
    ("int64-over-int32", pa.int64(), 1 << 31, pa.int32(), C.OUT_OF_RANGE),
    ("int64-under-int32", pa.int64(), -(1 << 31) - 1, pa.int32(), C.OUT_OF_RANGE),
    ("uint64-max-int64", pa.uint64(), (1 << 64) - 1, pa.int64(), C.OUT_OF_RANGE),
    ("uint64-decimal", pa.uint64(), (1 << 64) - 1, pa.decimal128(20, 0), Decimal((1 << 64) - 1)),
    ("uint32-int32", pa.uint32(), 1 << 31, pa.int32(), C.OUT_OF_RANGE),
    ("int8-int64", pa.int8(), -128, pa.int64(), -128),
    ("int-exact-double", pa.int64(), BIG, pa.float64(), float(BIG)),
    ("int-inexact-double", pa.int64(), BIG + 1, pa.float64(), C.LOSSY_CAST),
    ("int-even-double", pa.int64(), BIG + 2, pa.float64(), float(BIG + 2)),
    ("int-inexact-float", pa.int64(), (1 << 24) + 1, pa.float32(), C.LOSSY_CAST),
    ("int-max-double", pa.int64(), MAX, pa.float64(), C.LOSSY_CAST),
    ("int-min-double", pa.int64(), -MAX - 1, pa.float64(), float(-MAX - 1)),
    ("int-decimal-full", pa.int64(), 999, pa.decimal128(5, 2), Decimal("999.00")),
    ("int-decimal-over", pa.int64(), 1000, pa.decimal128(5, 2), C.OUT_OF_RANGE),
    ("int-decimal-max", pa.int64(), MAX, pa.decimal128(38, 0), Decimal(MAX)),
    ("int-decimal-min", pa.int64(), -MAX - 1, pa.decimal128(38, 10), Decimal(-MAX - 1)),
    ("double-int", pa.float64(), 1e15, pa.int64(), 10**15),
    ("double-int-over", pa.float64(), 2.0**63, pa.int64(), C.OUT_OF_RANGE),
    ("double-huge-int", pa.float64(), 1e300, pa.int32(), C.OUT_OF_RANGE),
    ("double-nan-int", pa.float64(), float("nan"), pa.int64(), C.NOT_FINITE),
    ("double-inf-decimal", pa.float64(), float("-inf"), pa.decimal128(9, 2), C.NOT_FINITE),
    ("double-tenth-decimal", pa.float64(), 0.1, pa.decimal128(9, 2), Decimal("0.10")),
    ("double-third-decimal", pa.float64(), 1 / 3, pa.decimal128(9, 2), C.LOSSY_CAST),
    ("float-tenth-decimal", pa.float32(), 0.1, pa.decimal128(9, 2), Decimal("0.10")),
    ("double-exact-float", pa.float64(), 0.5, pa.float32(), 0.5),
    ("double-inexact-float", pa.float64(), 0.1, pa.float32(), C.LOSSY_CAST),
    ("double-over-float", pa.float64(), 1e39, pa.float32(), C.OUT_OF_RANGE),
    ("double-under-float", pa.float64(), 1e-50, pa.float32(), C.LOSSY_CAST),
    ("double-inf-float", pa.float64(), float("inf"), pa.float32(), float("inf")),
    ("half-double", pa.float16(), 1.5, pa.float64(), 1.5),
    ("decimal-wider", pa.decimal128(5, 2), Decimal("1.25"), pa.decimal128(38, 4), Decimal("1.2500")),
    ("decimal-less-scale", pa.decimal128(9, 4), Decimal("1.2500"), pa.decimal128(9, 2), Decimal("1.25")),
    ("decimal-lossy", pa.decimal128(9, 4), Decimal("1.2501"), pa.decimal128(9, 2), C.LOSSY_CAST),
    ("decimal-over", pa.decimal128(9, 2), Decimal("1000.00"), pa.decimal128(5, 2), C.OUT_OF_RANGE),
    ("decimal-int", pa.decimal128(9, 2), Decimal("-7.00"), pa.int32(), -7),
    ("decimal-int-over", pa.decimal128(12, 2), Decimal("2147483648.00"), pa.int32(), C.OUT_OF_RANGE),
    ("decimal-int-edge", pa.decimal128(12, 2), Decimal("2147483647.00"), pa.int32(), 2147483647),
    ("decimal256-decimal", pa.decimal256(60, 1), Decimal("1.5"), pa.decimal128(5, 2), Decimal("1.50")),
    ("decimal256-over", pa.decimal256(60, 0), Decimal(10**50), pa.decimal128(38, 0), C.OUT_OF_RANGE),
    ("decimal-tenth-double", pa.decimal128(38, 2), Decimal("0.10"), pa.float64(), 0.1),
    ("decimal-double-lossy", pa.decimal128(38, 20), Decimal("0.12345678901234567891"), pa.float64(), C.LOSSY_CAST),
    ("decimal-double-whole", pa.decimal128(20, 0), Decimal(BIG + 1), pa.float64(), C.LOSSY_CAST),
    ("decimal-tenth-float", pa.decimal128(9, 2), Decimal("0.10"), pa.float32(), 0.10000000149011612),
    ("decimal-negative-scale", pa.decimal128(5, -2), Decimal(12300), pa.int32(), 12300),
    ("binary-fixed", pa.binary(), b"abc", pa.binary(3), b"abc"),
    ("binary-too-long", pa.binary(), b"abcd", pa.binary(3), C.OUT_OF_RANGE),
    ("fixed-other-width", pa.binary(4), b"abcd", pa.binary(3), C.OUT_OF_RANGE),
    ("fixed4-text", pa.binary(4), b"abcd", pa.string(), C.WRONG_TYPE),
    ("binary-uuid", pa.large_binary(), U.bytes, pa.uuid(), U),
    ("text-uuid", pa.large_string(), str(U), pa.uuid(), U),
    ("text-fixed16", pa.string(), str(U), pa.binary(16), U.bytes),
    ("text-base64-fixed16", pa.string(), "ABEiM0RVZneImaq7zN3u/w==", pa.binary(16), C.INVALID_TEXT),
    ("text-date", pa.string(), "2024-02-29", pa.date32(), DAY),
    ("text-no-day", pa.string(), "2023-02-29", pa.date32(), C.INVALID_TIME),
    ("text-time", pa.large_string(), "12:00:00.000005", pa.time64("us"), time(12, 0, 0, 5)),
    ("text-nanos", pa.string(), "12:00:00.0000005", pa.time64("us"), C.LOSSY_CAST),
    ("text-timestamp", pa.string(), "2024-02-29T12:00:00.000005+02:00", pa.timestamp("us"), NOON),
    ("text-timestamptz", pa.string(), "2024-02-29 14:00:00.000005+0200", pa.timestamp("us", "UTC"), NOON_UTC),
    ("time-seconds", pa.time32("s"), time(1, 2, 3), pa.time64("us"), time(1, 2, 3)),
    ("time-nanos", pa.time64("ns"), 1001, pa.time64("us"), C.LOSSY_CAST),
    ("timestamp-seconds", pa.timestamp("s"), datetime(2024, 1, 1), pa.timestamp("us"), datetime(2024, 1, 1)),
    ("timestamp-seconds-over", pa.timestamp("s"), 1 << 62, pa.timestamp("us"), C.OUT_OF_RANGE),
    ("timestamp-nanos", pa.timestamp("ns"), 1000, pa.timestamp("us"), datetime(1970, 1, 1, 0, 0, 0, 1)),
    ("timestamp-nanos-lossy", pa.timestamp("ns"), -1, pa.timestamp("us"), C.LOSSY_CAST),
    ("timestamp-elsewhere", pa.timestamp("us", "Europe/Berlin"), 0, pa.timestamp("us"), datetime(1970, 1, 1)),
    ("date64", pa.date64(), DAY, pa.date32(), DAY),
    ("date-over", pa.date32(), (1 << 31) - 1, pa.timestamp("us"), C.OUT_OF_RANGE),
    ("fixed-list", pa.list_(pa.int32(), 2), [1, 2], LIST, [1, 2]),
    ("large-list", pa.large_list(pa.int32()), [1, 2], pa.list_(pa.float64()), [1.0, 2.0]),
    ("to-large-list", LIST, [1, 2], pa.large_list(pa.int32()), [1, 2]),
]


@pytest.mark.parametrize(
    ("source", "value", "target", "expected"), [row[1:] for row in VALUES], ids=[row[0] for row in VALUES]
)
def test_values_at_the_edges_are_kept_or_refused(
    source: pa.DataType, value: object, target: pa.DataType, expected: object
) -> None:
    """A value that the target can't hold exactly never becomes its neighbour; good rows beside it stay."""
    fitted = fit_one(pa.array([value, None], source), target)
    outcome = fitted.dead[0].code if fitted.dead else fitted.rows.column(0)[0].as_py()
    assert outcome == expected
    assert fitted.input_rows.to_pylist()[-1] == 1


CASTS = [
    ("int", "-007", pa.int32(), -7),
    ("plus", "+7", pa.int64(), 7),
    ("whole", "7.0", pa.int64(), 7),
    ("int-over", "2147483648", pa.int32(), C.OUT_OF_RANGE),
    ("int-huge", "1" + "0" * 10_000, pa.int64(), C.OUT_OF_RANGE),
    ("int-fraction", "1.5", pa.int64(), C.LOSSY_CAST),
    ("int-blank", " 1", pa.int64(), C.INVALID_TEXT),
    ("int-underscore", "1_000", pa.int64(), C.INVALID_TEXT),
    ("int-digits-of-elsewhere", "\u0661", pa.int64(), C.INVALID_TEXT),
    ("int-line-end", "1\n", pa.int64(), C.INVALID_TEXT),
    ("int-nan", "NaN", pa.int64(), C.NOT_FINITE),
    ("double", "0.1", pa.float64(), 0.1),
    ("double-exponent", "-1E+3", pa.float64(), -1000.0),
    ("double-over", "1e400", pa.float64(), C.OUT_OF_RANGE),
    ("double-inf", "-Infinity", pa.float64(), float("-inf")),
    ("double-line-end", "1.5\n", pa.float64(), C.INVALID_TEXT),
    ("float", "0.5", pa.float32(), 0.5),
    ("decimal", "-0.10", pa.decimal128(5, 2), Decimal("-0.10")),
    ("decimal-exponent", "1E2", pa.decimal128(5, 2), Decimal("100.00")),
    ("decimal-zeros", "0001.5000", pa.decimal128(5, 2), Decimal("1.50")),
    ("decimal-over", "1000", pa.decimal128(5, 2), C.OUT_OF_RANGE),
    ("decimal-lossy", "0.001", pa.decimal128(5, 2), C.LOSSY_CAST),
    ("decimal-line-end", "1\n", pa.decimal128(5, 2), C.INVALID_TEXT),
    ("bool", "TRUE", pa.bool_(), True),
    ("bool-number", "1", pa.bool_(), C.INVALID_TEXT),
    ("binary", "AAE=", pa.binary(), b"\0\1"),
    ("fixed", "AAE=", pa.binary(2), b"\0\1"),
    ("fixed16", "ABEiM0RVZneImaq7zN3u/w==", pa.binary(16), U.bytes),
]


@pytest.mark.parametrize("text_type", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize(("text", "target", "expected"), [row[1:] for row in CASTS], ids=[row[0] for row in CASTS])
def test_text_becomes_a_value_only_where_asked_for(
    text: str, target: pa.DataType, expected: object, text_type: pa.DataType
) -> None:
    """A cast reads the whole text as one exact value, or refuses."""
    array = pa.array([text, None], text_type)
    fitted = fit_one(array, target, text_casts=True)
    outcome = fitted.dead[0].code if fitted.dead else fitted.rows.column(0)[0].as_py()
    assert outcome == expected
    if target != pa.binary(16):
        assert fit_one(array, target).dead[0].code == C.WRONG_TYPE


@pytest.mark.parametrize("target", [pa.uint32(), pa.float16(), pa.list_(pa.int32(), 2), pa.duration("us")], ids=str)
def test_types_that_no_table_has_refuse_each_value(target: pa.DataType) -> None:
    """A type out of place is a letter per value and no failure of the batch."""
    for source, value in ((pa.int64(), -1), (pa.list_(pa.int32()), [1]), (pa.float64(), 0.5)):
        assert fit_one(pa.array([value, None], source), target).dead[0].code == C.WRONG_TYPE
