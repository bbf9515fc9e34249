"""`frazil import-connector`: configurations of Kafka Connect's Iceberg sink become pipeline files and settings."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.output import console
from frazil.cli.output.console import Json
from frazil.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.cli.files.imported_files import ImportFiles
    from frazil.connect.findings import Finding


class Positions(StrEnum):
    """Where first runs begin."""

    CONNECT = "connect"


def import_connector(  # noqa: PLR0913 - one parameter per option
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Connectors, as .json (with or without name and config) or .properties.",
            show_default=False,
        ),
    ],
    *,
    worker: Annotated[
        Path | None,
        typer.Option("--worker", metavar="FILE", help="The worker's .properties: brokers, security, converters."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for settings.yaml and pipelines/.")
    ] = Path("imported"),
    columns: Annotated[
        Path | None,
        typer.Option("--columns", metavar="FILE", help="Columns in YAML: {table: {column: type}}."),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="TABLE", help="A table that records may name, for dynamic routing. May be repeated."
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="A cluster of your settings, instead of a new one.")
    ] = None,
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog", help="A catalog of your settings, instead of a new one. Columns are read from its tables."
        ),
    ] = None,
    registry: Annotated[str | None, typer.Option("--registry", help="A Schema Registry of your settings.")] = None,
    positions: Annotated[
        Positions | None,
        typer.Option("--positions", help="Start where the stopped connector stopped, or fail if that is unknown."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: Json = False,
) -> None:
    """Turn connectors of Kafka Connect's Iceberg sink (Apache, Tabular, Databricks) into pipelines.

    The report lists each key: carried over, changed in meaning, not supported, or unknown. The files hold no secrets, but name
    environment variables instead. If a connector is refused, nothing is written for it, and the exit code is 78.
    """
    from frazil.cli.files.imported_files import ImportOptions, import_files

    options = ImportOptions(
        files=tuple(files),
        worker=worker,
        folder=out,
        columns=columns,
        tables=tuple(table or ()),
        cluster=cluster,
        catalog=catalog,
        registry=registry,
        positions=positions is not None,
        force=force,
    )
    written = import_files(options, os.environ)
    if as_json:
        console.print_json(written.as_json())
    else:
        _show(written)
    if written.is_refused:
        raise typer.Exit(Terminal.exit_code)


_TITLES = {
    "refused": ("refused", "bold red"),
    "not_supported": ("not supported, by hand", "bold yellow"),
    "unknown": ("unknown keys", "bold yellow"),
    "changed": ("changed in meaning", "cyan"),
    "carried": ("carried over", "green"),
}


def _show(written: "ImportFiles") -> None:
    from rich.text import Text

    for imported, file in written.pipelines:
        console.headline(f"{imported.connector} ({imported.file})  {file or 'refused, nothing is written'}")
        for outcome, (title, style) in _TITLES.items():
            findings = [finding for finding in imported.findings if finding.outcome == outcome]
            if findings:
                console.out().print(Text(f"{title} ({len(findings)})", style=style))
                _list(findings)
        for note in imported.notes:
            console.say(f"note: {note}")
        for hole in written.holes(imported):
            console.say(f"to fill in: {hole}")
    console.say()
    _end(written)


def _list(findings: "Sequence[Finding]") -> None:
    for finding in findings:
        console.say(f"  {finding.key}: {finding.message}")
        if finding.by_hand:
            console.say(f"    -> {finding.by_hand}")


def _end(written: "ImportFiles") -> None:
    if written.settings_file:
        console.say(f"settings: {written.settings_file}")
    if written.variables:
        console.say("environment variables to set:")
        for name, what in sorted(written.variables.items()):
            console.say(f"  {name}: {what}")
    refused = sum(imported.is_refused for imported, _ in written.pipelines)
    total = len(written.pipelines)
    console.say(f"{total} connector{'s'[: total != 1]}, {f'{refused} refused' if refused else 'all imported'}")
    if refused < len(written.pipelines):
        console.say("next: fill in what is missing, then check: frazil validate FILE")
