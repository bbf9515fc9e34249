"""Any JSON documents, in tasks of any size: the same schema, and no value is lost or changed."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from frazil.batch.schema_change import SchemaChange
from frazil.records.evolution.infer import widest
from frazil.records.evolution.types import NO_TYPE, column_type, read_type, write_type
from frazil.records.model.spec import Evolution, Level, OnIncompatible
from tests.unit.records.evolution.evolving import land, spec, transformed

names = st.sampled_from(["a", "b", "c", "B", "a__string", "é", "x y", "a.b", "", "_rescued", "_kafka_offset"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 1.5, 1.0, 1e300, "", "1", "2026-01-01", "ü"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(names, values, max_size=4)
tasks = st.lists(st.lists(documents, max_size=4), min_size=1, max_size=3)

relaxed = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def tells(value: object) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return any(tells(each) if isinstance(each, dict | list) else each is not None for each in inner)


def holds(cell: Any, value: Any) -> bool:
    """Whether a column holds a value, all of it that tells anything."""
    if not tells(value):
        return True
    if isinstance(cell, str) and not isinstance(value, str):
        return bool(json.loads(cell) == value)
    if isinstance(value, dict):
        return cell is not None and all_held(cell, value)
    if isinstance(value, list):
        return cell is not None and len(cell) == len(value) and all(map(holds, cell, value))
    if isinstance(value, bool | str):
        return type(cell) is type(value) and cell == value
    return cell == (float(value) if isinstance(cell, float) else value) and not isinstance(cell, bool)


def all_held(row: dict[str, Any], value: dict[str, Any], rest: dict[str, Any] | None = None) -> bool:
    return all(
        (rest is not None and name in rest and rest[name] == item)
        or holds(row.get(name), item)
        or any(holds(row[name_of_cell], item) for name_of_cell in row if name_of_cell.startswith(f"{name}__"))
        for name, item in value.items()
    )


@relaxed
@given(
    tasks,
    st.sampled_from(["add", "widen", "full"]),
    st.sampled_from(["rescue", "dead_letter", "variant_column"]),
    st.integers(1, 4),
)
def test_value_is_in_its_row_unchanged(
    documents: list[list[dict[str, Any]]], level: Level, otherwise: OnIncompatible, depth: int
) -> None:
    """Every leaf of a document is in its row, equal: in a column, or among the rescued fields. Or its record is dead."""
    landed = land(documents, spec((), Evolution(level, otherwise, max_depth=depth)))
    for number, task in enumerate(documents):
        for index, document in enumerate(task):
            row = landed.row(number, index)
            if row is not None:
                rest = json.loads(row.get("_rescued") or "{}")
                fields = {name: item for name, item in row.items() if not name.startswith("_")}
                assert all_held(fields, document, rest), (document, row)


@relaxed
@given(
    tasks,
    st.randoms(),
    st.integers(1, 4),
    st.sampled_from([1, 2, 3, 5, 500]),
    st.sampled_from(["exact", "case_insensitive"]),
)
def test_schema_does_not_depend_on_how_a_batch_is_split(
    documents: list[list[dict[str, Any]]], random: Any, depth: int, most: int, field_names: Any
) -> None:
    """Tasks of other sizes, in another order, with records in another order, request the same columns."""
    every = [document for task in documents for document in task]
    evolving_spec = spec((), Evolution(max_depth=depth, max_columns=most), field_names=field_names)
    once = land([every], evolving_spec)
    random.shuffle(every)
    cut = random.randint(0, len(every))
    again = land([every[cut:], every[:cut]], evolving_spec)
    assert again.spec.columns.equals(once.spec.columns), f"{again.spec.columns}\n!=\n{once.spec.columns}"


def test_field_that_becomes_text_leaves_its_columns_to_others() -> None:
    """All records decide which fields get columns, whether those that make a text of one are in the same task or not."""
    documents = [{"x": {"a": 1, "b": 2, "c": 3}, "y": 1}, {"x": "text"}]
    evolving_spec = spec((), Evolution(max_columns=2))
    apart, at_once = land([[documents[0]], [documents[1]]], evolving_spec), land([documents], evolving_spec)
    assert apart.columns == at_once.columns == {"x": pa.string(), "y": pa.int64()}


@relaxed
@given(tasks)
def test_block_and_single_records_request_the_same_columns(documents: list[list[dict[str, Any]]]) -> None:
    """Parsed as blocks or one by one, records request the same and become the same rows."""
    fast, slow = land(documents, spec()), land(documents, spec(), blocks=False)
    assert fast.rounds == slow.rounds
    assert fast.rows == slow.rows
    assert fast.codes == slow.codes


def is_mixed(value: object) -> bool:
    """Whether items of some list, or what stands at one place in them, are not all of one kind."""
    if isinstance(value, dict):
        return any(map(is_mixed, value.values()))
    return isinstance(value, list) and differ(value)


def differ(values: list[Any]) -> bool:
    """Whether values that share a column are not all of one kind, or what is in them."""
    present = [value for value in values if value is not None]
    if len({type(value) for value in present}) > 1:
        return True
    if present and isinstance(present[0], dict):
        names = {name for value in present for name in value}
        return any(differ([value.get(name) for value in present]) for name in names)
    return bool(present) and isinstance(present[0], list) and differ([item for value in present for item in value])


def plain(json_value: Any) -> Any:
    """A value with JSON texts as what they say, without what tells nothing: columns can't tell it from missing fields."""
    if isinstance(json_value, str) and json_value[:1] in "{[" and json_value:
        return plain(json.loads(json_value))
    if isinstance(json_value, dict):
        return {name: item for name, cell in json_value.items() if tells(item := plain(cell))}
    return [plain(item) for item in json_value] if isinstance(json_value, list) else json_value


def by_name(data_type: pa.DataType) -> pa.DataType:
    """A type with its fields sorted by name."""
    if pa.types.is_struct(data_type):
        return pa.struct(sorted(((each.name, by_name(each.type)) for each in data_type), key=lambda each: each[0]))
    return pa.list_(by_name(data_type.value_type)) if pa.types.is_list(data_type) else data_type


@relaxed
@given(
    tasks,
    st.sampled_from(["add", "widen", "full"]),
    st.sampled_from(["rescue", "dead_letter", "variant_column"]),
    st.integers(1, 4),
    st.sampled_from(["ignore", "rescue"]),
)
def test_values_through_transforms_request_the_same_columns(
    documents: list[list[dict[str, Any]]], level: Level, otherwise: OnIncompatible, depth: int, unknown_fields: Any
) -> None:
    """Values that transforms see as columns request the same and become the same rows."""
    # No column before transforms takes items of several kinds, or integers beyond long: such records are dead there.
    assume(not is_mixed(documents) and str(2**63) not in json.dumps(documents))
    evolving_spec = spec((), Evolution(level, otherwise, max_depth=depth), unknown_fields=unknown_fields)
    straight, through = land(documents, evolving_spec), land(documents, transformed(evolving_spec))
    if not straight.codes:  # a record that no column takes may ask for one nevertheless
        assert by_name(pa.struct(list(through.spec.columns))) == by_name(pa.struct(list(straight.spec.columns)))
        assert plain(through.rows) == plain(straight.rows)
        assert not through.codes


@relaxed
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abcdefgh"),
            scalars | st.dictionaries(st.sampled_from("xyz"), st.integers(0, 5), max_size=3),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 5),
)
def test_number_of_columns_is_bounded(documents: list[dict[str, Any]], most: int) -> None:
    """A table never gets more columns than it may have; what is beyond is rescued."""
    landed = land([[each] for each in documents], spec((), Evolution(max_columns=most)))
    leaves = [column_type for name, column_type in landed.columns.items() if name != "_rescued"]
    assert sum(leaf.num_fields or 1 for leaf in leaves) <= most
    for number, document in enumerate(documents):
        row = landed.row(number, 0)
        assert row is None or all_held(row, document, json.loads(row.get("_rescued") or "{}")), (document, row)


types = st.recursive(
    st.sampled_from(
        [
            *(pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.binary(4)),
            *(
                pa.decimal128(9, 2),
                pa.decimal128(38, 0),
                pa.decimal128(20, 10),
                pa.date32(),
                pa.timestamp("us"),
                pa.uuid(),
            ),
            *(
                pa.time64("us"),
                pa.timestamp("us", "UTC"),
                NO_TYPE,
                pa.uint64(),
                pa.timestamp("ns"),
                pa.decimal256(50, 2),
            ),
        ]
    ),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda inner_type: pa.map_(pa.string(), inner_type)),
        st.dictionaries(st.sampled_from(["a", "b c", "`"]), inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
    ),
    max_leaves=5,
).map(column_type)


@given(types, types, types)
def test_widest_type_does_not_depend_on_order(a: pa.DataType, b: pa.DataType, c: pa.DataType) -> None:
    """The widest type is the same in any order, and however often a type is met."""
    assert widest(a, b) == widest(b, a)
    assert widest(widest(a, b), c) == widest(a, widest(b, c))
    assert widest(a, a) == a
    assert widest(widest(a, b), b) == widest(a, b)


@given(types)
def test_type_survives_the_way_to_the_driver(data_type: pa.DataType) -> None:
    """What is spelled is read as the same type."""
    assert data_type == NO_TYPE or read_type(write_type(data_type)) == data_type


@pytest.mark.parametrize("again", [1, 2])
def test_table_with_all_requested_columns_gets_no_request(again: int) -> None:
    """A table that has what its records ask for is asked for nothing more."""
    landed = land([[{"a": 1}, {"a": "x", "b": [{"c": 1}]}]] * again, spec())
    assert landed.rounds == [
        (SchemaChange(("a",), "add", "string"), SchemaChange(("b",), "add", "list<struct<c: long>>"))
    ]
    assert landed.codes == []
