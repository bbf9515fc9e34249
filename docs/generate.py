"""Writes what is generated under docs/: keys of files, commands, codes of errors and dead letters, cases of formats, options of
transforms, metrics; under docker/grafana what is made of the metrics; under include/schemas the JSON Schemas of both files.

`python docs/generate.py` writes them; `--check` changes nothing and ends with 1 when one is out of date.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from inspect import cleandoc
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from typer.main import get_command

from docs.model_tables import PREDICATES, TRANSFORMS, escaped, section, sections
from frazil import error_codes, errors
from frazil.cli.app import app
from frazil.kafka.admin.grants import ROLES
from frazil.monitor.dashboard import dashboard
from frazil.monitor.metrics import CATALOGUE, statsd_mapping
from frazil.pipeline.channels import CHANNELS
from frazil.pipeline.files.editor_schema import editor_schema
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import KINDS as KINDS_OF_CAPTURE
from frazil.pipeline.settings.settings import Settings
from frazil.records.model.dead_letter import DeadCode

ROOT = Path(__file__).resolve().parent.parent

INTRODUCTION = """\
# The pipeline file

A pipeline is one YAML file in `include/pipelines`. It names a Kafka cluster, a catalog and an engine. What those names stand for is
in the [settings file](settings.md), so a pipeline file is the same in every environment. `frazil validate` checks all files.

## An example

```yaml
{example}```

## Rules of all files

- An unknown key is an error. The message names the nearest known key.
- Settings may refer to the environment with `${{env:NAME}}` or `${{env:NAME:-default}}`. `${{local:kafka}}` and `${{local:home}}` are the
  broker and the state folder of the embedded stack. Secrets may come from [files and Airflow's connections](../secrets.md).
- Pipeline and capture files may refer to what the settings list under `references.allow`, and to nothing else. A text that only looks
  like a reference is written with another dollar: `$${{env:NAME}}`.
- A file has at most 1 MiB, 100,000 values (YAML's aliases counted as what they stand for) and 64 levels.
- Numbers have at most 100 characters, whole numbers 64 bits. `1:30` is a text. A text holds neither NUL nor half of a character
  (`\\ud800`).
- Pipeline, capture and schema files lie in their folders. Links are followed within them only.

## Help from editors

Editors complete keys and show the sentences of these pages with two JSON Schemas,
[pipeline.schema.json](../../include/schemas/pipeline.schema.json) and
[settings.schema.json](../../include/schemas/settings.schema.json). The YAML language server (VS Code, Neovim, Helix, Emacs) finds them
by the first line of a file, a path from the file or an address: `# yaml-language-server: $schema=../schemas/pipeline.schema.json`.
The schemas know keys, types and choices. `frazil validate` also knows what depends on several keys, on the other file, or on tables.
"""

REFERENCE: dict[str, tuple[str, type[BaseModel], tuple[str, ...]]] = {
    "pipeline": (INTRODUCTION, Pipeline, ("Pipeline", "Trigger", "StartAt", "Limits")),
    "source": ("# Source, values and keys", Pipeline, ("Source", "Value", "Key")),
    "destination": (
        "# Destinations and columns",
        Pipeline,
        ("Destination", "Column", "KafkaColumns", "Changes", "Words"),
    ),
    "route": ("# Routes", Pipeline, ("Route", "StaticRoute", "FieldRoute", "TopicRoute", "Create")),
    "dead-letters": (
        "# Dead letters",
        Pipeline,
        ("DeadLetters", "Tolerance", "DeadLetterTopic", "LetterReporting"),
    ),
    "maintenance": (
        "# Maintenance",
        Pipeline,
        (
            "Maintenance",
            "PositionDeletes",
            "Compaction",
            "Manifests",
            "Expiry",
            "Orphans",
            "Stats",
            "TableMaintenance",
        ),
    ),
    "alerts": ("# Alerts of a pipeline or a capture", Pipeline, ("Alerts", "AlertRoute")),
    "settings": ("# The settings file", Settings, ()),
}
"""Pages about the keys of files: how each begins, and the models that it explains; all of them where it names none."""

MATRIX_KEY = """
*yes*: the format has such values. *from text*: the format has no such type, but a text in the right form lands. *by …*: lands only with
that option ([Column](reference/destination.md#column), [Value](reference/source.md#value)). A code: no value of the format lands in
such a column; its record is a dead letter with this code.
"""

MESSAGES = """\
# Errors and their codes

Generated from `include/frazil/error_codes.py` by `make docs`; `make check` fails when it is out of date.

Every error of Frazil has a code that names its kind, at the end of its first line: `… was recreated [FRZ-404]`. What happened in
your case, with topic, partition and table, is in the message; what to do now follows `next:`. The exit code shows who must act:
75 passes by itself, 78 needs a person ([all of them](environment.md#exit-codes)). A dead letter has a
[reason code](dead-letters.md#reason-codes) of its own.
"""

SUBJECTS = {
    1: "Settings, files and the embedded stack",
    2: "Kafka",
    3: "Catalogs, tables and storage",
    4: "Positions, batches and commits",
    5: "Spark and runs",
    6: "Records, transforms and the schema registry",
    7: "Airflow and notices",
    8: "Maintenance and captures",
    9: "Frazil's own",
}

CODES = {str(code): code for code in DeadCode}


def pages() -> dict[Path, str]:
    """Every generated page with what it should hold."""
    docs = ROOT / "docs"
    return {
        **{docs / "reference" / f"{name}.md": text for name, text in reference().items()},
        docs / "reference" / "commands.md": commands(),
        docs / "messages.md": messages(),
        docs / "dead-letters.md": filled(docs / "dead-letters.md", "codes", reason_codes()),
        docs / "monitoring.md": filled(docs / "monitoring.md", "metrics", metric_tables()),
        docs / "alerts.md": filled(docs / "alerts.md", "channels", channel_table()),
        docs / "types.md": filled(docs / "types.md", "cases", case_tables()),
        docs / "schema-evolution.md": filled(docs / "schema-evolution.md", "changes", change_tables()),
        docs / "reliability.md": reliability(docs / "reliability.md"),
        docs / "grants.md": filled(docs / "grants.md", "grants", grant_table()),
        docs / "transforms.md": filled(docs / "transforms.md", "transforms", transform_sections()),
        ROOT / "include" / "schemas" / "pipeline.schema.json": json.dumps(editor_schema(Pipeline), indent=1) + "\n",
        ROOT / "include" / "schemas" / "settings.schema.json": json.dumps(editor_schema(Settings), indent=1) + "\n",
        ROOT / "docker" / "grafana" / "frazil.json": json.dumps(dashboard(), indent=2) + "\n",
        ROOT / "docker" / "grafana" / "statsd-mapping.yaml": mapping(),
    }


def messages() -> str:
    """The page about error codes: a heading for each, by subjects."""
    exits = exit_codes()
    codes_by_name = {name: code for name, code in vars(error_codes).items() if isinstance(code, errors.ErrorCode)}
    parts, subject = [MESSAGES], 0
    for name, code in sorted(codes_by_name.items(), key=lambda pair: pair[1].number):
        if code.number // 100 != subject:
            subject = code.number // 100
            parts.append(f"## {SUBJECTS[subject]}\n")
        parts.append(
            f"### {code}\n\n**{code.title}.** {code.meaning}\n\n*Why:* {code.reason}\n\n*What to do:* {code.action}\n"
        )
        if exits[name]:
            parts.append(f"Exit code: {', '.join(map(str, sorted(exits[name])))}\n")
    return "\n".join(parts)


def exit_codes() -> defaultdict[str, set[int]]:
    """The exit codes that errors of each code end a command with, as far as the places that raise them show."""
    files = (file for folder in ("include", "plugins") for file in sorted((ROOT / folder).rglob("*.py")))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    derived = re.findall(r"^class (\w+)\((Terminal|Retryable)\):", text, re.MULTILINE)
    kinds = {name.lower(): getattr(errors, parent).exit_code for name, parent in derived}
    kinds |= {name.lower(): kind.exit_code for name, kind in vars(errors).items() if hasattr(kind, "exit_code")}
    exits: defaultdict[str, set[int]] = defaultdict(set)
    raising = r"\b([A-Z][A-Z_]+)\.(terminal|retryable)\(|\b([A-Z]\w+)\([^=]*\bcode=([A-Z_]+)\b"
    for name, method, kind, keyword in re.findall(raising, text):
        if (method or kind.lower()) in kinds:
            exits[name or keyword].add(kinds[method or kind.lower()])
    return exits


def filled(page: Path, name: str, text: str, written: str | None = None) -> str:
    """A page written by hand, with the generated part of this name between its marks."""
    source = page.read_text(encoding="utf-8") if written is None else written
    before, begin, rest = source.partition(f"<!-- generated: {name} -->\n")
    _, end, behind = rest.partition("<!-- end -->\n")
    if not (begin and end):
        raise ValueError(f"{page}: expected the marks of the generated part {name!r}")
    return f"{before}{begin}{text}{end}{behind}"


def case_tables() -> str:
    """What becomes of values, from the cases of the tests: all pairs at one look, then a table per format."""
    sys.path.append(str(ROOT))
    cases = import_module("tests.unit.records.formats.cases").cases()
    parts: list[str] = ["### All formats and types\n", *overview(cases), MATRIX_KEY]
    for group, group_cases in groupby(cases, lambda case: case.group):
        parts += [f"### {group}\n", "| sent | column | in the table |", "| --- | --- | --- |"]
        parts += [f"| {code(case.sent)} | {code(case.declared)} | {outcome(case.result)} |" for case in group_cases] + [
            ""
        ]
    return "\n".join(["", *parts])


def change_tables() -> str:
    """What becomes of a table when its records change, from the cases of the tests: a table per kind of format."""
    sys.path.append(str(ROOT))
    cases = import_module("tests.unit.records.evolution.cases")
    levels = import_module("tests.unit.records.evolution.case").LEVELS
    parts: list[str] = []
    for group, group_cases in groupby(cases.cases(), lambda case: case.group):
        heads = ["change", "the table has", "sent", *(f"`{level}`" for level in levels)]
        parts += [f"### {group}\n", f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
        for of in group_cases:
            has = ", ".join(
                f"{name} {kind.replace('!', ', required').replace('?', ', not declared')}"
                for name, kind in of.columns.items()
            )
            results = (changes(of.result(level)) for level in levels)
            parts.append(f"| {of.change} | {code(has)} | {code(of.sent)} | {' | '.join(results)} |")
        parts.append("")
    return "\n".join(["", *parts])


def reliability(page: Path) -> str:
    """The page with both of its generated parts."""
    return filled(page, "tried", tried_table(), filled(page, "tamperings", tampering_table()))


HOW = ("real", "test double", "rendered")
"""How a platform was tried, the best first."""


def tried_table() -> str:
    """Platforms, how each was tried and where, from the marks `tried` of the tests."""
    files: defaultdict[tuple[str, int], dict[str, bool]] = defaultdict(dict)
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for platform, how, is_full in tried_in(file.read_text(encoding="utf-8")):
            place = file.relative_to(ROOT).as_posix()
            entry = files[platform, HOW.index(how)]
            entry[place] = entry.get(place, True) and is_full
    rows = ["| platform | tried how | by |", "| --- | --- | --- |"]
    for (platform, rank), places in sorted(files.items(), key=lambda pair: (pair[0][0].lower(), pair[0][1])):
        shown = (f"`{place}`{' (`make test-full`)' if is_full else ''}" for place, is_full in places.items())
        rows.append(f"| {platform} | {HOW[rank]} | {', '.join(shown)} |")
    return "\n".join([*rows, ""])


def tried_in(text: str) -> Iterator[tuple[str, str, bool]]:
    """Each mark `tried` of a file of tests: platform, how, and whether only `make test-full` runs what it marks."""
    if "mark.tried(" not in text:
        return
    tree = ast.parse(text)
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    values = [node.value for node in assigned if ast.unparse(node.targets[0]) == "pytestmark"]
    shared = [mark for value in values for mark in (value.elts if isinstance(value, ast.List) else [value])]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    own = [function.decorator_list for function in functions if function.name.startswith("test_")]
    all_full = _has_full(shared) or all(map(_has_full, own))
    for marks in (shared, *own):
        is_full = all_full or _has_full(marks)
        for node in (part for mark in marks for part in ast.walk(mark)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.tried":
                platform, how = (ast.literal_eval(argument) for argument in node.args)
                yield platform, how, is_full


def _has_full(marks: list[ast.expr]) -> bool:
    return any(ast.unparse(mark) == "pytest.mark.full" for mark in marks)


def tampering_table() -> str:
    """What `frazil verify` says of each way to tamper, from the cases of the tests."""
    sys.path.append(str(ROOT))
    suite = import_module("tests.tampering.suite")
    names = list(import_module("tests.tampering.pipelines").CIRCUMSTANCES)
    heads = ["", "what is done", *(name.replace("_", "-").replace("avro", "Avro") for name in names)]
    rows = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    kind = ""
    for tampering in suite.TAMPERINGS:
        cells = (
            dict.fromkeys(suite.documented_verdict(tampering, name, is_edited=edited) for edited in (False, True))
            for name in names
        )
        rows.append(
            f"| {' | '.join(['' if tampering.kind == kind else tampering.kind, tampering.name, *map('; edited: '.join, cells)])} |"
        )
        kind = tampering.kind
    return "\n".join([*rows, ""])


def changes(result: str) -> str:
    """Changes of a table as they are logged, and what becomes of the record."""
    kinds = ("add ", "widen ", "optional ")
    parts = re.split(r", (?=[A-Z]{2,}|left|rescued|add |widen |optional )", result)
    return ", ".join(
        outcome(CODES.get(part, part)) if part in CODES or part.startswith(kinds) else part for part in parts
    )


def overview(cases: list[Any]) -> Iterator[str]:
    """Types by formats: how a value of the format gets into such a column."""
    matrix = import_module("tests.unit.records.formats.matrix")
    groups, ways = matrix.groups(cases), matrix.matrix(cases)
    yield "| column | " + " | ".join(groups) + " |"
    yield "| --- |" + " --- |" * len(groups)
    for kind in matrix.KINDS:
        cells = (
            ", ".join(outcome(CODES[way]) if way in CODES else way for way in ways[kind, group]) for group in groups
        )
        yield f"| `{kind}` | " + " | ".join(cells) + " |"


def outcome(result: str) -> str:
    """A value, or a reason code as a link to its meaning."""
    return f"[{code(result)}](dead-letters.md#reason-codes)" if isinstance(result, DeadCode) else code(result)


def metric_tables() -> str:
    """The catalogue of metrics: a table for each of the moments when they are sent."""
    heads = {
        "run": "When a run ends: counters and timings, for each batch or for the run",
        "maintenance": "When maintenance looks at a table, and when it has done something",
        "condition": "Every time the condition of a pipeline is read: gauges",
    }
    parts: list[str] = []
    for source, head in heads.items():
        parts += [f"### {head}\n", "| metric | in Prometheus | kind | unit | tags | meaning |", "| --- " * 6 + "|"]
        for of in (metric for metric in CATALOGUE if metric.source == source):
            tags = ", ".join(code(tag) for tag in of.tags)
            cells = (code(of.name), code(of.prometheus), of.kind, of.unit, tags, escaped(of.description))
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(["", *parts])


def grant_table() -> str:
    """What Kafka's authorizer must allow, by what is done."""
    rows = ["| to | operation | on | without |", "|---|---|---|---|"]
    for role in ROLES:
        for number, one in enumerate(role.grants):
            does, consequence = ("", "") if number else (role.does, role.consequence)
            rows.append(f"| {does} | `{one.operation}` | {one.resource_text} | {consequence} |")
    return "\n".join(rows) + "\n"


def channel_table() -> str:
    """What a channel sends, and what its Airflow connection holds."""
    head = ["| `type` | what it sends | what the Airflow connection holds | sent by |", "| --- | --- | --- | --- |"]
    rows = [
        f"| `{name}` | {' | '.join(cleandoc(channel.__doc__ or '').split(chr(10) * 2))} | the notifier of `{channel.package}` |"
        for name, channel in CHANNELS.items()
    ]
    return "\n".join([*head, *rows, ""])


def mapping() -> str:
    """The configuration of statsd_exporter."""
    header = "# Generated from the catalogue of metrics by `make docs`: StatsD's names become those of the dashboard.\n"
    return header + yaml.safe_dump(statsd_mapping(), sort_keys=False, width=120)


def code(text: str) -> str:
    """A text as it stands, in a cell."""
    return escaped(f"`{text}`") if text else "(nothing)"


def transform_sections() -> str:
    """The options of every transform and predicate."""
    parts = [
        section(transform.__name__, transform.model_json_schema(), {}, hidden=("type", "when"))
        for transform in TRANSFORMS
    ]
    parts += ["## Predicates\n", "`when: {predicate: TopicNameMatches, pattern: orders-.*, negate: true}`\n"]
    parts += [
        section(predicate.__name__, predicate.model_json_schema(), {}, hidden=("predicate",))
        for predicate in PREDICATES
    ]
    return "\n".join(["", *parts])


def reason_codes() -> str:
    """What each reason code of a dead letter means."""
    head = ["| code | stage | what is wrong | what to do |", "| --- | --- | --- | --- |"]
    rows = [f"| `{code}` | {code.stage} | {escaped(code.meaning)} | {escaped(code.remedy)} |" for code in DeadCode]
    return "\n".join([*head, *rows, ""])


def reference() -> dict[str, str]:
    """The pages about the keys of files."""
    homes = {name.lower(): page for page, (_, _, names) in REFERENCE.items() for name in names}
    example = (ROOT / "include" / "pipelines" / "payments.yaml").read_text(encoding="utf-8")

    def link(page: str, match: re.Match[str]) -> str:
        home = homes.get(match[1], page)
        return match[0] if home == page else f"]({home}.md#{match[1]})"

    pages = {
        page: [beginning.format(example=example) if "{" in beginning else f"{beginning}\n", *sections(model, names)]
        for page, (beginning, model, names) in REFERENCE.items()
    }
    pages["capture"] = ["# Capture files\n", "See [capturing files and databases](../capture.md).\n"]
    for kind in KINDS_OF_CAPTURE.values():
        pages["capture"] += sections(kind, [kind.__name__])
    return {
        page: re.sub(r"\]\(#(\w+)\)", partial(link, page), "\n".join(parts)).replace(
            "](transforms.md", "](../transforms.md"
        )
        for page, parts in pages.items()
    }


def commands() -> str:
    """The page about the commands: what `--help` says, in the groups of the help."""
    parts = [
        "# Commands\n",
        "This page has the text of `frazil COMMAND --help`. Many commands take `--json`, for programs.\n",
    ]
    groups: dict[str, list[str]] = defaultdict(list)
    for path, group, command in command_tree(get_command(app), "frazil", ""):
        groups[group].append(command_section(path, command))
    for group, listed in groups.items():
        parts += [f"## {group}\n", *listed]
    return "\n".join(parts)


def command_tree(command: Any, path: str, group: str) -> Iterator[tuple[str, str, Any]]:
    """Each command below one, with its words and the group of the help that it is in."""
    below = getattr(command, "commands", {})
    for name, sub_command in ((name, one) for name, one in below.items() if not one.hidden):
        yield from command_tree(sub_command, f"{path} {name}", group or sub_command.rich_help_panel)
    if not below:
        yield path, group, command


def command_section(path: str, command: Any) -> str:
    """One command: usage, what it does, examples and options."""
    arguments = [part for part in command.params if part.param_type_name == "argument"]
    options = [part for part in command.params if part.param_type_name == "option" and not part.hidden]
    usage = " ".join([path, *(part.metavar or part.name.upper() for part in arguments)])
    markup = re.compile(r"\[/?cyan\]")
    examples = markup.sub("", command.epilog or "").replace("Example: ", "$ ").replace("\n\n", "\n")
    rows = [
        f"| {' '.join([*map(code, part.opts), code(part.metavar) if part.metavar else ''])} | {escaped(markup.sub('`', part.help or ''))} |"
        for part in options
    ]
    return "\n".join(
        [
            f"### {path}\n\n`{usage}`\n\n{markup.sub('`', cleandoc(command.help or ''))}\n",
            *([f"```console\n{examples}\n```\n"] if examples else []),
            *(["| option | meaning |", "| --- | --- |", *rows, ""] if rows else []),
        ]
    )


def main(arguments: list[str]) -> int:
    """Write the pages, or judge them."""
    stale = {
        path: text for path, text in pages().items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
