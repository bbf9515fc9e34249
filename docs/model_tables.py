"""Tables of the keys of models, as the pages under docs/ have them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from frazil.pipeline.transforms import KINDS, PREDICATE_KINDS, OwnTransform

ANY_VALUE = "JsonValue"
"""Pydantic's name for whatever JSON can say; it has no keys."""

TRANSFORMS: tuple[type[BaseModel], ...] = (*KINDS.values(), OwnTransform)
PREDICATES: tuple[type[BaseModel], ...] = tuple(PREDICATE_KINDS.values())
ELSEWHERE = frozenset(definition.__name__ for definition in (*TRANSFORMS, *PREDICATES))
"""Models that have a page of their own."""

Schema = Mapping[str, Any]
"""A JSON schema, as pydantic makes it."""


def sections(model: type[BaseModel], names: Collection[str]) -> Iterator[str]:
    """One section for a model and one for each model it refers to, in the order of their first mention; only `names`, if there are any."""
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    named = {model.__name__: schema, **{name: definitions[name] for name in mentioned(schema, definitions, {})}}
    return (section(name, of, definitions) for name, of in named.items() if not names or name in names)


def mentioned(schema: Schema, definitions: Mapping[str, Schema], mentions: dict[str, None]) -> dict[str, None]:
    """Names of the models that a schema refers to, directly or through others; `seen` collects them in order."""
    for name in references(schema.get("properties", {})):
        if name not in mentions and name != ANY_VALUE and name not in ELSEWHERE:
            mentions[name] = None
            mentioned(definitions[name], definitions, mentions)
    return mentions


def references(value: object) -> Iterator[str]:
    """Names of the models referred to anywhere in a piece of schema."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def section(title: str, schema: Schema, definitions: Mapping[str, Schema], hidden: Collection[str] = ()) -> str:
    """Heading, sentence and table of one model, less some keys."""
    required = schema.get("required", [])
    keys = [(key, body) for key, body in schema.get("properties", {}).items() if key not in hidden]
    rows = [row(key, body, definitions, required=key in required) for key, body in keys]
    head = ["| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows, ""] if rows else []
    return "\n".join([f"### {title}\n", schema["description"], "", *head])


def row(key: str, schema: Schema, definitions: Mapping[str, Schema], *, required: bool) -> str:
    """One key as a row of the table. A key without a sentence of its own has that of the model it holds."""
    meaning = schema.get("description") or " ".join(definitions[name]["description"] for name in references(schema))
    cells = (f"`{key}`", type_text(schema) + bounds(schema), "required" if required else default_text(schema), meaning)
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def default_text(schema: Schema) -> str:
    """The default as it would be written in the file."""
    if "default" in schema:
        return f"`{json.dumps(schema['default'])}`"
    return "its defaults" if any(references(schema)) else "`{}`"


def escaped(cell: str) -> str:
    """A cell in which nothing outside of code reads as markup."""
    parts = cell.replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))


def type_text(schema: Schema) -> str:
    """A type in words, models as links to their sections."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "any value" if name == ANY_VALUE else f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(type_text(choice) for choice in choices)
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        of_transforms = ELSEWHERE.intersection(references(schema["items"]))
        return f"list of {'[transforms](transforms.md)' if of_transforms else type_text(schema['items'])}"
    if schema.get("type") == "object":
        return f"map of name to {type_text(schema['additionalProperties'])}"
    return str(schema.get("type", "any value"))


def bounds(schema: Schema) -> str:
    """Limits of a number, in brackets, or nothing."""
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema]
    return f" ({', '.join(limits)})" if limits else ""
