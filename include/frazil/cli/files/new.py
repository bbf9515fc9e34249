"""Commands for a new project and its first pipelines: `frazil init`, `frazil schema`, `frazil peek` to look into a topic,
`frazil new` to propose a pipeline file for it.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Collection
from datetime import UTC
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from frazil.cli.output import console
from frazil.cli.output.console import TARGET_FORMS, Json, read_target
from frazil.error_codes import BAD_FILE
from frazil.errors import Terminal
from frazil.pipeline.channels import visible
from frazil.runtime.home import write_new

if TYPE_CHECKING:
    import pyarrow as pa

    from frazil.batch.facts import Range
    from frazil.kafka.client.cluster import Cluster
    from frazil.project import Project


_SCHEMA = Path("..", "schemas", "pipeline.schema.json")
"""The JSON Schema for editors that `frazil init` writes, seen from the folder of pipeline files."""

_PEEK_BYTES = 2**20
"""Bytes of a record above which only its size is shown."""

_MOST_HEADERS = 20

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to look at.", show_default=False)]
ClusterName = Annotated[
    str | None, typer.Option(help="Cluster of the settings file.", show_default="'local', or the only one")
]


def new(  # noqa: PLR0913 - the options of a command
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new pipeline.", show_default=False)],
    *,
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Topic to read.", show_default=False)],
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="TABLE", help="Table of the pipeline, with its namespace.", show_default="default.NAME"
        ),
    ] = None,
    cluster: ClusterName = None,
    catalog: Annotated[
        str | None, typer.Option(help="Catalog of the settings file.", show_default="'lake', or the only one")
    ] = None,
    records: Annotated[int, typer.Option(min=1, max=100_000, help="Number of records to read.")] = 1_000,
    as_json: Json = False,
) -> None:
    """Read records of a topic and write a pipeline file that lands them.

    The command finds format, columns and keys, and predicts dead letters: it decodes the first and the last records as a run
    does. Nothing lands, and no file is replaced. The file has names of the records' fields, but none of their values.
    """
    from frazil.cli.files.verdict import judge
    from frazil.project import Project
    from frazil.run.batches.proposal import propose

    project = Project.load()
    base: dict[str, Any] = {
        "name": name,
        "interval": "5m",
        "start": "earliest",
        "source": {"cluster": _entry_name(cluster, project.settings.clusters, "local"), "topics": [topic]},
        "catalog": _entry_name(catalog, project.settings.catalogs, "lake"),
        "destinations": [{"table": table or f"default.{name}"}],
    }
    _require_valid(base)
    file = _new_file(project, name)
    proposal = propose(project, base, records)
    _write(file, proposal.text)
    (verdict,) = judge([file], os.environ)
    if as_json:
        counts = {"counts": proposal.counts, "dead_codes": proposal.dead_codes}
        console.print_json({"file": str(file), **counts, "problems": verdict.problems})
    else:
        for line in (*proposal.text.splitlines(), "", f"written: {file}", *verdict.problems):
            console.say(line)
        console.say(f"next: frazil run {name} --dry-run, then frazil run {name}")
    if verdict.problems:
        raise typer.Exit(Terminal.exit_code)


def _require_valid(base: dict[str, Any]) -> None:
    """Refuse names that a pipeline file can't have, before a record is read."""
    from pydantic import ValidationError

    from frazil.pipeline.models.pipeline_file import Pipeline

    try:
        Pipeline.model_validate(base)
    except ValidationError as error:
        raise typer.BadParameter(error.errors(include_url=False)[0]["msg"]) from error


def _new_file(project: Project, name: str) -> Path:
    """The path of the new pipeline file.

    Raises:
        Terminal: There is a pipeline of this name.
    """
    file = project.pipelines_folder / f"{name}.yaml"
    if file.exists() or project.pipelines.find(name) is not None:
        raise BAD_FILE.terminal(
            f"pipeline {name} exists already, and nothing was changed", next_step="choose another name"
        )
    return file


def _entry_name(name: str | None, names: Collection[str], default: str) -> str:
    """The name of an entry of the settings: the one that was given, else the default, or the only one there is."""
    return name or (default if default in names or len(names) != 1 else next(iter(names)))


def _write(file: Path, text: str) -> None:
    has_schema = (file.parent / _SCHEMA).is_file()
    line = f"# yaml-language-server: $schema={_SCHEMA.as_posix()}\n" if has_schema else ""
    try:
        write_new(file, line + text)
    except OSError as error:
        raise BAD_FILE.terminal(
            f"{file} can't be written: {error.strerror}", next_step="check its name and the folder's permissions"
        ) from error


def peek(
    topic: Topic,
    *,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="Show at most this number of records.")] = 10,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar=TARGET_FORMS, help="Where to begin.", show_default="the last records"),
    ] = None,
    width: Annotated[
        int, typer.Option(min=10, max=100_000, help="Show at most this number of characters of a key, header or value.")
    ] = 200,
    cluster: ClusterName = None,
    as_json: Json = False,
) -> None:
    """Show records of a topic as they are: key, headers, timestamp, value, and the format that they seem to have.

    Bytes that are not text are shown as hexadecimal digits; control characters are escaped. --json prints a line per record.
    """
    from frazil.project import Project

    project = Project.load()
    source = project.cluster(_entry_name(cluster, project.settings.clusters, "local"))
    records = _records(source, topic, from_, count, width)
    for record in records:
        if as_json:
            console.print_json(record)
        else:
            _show_record(record)
    if not records and not as_json:
        console.say(
            f"no record in the {'last' if from_ is None else 'first'} {100 * count:,} offsets of each partition"
        )


def _records(cluster: Cluster, topic: str, start: str | None, count: int, width: int) -> list[dict[str, Any]]:
    """The last records of a topic, or the first ones after a start, ordered by their time.

    Some offsets have no record to show: markers of transactions, aborted records, records that compaction removed. If too few
    records come, more offsets are read.
    """
    from frazil.kafka.read.read import ReadLimits, read_ranges

    records: list[dict[str, Any]] = []
    for offsets in (count, 10 * count, 100 * count):
        ranges, is_all = _ranges(cluster, topic, start, offsets)
        batches = read_ranges(cluster, ranges, ReadLimits(record_bytes=_PEEK_BYTES))
        records = [record for batch in batches for record in _shown_records(batch, width)]
        if is_all or len(records) >= count:
            break
    records.sort(key=lambda record: (record["timestamp"] or "", record["partition"], record["offset"]))
    return records[:count] if start is not None else records[-count:]


def _ranges(cluster: Cluster, topic: str, start: str | None, count: int) -> tuple[list[Range], bool]:
    """Ranges of `count` offsets in each partition, and whether they cover all offsets that could be read."""
    from frazil.batch.facts import Range
    from frazil.batch.position import resolve
    from frazil.kafka.admin.observe import observe, offsets_at

    facts = observe(cluster, [topic])
    logs = facts.topics[topic].partitions
    if (target := read_target(start)) is None:
        starts = {(topic, n): max(log.log_start, log.stable_end - count) for n, log in enumerate(logs)}
        is_all = all(first == logs[n].log_start for (_, n), first in starts.items())
    else:
        at_ms, partitions = target.at_ms, [(topic, n) for n in range(len(logs))]
        starts = resolve(target, facts, {} if at_ms is None else offsets_at(cluster, partitions, at_ms))
        is_all = all(first + count >= logs[n].stable_end for (_, n), first in starts.items())
    ranges = [Range(topic, n, first, min(first + count, logs[n].stable_end)) for (_, n), first in starts.items()]
    return ranges, is_all


def _shown_records(batch: pa.RecordBatch, width: int) -> list[dict[str, Any]]:
    """Records with cut texts. Many records are read to show few, so no whole record is kept."""
    from frazil.records.formats.guess import guess
    from frazil.records.model.rows import UNREAD_BYTES, with_python_times

    shown = []
    for row in with_python_times(batch).to_pylist():
        stamp, headers = row["timestamp"], row["headers"] or []
        record = {name: row[name] for name in ("topic", "partition", "offset")}
        record["timestamp"] = None if stamp is None else stamp.astimezone(UTC).isoformat(timespec="milliseconds")
        if row.get(UNREAD_BYTES) is not None:
            record["value"] = f"not shown: {row[UNREAD_BYTES]:,} bytes" if row[UNREAD_BYTES] >= 0 else "not readable"
        else:
            record |= {"format": guess(row["value"]).format, "bytes": len(row["value"] or b"")}
            record |= {part: _shown(row[part], width) for part in ("key", "value")}
            shown_headers = [
                [header["key"][:width], _shown(header["value"], width)] for header in headers[:_MOST_HEADERS]
            ]
            record["headers"] = [
                *shown_headers,
                *([["…", f"{len(headers):,} headers"]] if headers[_MOST_HEADERS:] else []),
            ]
        shown.append(record)
    return shown


def _shown(data: bytes | None, width: int) -> str | None:
    """Bytes as text of about `width` characters; if they are not UTF-8, as hexadecimal digits."""
    if data is None:
        return None
    from codecs import getincrementaldecoder

    part = data[: 4 * width]  # a character of UTF-8 has at most 4 bytes
    try:
        text = getincrementaldecoder("utf-8")().decode(part, final=len(part) == len(data))
    except UnicodeDecodeError:
        text = f"0x{data[:width].hex()}"
    is_cut = len(part) < len(data) or len(text) > width
    return f"{text[:width]}… ({len(data):,} bytes)" if is_cut else text


def _show_record(record: dict[str, Any]) -> None:
    about = (f"{record['format']}, {record['bytes']:,} bytes",) if "format" in record else ()
    console.say(
        "  ".join((f"{record['topic']}/{record['partition']}:{record['offset']}", record["timestamp"] or "-", *about))
    )
    console.say(f"  key      {_line(record.get('key'))}")
    for name, text in record.get("headers", ()):
        console.say(f"  header   {_line(name)}: {_line(text)}")
    console.say(f"  value    {_line(record['value'])}")


def _line(text: str | None) -> str:
    """Escape control characters, so that a producer's text stays on one line and can't look like a line of this command."""
    return "null" if text is None else visible(text)


_SETTINGS = """\
# yaml-language-server: $schema=schemas/settings.schema.json
# What the names in pipeline files stand for on this machine. Secrets come from the environment: ${env:NAME}.
clusters:
  local:
    bootstrap_servers: KAFKA
# For this machine alone: local:home is FRAZIL_HOME, or .frazil here. In an image or a container both are lost with it, tables
# and positions: name a catalog and a store of your own before you deploy.
catalogs:
  lake:
    type: jdbc
    uri: sqlite:///${local:home}/catalog.db
    warehouse: file://${local:home}/warehouse
"""
_ENGINES = """\
engines:
  spark:
    master: local[2]
    connection: frazil_spark
"""
"""Only for projects whose environment has Spark. Without it, a run reads and writes in its own process."""

_PIPELINE = """\
# yaml-language-server: $schema=../schemas/pipeline.schema.json
name: pizzas
description: Made-up records of frazil produce completed-pizzas --generate pizzas --count 1000.
interval: 1m
engine: inline
source:
  topics: [completed-pizzas]
destinations:
  - table: shop.pizzas    # its columns are those that the records bring
"""
_DAG_FILE = "dags/frazil_dags.py"
"""Not `frazil.py`: if it is run as a script, it hides the package of this name."""

_EARLIER_DAG_FILE = "dags/frazil.py"
"""The name in projects of earlier versions."""

_DAGS = '''\
"""The DAGs of all pipelines and captures of this project, and the monitor."""

from frazil_airflow import dags

dags.load()
'''
_FIRST_COMMANDS = (
    "frazil up --only kafka",
    "frazil produce completed-pizzas --generate pizzas --count 1000",
    "frazil run pizzas",
)
_IGNORED = "/.frazil/\n.env\n"

_EMBEDDED = "${local:kafka}"
"""The broker that `frazil up` starts."""


def schema_text(kind: Literal["pipeline", "settings"]) -> str:
    """The JSON Schema of pipeline files or of the settings file, as text."""
    from frazil.pipeline.files.editor_schema import editor_schema
    from frazil.pipeline.models.pipeline_file import Pipeline
    from frazil.pipeline.settings.settings import Settings

    return json.dumps(editor_schema(Pipeline if kind == "pipeline" else Settings), indent=1) + "\n"


def schema(
    kind: Annotated[Literal["pipeline", "settings"], typer.Argument(help="The kind of file.", show_default=False)],
) -> None:
    """Print a JSON Schema with which editors complete and check a file. frazil init writes both schemas into a project."""
    typer.echo(schema_text(kind), nl=False)


def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder of the project.")] = Path(),
    *,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="HOST:PORT", help="Your broker.", show_default="the one of frazil up"),
    ] = None,
) -> None:
    """Create a project: settings, a pipeline, the DAG file, schemas for editors, .gitignore. Existing files stay.

    With [cyan]--kafka[/cyan] no pipeline is created: [cyan]frazil new[/cyan] then proposes one for a topic of yours.
    """
    if kafka is not None and not kafka.strip():
        raise typer.BadParameter("--kafka is empty: expected HOST:PORT of your broker")
    files = {
        "include/settings.yaml": _SETTINGS.replace("KAFKA", json.dumps(kafka) if kafka else _EMBEDDED)
        + (_ENGINES if find_spec("pyspark") else ""),
        "include/schemas/pipeline.schema.json": schema_text("pipeline"),
        "include/schemas/settings.schema.json": schema_text("settings"),
        # A second DAG file would declare each DAG twice.
        _EARLIER_DAG_FILE if (folder / _EARLIER_DAG_FILE).exists() else _DAG_FILE: _DAGS,
        ".gitignore": _IGNORED,
    }
    pipelines = folder / "include" / "pipelines"
    if kafka is None and not any(pipelines.glob("*.y*ml")):
        files["include/pipelines/pizzas.yaml"] = _PIPELINE
    try:
        pipelines.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            console.say(f"{'made' if _write_if_absent(folder / name, text) else 'kept':6}{folder / name}")
    except OSError as error:
        raise BAD_FILE.terminal(
            f"{error.filename} can't be written: {error.strerror}",
            next_step="check the folder's permissions, or name another one",
        ) from error
    console.say(f"next: export FRAZIL_PROJECT={shlex.quote(str(folder.absolute()))}")
    for command in _FIRST_COMMANDS if kafka is None else ("frazil new NAME --topic TOPIC",):
        console.say(f"      {command}")


def _write_if_absent(file: Path, text: str) -> bool:
    """Write a file unless it exists. Returns whether it was written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_new(file, text)
    except FileExistsError:
        return False
    return True
