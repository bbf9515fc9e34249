"""JSON Schema of the YAML files, by which editors complete keys and show their meaning. It accepts all that the models accept."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from frazil.pipeline.transforms import KINDS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect that pydantic writes."""

_REFERENCE = {"type": "string", "pattern": r"\$\{(env|file|airflow|local):"}
"""Form of a reference such as `${env:NAME}`, which may replace any value; it is resolved before the models see the file."""

_LOOSER_KEYWORDS = {"oneOf": "anyOf"}
"""Keyword -> the looser one written instead: a transform without options also fits the schema of other packages' transforms, and
`oneOf` refuses what fits twice.
"""


def editor_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model, extended by the forms that only files may use."""
    schema = model.model_json_schema()
    for name, kind in KINDS.items():
        if name in schema["$defs"]:
            _add_spellings(schema["$defs"][name], kind)
    return {"$schema": DRAFT, **_loosened(schema)}


def _add_spellings(schema: dict[str, Any], kind: type[BaseModel]) -> None:
    """Allow both names of a transform's options, `target.type` and `target_type`, and `Cast$Key` for `Cast`."""
    for name, field in kind.model_fields.items():
        if field.alias and field.alias != name:
            schema["properties"][name] = schema["properties"][field.alias]
            if field.alias in schema.get("required", ()):
                schema["required"].remove(field.alias)
    kind_key = schema["properties"]["type"]
    names = kind_key.pop("enum", None) or [kind_key.pop("const")]
    halves = ("", "$Key", "$Value") if "target" in schema["properties"] else ("",)
    schema["properties"]["type"] = {"enum": [name + half for name in names for half in halves], **kind_key}


def _loosened(schema: Any) -> Any:
    """The schema with a reference allowed in place of each value that is no text, and `oneOf` replaced by `anyOf`."""
    if isinstance(schema, list):
        return [_loosened(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    part = {
        _LOOSER_KEYWORDS.get(key, key): _below(key, below) for key, below in schema.items() if key != "discriminator"
    }
    if part.get("type") in {"boolean", "integer", "number"} or part.keys() & {"enum", "format"}:
        annotations = {key: part.pop(key) for key in ("title", "description", "default") if key in part}
        return {**annotations, "anyOf": [part, _REFERENCE]}
    return part


def _below(key: str, below: Any) -> Any:
    """The value of a JSON Schema keyword with the schemas in it loosened; plain values stay as they are."""
    if key in {"properties", "$defs"}:
        return {name: _loosened(member) for name, member in below.items()}
    return below if key in {"default", "enum", "required"} else _loosened(below)
