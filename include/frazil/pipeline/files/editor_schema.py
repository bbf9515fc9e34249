"""JSON Schema of the YAML files, for editors: it completes keys and shows their meaning. It never refuses what the models take."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from frazil.pipeline.transforms import KINDS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
"""The dialect that pydantic writes."""

_REFERENCE = {"type": "string", "pattern": r"\$\{(env|file|airflow|local):"}
"""`${env:NAME}` may stand wherever a value does; it is replaced before the models see the file."""

_WORDS = {"oneOf": "anyOf"}
"""A transform without its options fits none of the kinds but that of others: an editor shall complain of what is missing."""


def editor_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a file: the model's, extended by forms that only files may use."""
    schema = model.model_json_schema()
    for name, kind in KINDS.items():
        if name in schema["$defs"]:
            _spellings(schema["$defs"][name], kind)
    return {"$schema": DRAFT, **_loosened(schema)}


def _spellings(schema: dict[str, Any], kind: type[BaseModel]) -> None:
    """A transform's options have two names, `target.type` and `target_type`; `Cast$Key` is a `Cast`."""
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
    """A schema in which each value that is no text may be a reference, and one of several forms is enough."""
    if isinstance(schema, list):
        return [_loosened(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    part = {_WORDS.get(key, key): _below(key, below) for key, below in schema.items() if key != "discriminator"}
    if part.get("type") in {"boolean", "integer", "number"} or part.keys() & {"enum", "format"}:
        annotations = {key: part.pop(key) for key in ("title", "description", "default") if key in part}
        return {**annotations, "anyOf": [part, _REFERENCE]}
    return part


def _below(key: str, below: Any) -> Any:
    """Loosen the value of a JSON Schema keyword: the schemas in it, but no plain values."""
    if key in {"properties", "$defs"}:
        return {name: _loosened(member) for name, member in below.items()}
    return below if key in {"default", "enum", "required"} else _loosened(below)
