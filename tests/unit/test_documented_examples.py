"""What docs/formats.md, docs/logins.md and docs/transforms.md show is what happens."""

from __future__ import annotations

import base64
import json
import re
import struct
import time
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
import yaml

from frazil import kafka_properties
from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline import transforms
from frazil.pipeline.models import value
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.settings import RegistrySettings, Settings
from frazil.records.formats import catalogue as formats
from frazil.records.transforms import catalogue
from frazil.run.staging.record_problems import record_problems
from frazil.run.staging.record_spec import record_spec
from tests.unit.records.kafka_batches import OneTable, OneTableOutcomes, kafka_batch

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHAPE = {"table": "shop.orders", "columns": {"id": "long"}, "kafka_columns": False}


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of each block of a page."""
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def pipeline(**parts: Any) -> Pipeline:
    return Pipeline.model_validate(
        {"name": "orders", "source": {"topics": ["orders"]}, "destinations": [SHAPE], **parts}
    )


def landed(declared: Pipeline, values: list[bytes]) -> OneTableOutcomes:
    columns = declared_columns(declared.destinations[0])
    return OneTable(record_spec(declared, columns), 1).decode(kafka_batch(values))


PAGES = ("formats.md", "registries.md", "keys-and-headers.md", "fields.md", "types.md", "transforms.md")
FILES = [yaml.safe_load(text) for page in PAGES for kind, text in blocks(page) if kind == "yaml"]


@pytest.mark.parametrize("parts", FILES, ids=", ".join)
def test_documented_example_is_valid(parts: dict[str, Any]) -> None:
    """What is copied from the docs must be a pipeline file, or a part of the settings."""
    if registries := parts.pop("registries", None):
        assert all(RegistrySettings.model_validate(registry) for registry in registries.values())
    assert pipeline(**parts).name == "orders"


@pytest.mark.parametrize("parts", [parts for parts in FILES if "transforms" in parts])
def test_documented_example_has_matching_columns(parts: dict[str, Any]) -> None:
    """Its transforms fit its fields, and its columns what comes out."""
    assert record_problems(pipeline(**parts)) == ()


def shown_outcomes() -> list[tuple[str, str, str]]:
    documented = blocks("transforms.md")
    runs = [documented[number : number + 3] for number in range(len(documented))]
    return [(run[0][1], run[1][1], run[2][1]) for run in runs if [kind for kind, _ in run] == ["yaml", "json", "json"]]


@pytest.mark.parametrize(("file", "record", "rows"), shown_outcomes())
def test_documented_example_gives_its_rows(file: str, record: str, rows: str) -> None:
    """Values, pipeline file and rows of the page belong together."""
    outcomes = landed(pipeline(**yaml.safe_load(file)), record.encode().splitlines())

    assert json.loads(json.dumps(outcomes.rows.to_pylist(), default=str)) == [
        json.loads(line) for line in rows.splitlines()
    ]
    assert outcomes.dead.num_rows == 0


def install(page: str, path: Path, monkeypatch: pytest.MonkeyPatch, *where: Any) -> None:
    """Put the page's class into a module, and its entry point where modules look for them."""
    written = {kind: text for kind, text in blocks(page) if kind in ("python", "toml")}
    match = re.fullmatch(r'\[project\.entry-points\."(\S+)"\]\n"(\S+)" = "((\w+):\w+)"\n', written["toml"])
    assert match is not None
    (path / f"{match[4]}.py").write_text(written["python"], encoding="utf-8")
    monkeypatch.syspath_prepend(path)
    own = EntryPoints([EntryPoint(match[2], match[3], match[1])])
    for module in where:
        monkeypatch.setattr(module, "entry_points", lambda group: own.select(group=group))


def test_custom_format_of_the_docs_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the first thing that its reader copies."""
    install("formats.md", tmp_path, monkeypatch, value, formats)
    columns = {"sensor": "int", "celsius": "double"}
    declared = pipeline(value={"format": "acme.Reading"}, destinations=[SHAPE | {"columns": columns}])

    outcomes = landed(declared, [struct.pack(">id", 7, 21.5), b"?", struct.pack(">id", 8, -3.0)])

    assert outcomes.rows.to_pylist() == [{"sensor": 7, "celsius": 21.5}, {"sensor": 8, "celsius": -3.0}]
    assert outcomes.dead.column("message").to_pylist() == ["expected 12 bytes, found 1"]


def test_token_provider_of_the_docs_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads a token as Kubernetes writes them, and when it expires."""
    install("logins.md", tmp_path, monkeypatch, kafka_properties)
    expiry = int(time.time()) + 600
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expiry}).encode()).decode().rstrip("=")
    (tmp_path / "token").write_text(f"e30.{claims}.c2ln\n")
    properties = {"oauth_cb": "acme-pod", "sasl.oauthbearer.config": str(tmp_path / "token")}

    assert kafka_properties.fetch_token("prod", properties) == (f"e30.{claims}.c2ln", expiry, "", {})


def test_custom_transform_of_the_docs_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options get there, and its fields land."""
    install("transforms.md", tmp_path, monkeypatch, transforms, catalogue)
    steps = [{"type": "acme.Trim", "options": {"field": field}} for field in ("name", "missing")]
    declared = pipeline(transforms=steps, destinations=[SHAPE | {"columns": {"name": "string"}}])

    assert landed(declared, [b'{"name": " a "}', b"{}"]).rows.to_pylist() == [{"name": "a"}, {"name": None}]


def test_transform_of_a_missing_key_is_refused() -> None:
    """Keys are not decoded: it would fail in every run."""
    steps = [{"type": "HoistField", "field": "a"}, {"type": "Cast$Key", "spec": {"id": "string"}}]

    with pytest.raises(ValueError, match="number 2, Cast: keys are not decoded"):
        pipeline(transforms=steps)
    assert len(pipeline(transforms=[{"type": "ValueToKey", "fields": ["id"]}, *steps]).transforms) == 3


@pytest.mark.parametrize(
    "entries", [yaml.safe_load(text) for kind, text in blocks("kafka-services.md") if kind == "yaml"]
)
def test_documented_services_are_valid_settings(entries: dict[str, Any]) -> None:
    """Who copies an entry must not be told that it has a key too many."""
    lake = {"catalogs": {"lake": {"uri": "sqlite:///u", "warehouse": "w"}}}

    settings = Settings.model_validate(entries | lake)

    assert settings.clusters
