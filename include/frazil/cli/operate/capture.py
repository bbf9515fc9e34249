"""`frazil capture`: lines of files, or rows of a database, become records of a topic."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from frazil.cli.output import console
from frazil.cli.output.options import Json, Yes
from frazil.cli.output.progress import Progress

if TYPE_CHECKING:
    from frazil.capture.position import CaptureOrder
    from frazil.capture.run import CaptureResult
    from frazil.pipeline.settings.capture import Capture
    from frazil.project import Project

CaptureName = Annotated[str, typer.Argument(metavar="CAPTURE", help="Name of a capture.", show_default=False)]
From = Annotated[
    Literal["beginning", "end", "position"] | None,
    typer.Option(
        "--from",
        help="Go on there instead: with all that is there, with what comes from now on, or where it stood, in another"
        " topic. Records may be captured again, or left out.",
        show_default="the position",
    ),
]
Why = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="With --from: why, kept with the position.", show_default=False)
]


def capture(
    name: CaptureName,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be captured; nothing is sent or made.")
    ] = False,
    from_: From = None,
    reason: Why = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Run a capture once: what is new in its files, or in its database, goes to its topic, each line or row once.

    Records and position are committed together. A run that is killed is followed by one that goes on behind it; a run that
    begins ends another one of the same capture.
    """
    from frazil.project import Project

    if (from_ is None) != (not reason):
        raise typer.BadParameter("--from and --reason go together: the position keeps why it was moved")
    if dry_run and from_ is not None:
        raise typer.BadParameter("a dry run looks from the position on: leave out --from")
    project = Project.load()
    chosen = project.capture(name)
    if dry_run:
        _look(project, chosen, as_json=as_json)
        return
    if from_ is not None:
        _ask(project, chosen, from_, yes=yes)
    with Progress() as progress:
        result = _captured(project, chosen, _order(from_, reason), progress)
    if as_json:
        typer.echo(result.to_json())
    else:
        console.say(result.summary)


def _order(place: Literal["beginning", "end", "position"] | None, reason: str) -> "CaptureOrder":
    from frazil.capture.position import CaptureOrder
    from frazil.cli.operate.run import by_hand, new_run_id

    request = by_hand(new_run_id())
    return CaptureOrder(request.run, request.started_by, place, reason)


def _captured(project: "Project", chosen: "Capture", order: "CaptureOrder", progress: Progress) -> "CaptureResult":
    from frazil.capture.run import capture_files
    from frazil.pipeline.settings.capture import FileCapture

    progress.doing(f"{chosen.name}: capturing")
    if isinstance(chosen, FileCapture):
        return capture_files(project, chosen, order, progress.done)
    from frazil.spark.submit.submission import run_capture

    return run_capture(project, chosen, order, progress.done)


def _look(project: "Project", chosen: "Capture", *, as_json: bool) -> None:
    from frazil.capture.run import preview_files
    from frazil.capture.run_rows import look_at_rows
    from frazil.pipeline.settings.capture import FileCapture

    if not isinstance(chosen, FileCapture):
        rows = look_at_rows(project, chosen)
        if as_json:
            console.print_json({"capture": chosen.name, "rows": rows})
        else:
            console.say(f"{chosen.name}: all rows where {rows}" if rows else f"{chosen.name}: all rows")
        return
    files, remarks = preview_files(project, chosen)
    if as_json:
        console.print_json({"capture": chosen.name, "files": files, "said": remarks})
        return
    for line in remarks:
        console.say(f"{chosen.name}: {line}")
    for file in files:
        console.say(
            f"{file.path}: from byte {file.offset:,}, {file.size:,} bytes{' packed' if file.path.endswith('.gz') else ''}"
        )
    if not files:
        console.say(f"{chosen.name}: nothing new")


def _ask(project: "Project", chosen: "Capture", place: str, *, yes: bool) -> None:
    from frazil.capture.run import ground_of
    from frazil.cli.output.options import confirm

    position = ground_of(project, chosen).position()
    stands = (
        "it has no position" if position is None else f"it stands at transaction {position.n} in topic {position.topic}"
    )
    typer.echo(f"{chosen.name}: {stands}; it would go on from: {place}", err=True)
    confirm(yes=yes)
