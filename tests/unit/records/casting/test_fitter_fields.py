"""Fields that columns take, and fields that are missing, nested, unknown or encoded."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.batch.facts import UnknownFields
from frazil.records.casting.fitter import Fitter
from frazil.records.model.column import ColumnSpec, Reading
from frazil.records.model.dead_letter import DeadCode
from tests.unit.records.casting.fitting import fit_both, fit_one, specs

INT = pa.int64()
TEXT = pa.string()
SCHEMA = pa.schema([pa.field("id", INT, nullable=False), pa.field("note", TEXT)])
RESCUE = SCHEMA.append(pa.field("_rescued", TEXT))
U = UUID("00112233-4455-6677-8899-aabbccddeeff")


def _rows(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def test_same_types_pass_without_a_copy() -> None:
    """The common case costs nothing: buffers of the input are buffers of the rows."""
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array(["a", None])], schema=SCHEMA)
    fitted = fit_both(specs(SCHEMA), SCHEMA, batch)
    for mine, theirs in zip(fitted.rows.columns, batch.columns, strict=True):
        assert [b and b.address for b in mine.buffers()] == [b and b.address for b in theirs.buffers()]


@pytest.mark.parametrize("size", [0, 1])
def test_empty_batches_and_batches_of_unknown_fields_fit(size: int) -> None:
    """No rows are no reason to fail."""
    batch = _rows([{"z": 1}] * size, pa.schema([("z", INT)]))
    fitted = fit_both(specs(SCHEMA), SCHEMA, batch)
    assert (len(fitted.rows), len(fitted.dead), len(fitted.ignored)) == (0, size, 0)


def test_missing_fields_are_defaults_nulls_or_dead_letters() -> None:
    """A required column never becomes null, a default never replaces a null that may be."""
    schema = pa.schema([pa.field(name, INT, nullable=name < "c") for name in "abcd"])
    columns = specs(
        schema,
        a=ColumnSpec("a", INT, required=False, has_default=True, default=1),
        d=ColumnSpec("d", INT, required=True, has_default=True, default=4),
    )
    rows = _rows([{"b": 2, "c": 3, "d": None}, {"b": None, "c": None, "d": 5}], pa.schema([(n, INT) for n in "bcd"]))
    fitted = fit_both(columns, schema, rows)
    assert fitted.rows.to_pylist() == [{"a": 1, "b": 2, "c": 3, "d": 4}]
    assert (fitted.dead[1].code, fitted.dead[1].path) == (DeadCode.MISSING_REQUIRED, "c")
    null = fit_both(columns, schema, _rows([{"a": None, "c": 3}], pa.schema([("a", INT), ("c", INT)])))
    assert null.rows.to_pylist() == [{"a": None, "b": None, "c": 3, "d": 4}]


def test_null_within_a_path_is_an_absent_field() -> None:
    """The column takes the field at the end of the path; if the path ends early, it gets the default."""
    shape = pa.schema([("a", pa.struct([("b", pa.struct([("c", INT)]))]))])
    batch = _rows([{"a": {"b": {"c": 7}}}, {"a": {"b": None}}, {"a": None}, {"a": {"b": {"c": None}}}], shape)
    schema = pa.schema([("c", INT)])
    column = ColumnSpec("c", INT, required=False, source=("a", "b", "c"), has_default=True, default=9)
    fitted = fit_both((column,), schema, batch.slice(0))
    assert fitted.rows.column(0).to_pylist() == [7, 9, 9, None]
    assert fit_both((column,), schema, batch.slice(1)).rows.column(0).to_pylist() == [9, 9, None]


def test_plain_value_within_a_path_is_a_dead_letter() -> None:
    """A text has no fields: not a null, not a default."""
    column = ColumnSpec("c", INT, required=False, source=("a", "b"), has_default=True, default=9)
    batch = _rows([{"a": "x"}, {"a": None}], pa.schema([("a", TEXT)]))
    fitted = fit_both((column,), pa.schema([("c", INT)]), batch)
    assert fitted.rows.column(0).to_pylist() == [9]
    assert (fitted.dead[0].code, fitted.dead[0].path) == (DeadCode.WRONG_TYPE, "a")


INNER = pa.struct([pa.field("n", pa.int32(), nullable=False), pa.field("s", TEXT)])
ITEM = pa.list_(pa.field("element", pa.int32(), nullable=False))
WIDE = pa.struct([("n", INT)])
BAD = 1 << 40
TWO_CASES = [("c0ffee00-4455-6677-8899-aabbccddeeff", 1), ("C0FFEE00-4455-6677-8899-aabbccddeeff", 2)]
NESTED = [
    ("struct", WIDE, {"n": 1}, INNER, {"n": 1, "s": None}),
    ("struct-range", WIDE, {"n": BAD}, INNER, (DeadCode.OUT_OF_RANGE, "c.n")),
    ("struct-null", WIDE, {"n": None}, INNER, (DeadCode.MISSING_REQUIRED, "c.n")),
    ("struct-missing", pa.struct([("s", TEXT)]), {"s": "x"}, INNER, (DeadCode.MISSING_REQUIRED, "c.n")),
    ("list", pa.list_(INT), [1, 2], ITEM, [1, 2]),
    ("list-empty", pa.list_(INT), [], ITEM, []),
    ("list-range", pa.list_(INT), [1, BAD], ITEM, (DeadCode.OUT_OF_RANGE, "c[1]")),
    ("list-null", pa.list_(INT), [1, None], ITEM, (DeadCode.MISSING_REQUIRED, "c[1]")),
    ("list-structs", pa.list_(WIDE), [{"n": 1}, {"n": BAD}], pa.list_(INNER), (DeadCode.OUT_OF_RANGE, "c[1].n")),
    ("map", pa.map_(INT, INT), [(1, 2)], pa.map_(pa.int32(), TEXT), (DeadCode.WRONG_TYPE, "c[1]")),
    ("map-keys", pa.map_(INT, INT), [(1, 2)], pa.map_(pa.int32(), pa.float64()), [(1, 2.0)]),
    ("map-key-range", pa.map_(INT, INT), [(BAD, 2)], pa.map_(pa.int32(), INT), (DeadCode.OUT_OF_RANGE, f"c[{BAD}]")),
    ("map-twice", pa.map_(TEXT, INT), [("a", 1), ("a", 2)], pa.map_(TEXT, INT), [("a", 1), ("a", 2)]),
    ("map-text-key", pa.map_(TEXT, INT), [("a", BAD)], pa.map_(TEXT, pa.int32()), (DeadCode.OUT_OF_RANGE, 'c["a"]')),
    ("map-struct", pa.map_(TEXT, INT), [("n", 1), ("x", 2)], INNER, {"n": 1, "s": None}),
    ("map-struct-null", pa.map_(TEXT, INT), [("x", 1)], INNER, (DeadCode.MISSING_REQUIRED, "c.n")),
    ("map-struct-twice", pa.map_(TEXT, INT), [("n", 1), ("n", 2)], WIDE, (DeadCode.DUPLICATE_KEY, "c")),
    ("struct-map", WIDE, {"n": 1}, pa.map_(TEXT, pa.int32()), [("n", 1)]),
    ("struct-map-range", WIDE, {"n": BAD}, pa.map_(TEXT, pa.int32()), (DeadCode.OUT_OF_RANGE, 'c["n"]')),
    ("struct-int-map", WIDE, {"n": 1}, pa.map_(INT, INT), (DeadCode.WRONG_TYPE, "c")),
    ("list-uuid", pa.list_(TEXT), [str(U), None], pa.list_(pa.uuid()), [U, None]),
    ("uuid-key", pa.map_(TEXT, INT), [(str(U), 1)], pa.map_(pa.uuid(), INT), [(U, 1)]),
    ("uuid-key-twice", pa.map_(TEXT, INT), TWO_CASES, pa.map_(pa.uuid(), INT), (DeadCode.DUPLICATE_KEY, "c")),
    ("list-to-struct", pa.list_(INT), [1], WIDE, (DeadCode.WRONG_TYPE, "c")),
    ("text-map-twice", pa.map_(TEXT, INT), [("a", 1), ("a", 2)], TEXT, (DeadCode.DUPLICATE_KEY, "c")),
]


@pytest.mark.parametrize(
    ("source", "value", "target", "expected"), [row[1:] for row in NESTED], ids=[row[0] for row in NESTED]
)
def test_nested_values_fit_at_every_depth(source: pa.DataType, value: Any, target: pa.DataType, expected: Any) -> None:
    """A doubt deep inside concerns its row alone, and the reason's path leads to it."""
    array = pa.array([value, None, value, None, value], source).slice(1, 3)
    fitted = fit_one(array, target)
    if isinstance(expected, tuple):
        assert [(row, reason.code, reason.path) for row, reason in fitted.dead.items()] == [(1, *expected)]
        assert fitted.rows.column(0).to_pylist() == [None, None]
    else:
        assert fitted.rows.column(0).to_pylist() == [None, expected, None]
        assert fitted.rows.column(0).type.equals(target, check_metadata=True)


def test_null_lists_over_hidden_items_have_no_doubts() -> None:
    """Arrow may keep items behind a null: nobody sent them."""
    hidden = pa.ListArray.from_arrays(pa.array([0, 2, 3]), pa.array([BAD, BAD, 3]), mask=pa.array([True, False]))
    fitted = fit_one(hidden, ITEM)
    assert (fitted.rows.column(0).to_pylist(), fitted.dead) == ([None, [3]], {})


ENCODED = [
    pa.array([1, None, 1]).dictionary_encode(),
    pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([1, None])),
    pa.array([1, None, 1], pa.int8()),
]


@pytest.mark.parametrize("array", ENCODED, ids=["dictionary", "null-in-dictionary", "int8"])
@pytest.mark.parametrize("required", [False, True])
def test_encodings_are_read_through(array: pa.Array, required: bool) -> None:
    """How an array stores its values changes none, nor where its nulls are."""
    fitted = fit_one(array, pa.int32(), required=required)
    assert fitted.rows.column(0).to_pylist() == ([1, 1] if required else [1, None, 1])
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 3]), array)
    assert fit_one(nested, pa.list_(INT)).rows.column(0).to_pylist() == [[1], [None, 1]]
    struct = pa.StructArray.from_arrays([array], ["n"])
    dead = fit_one(struct, INNER).dead
    assert [(row, reason.path) for row, reason in dead.items()] == [(1, "c.n")]


def test_unknown_fields_are_counted_rescued_or_refused() -> None:
    """A field without a column is never lost without a trace; a null is no field."""
    shape = pa.schema([("id", INT), ("x", pa.struct([("y", pa.decimal128(9, 2))])), ("t", pa.timestamp("us", "UTC"))])
    batch = _rows([{"id": 1, "x": {"y": Decimal("0.10")}, "t": 0}, {"id": 2}, {"x": None, "t": 5}], shape)
    ignored = fit_both(specs(SCHEMA), SCHEMA, batch)
    assert (ignored.ignored.count(), list(ignored.dead)) == (UnknownFields(1, {"t": 1, "x": 1}), [2])
    rescued = fit_both(specs(SCHEMA), RESCUE, batch, unknown_fields="rescue").rows
    assert rescued.column("_rescued").to_pylist() == ['{"x":{"y":0.10},"t":"1970-01-01T00:00:00Z"}', None]
    failed = fit_both(specs(SCHEMA), SCHEMA, batch, unknown_fields="fail")
    assert {row: reason.code for row, reason in failed.dead.items()} == dict.fromkeys([0, 2], DeadCode.UNKNOWN_FIELD)
    assert '"x, t"' in failed.dead[0].message


def test_unknown_fields_of_structs_are_refused_too() -> None:
    """`fail` means at every depth."""
    schema = pa.schema([("a", WIDE)])
    batch = _rows([{"a": {"n": 1, "z": 2}}, {"a": {"n": 1}}], pa.schema([("a", pa.struct([("n", INT), ("z", INT)]))]))
    fitted = fit_both(specs(schema), schema, batch, unknown_fields="fail")
    assert [(row, reason.path) for row, reason in fitted.dead.items()] == [(0, "a.z")]


def test_names_match_by_case_only_on_request() -> None:
    """Exact first; of those that fit equally well the last counts: a writer's schema is no reason to stop."""
    batch = _rows([{"ID": 1, "Note": "x"}], pa.schema([("ID", INT), ("Note", TEXT)]))
    assert fit_both(specs(SCHEMA), SCHEMA, batch).dead[0].code == DeadCode.MISSING_REQUIRED
    fit = fit_both(specs(SCHEMA), SCHEMA, batch, case_insensitive=True)
    assert fit.rows.to_pylist() == [{"id": 1, "note": "x"}]
    with_three = _rows([{"ID": 1, "id": 2, "iD": 3}], pa.schema([("ID", INT), ("id", INT), ("iD", INT)]))
    assert fit_both(specs(SCHEMA), SCHEMA, with_three, case_insensitive=True).rows.column("id").to_pylist() == [2]
    without_first = with_three.select(["ID", "iD"])
    assert fit_both(specs(SCHEMA), SCHEMA, without_first, case_insensitive=True).rows.column("id").to_pylist() == [3]


def test_times_with_zone_in_local_columns_are_refused_on_request() -> None:
    """An offset is either dropped on purpose or not at all."""
    texts = pa.array(["2024-01-01T00:00:00", "2024-01-01T00:00:00+01:00", "2024-01-01 00:00Z", "2024-01-01 00:00-05"])
    reading = Reading(local_time="dead_letter")
    assert list(fit_one(texts, pa.timestamp("us"), reading=reading).dead) == [1, 2, 3]
    zoned = pa.array([0, None], pa.timestamp("us", "UTC"))
    assert fit_one(zoned, pa.timestamp("us"), reading=reading).dead[0].code == DeadCode.WRONG_TYPE


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_numbers_count_times_only_by_a_declared_unit(unit: Any) -> None:
    """What a number counts is never guessed."""
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    moment = pa.timestamp("us", "UTC")
    schema = pa.schema([("c", moment)])
    column = ColumnSpec("c", moment, required=False, reading=Reading(unit=unit))
    numbers = pa.RecordBatch.from_pydict({"c": pa.array([0, per * 1_700_000_000, None, (1 << 63) - 1], INT)})
    fitted = fit_both((column,), schema, numbers)
    assert fitted.rows.column(0).cast(INT).to_pylist()[:3] == [0, 1_700_000_000 * 10**6, None]
    assert list(fitted.dead) == [3]
    assert list(fit_both(specs(schema), schema, numbers).dead) == [0, 1, 3]


def test_whole_value_is_a_column_of_json() -> None:
    """Landing without a schema keeps each field, with its type's own text."""
    schema = pa.schema([("raw", TEXT)])
    batch = _rows([{"id": 1, "note": None}], pa.schema([("id", INT), ("note", TEXT)]))
    fitted = fit_both((ColumnSpec("raw", TEXT, required=False, source=()),), schema, batch)
    assert fitted.rows.to_pylist() == [{"raw": '{"id":1,"note":null}'}]
    assert not len(fitted.ignored)


def test_json_text_keeps_every_digit() -> None:
    """What is nested and becomes text can be read back to equal values."""
    kinds = {
        "i": (INT, -(1 << 63), -(1 << 63)),
        "d": (pa.decimal256(60, 3), Decimal("1" * 50 + ".100"), None),
        "f": (pa.float32(), 0.1, 0.1),
        "g": (pa.float64(), 1e16, 1e16),
        "n": (pa.float64(), float("nan"), "NaN"),
        "b": (pa.binary(), b"\0\xff", "AP8="),
        "t": (pa.time64("us"), 1, "00:00:00.000001"),
        "y": (pa.date32(), -719_529, "-000001-12-31"),
        "z": (pa.timestamp("us"), 253_402_300_800_000_000, "+010000-01-01T00:00:00"),
        "s": (TEXT, 'é"\n', 'é"\n'),
        "l": (pa.list_(pa.map_(INT, TEXT)), [[(1, "x")], None], [{"1": "x"}, None]),
    }
    array = pa.array(
        [{name: row[1] for name, row in kinds.items()}], pa.struct([(n, row[0]) for n, row in kinds.items()])
    )
    text = fit_one(array, TEXT).rows.column(0)[0].as_py()
    expected = {name: row[2] for name, row in kinds.items() if row[2] is not None}
    read = json.loads(text)
    assert '"d":' + "1" * 50 + ".100" in text
    assert '"f":0.1' in text
    assert {name: read[name] for name in expected} == expected


def test_impossible_columns_are_reported_before_any_record() -> None:
    """Validation names each column that no record could ever fill."""
    shape = pa.schema([("note", pa.list_(INT)), ("a", pa.struct([("x", TEXT)])), ("d", pa.date32())])
    schema = pa.schema(
        [pa.field("id", INT, nullable=False), ("note", TEXT), ("a", WIDE), ("x", INT), ("d", pa.list_(INT))]
    )
    columns = specs(schema, x=ColumnSpec("x", INT, required=False, source=("a", "x")))
    problems = Fitter(columns, schema).check(shape)
    assert [problem.split(":")[0] for problem in problems] == ["id", "x", "d"]
    assert Fitter(columns, schema, text_casts=True).check(shape.remove(2).append(pa.field("id", TEXT))) == []


def test_plans_are_bounded() -> None:
    """A topic of ever new shapes does not fill the memory of a worker."""
    fitter = Fitter(specs(SCHEMA), SCHEMA)
    for number in range(200):
        fitter.fit(_rows([{"id": 1, f"x{number}": 2}], pa.schema([("id", INT), (f"x{number}", INT)])))
    assert len(fitter._plans) <= 64


def test_fitters_travel_to_executors() -> None:
    """What was planned on the driver works in a worker."""
    schema = pa.schema([("a", pa.binary()), ("b", TEXT)])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([U.bytes], pa.binary(16)).cast(pa.uuid()), pa.array([[1]])], ["a", "b"]
    )
    fitter = Fitter(specs(schema), schema)
    fitter.fit(batch)
    again: Fitter = pickle.loads(pickle.dumps(fitter))  # noqa: S301 - its own bytes
    assert again.fit(batch).rows.to_pylist() == [{"a": U.bytes, "b": "[1]"}]
