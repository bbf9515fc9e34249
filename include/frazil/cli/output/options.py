"""Options and arguments that several commands take, and the question before something changes that no command takes back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, overload

import typer

from frazil.error_codes import BAD_ARGUMENT

if TYPE_CHECKING:
    from frazil.batch.target import Target


Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead.")]


def pipeline_names() -> list[str]:
    """Names of the usable pipelines, for the completion of a shell; none if they can't be read."""
    from frazil.errors import FrazilError
    from frazil.project import Project

    try:
        return sorted(Project.load().pipelines.usable)
    except FrazilError:
        return []


PipelineName = Annotated[
    str,
    typer.Argument(metavar="PIPELINE", help="Name of a pipeline.", show_default=False, autocompletion=pipeline_names),
]

Reason = Annotated[
    str,
    typer.Option(
        "--reason", metavar="TEXT", help="Why, for the ledger and for whoever asks later.", show_default=False
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Engine of the settings file; 'inline': this process; 'auto': one of both, by what there is to read.",
        show_default="the pipeline's own",
    ),
]

PLACES = "earliest|latest|TIMESTAMP|FILE.json"
"""How a place in topics is written in an option."""


@overload
def place(text: str) -> Target: ...
@overload
def place(text: str | None) -> Target | None: ...
def place(text: str | None) -> Target | None:
    """The place in topics that an option names, None if it was not given.

    Raises:
        Terminal: The text is no such place, or the file can't be read.
    """
    from frazil.batch.target import parse_offsets, parse_target

    if text is None:
        return None
    if not text.endswith(".json"):
        return parse_target(text)
    try:
        return parse_offsets(Path(text).read_text(encoding="utf-8"), text)
    except OSError as error:
        raise BAD_ARGUMENT.terminal(f"the offsets can't be read: {error}") from error


def examples(lines: str, command: str) -> str:
    """Return the examples for a command's help: lines of the examples file that use this command and no longer one."""
    own = (line for line in lines.splitlines() if f"frazil {line.rpartition('frazil ')[2]} ".startswith(f"{command} "))
    return "\n\n".join(f"Example: [cyan]{line}[/cyan]" for line in own)


QUESTION = "Do it?"


def confirm(*, yes: bool) -> None:
    """Continue if the user confirms.

    Raises:
        typer.BadParameter: There is no terminal to ask at.
        typer.Exit: The answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask at; nothing was changed: add --yes to do it")
    if not typer.confirm(QUESTION, default=False, err=True):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(1)
