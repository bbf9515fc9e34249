"""Names that files of a table would have twice: records can't bring both, whatever engine writes the table."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids, make_compatible_name, sanitize_column_names
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from frazil.records.evolution.types import can_name_column
from tests.unit.records.evolution.evolving import Landed, land, spec, transformed

pytestmark = pytest.mark.unit

PAIRS = [
    ("a-b", "a_x2Db"),
    ("1a", "_1a"),
    ("a b", "a_x20b"),
    ("日-", "日_x2D"),
    ("a 26", "a…"),
    ("a-2", "a˒"),
    ("²", "_²"),
]
"""Names that are one in files."""


def schema_of(columns: pa.Schema) -> Schema:
    """A schema of Iceberg."""
    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(columns))


def write_out(columns: pa.Schema) -> None:
    """Make the schemas of a table's Parquet and Avro files, as far as no name is there twice."""
    schema = schema_of(columns)
    assert sanitize_column_names(schema).find_field(1).field_id
    assert AvroSchemaConversion().iceberg_to_avro(schema, "row")
    for fields in structs(schema):
        written = [in_java(name) for name in fields]
        assert len({*written}) == len(written)


def structs(schema: Schema) -> Iterator[list[str]]:
    """Names of fields beside each other."""
    names = [tuple(name.split(".")) for name in schema.column_names]
    for _, group in itertools.groupby(sorted(names, key=lambda name: name[:-1]), key=lambda name: name[:-1]):
        yield [name[-1] for name in group]


def in_java(name: str) -> str:
    """A name in files that Spark writes: what Java takes for a letter is less, and what lies beyond 16 bits is two characters."""
    units = memoryview(name.encode("utf-16")[2:]).cast("H")
    return "".join(_java_char(chr(unit), first=not index) for index, unit in enumerate(units))


def _java_char(char: str, *, first: bool) -> str:
    category = unicodedata.category(char)
    if char == "_" or category.startswith("L") or (category == "Nd" and not first):
        return char
    return f"_{char}" if category == "Nd" else f"_x{ord(char):X}"


def kept_columns(landed: Landed) -> dict[str, Any]:
    """Fields that lie in the column for rescued fields."""
    return {name: value for row in landed.rows for name, value in json.loads(row.get("_rescued") or "{}").items()}


def test_known_pairs_share_one_name_in_data_files() -> None:
    for one, second_name in PAIRS[:2]:
        twice = pa.schema([pa.field(one, pa.int64()), pa.field(second_name, pa.int64())])
        with pytest.raises(ValueError, match="multiple fields for name"):
            write_out(twice)
    for one, second_name in PAIRS:
        assert make_compatible_name(one) == make_compatible_name(second_name) or in_java(one) == in_java(second_name)


@pytest.mark.parametrize(("one", "second_name"), PAIRS)
@pytest.mark.parametrize("whole", [True, False])
def test_one_of_two_equal_names_in_data_files_gets_a_column(one: str, second_name: str, *, whole: bool) -> None:
    for evolving_spec in (spec(), transformed(spec([pa.field("id", pa.int64())]))):
        for pair in (
            [{"id": 1, one: 1, second_name: 2}],
            [{"id": 1, one: 1}, {"id": 2, second_name: 2}],
            [{"id": 1, second_name: 2}, {"id": 2, one: 1}],
        ):
            landed = land([pair] if whole else [[value] for value in pair], evolving_spec)
            assert landed.columns[one] == pa.int64()
            assert second_name not in landed.columns
            assert kept_columns(landed) == {second_name: 2}
            write_out(landed.spec.columns)


@pytest.mark.parametrize(("one", "second_name"), PAIRS)
def test_equal_names_in_structs_and_lists_get_one_column(one: str, second_name: str) -> None:
    value = {"u": {one: 1, second_name: 2}, "l": [{one: 1, second_name: 2}]}
    for evolving_spec in (spec(), transformed(spec([pa.field("id", pa.int64())]))):
        landed = land([[{"u": {one: 1}}, value]], evolving_spec)
        assert landed.columns["u"].names == [one]
        assert landed.columns["l"].value_type.names == [one]
        assert kept_columns(landed) == value
        write_out(landed.spec.columns)


@pytest.mark.parametrize(("one", "second_name"), PAIRS)
def test_existing_column_keeps_its_name_in_data_files(one: str, second_name: str) -> None:
    for declared in (pa.field(second_name, pa.int64()), pa.field("u", pa.struct([pa.field(second_name, pa.int64())]))):
        for evolving_spec in (spec([declared]), transformed(spec([declared]))):
            value = {one: 1, second_name: 2} if declared.name == second_name else {"u": {one: 1, second_name: 2}}
            landed = land([[value]], evolving_spec)
            assert landed.columns.keys() == {declared.name, "_rescued"}
            assert landed.columns[declared.name] == declared.type
            assert kept_columns(landed) == ({one: 1} if declared.name == second_name else value)
            write_out(landed.spec.columns)


def test_names_of_all_kinds_get_columns() -> None:
    names = [
        "a-b",
        "1a",
        "24h",
        "a b",
        "é",
        "日本",
        "नाम",
        "e\u0301",
        "q-1",
        "year 2019",
        "_x",
        "max_x1",
        "a_xe9",
        "__op",
        "_",
        "%",
        "$ref",
        "@type",
        "naïve 😀 名",
        "a<b>: (c, d)",
        "🎉1",
        "👍🏽",
    ]
    landed = land([[dict.fromkeys(names, 1)]], spec())
    assert landed.columns.keys() == {*names}
    write_out(landed.spec.columns)


def test_columns_never_share_a_name_in_data_files() -> None:
    letters = "_x2D-0 ²˒😀\u0d83"
    names = ["".join(name) for length in range(1, 5) for name in itertools.product(letters, repeat=length)]
    for written in (make_compatible_name, in_java):
        met: dict[str, str] = {}
        for name in filter(lambda name: can_name_column(name, 255), names):
            assert met.setdefault(written(name), name) == name
