"""`frazil init` and `frazil schema`: the files that a project begins with, and the JSON Schemas by which editors know their keys."""

from __future__ import annotations

import json
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from frazil.cli.output import console
from frazil.error_codes import BAD_FILE
from frazil.runtime.home import write_new

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
"""For projects in whose environment Spark is installed; without it a run reads and writes in its own process."""

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
"""Not `frazil.py`, as it was once: run as a script, that hides the package of this name."""

_EARLIER_DAG_FILE = "dags/frazil.py"

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
    """The JSON Schema of a file, as text."""
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
        str | None, typer.Option(metavar="HOST:PORT", help="Your broker.", show_default="the one of frazil up")
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
        # A second file would make each DAG twice.
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
