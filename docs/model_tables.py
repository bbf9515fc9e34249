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
ELSEWHERE = frozenset(of.__name__ for of in (*TRANSFORMS, *PREDICATES))
"""Models that have a page of their own."""

Schema = Mapping[str, Any]
"""A JSON schema, as pydantic makes it."""


def sections(model: type[BaseModel], names: Collection[str]) -> Iterator[str]:
    """One section for a model and one for each model it refers to, in the order of their first mention; only `names`, if there are any."""
    schema = model.model_json_schema()
    known = schema.get("$defs", {})
    named = {model.__name__: schema, **{name: known[name] for name in mentioned(schema, known, {})}}
    return (section(name, of, known) for name, of in named.items() if not names or name in names)


def mentioned(schema: Schema, known: Mapping[str, Schema], seen: dict[str, None]) -> dict[str, None]:
    """Names of the models that a schema refers to, directly or through others; `seen` collects them in order."""
    for name in references(schema.get("properties", {})):
        if name not in seen and name != ANY_VALUE and name not in ELSEWHERE:
            seen[name] = None
            mentioned(known[name], known, seen)
    return seen


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


def section(title: str, schema: Schema, known: Mapping[str, Schema], without: Collection[str] = ()) -> str:
    """Heading, sentence and table of one model, less some keys."""
    required = schema.get("required", [])
    keys = [(key, of) for key, of in schema.get("properties", {}).items() if key not in without]
    rows = [row(key, of, known, required=key in required) for key, of in keys]
    head = ["| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows, ""] if rows else []
    return "\n".join([f"### {title}\n", schema["description"], "", *head])


def row(key: str, of: Schema, known: Mapping[str, Schema], *, required: bool) -> str:
    """One key as a row of the table. A key without a sentence of its own has that of the model it holds."""
    meaning = of.get("description") or " ".join(known[name]["description"] for name in references(of))
    cells = (f"`{key}`", type_text(of) + bounds(of), "required" if required else default_text(of), meaning)
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def default_text(of: Schema) -> str:
    """The default as it would be written in the file."""
    if "default" in of:
        return f"`{json.dumps(of['default'])}`"
    return "its defaults" if any(references(of)) else "`{}`"


def escaped(cell: str) -> str:
    """A cell in which nothing outside of code reads as markup."""
    parts = cell.replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))


def type_text(of: Schema) -> str:
    """A type in words, models as links to their sections."""
    if "$ref" in of:
        name = of["$ref"].rpartition("/")[2]
        return "any value" if name == ANY_VALUE else f"[{name}](#{name.lower()})"
    if choices := of.get("anyOf") or of.get("oneOf"):
        return " or ".join(type_text(choice) for choice in choices)
    if "const" in of or "enum" in of:
        return ", ".join(f"`{json.dumps(value)}`" for value in of.get("enum", [of.get("const")]))
    if of.get("type") == "array":
        of_transforms = ELSEWHERE.intersection(references(of["items"]))
        return f"list of {'[transforms](transforms.md)' if of_transforms else type_text(of['items'])}"
    if of.get("type") == "object":
        return f"map of name to {type_text(of['additionalProperties'])}"
    return str(of.get("type", "any value"))


def bounds(of: Schema) -> str:
    """Limits of a number, in brackets, or nothing."""
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {of[key]}" for key, sign in signs.items() if key in of]
    return f" ({', '.join(found)})" if found else ""
