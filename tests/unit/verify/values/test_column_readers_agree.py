"""Every option in the independent decoder, compared with the decoder that writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.iceberg.schema.schema import declared_schema
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.records.model.rows import KAFKA_SCHEMA
from frazil.run.staging.record_spec import record_spec
from frazil.verify.values.canonical import column_values
from frazil.verify.values.column_readers import Bad, Expectation
from tests.unit.records.kafka_batches import OneTable

BAD = "bad"
FILTERED = "left out"

FITTING = {
    "boolean": ["true", "false"],
    "int": ["1", "2.0", "2147483648"],
    "long": ["-0", "1e2", "1.5"],
    "double": ["0.1", "-0.0", "1e400"],
    "float": ["0.1", "1e39", "5e-324"],
    "decimal(6,2)": ["1.50", "-0", "9999.99", "10000"],
    "string": ['"a"', '"é"', "1.50", '{"a": [1.0, {}]}', "true", r'"\ud800"'],
    "date": ['"2024-02-29"', "1"],
    "uuid": ['"00112233-4455-6677-8899-aabbccddeeff"'],
    "binary": ['"AAE="', '"AAE"'],
    "time": ['"12:30"', "86399", "0.5", "-1", '"86399"', '"1e400"'],
    "timestamp": ['"2024-02-29 01:02:03"', '"2024-02-29T01:02-03:30"', "1704067200", "1704067200.5", '"1704067200"'],
    "timestamptz": ['"2024-02-29T01:02Z"', '"2024-02-29 01:02"', "1704067200", "1e9"],
    "list<timestamp>": ["[]", '["2024-02-29 01:02", null]', "[1704067200]"],
    "struct<a: timestamptz, B: time>": ['{"B": "12:30"}', '{"b": 5, "a": null}', '{"A": 1, "a": "2024-02-29T01:02Z"}'],
    "struct<a: string, b: struct<A: int, c: date>>": ['{"a": "x", "A": "y"}', '{"b": {"a": 1, "A": 2}}', '{"a": 1.0}'],
    "list<struct<a: string, b: int>>": ['[{"a": "x"}, null]', '[{"A": true, "b": 1}]', "[]"],
    "map<time, long>": ['{"12:30": 1}', '{"5": 1}', '[[7, 1], {"key": "00:00"}]'],
    "map<long, int>": ['{"1": 1, "1e1": null}', "[[1, 2], [2, 3]]", '{"1": 1, "1.0": 2}'],
    "map<decimal(4,1), string>": ['{"1.50": "a"}', '[[1.5, "a"], [0, "b"]]', '{"-0": "a", "0": "b"}'],
    "map<boolean, string>": ['{"true": "a", "false": null}', '[[true, "a"]]', '{"TRUE": "a"}'],
    "map<date, int>": ['{"2024-02-29": 1, "2024-01-01": 2}', '[["2024-02-29", 1]]'],
    "map<string, string>": ['{"a": "b", "A": null}', '{"b": 1.0, "a": true}'],
    "map<uuid, timestamp>": ['{"00112233-4455-6677-8899-aabbccddeeff": "2024-02-29 01:02"}', "{}"],
    "map<timestamp, string>": ['{"2024-02-29 01:02": "a"}', '{"1704067200": "a"}', '{"2024-02-29T01:02Z": "b"}'],
    "map<struct<a: int, b: string>, boolean>": ['[[{"a": 1}, true], [{"b": "x"}, null]]', '[[{"A": 1}, true]]'],
    "map<binary, long>": ['{"AAE=": 1, "": 2}', '[["AAE=", 1]]'],
    "map<int, list<string>>": ['{"1": ["a", null]}', '[{"key": 1, "value": [2.50]}]'],
}
COLUMNS = ("a", "b", "c", "x", "É", "_rescued")
DEFAULTS: dict[str, list[Any]] = {
    "boolean": [True],
    "int": [1, 1.0],
    "long": [-5],
    "double": [1.5],
    "decimal(6,2)": [1.25],
    "string": ["é", {"a": 1.5}],
    "date": ["2024-02-29"],
    "timestamp": ["2024-02-29 12:30"],
    "timestamptz": ["2024-02-29T12:30:00Z"],
    "map<long, int>": [{"1": 2}, [[3, 4]]],
    "map<string, string>": [{"a": None}],
    "list<struct<a: string, b: int>>": [[{"a": "b"}, None]],
}
NAMES = st.sampled_from([*COLUMNS, "A", "B", "X", "é", "e", "key", "value", "1"])
PATHS = st.one_of(st.none(), st.none(), NAMES, st.lists(NAMES, max_size=3))


@st.composite
def columns(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """A column with options that fit its type."""
    type_name = draw(st.sampled_from([*FITTING, "string", "string"]))
    column: dict[str, Any] = {"type": type_name, "required": draw(st.booleans()) and draw(st.booleans())}
    path = draw(PATHS)
    if name != "_rescued" and path is not None and (path or type_name == "string"):
        column["from"] = path
    if type_name in DEFAULTS and path != [] and draw(st.booleans()):
        column["default"] = draw(st.sampled_from(DEFAULTS[type_name]))
    if "time" in type_name and draw(st.booleans()):
        column["unit"] = draw(st.sampled_from(["s", "ms", "us", "ns"]))
    if "timestamp" in type_name.replace("timestamptz", "") and draw(st.booleans()):
        column["local_time"] = "dead_letter"
    return column


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """A pipeline file with any options."""
    unknown_fields = draw(st.sampled_from(["ignore", "ignore", "rescue", "fail"]))
    names = draw(st.lists(st.sampled_from(COLUMNS[:-1]), min_size=1, max_size=5, unique=True))
    declared = {name: draw(columns(name)) for name in names}
    folded = draw(st.booleans())
    if folded:  # two columns must not want one field in two cases
        for column in declared.values():
            column.pop("from", None)
    if unknown_fields == "rescue":
        declared["_rescued"] = {"type": "string"}
    value = {
        "null_value": draw(st.sampled_from(["filter", "dead_letter"])),
        "empty_value": draw(st.sampled_from(["filter", "dead_letter"])),
        "unknown_fields": unknown_fields,
        "duplicate_keys": draw(st.sampled_from(["last", "last", "dead_letter"])),
        "field_names": "case_insensitive" if folded else "exact",
        "casts": draw(st.sampled_from(["none", "text"])),
        "sub_micros": draw(st.sampled_from(["refuse", "truncate"])),
    }
    destination = {"table": "a.b", "columns": declared, "kafka_columns": False}
    return Pipeline.model_validate(
        {"name": "p", "source": {"topics": ["t"]}, "value": value, "destinations": [destination]}
    )


SCALARS = st.one_of(
    st.sampled_from(["null", "true", "false", "0", "-0", "1", "2", "1.0", "1.50", "1e2", "0e-9", "86399999", "1e400"]),
    st.sampled_from(["1704067200", "1704067200.123456", "1704067200123456000", "253402300800", "-62135596800"]),
    st.sampled_from([r'"\ud800"', r'"\uDFFF"', r'"\ud83d\ude00"', '"a"', '"1"', '"true"', '"AAE="', '"é"', '""']),
    st.sampled_from(['"2024-02-29 01:02:03"', '"2024-02-29T01:02Z"', '"2024-02-29T01:02-03:30"', '"2024-02-29"']),
    st.sampled_from(['"12:30:00.1234567"', '"2024-02-29T01:02:03.123456789Z"', "1704067200123456789", "-1e-9"]),
    st.sampled_from(['"12:30"', '"00112233-4455-6677-8899-aabbccddeeff"', "2147483648", "12.345", "NaN", "01"]),
)
KEYS = st.one_of(
    NAMES.map(json.dumps),
    NAMES.map(json.dumps),
    st.sampled_from(['"1"', '"1.0"', '"10"', '"1e1"', '"true"', '"false"', '"null"', '"2024-02-29"', '"AAE="', '"-0"']),
    st.sampled_from([r'"\u0061"', r'"\ud800"', '"00112233-4455-6677-8899-aabbccddeeff"', '"2024-02-29T01:02"', '"01"']),
)


def _object(items: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in items) + "}"


TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(KEYS, inner), max_size=3).map(_object)
        | st.lists(st.tuples(inner, inner).map(lambda pair: f"[{pair[0]}, {pair[1]}]"), max_size=2).map(
            lambda items: f"[{', '.join(items)}]"
        )
        | st.lists(st.tuples(inner, inner).map(lambda p: f'{{"key": {p[0]}, "value": {p[1]}}}'), max_size=2).map(
            lambda items: f"[{', '.join(items)}]"
        )
    ),
    max_leaves=6,
)
RECORDS = st.lists(st.tuples(KEYS, TREES), max_size=4).map(
    lambda items: _object(items).encode("utf-8", "surrogatepass")
)
SPECIAL = st.sampled_from([None, b"", b" ", b"[]", b"{}", b"null", b"\xff", b"\xef\xbb\xbf{}"])


def fitting(type_name: str) -> st.SearchStrategy[str]:
    """Values that a column of this type often takes."""
    return st.sampled_from([*FITTING[type_name], FITTING[type_name][0], "null"])


def inside(name: str) -> Callable[[str], str]:
    """Objects with a value in them."""
    return lambda value: _object([(json.dumps(name), value)])


def values_of(pipeline: Pipeline) -> st.SearchStrategy[list[bytes | None]]:
    """Values, many of which fit the columns."""
    names = []
    for name, column in pipeline.destinations[0].columns.items():
        path = (name,) if column.source is None else column.source
        if path:
            value = fitting(column.type)
            for step in reversed(path[1:]):
                value = value.map(inside(step))
            spelled = st.sampled_from([path[0], path[0], path[0], path[0].upper()])
            names.append(st.tuples(spelled.map(json.dumps), value))
    extras = st.tuples(KEYS, TREES)
    members = st.lists(st.one_of(*names, extras) if names else extras, max_size=5)
    declared_members = st.tuples(*names).map(list) if names else st.just([])
    fit = st.tuples(declared_members, st.lists(extras, max_size=1)).map(lambda parts: [*parts[0], *parts[1]])
    records = st.one_of(fit, fit, members).map(lambda items: _object(items).encode("utf-8", "surrogatepass"))
    return st.lists(st.one_of(records, records, RECORDS, SPECIAL), min_size=1, max_size=12)


def written(pipeline: Pipeline, values: list[bytes | None], *, blocks: bool) -> list[Any]:
    """The rows that the write path makes of values, in canonical form, or BAD or FILTERED."""
    destination = pipeline.destinations[0]
    size = len(values)
    origin = {"topic": ["t"] * size, "partition": [0] * size, "offset": range(size), "value": values}
    batch = pa.RecordBatch.from_arrays(
        [pa.array(origin.get(field.name, [None] * size), field.type) for field in KAFKA_SCHEMA], schema=KAFKA_SCHEMA
    )
    decoded = OneTable(record_spec(pipeline, arrow_schema(destination)), 1, blocks=blocks).decode(batch)
    bad = set(decoded.dead["offset"].to_pylist())
    stored = [
        column_values(decoded.rows.column(name), column_type.parsed)
        for name, column_type in destination.columns.items()
    ]
    rows = iter(zip(*stored, strict=True))
    left_out = [value is None or value == b"" for value in values]
    results = [BAD if number in bad else FILTERED if left_out[number] else next(rows) for number in range(size)]
    assert next(rows, None) is None
    return results


def arrow_schema(destination: Destination) -> pa.Schema:
    return schema_to_pyarrow(declared_schema(destination), include_field_ids=False)


def expected(pipeline: Pipeline, values: list[bytes | None]) -> list[Any]:
    """The rows that the independent decoder expects."""
    expectation = Expectation(pipeline.destinations[0].columns, pipeline.value)
    filters = {None: pipeline.value.null_value == "filter", b"": pipeline.value.empty_value == "filter"}
    cells: list[Any] = []
    for value in values:
        row = Bad("no value") if value is None else expectation.row(value)
        cells.append(FILTERED if filters.get(value) else BAD if isinstance(row, Bad) else row)
    return cells


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), st.booleans())
def test_options_are_expected_as_they_are_written(data: st.DataObject, blocks: bool) -> None:
    """Two independent decoders agree on the outcome of any value under any file."""
    pipeline = data.draw(pipelines())
    values = data.draw(values_of(pipeline))

    assert list(map(repr, expected(pipeline, values))) == list(map(repr, written(pipeline, values, blocks=blocks)))
