"""Writes what is generated under docs/: keys of both files, codes of dead letters, cases of formats, options of transforms.

`python docs/generate.py` writes them; `--check` changes nothing and ends with 1 when one is out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from frazil.pipeline.model import Pipeline
from frazil.pipeline.settings import Settings
from frazil.pipeline.transform_step import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from frazil.pipeline.transforms import KINDS, OwnTransform
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
`attempts` counts how often it was decoded, and `landed_batch` is the batch that landed it after all.

## How many are too many

`dead_letters.tolerance` in the pipeline file says how many a batch may have: `none`, `all`, or limits (`max_rate` from
`min_records` records on, `max_count`). With more, the run fails, publishes nothing, and its message has the counts by code
and the coordinates of the first one. With `on_exceed: dead_letter_and_alert` the batch is published; the run reports
`ALERT: too many dead letters, published nevertheless: …` and its result lists the batch under `tolerance_exceeded`.

Where a number alone decides (`none`, `max_count`), a task of the batch that exceeds it stops reading and the run fails at its
end: with `none` by the first bad record, which the message names with code, topic, partition and offset. Tasks that run beside
it finish theirs. A rate is judged over the whole batch, and a dry run always counts everything.

`log: true` has each run report code, topic, partition and offset of its dead letters, the first 100 of a batch by name and
the others as a number. Nothing that was in a record is in these lines.

## Where payloads are secrets

A message quotes up to 80 characters of a value, and key, value and headers are the record. `dead_letters.payload` keeps
less; encryption is left to the lake.

| payload | key, value | headers | message | path | replay from the table |
| --- | --- | --- | --- | --- | --- |
| `full` | as they came | as they came | what was expected and found | kept | yes |
| `redacted` | null | sizes and hashes | what the code means | kept | no |
| `none` | null | `frazil.payload` only | what the code means | null | no |

A letter without its record has the header `frazil.payload` (`redacted` or `none`) first. Redacted ones have `frazil.key`,
`frazil.value` and `frazil.headers` beside it, each as far as it was there: the size in bytes, and a BLAKE2b hash of 16 bytes
in hexadecimal. Sizes show values that were cut, equal hashes show a record that comes again, and `frazil verify` compares
both with Kafka; of `none` it can only check that the letter is there, with its code and timestamp. Mind that a hash of
something short, such as a card number, can be found by trying: take `none` for those. Paths name fields, so a map's keys can
be in them: `none` leaves them out. A letter without its record can't be decoded again; `frazil replay` reads it from Kafka
while it is still there.

## Looking at them

```text
frazil dead-letters list PIPELINE [--code C] [--topic T] [--since 24h] [--open | --landed | --all] [--limit N] [--json]
frazil dead-letters show PIPELINE TOPIC/PARTITION/OFFSET [--raw FILE] [--json]
frazil dead-letters report PIPELINE [--since 7d] [--html FILE] [--markdown FILE] [--json]
```

- `list` reads neither keys nor values, the newest batches first, and opens no file with older ones than it shows.
- `show` says what to do, and shows headers, key and value as JSON or as a hex dump, 4 KiB of each; `--raw` writes the exact
  bytes of the value.
- `report` counts by code and topic, against the period of the same length before, with samples that name the field. It
  prints Markdown; `--html` writes one page that needs no other file.

Times are Kafka's timestamps of the records.

## Bringing them home

```text
frazil dead-letters replay PIPELINE [--code C] [--topic T] [--since 24h] [--id TOPIC/PARTITION/OFFSET] --reason TEXT [--dry-run] [-y]
```

decodes open letters again with the present pipeline file, from what the table keeps of them: Kafka is not asked. What is
good now lands as rows, exactly once, in a batch of its own; the position stays. Those letters stay in the table, with the
number of that batch as `landed_batch`. What is still bad stays dead, with its new reason and one more attempt. See
[operations.md](operations.md#bringing-dead-letters-home).

## A Kafka topic beside the table

`dead_letters.topic` names a Kafka topic that gets them as well, each once: [dead-letter-topic.md](dead-letter-topic.md).

## Reason codes
"""

ANY_VALUE = "JsonValue"
"""Pydantic's name for whatever JSON can say; it has no keys."""

TRANSFORMS: tuple[type[BaseModel], ...] = (*KINDS.values(), OwnTransform)
PREDICATES: tuple[type[BaseModel], ...] = (TopicNameMatches, HasHeaderKey, RecordIsTombstone)
ELSEWHERE = frozenset(of.__name__ for of in (*TRANSFORMS, *PREDICATES))
"""Models that have a page of their own."""

Schema = Mapping[str, Any]
"""A JSON schema, as pydantic makes it."""


def pages() -> dict[Path, str]:
    """Every generated page with what it should hold."""
    docs = ROOT / "docs"
    return {
        docs / "pipeline-reference.md": reference(),
        docs / "dead-letters.md": dead_letters(),
        docs / "formats.md": filled(docs / "formats.md", "cases", case_tables()),
        docs / "transforms.md": filled(docs / "transforms.md", "transforms", transform_sections()),
    }


def filled(page: Path, name: str, text: str) -> str:
    """A page written by hand, with the generated part of this name between its marks."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(f"<!-- generated: {name} -->\n")
    _, end, behind = rest.partition("<!-- end -->\n")
    if not (begin and end):
        raise ValueError(f"{page}: expected the marks of the generated part {name!r}")
    return f"{before}{begin}{text}{end}{behind}"


def case_tables() -> str:
    """What becomes of values: a table per format, from the cases of its tests."""
    sys.path.append(str(ROOT))
    parts: list[str] = []
    for group, found in groupby(import_module("tests.unit.records.formats.cases").cases(), lambda case: case.group):
        parts += [f"### {group}\n", "| sent | column | in the table |", "| --- | --- | --- |"]
        parts += [f"| {code(of.sent)} | {code(of.declared)} | {outcome(of.result)} |" for of in found] + [""]
    return "\n".join(["", *parts])


def outcome(result: str) -> str:
    """A value, or a reason code as a link to its meaning."""
    return f"[{code(result)}](dead-letters.md#reason-codes)" if isinstance(result, DeadCode) else code(result)


def code(text: str) -> str:
    """A text as it stands, in a cell."""
    return escaped(f"`{text}`") if text else "(nothing)"


def transform_sections() -> str:
    """The options of every transform and predicate."""
    parts = [section(of.__name__, of.model_json_schema(), {}, without=("type", "when")) for of in TRANSFORMS]
    parts += ["## Predicates\n", "`when: {predicate: TopicNameMatches, pattern: orders-.*, negate: true}`\n"]
    parts += [section(of.__name__, of.model_json_schema(), {}, without=("predicate",)) for of in PREDICATES]
    return "\n".join(["", *parts])


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
