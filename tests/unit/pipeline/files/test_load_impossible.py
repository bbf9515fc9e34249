"""Impossible combinations of keys: each one is refused with its key path, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.pipeline.files.files import References
from frazil.pipeline.files.load import ConfigError, load_pipeline
from frazil.records.formats.catalogue import FORMATS
from frazil.run.staging.record_problems import record_problems
from tests.unit.pipeline.files.impossible import (
    AVRO,
    IMPOSSIBLE,
    MASK,
    OBJECT,
    OF_AVRO,
    OF_PROTO,
    PROTO,
    column,
    static,
)

TYPES = (
    *("boolean", "int", "long", "float", "double", "decimal(9,2)", "date", "time", "timestamp", "timestamptz"),
    *("string", "uuid", "fixed[4]", "binary", "struct<a: int>", "list<int>", "map<string, int>"),
)

FORMAT_KEYS = {
    "json": {},
    "json-envelope": {},
    "avro": {"registry": "main"},
    "protobuf": {"registry": "main"},
    "json-schema": {"registry": "main"},
    "delimited": {"fields": ["id", "value"]},
}
"""What a format needs to be told."""

OPTIONS = {
    "registry": ("main", {"avro", "protobuf", "json-schema"}),
    "schema": ("{}", {"avro", "protobuf"}),
    "schema_file": ("order.avsc", {"avro", "protobuf"}),
    "message": ("Order", {"protobuf"}),
    "validate_schema": (False, {"json-schema"}),
    "fields": (["id"], {"delimited"}),
    "delimiter": (";", {"delimited"}),
    "quote": ("'", {"delimited"}),
    "escape": ("\\", {"delimited"}),
    "null_text": ("NULL", {"delimited"}),
    "header": (True, {"delimited"}),
    "duplicate_keys": ("last", {"json"}),
}
"""Option -> a value of it, and the formats that have it."""

LEGAL = {
    "identity": set(TYPES[:14]),
    "day": {"date", "timestamp", "timestamptz"},
    "hour": {"timestamp", "timestamptz"},
    "bucket": set(TYPES[1:14]) - {"float", "double"},
    "truncate": {"int", "long", "decimal(9,2)", "string", "binary"},
}
"""How a table is partitioned -> the types of columns that it may be by, as Iceberg's specification has them."""


def load_problems(tmp_path: Path, **parts: Any) -> list[str]:
    """The problems of a file with one destination and a column `id`, unless the parts replace them. YAML includes JSON."""
    columns = parts.pop("columns", {"id": "long"})
    body = {"name": "p", "source": {"topics": ["t"]}, "destinations": [{"table": "a.b", "columns": columns}]}
    body["destinations"][0] |= parts.pop("table", {})  # type: ignore[index, operator]
    for folder in ("pipelines", "schemas"):
        (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "schemas" / "order.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "schemas" / "order.proto").write_text(PROTO)
    file = tmp_path / "pipelines" / "p.yaml"
    file.write_text(json.dumps(body | parts))
    try:
        return list(record_problems(load_pipeline(file, References({}, {}))))
    except ConfigError as error:
        return error.problems


@pytest.mark.parametrize("half", ["value", "key"])
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", FORMATS)
def test_option_of_another_format_is_refused(tmp_path: Path, half: str, option: str, name: str) -> None:
    """Otherwise the option would have no effect, and its author would not know."""
    option_value, formats = OPTIONS[option]
    if name in formats or (half == "key" and option == "duplicate_keys"):
        return
    problems = load_problems(tmp_path, **{half: {"format": name, **FORMAT_KEYS.get(name, {}), option: option_value}})

    words = "fields of format json have types" if (option, name) == ("fields", "json") else "is for format "
    assert len(problems) == 1
    assert problems[0].startswith(f"{half}.{option}: {words}")


@pytest.mark.parametrize("partition_field", LEGAL)
@pytest.mark.parametrize("type_name", TYPES)
def test_column_that_cannot_partition_a_table_is_refused(tmp_path: Path, partition_field: str, type_name: str) -> None:
    """The catalog would refuse to make the table, after the first records were read."""
    field = {"identity": "c", "bucket": "bucket(4, c)", "truncate": "truncate(4, c)"}.get(
        partition_field, f"{partition_field}(c)"
    )
    problems = load_problems(tmp_path, table={"partition_by": ["id", field]}, **column(type=type_name))

    if type_name in LEGAL[partition_field]:
        assert problems == []
    else:
        assert len(problems) == 1
        assert problems[0].startswith("destinations.0.partition_by.1: ")
        assert f"'c' is {type_name}" in problems[0]


@pytest.mark.parametrize(("parts", "expected"), IMPOSSIBLE, ids=[expected for _, expected in IMPOSSIBLE])
def test_impossible_file_is_refused_by_its_key(tmp_path: Path, parts: dict[str, Any], expected: str) -> None:
    """The file has one error, which begins with the key."""
    assert [line[: len(expected)] for line in load_problems(tmp_path, **parts)] == [expected]


@pytest.mark.parametrize("kind", ["DebeziumTransform", "DmsTransform", "MongoDebezium"])
def test_envelope_of_undeclared_json_before_transforms_is_refused(tmp_path: Path, kind: str) -> None:
    """Before transforms a JSON value has only the fields of the columns, or declared ones, so that an envelope is lost."""
    *lacking, remedy = load_problems(tmp_path, transforms=[{"type": kind}])

    assert lacking
    assert all(line.startswith(f"transforms.0: {kind}: no field ") for line in lacking)
    assert remedy.startswith("value.fields: not declared")


POSSIBLE: list[dict[str, Any]] = [
    {"value": OF_AVRO, **column(type="string", **{"from": ["address", "city"]})},
    {"value": OF_AVRO | {"field_names": "case_insensitive"}, "columns": {"ID": "long"}},
    {"value": OF_AVRO, **column(type="string", default="x")},
    {"value": OF_AVRO, **static("address.city")},
    {"value": OF_AVRO | {"field_names": "case_insensitive"}, **static("ADDRESS.City")},
    {"value": OF_PROTO, "columns": {"note": "string"}},
    {"value": {"format": "avro", "registry": "main"}, **static("anything")},
    {**static("anything")},
    {"value": OBJECT, **static("anything")},  # a JSON value that goes to columns as it is may have other fields, too
    {"value": OBJECT, "transforms": MASK, **static("data.kind")},
    {
        "value": {
            "fields": {"data": "struct<id: long>", "metadata": "struct<`schema-name`: string, `table-name`: string>"}
        },
        "transforms": [{"type": "DmsTransform"}],
    },
    {"value": {"format": "string", "casts": "text"}, "columns": {"value": {"type": "timestamp", "unit": "ms"}}},
    {"table": {"partition_by": ["day(_kafka_timestamp)", "bucket(4, _kafka_topic)"]}},
]


@pytest.mark.parametrize("parts", POSSIBLE)
def test_possible_files_are_accepted(tmp_path: Path, parts: dict[str, Any]) -> None:
    """Only certain problems are reported."""
    assert load_problems(tmp_path, **parts) == []
