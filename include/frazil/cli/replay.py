"""`frazil replay`: a range of offsets is read again, and its rows and dead letters are replaced."""

from dataclasses import replace
from typing import Annotated

import typer

from frazil.cli import console
from frazil.cli.confirm import confirm
from frazil.cli.options import PLACES, Engine, Json, PipelineName, Yes, place
from frazil.cli.progress import Progress
from frazil.cli.run import by_hand, carry_out, empty_result, new_run_id, show_plan, show_result


def replay(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    *,
    from_: Annotated[str, typer.Option("--from", metavar=PLACES, help="Where to begin.", show_default=False)],
    to: Annotated[
        str | None, typer.Option("--to", metavar=PLACES, help="Where to end.", show_default="the position")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the ledger.", show_default=False)
    ] = None,
    engine: Engine = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Read a range again under the present pipeline file, and replace its rows and dead letters, all at once.

    Readers see the old rows until the new ones are there. The position stays: records beyond it are for a run.
    """
    from frazil.project import Project
    from frazil.run.plan import plan_run

    project = Project.load()
    chosen = project.pipeline(pipeline)
    if engine is not None:
        chosen = chosen.model_copy(update={"engine": engine})
    run_id = new_run_id()
    request = replace(by_hand(run_id), mode="replay", start=place(from_), end=place(to), reason=reason)
    progress = Progress()
    with progress:
        planned = plan_run(project, chosen, request, progress.done)
    if planned.plan is None:
        progress.done(f"{pipeline}: nothing to read again: the range is empty, or lies beyond the position")
        result = empty_result(pipeline, run_id, planned)
    else:
        if not as_json:
            show_plan(planned.plan)
        confirm(yes=yes)
        with progress:
            result = carry_out(project, chosen, planned.plan, progress)
    if as_json:
        typer.echo(result.to_json())
    else:
        show_result(result)
        console.say(f"{pipeline}: the position stays; frazil history {pipeline} shows what was replaced")
