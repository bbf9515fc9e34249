"""`frazil import-connector`: configurations of Kafka Connect's Iceberg sink become pipeline files and settings."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from frazil.cli.output import console
from frazil.cli.output.console import Json
from frazil.errors import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.cli.files.imported_files import ImportFiles
    from frazil.connect.importing import ImportedConnector


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
        Literal["connect"] | None,
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
    from frazil.connect.importing import blanks

    for imported, file in written.pipelines:
        _show_connector(imported, file, blanks(imported))
    console.say()
    if written.settings_file:
        console.say(f"settings: {written.settings_file}")
    if written.variables:
        console.say("environment variables to set:")
        for name, description in sorted(written.variables.items()):
            console.say(f"  {name}: {description}")
    refused = sum(imported.is_refused for imported, _ in written.pipelines)
    total = len(written.pipelines)
    console.say(f"{total} connector{'s'[: total != 1]}, {f'{refused} refused' if refused else 'all imported'}")
    if refused < total:
        console.say("next: fill in what is missing, then check: frazil validate FILE")


def _show_connector(imported: "ImportedConnector", file: Path | None, blanks: "Sequence[str]") -> None:
    from rich.text import Text

    console.headline(f"{imported.connector} ({imported.file})  {file or 'refused, nothing is written'}")
    for outcome, (title, style) in _TITLES.items():
        findings = [finding for finding in imported.findings if finding.outcome == outcome]
        if findings:
            console.say(Text(f"{title} ({len(findings)})", style=style))
        for finding in findings:
            console.say(f"  {finding.key}: {finding.message}")
            if finding.by_hand:
                console.say(f"    -> {finding.by_hand}")
    for note in imported.notes:
        console.say(f"note: {note}")
    for blank in blanks:
        console.say(f"to fill in: {blank}")
