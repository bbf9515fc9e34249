"""The `key:` of a pipeline file: what can't work is refused by its key path, before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.pipeline.files.files import References
from frazil.pipeline.files.load import ConfigError, load_pipeline
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.settings import Settings, unknown_names
from frazil.run.staging.record_problems import record_problems

PARTS: dict[str, Any] = {"name": "orders", "source": {"topics": ["orders"]}}
LONG = {"format": "long"}
OF_KEY = {"id": "long", "customer": {"type": "long", "from": "value", "part": "key"}}


def load(tmp_path: Path, columns: dict[str, Any] | None = None, **more: Any) -> Pipeline:
    """Load a file of these parts; YAML takes JSON."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    path = folder / "orders.yaml"
    destinations = [{"table": "shop.orders", "columns": columns or OF_KEY}]
    path.write_text(json.dumps(PARTS | {"destinations": destinations} | more))
    return load_pipeline(path, References({}, {}))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, "destinations.0.columns.customer.part: keys are not decoded"),
        (
            {"columns": {"a": {"type": "long", "part": "key"}}, "key": LONG},
            "destinations.0.columns: all are of the key",
        ),
        ({"key": {"format": "json"}}, "key.fields: a key of format json needs its fields"),
        ({"key": {"format": "json", "fields": {}}}, "key.fields: a key of format json needs its fields"),
        ({"key": {"format": "avro"}}, "key: format avro needs one of registry, schema or schema_file"),
        ({"key": {"format": "long", "fields": ["a"]}}, "key.fields: is for format json or delimited"),
        ({"key": {"format": "lnog"}}, "key.format: 'lnog' is not a format, did you mean 'long'?"),
        ({"key": {"format": "long", "null_value": "filter"}}, "key.null_value: unknown key"),
        ({"key": {"format": "avro", "schema_file": "none.avsc"}}, "key.schema_file: "),
        ({"columns": {"id": {"type": "long", "part": "kee"}}}, "destinations.0.columns.id.part: "),
        ({"columns": {"id": {"type": "long", "of": "key"}}}, "destinations.0.columns.id.of: is called part now"),
        (
            {"columns": {"id": "long"}, "transforms": [{"type": "Cast$Key", "spec": "int64"}]},
            "transforms: number 1, Cast: keys are not decoded",
        ),
    ],
)
def test_impossible_key_is_refused(tmp_path: Path, parts: dict[str, Any], expected: str) -> None:
    """Each complaint begins with the path of what is wrong."""
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, **parts)

    assert [problem[: len(expected)] for problem in refused.value.problems] == [expected]


@pytest.mark.parametrize(
    "parts",
    [
        {"key": LONG},
        {"key": {"fields": {"value": "long"}}},
        {"key": LONG, "transforms": [{"type": "Cast$Key", "spec": "int64"}]},
        {"transforms": [{"type": "ValueToKey", "fields": "id"}]},
    ],
)
def test_possible_key_is_accepted(tmp_path: Path, parts: dict[str, Any]) -> None:
    """A key of any format, and one that a transform makes."""
    columns = OF_KEY if "key" in parts else {"id": "long", "customer": {"type": "long", "from": "id", "part": "key"}}
    assert record_problems(load(tmp_path, columns, **parts)) == ()


@pytest.mark.parametrize(
    ("key", "column", "expected"),
    [
        ({"format": "string"}, {"type": "long"}, "destinations.0.columns.customer: expected long, found string"),
        (
            LONG,
            {"type": "long", "from": "no", "required": True},
            "destinations.0.columns.customer: no key has the field 'no'",
        ),
        ({"format": "avro", "schema": "{"}, {"type": "long"}, "key: Avro schema: "),
    ],
)
def test_column_that_no_key_can_fill_is_refused(tmp_path: Path, key: Any, column: Any, expected: str) -> None:
    """Where all keys have one shape, validation knows it."""
    columns = {"id": "long", "customer": {"from": "value", "part": "key", **column}}
    problems = record_problems(load(tmp_path, columns, key=key))

    assert [problem[: len(expected)] for problem in problems] == [expected]


def test_unknown_registry_of_the_key_is_refused(tmp_path: Path) -> None:
    """Keys may be in another registry than values; both must be in the settings."""
    settings = Settings.model_validate(
        {
            "clusters": {"local": {"bootstrap_servers": "x:1"}},
            "catalogs": {"lake": {"uri": "sqlite:///x", "warehouse": "file:///x"}},
            "registries": {"main": {"url": "http://x"}},
        }
    )
    loaded = load(tmp_path, key={"format": "avro", "registry": "man"})

    assert list(unknown_names(loaded, settings)) == [
        "key.registry: the settings have no 'man' under registries, did you mean 'main'?"
    ]


def test_schema_file_of_the_key_changes_the_fingerprint(tmp_path: Path) -> None:
    """Its text is part of what decides outcomes, as that of the value."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "key.avsc").write_text('"long"')
    loaded = load(tmp_path, key={"format": "avro", "schema_file": "key.avsc"})

    assert loaded.key is not None
    assert loaded.key.schema_ == '"long"'
    assert record_problems(loaded) == ()
