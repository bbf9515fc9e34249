"""`frazil validate` checks settings and pipeline files. `frazil plugins` lists the formats, transforms and alert channels
that these files may name.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.output import console
from frazil.cli.output.console import Json
from frazil.error_codes import NAME_UNKNOWN
from frazil.errors import EXIT_FAILED, Terminal

if TYPE_CHECKING:
    from frazil.cli.files.verdict import Verdict


def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[NAME|FILE]...", help="Pipelines or captures by name, or files. Without one, the whole project."
        ),
    ] = None,
    *,
    diff: Annotated[
        str | None,
        typer.Option(
            "--diff",
            metavar="REVISION",
            help="Also show what the files change against a branch, tag or commit.",
            show_default=False,
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="With --diff: compare the files only, without catalogs.")
    ] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="With --diff: print a comment for a pull request.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check settings and pipeline files. Each problem is shown with its file, its key and the nearest known key.

    With --diff, show also what the files would change: DAGs, tables, the position, and what the next run would refuse. The exit
    code is 78 if a file can't be used, and 1 if the next run would refuse something.
    """
    from frazil.cli.files.verdict import judge

    if diff is None and (offline or as_markdown):
        raise typer.BadParameter("--offline and --markdown need --diff")
    if diff is not None and files:
        raise typer.BadParameter("--diff compares the whole project: remove the names")
    verdicts = judge([_file(file) for file in files or []], os.environ)
    broken = sum(bool(verdict.problems) for verdict in verdicts)
    if diff is not None and not broken:
        _diff(diff, offline=offline, as_markdown=as_markdown, as_json=as_json)
        return
    if as_markdown:
        console.say(_broken_markdown(verdicts))
    elif as_json:
        console.print_json({"ok": not broken, "files": verdicts})
    else:
        _show(verdicts, broken)
    if broken:
        raise typer.Exit(Terminal.exit_code)


def _file(argument: Path) -> Path:
    """The file that an argument means: a path, or the name of a pipeline or a capture."""
    from frazil.pipeline.files.folder import named_files
    from frazil.pipeline.syntax.strict import nearest
    from frazil.project import Places

    if argument.is_file() or argument.suffix or len(argument.parts) > 1:
        return argument.absolute()
    places = Places.resolve(os.environ)
    files = named_files(places.captures_folder) | named_files(places.pipelines_folder)
    if argument.name not in files:
        raise NAME_UNKNOWN.terminal(
            f"no pipeline or capture is named {argument.name!r}", next_step=nearest(argument.name, files)
        )
    return files[argument.name]


def _diff(revision: str, *, offline: bool, as_markdown: bool, as_json: bool) -> None:
    from frazil.cli.files.verdict import compare, markdown, show
    from frazil.project import Places, Project

    comparison = compare(Places.resolve(os.environ), Project.load(), revision, offline=offline)
    if as_json:
        console.print_json({"ok": not comparison.is_refused, **comparison.to_json()})
    elif as_markdown:
        typer.echo(markdown(comparison), nl=False)
    else:
        show(comparison)
    if comparison.is_refused:
        raise typer.Exit(EXIT_FAILED)


def _broken_markdown(verdicts: "list[Verdict]") -> str:
    lines = [f"- `{_short(verdict.file)}`: {problem}" for verdict in verdicts for problem in verdict.problems]
    return "\n".join(["### Pipeline files that can't be used", "", *lines])


def _show(verdicts: "list[Verdict]", broken: int) -> None:
    from rich.text import Text

    for verdict in verdicts:
        mark = Text("broken  ", style="bold red") if verdict.problems else Text("ok      ", style="green")
        console.say(mark + Text(f"{verdict.kind:8}  {_short(verdict.file)}"))
        for problem in verdict.problems:
            console.say(f"          {problem}")
        for remark in verdict.remarks:
            console.say(f"          warning: {remark}")
    console.say(
        f"{len(verdicts)} {'file' if len(verdicts) == 1 else 'files'}, {f'{broken} broken' if broken else 'all usable'}"
    )


def _short(file: str) -> str:
    """The path, relative to the current folder if the file is in it."""
    return file.removeprefix(f"{Path.cwd()}{os.sep}")


def plugins(*, as_json: Json = False) -> None:
    """Show formats, transforms and alert channels, each with the package and version it comes from.

    Your own ones come from entry points of installed packages (docs/formats.md, docs/transforms.md). The command loads each of
    them. If one can't be loaded, it shows the error and ends with exit code 1. Executors need the same packages.
    """
    from rich.text import Text

    from frazil.report import plugins as report

    parts = report.plugins()
    if as_json:
        console.print_json(parts)
    else:
        table = console.new_table("kind", "name", "from", "version", "place or problem")
        for part in parts:
            place_or_problem = Text(part.problem, style="red") if part.problem else Text(part.place or "")
            table.add_row(part.kind, Text(part.name), part.package, part.version or "-", place_or_problem)
        console.show_table(table)
    if any(part.problem for part in parts if part.place):
        raise typer.Exit(EXIT_FAILED)
