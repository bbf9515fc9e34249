"""`frazil validate`: are the settings and the pipeline files usable, and if not, where exactly."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli import console
from frazil.cli.options import Json
from frazil.errors import Terminal

if TYPE_CHECKING:
    from frazil.cli.verdict import Verdict


def validate(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files to check. All of the project when left out.")
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """Check settings and pipeline files: every problem with its file, its key and the nearest known key.

    Ends with exit code 78 if a file can't be used.
    """
    from dataclasses import asdict

    from frazil.cli.verdict import judge

    verdicts = judge([file.absolute() for file in files or []], os.environ)
    broken = sum(bool(verdict.problems) for verdict in verdicts)
    if as_json:
        console.print_json({"ok": not broken, "files": [asdict(verdict) for verdict in verdicts]})
    else:
        _show(verdicts, broken)
    if broken:
        raise typer.Exit(Terminal.exit_code)


def _show(verdicts: "list[Verdict]", broken: int) -> None:
    from rich.text import Text

    out = console.out()
    for verdict in verdicts:
        mark = Text("broken  ", style="bold red") if verdict.problems else Text("ok      ", style="green")
        out.print(mark + Text(f"{verdict.kind:8}  {_short(verdict.file)}"), soft_wrap=True)
        for problem in verdict.problems:
            console.say(f"          {problem}")
        for remark in verdict.remarks:
            console.say(f"          warning: {remark}")
    console.say(f"{len(verdicts)} files, {f'{broken} broken' if broken else 'all usable'}")


def _short(file: str) -> str:
    """Relative to here where that is shorter."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
