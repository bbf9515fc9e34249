"""`frazil plugins`: what pipeline and settings files may name, and where it comes from."""

import typer

from frazil.cli.output import console
from frazil.cli.output.options import Json


def plugins(*, as_json: Json = False) -> None:
    """Show formats, transforms and alert channels, each with the package and version it comes from.

    Own parts join by entry points of an installed package, see docs/formats.md and docs/transforms.md. They are loaded:
    if one can't be, the command says why, and ends with 1. Executors need the same packages.
    """
    from rich.text import Text

    from frazil.errors import EXIT_FAILED
    from frazil.report import plugins as report

    parts = report.plugins()
    if as_json:
        console.print_json(parts)
    else:
        table = console.new_table("kind", "name", "from", "version", "place or problem")
        for part in parts:
            last = Text(part.problem, style="red") if part.problem else Text(part.place or "")
            table.add_row(part.kind, Text(part.name), part.package, part.version or "-", last)
        console.show_table(table)
    if any(part.problem for part in parts if part.place):
        raise typer.Exit(EXIT_FAILED)
