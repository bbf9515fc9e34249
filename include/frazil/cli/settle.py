"""`frazil settle`: a follower or the ledger that lost what it was given gets it again, or goes on without it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli import console
from frazil.cli.confirm import confirm
from frazil.cli.options import Json, PipelineName, Reason, Yes
from frazil.cli.progress import Progress
from frazil.cli.run import by_hand, new_run_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.run.settle import PlannedSettle, Settled


def settle(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    *,
    table: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="The table that the error names.", show_default=False)
    ],
    reason: Reason,
    restage: Annotated[
        bool, typer.Option("--restage", help="Land again what Kafka and the manifests still hold of its part.")
    ] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Go on without its part; with --restage: without what is gone.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Mend a destination that follows, a dead-letter table or a ledger that was dropped, rolled back or changed, on record.

    With --restage, records that have no row become dead letters again, with the number of their batch, whatever the
    pipeline file says of them now; a destination gets the rows of its batches from Kafka again; a ledger gets the rows of all batches whose manifests are left.
    """
    from frazil.project import Project
    from frazil.run import settle as carrier
    from frazil.run.scope import Scope

    if not restage and not abandon:
        raise typer.BadParameter("say what to do: --restage lands its part again, --abandon goes on without it")
    project = Project.load()
    progress = Progress()
    scope = Scope.of(project, project.pipeline(pipeline), progress.done)
    order = carrier.SettleOrder(table, restage=restage, abandon=abandon)
    planned = carrier.plan_settle(scope, order)
    if planned is None:
        _say_whole(pipeline, table, as_json=as_json)
        return
    if not as_json:
        for line in _shown(planned):
            console.say(line)
    confirm(yes=yes)
    with progress:
        done = carrier.settle(scope, planned, replace(by_hand(new_run_id()), reason=reason))
    if as_json:
        console.print_json(_report(pipeline, table, done))
    else:
        _show_done(pipeline, planned, done)


def _say_whole(pipeline: str, table: str, *, as_json: bool) -> None:
    if as_json:
        console.print_json(_report(pipeline, table, None))
    else:
        console.say(f"{pipeline}: table {table} holds what it should; nothing to settle")


def _shown(planned: "PlannedSettle") -> "Iterator[str]":
    order, debt = planned.order, planned.debt
    numbers = sorted(debt.expected)
    batches = f"batches {numbers[0]} to {numbers[-1]}" if numbers else "no batch"
    yield f"table {order.table} lacks {_counted(planned, debt.total)} at most, of {batches}"
    yield from (f"gone: {line}" for line in debt.gone)
    if not order.restage:
        yield "all of it will be given up"


def _counted(planned: "PlannedSettle", count: int) -> str:
    debt = planned.debt
    what = "batches" if debt.is_ledger else "dead letters" if debt.rows_table is None else "rows"
    return f"{count:,} {what}"


def _show_done(pipeline: str, planned: "PlannedSettle", done: "Settled") -> None:
    for line in done.remarks:
        console.say(f"gone: {line}")
    again, lost = _counted(planned, done.restaged), _counted(planned, done.abandoned)
    console.say(f"{pipeline}: settled in batch {done.n}: {again} written again, {lost} given up at most")


def _report(pipeline: str, table: str, done: "Settled | None") -> dict[str, object]:
    settled = {
        "n": done.n if done else None,
        "restaged": done.restaged if done else 0,
        "abandoned": done.abandoned if done else 0,
        "remarks": done.remarks if done else (),
    }
    return {"pipeline": pipeline, "table": table, "done": done is not None} | settled
