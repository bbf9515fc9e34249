"""Writes the generated pages: keys of the pipeline and settings files, and codes of dead letters.

`python docs/generate.py` writes them; `--check` changes nothing and ends with 1 when one is out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from frazil.pipeline.model import Pipeline
from frazil.pipeline.settings import Settings
from frazil.records.dead import DeadCode

ROOT = Path(__file__).resolve().parent.parent

INTRODUCTION = """\
# Pipeline and settings files

Generated from the models in `include/frazil/pipeline` by `make docs`; `make check` fails when it is out of date.

A pipeline is one YAML file in `include/pipelines`. It names a Kafka cluster, a catalog and an engine; what those names
stand for is in the settings file (`include/settings.yaml`), so a pipeline file is the same in every environment. Both
may refer to the environment with `${env:NAME}` or `${env:NAME:-default}`; `${local:kafka}` and `${local:home}` are the
broker and the state folder of the embedded stack. An unknown key is an error. `frazil validate` checks all files.
"""

DEAD_LETTERS = """\
# Dead letters

Generated from `frazil.records.dead` by `make docs`; `make check` fails when it is out of date.

A record that can't become a row is kept whole in `<namespace>.<pipeline>__dead_letters`: key, value and headers as they
came, topic, partition, offset and timestamp, the batch, and why: `code`, `stage`, `message`, and `path` for the field.
"""

Schema = Mapping[str, Any]
"""A JSON schema, as pydantic makes it."""


def pages() -> dict[Path, str]:
    """Every generated page with what it should hold."""
    docs = ROOT / "docs"
    return {docs / "pipeline-reference.md": reference(), docs / "dead-letters.md": dead_letters()}


def dead_letters() -> str:
    """The page about reason codes."""
    head = ["| code | stage | what is wrong | what to do |", "| --- | --- | --- | --- |"]
    rows = [f"| `{code}` | {code.stage} | {escaped(code.meaning)} | {escaped(code.remedy)} |" for code in DeadCode]
    return "\n".join([DEAD_LETTERS, *head, *rows, ""])


def reference() -> str:
    """The page about the keys of both files."""
    example = (ROOT / "include" / "pipelines" / "payments.yaml").read_text(encoding="utf-8")
    parts = [INTRODUCTION, "## The pipeline file\n", f"```yaml\n{example}```\n"]
    parts += sections("Pipeline", Pipeline)
    parts += ["## The settings file\n", *sections("Settings", Settings)]
    return "\n".join(parts)


def sections(title: str, model: type[BaseModel]) -> Iterator[str]:
    """One section for a model and one for each model it refers to, in the order of their first mention."""
    schema = model.model_json_schema()
    known = schema["$defs"]
    yield section(title, schema, known)
    for name in mentioned(schema, known, {}):
        yield section(name, known[name], known)


def mentioned(schema: Schema, known: Mapping[str, Schema], seen: dict[str, None]) -> dict[str, None]:
    """Names of the models that a schema refers to, directly or through others; `seen` collects them in order."""
    for name in references(schema.get("properties", {})):
        if name not in seen:
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


def section(title: str, schema: Schema, known: Mapping[str, Schema]) -> str:
    """Heading, sentence and table of one model."""
    required = schema.get("required", [])
    rows = [row(key, of, known, required=key in required) for key, of in schema["properties"].items()]
    head = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([f"### {title}\n", schema["description"], "", *head, *rows, ""])


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
        return f"[{name}](#{name.lower()})"
    if "anyOf" in of:
        return " or ".join(type_text(choice) for choice in of["anyOf"])
    if "const" in of or "enum" in of:
        return ", ".join(f"`{json.dumps(value)}`" for value in of.get("enum", [of.get("const")]))
    if of["type"] == "array":
        return f"list of {type_text(of['items'])}"
    if of["type"] == "object":
        return f"map of name to {type_text(of['additionalProperties'])}"
    return str(of["type"])


def bounds(of: Schema) -> str:
    """Limits of a number, in brackets, or nothing."""
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {of[key]}" for key, sign in signs.items() if key in of]
    return f" ({', '.join(found)})" if found else ""


def main(arguments: list[str]) -> int:
    """Write the pages, or judge them."""
    stale = [path for path, text in pages().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
