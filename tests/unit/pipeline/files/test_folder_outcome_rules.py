"""The stored rules of a pipeline: they are read back by their hash, and have no secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.pipeline.files.files import References
from frazil.pipeline.files.folder import UnfitRulesError, is_rules_file, pipeline_of, rules_file, rules_text
from frazil.pipeline.files.load import load_pipeline
from frazil.pipeline.models.pipeline_file import Pipeline

NAMES = ("TOKEN", "QUOTED", "DOLLAR")
PLAIN = References({}, {})
SECRET = References(
    {"TOKEN": "s3cr3t", "QUOTED": 'a"b', "DOLLAR": "ab${cd"}, {}, frozenset(f"env:{name}" for name in NAMES)
)


def pipeline(**options: Any) -> dict[str, Any]:
    """A pipeline file as text."""
    destination = {"table": "a.b", "columns": {"x": {"type": "string", "from": ["y", "z"]}}, "partition_by": ["x"]}
    definition = {"name": "p", "source": {"topics": ["t"]}, "destinations": [destination], "interval": "7m"}
    return definition | options


def loaded(tmp_path: Path, file: dict[str, Any], references: References = PLAIN) -> Pipeline:
    """The pipeline of a file; YAML takes JSON."""
    path = tmp_path / "pipelines" / "p.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(file))
    return load_pipeline(path, references)


def inserting(text: str) -> dict[str, Any]:
    return pipeline(transforms=[{"type": "InsertField", "static.field": "x", "static.value": text}])


MERGED = {
    "table": "a.b",
    "write": "upsert",
    "identifier": ["id"],
    "append_history": "a.log",
    "columns": {"id": {"type": "long", "required": True}},
}


@pytest.mark.parametrize(
    "file",
    [
        pipeline(value={"unknown_fields": "fail", "fields": {"x": "string"}}),
        pipeline(value={"fields": {"b": "string", "a": "string"}}),
        pipeline(key={"format": "long"}, limits={"max_record_bytes": 5_000}),
        pipeline(destinations=[MERGED]),
        pipeline(value={"format": "avro", "schema": '{"type": "string"}'}),
        inserting("$${env:TOKEN} is text"),
        inserting("$$${env:TOKEN}"),
        inserting("costs 5 $ or $${"),
        pipeline(value={"format": "avro", "schema_file": "order.avsc"}),
        pipeline(value={"format": "protobuf", "schema_file": "order.proto", "message": "Order"}),
        pipeline(key={"format": "avro", "schema_file": "order.avsc"}),
    ],
)
def test_rules_are_read_back_by_their_hash(tmp_path: Path, file: dict[str, Any]) -> None:
    """The stored rules count, not those of the present file and its schema files."""
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "order.avsc").write_text('"string"')
    (schemas / "order.proto").write_text('syntax = "proto3"; import "id.proto"; message Order { Id id = 1; }')
    (schemas / "id.proto").write_text('syntax = "proto3"; message Id { string id = 1; }')
    former = loaded(tmp_path, file)
    text = rules_text(former)
    for path in schemas.iterdir():
        path.write_text("another one")
    rebuilt = pipeline_of(text, loaded(tmp_path, pipeline(interval="1h")), former.outcome_fingerprint, PLAIN)

    assert rebuilt.outcome_fingerprint == former.outcome_fingerprint
    assert (rebuilt.value, rebuilt.key) == (former.value, former.key)
    assert (rebuilt.transforms, rebuilt.destinations) == (former.transforms, former.destinations)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("timestamptz", "2024-01-01T10:00:00Z"),
        ("timestamp", "2024-01-01 10:00:00"),
        ("map<string, timestamp>", "{a: 2024-01-01T10:00:00}"),
        ("map<date, int>", "{2024-01-01: 1}"),
        ("map<int, int>", "{1: 1}"),
    ],
)
def test_dates_of_yaml_are_read_back(tmp_path: Path, kind: str, default: str) -> None:
    """Times and dates that YAML parsed, even as keys, are stored as they are hashed."""
    file = pipeline(destinations=[{"table": "a.b", "columns": {"x": {"type": kind, "default": "DEFAULT"}}}])
    path = tmp_path / "p.yaml"
    path.write_text(json.dumps(file).replace('"DEFAULT"', default))
    former = load_pipeline(path, PLAIN)
    rebuilt = pipeline_of(rules_text(former), former, former.outcome_fingerprint, PLAIN)

    assert rebuilt.outcome_fingerprint == former.outcome_fingerprint


@pytest.mark.parametrize("value", ["${env:TOKEN}", "x ${env:QUOTED} ${env:TOKEN} y", "${env:DOLLAR}$${env:TOKEN}"])
def test_value_of_a_reference_is_not_stored(tmp_path: Path, value: str) -> None:
    """Only the reference is stored, and resolved again when the rules are read."""
    former = loaded(tmp_path, inserting(value), SECRET)
    text = rules_text(former)

    assert [secret for secret in ("s3cr3t", 'a"b', r"a\"b", "ab$", "{cd") if secret in text] == []
    assert value in text
    assert pipeline_of(text, former, former.outcome_fingerprint, SECRET).transforms == former.transforms


def test_types_are_stored_as_written(tmp_path: Path) -> None:
    """A type is stored as it is written, not as it is parsed."""
    references = References({"TYPE": "DECIMAL( 9 ,2 )"}, {}, frozenset({"env:TYPE"}))
    former = loaded(tmp_path, pipeline(value={"fields": {"a": "${env:TYPE}"}}), references)
    text = rules_text(former)

    assert former.value.fields == {"a": "decimal(9,2)"}
    assert "decimal" not in text.lower()
    assert pipeline_of(text, former, former.outcome_fingerprint, references).value == former.value


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (References({"TOKEN": "another"}, {}, SECRET.allow), "another hash"),
        (References({}, {}, SECRET.allow), "can't be read"),
        (PLAIN, "can't be read"),
    ],
)
def test_other_values_of_references_are_refused(tmp_path: Path, later: References, why: str) -> None:
    """With other values the rules are not those that the batch ran under."""
    former = loaded(tmp_path, inserting("${env:TOKEN}"), SECRET)

    with pytest.raises(UnfitRulesError, match=why):
        pipeline_of(rules_text(former), former, former.outcome_fingerprint, later)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", None),
        ("{", "["),
        ('"web"', '"x"'),
        ('"texts": {}', '"texts": {"name": {}}'),
        ('"texts": {}', '"texts": {"value": {"schema_": "x"}}'),
        ('"parts": {', '"parts": {"value": {"format": "avro"}, '),
    ],
)
def test_damaged_text_is_refused(tmp_path: Path, old: str, new: str | None) -> None:
    """Every kind of damage is refused, without a traceback that shows content."""
    former = loaded(tmp_path, inserting("web"))
    text = rules_text(former)
    assert old in text

    with pytest.raises(UnfitRulesError):
        pipeline_of("" if new is None else text.replace(old, new), former, former.outcome_fingerprint, PLAIN)


def test_maintenance_recognises_rule_files_by_name() -> None:
    """This holds for every pipeline name; manifests and other files are not recognised."""
    assert is_rules_file(f"s3://lake/shop/ledger/metadata/{rules_file('orders_2', '0123456789ab')}")
    assert not is_rules_file("s3://lake/metadata/frazil-orders-7-0b7f1e0a-3f52-4a53-9d5e-0d7a3c1b2f44.json")
