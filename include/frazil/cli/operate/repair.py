"""`frazil replay` reads a range of offsets again; `frazil repair` does so for a follower or a ledger that lost something."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.operate.run import by_hand, carry_out, empty_result, new_run_id, show_plan, show_result
from frazil.cli.output import console
from frazil.cli.output.options import PLACES, Engine, Json, PipelineName, Reason, Yes, confirm, place
from frazil.cli.output.progress import Progress
from frazil.error_codes import BAD_ARGUMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from frazil.batch.facts import Range
    from frazil.run.batches.result import RunResult
    from frazil.run.repair.repair import PlannedRepair


def replay(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    *,
    from_: Annotated[str, typer.Option("--from", metavar=PLACES, help="Where to begin.", show_default=False)],
    end: Annotated[
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
    from frazil.run.batches.plan import plan_run

    project = Project.load()
    chosen = project.pipeline(pipeline)
    if engine is not None:
        chosen = chosen.model_copy(update={"engine": engine})
    run_id = new_run_id()
    request = replace(by_hand(run_id), mode="replay", start=place(from_), end=place(end), reason=reason)
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


def repair(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table that the error names.", show_default=False)],
    *,
    reason: Reason,
    no_replay: Annotated[
        bool, typer.Option("--no-replay", help="Go on without what was lost; a later repair fills it again.")
    ] = False,
    engine: Engine = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Let a pipeline go on whose table was dropped, rolled back or changed, and land again what Kafka still holds.

    TABLE is a destination that follows, the dead letters or the ledger. What it lost at most is written into the ledger;
    then a replay reads those offsets again, for all tables of the pipeline. A ledger gets the rows of all batches whose
    manifests are left.
    """
    from frazil.project import Project
    from frazil.run.repair import repair as repairs
    from frazil.run.state.context import RunContext

    project = Project.load()
    chosen = project.pipeline(pipeline)
    if engine is not None:
        chosen = chosen.model_copy(update={"engine": engine})
    progress = Progress()
    scope = RunContext.open(project, chosen, progress.done)
    planned = repairs.plan_repair(scope, table)
    if not as_json:
        for line in _shown(planned, pipeline, is_replayed=not no_replay):
            console.say(line)
    n, filled = None, None
    if planned.loss is not None or (planned.is_needed and not no_replay):
        confirm(yes=yes)
        request = replace(by_hand(new_run_id()), reason=reason)
        with progress:
            n = repairs.repair(scope, planned, request)
            filled = None if no_replay else _replay(project, chosen, planned.replay_request(request), progress)
    if as_json:
        console.print_json(_report(planned, pipeline, n, filled))
    elif n is not None:
        console.say(
            f"{pipeline}: repaired in batch {n}: table {table} goes on; frazil history {pipeline} shows what it lost"
        )
    if filled is not None and not as_json:
        show_result(filled)


def settle(_context: typer.Context) -> None:
    """Say which command took its place."""
    raise BAD_ARGUMENT.terminal(
        "frazil settle is gone: frazil repair took its place", next_step="frazil repair PIPELINE TABLE --reason …"
    )


def _replay(project: Any, pipeline: Any, request: Any, progress: Progress) -> RunResult | None:
    from frazil.run.batches.plan import plan_run

    planned = plan_run(project, pipeline, request, progress.done) if request is not None else None
    return carry_out(project, pipeline, planned.plan, progress) if planned is not None and planned.plan else None


def _shown(planned: PlannedRepair, pipeline: str, *, is_replayed: bool) -> Iterator[str]:
    table, loss = planned.table, planned.loss
    if loss is None and not planned.fill and not planned.unrecoverable:
        yield f"{pipeline}: table {table} holds what it should; nothing to repair"
        return
    if loss is not None and loss.batches:
        yield f"the rows of {len(loss.batches)} batches, {loss.batches[0]} to {loss.batches[-1]}, are lost: no manifest is left"
    if loss is not None and loss.recovers:
        yield f"{len(loss.recovers)} batches get their rows in the ledger"
    yield from (f"lost: {line}" for line in _lines(loss.ranges if loss is not None else ()))
    yield from (f"gone from Kafka, given up: {line}" for line in _lines(planned.unrecoverable))
    if planned.refusal is not None:
        yield f"given up, for it can't be replayed: {planned.refusal}"
    elif planned.fill and is_replayed:
        yield from (f"replayed: {line}" for line in _lines(planned.fill))
    elif planned.fill:
        yield "not replayed now: repair again without --no-replay to fill the table"


def _lines(ranges: Iterable[Range]) -> Iterator[str]:
    return (
        f"topic {offset_range.topic}, partition {offset_range.partition}, offsets {offset_range.start:,} to {offset_range.end - 1:,}"
        for offset_range in ranges
    )


def _report(planned: PlannedRepair, pipeline: str, n: int | None, filled: RunResult | None) -> dict[str, object]:
    import json

    def listed(ranges: Iterable[Range]) -> list[tuple[str, int, int, int]]:
        return [
            (offset_range.topic, offset_range.partition, offset_range.start, offset_range.end)
            for offset_range in ranges
        ]

    return {
        "pipeline": pipeline,
        "table": planned.table,
        "n": n,
        "lost": listed(planned.loss.ranges if planned.loss else ()),
        "lost_batches": list(planned.loss.batches if planned.loss else ()),
        "gone": listed(planned.unrecoverable),
        "not_replayed": str(planned.refusal) if planned.refusal else None,
        "replay": json.loads(filled.to_json()) if filled else None,
    }
