"""The JSON Schemas for editors agree with the models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from frazil.pipeline.files.editor_schema import editor_schema
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[4]
PIPELINE = Draft202012Validator(editor_schema(Pipeline))
SETTINGS = Draft202012Validator(editor_schema(Settings))
SHAPE = {
    "name": "orders",
    "source": {"topics": ["orders"]},
    "destinations": [{"table": "a.b", "columns": {"id": "long"}}],
}
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def problems(schema: Draft202012Validator, document: dict[str, Any]) -> list[str]:
    return [
        f"{error.json_path}: {error.message}"
        for error in schema.iter_errors(json.loads(json.dumps(document, default=str)))
    ]


def files() -> list[Path]:
    return sorted((ROOT / "include" / "pipelines").glob("*.yaml"))


@pytest.mark.parametrize("file", files(), ids=lambda file: file.stem)
def test_editor_accepts_shipped_pipelines(file: Path) -> None:
    """Readers switch off a schema that reports errors in valid files."""
    assert problems(PIPELINE, yaml.safe_load(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("file", ["include/settings.yaml", "docker/settings.yaml"])
def test_editor_accepts_shipped_settings(file: str) -> None:
    """The settings have references in place of values."""
    assert problems(SETTINGS, yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "page", ["formats.md", "registries.md", "keys-and-headers.md", "fields.md", "types.md", "transforms.md"]
)
def test_editor_accepts_examples_of_the_docs(page: str) -> None:
    """Readers copy short forms, and both spellings of options."""
    parts = [yaml.safe_load(block) for block in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))]
    examples = [SHAPE | part for part in parts if "registries" not in part]

    assert examples
    assert [mistakes for each in examples if (mistakes := problems(PIPELINE, each))] == []


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"intervall": "1m"}, "intervall"),
        ({"value": {"format": "json", "delimter": ";"}}, "$.value"),
        ({"limits": {"max_records": "many"}}, "$.limits.max_records"),
        (
            {"destinations": [{"table": "a.b", "columns": {"id": {"type": "long", "required": "sure"}}}]},
            "$.destinations",
        ),
    ],
)
def test_editor_underlines_mistakes(wrong: dict[str, Any], path: str) -> None:
    """The schema may be looser than the models, but an unknown key and a wrong type are seen while they are typed."""
    mistakes = problems(PIPELINE, SHAPE | wrong)

    assert mistakes
    assert path in mistakes[0]


def test_editor_accepts_a_reference_in_place_of_a_number() -> None:
    """`${env:…}` is replaced before the models see the file."""
    assert problems(PIPELINE, SHAPE | {"limits": {"max_records": "${env:MAX_RECORDS}"}}) == []
