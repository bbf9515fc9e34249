"""`frazil reset`: the position of a pipeline moves on demand, in one audited commit."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.operate.run import by_hand, new_run_id
from frazil.cli.output import console
from frazil.cli.output.options import PLACES, Json, PipelineName, Reason, Yes, confirm, place
from frazil.cli.output.progress import Progress
from frazil.error_codes import RUN_OVERTAKEN

if TYPE_CHECKING:
    from frazil.batch.position import Position
    from frazil.batch.reset import Move
    from frazil.run.repair.reset_batch import PlannedReset, RemovalCounts
    from frazil.run.state.context import RunContext


def reset(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    *,
    reason: Reason,
    goal: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar=PLACES,
            help="Where the next run goes on. A file names offsets by topic and partition; what it leaves out stays.",
            show_default=False,
        ),
    ] = None,
    to_table: Annotated[
        bool,
        typer.Option(
            "--to-table",
            help="Go on from what the closing table holds, after it was rolled back or restored: what landed behind that is"
            " taken out of the other tables, and comes again.",
        ),
    ] = False,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Move this topic only; may be repeated.", show_default="all"),
    ] = None,
    allow_duplicates: Annotated[
        bool, typer.Option("--allow-duplicates", help="On the way back: leave rows and dead letters where they are.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the move and change nothing.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Move the position of a pipeline, on record. A batch that was decided is finished first.

    Forward, records are skipped. Back, their rows and dead letters are taken out and the next run lands them again. A
    topic that was recreated begins anew, beside the rows of the old one. The consumer group moves too.
    """
    from frazil.project import Project
    from frazil.run.repair import reset as carrier
    from frazil.run.repair.reset_batch import ResetOrder
    from frazil.run.state.context import RunContext

    if (goal is None) != to_table:
        raise typer.BadParameter("say where to: either --to or --to-table")
    project = Project.load()
    target = place(goal)
    progress = Progress()
    scope = RunContext.open(project, project.pipeline(pipeline), progress.done)
    planned = carrier.preview_reset(scope, ResetOrder(target, tuple(topics or ()), allow_duplicates))
    removed = _shown(scope, planned, as_json=as_json)
    position = None
    if not dry_run and not planned.is_idle:
        confirm(yes=yes)
        shown, planned = planned, carrier.plan_reset(scope, planned.with_fixed_offsets)
        if not planned.has_same_effect(shown):
            _refuse_unseen(pipeline, yes=yes)
            removed = _shown(scope, planned, as_json=as_json)
        position = carrier.reset(scope, planned, replace(by_hand(new_run_id()), reason=reason))
    if as_json:
        console.print_json(_report(pipeline, planned, removed, position))
    elif position is not None:
        _show_position(scope, position)


def _refuse_unseen(pipeline: str, *, yes: bool) -> None:
    """Refuse a reset that differs from the one that the user confirmed."""
    if not yes:
        raise RUN_OVERTAKEN.retryable(
            f"pipeline {pipeline}: a reset would do something else by now than was shown: a run moved the position, or"
            " what had to be finished first did; nothing was reset",
            next_step="reset again; it shows where the pipeline stands now",
        )


def what_happens(move: "Move") -> str:
    """What a move means for the records of its partition."""
    if move.recreated:
        return "new incarnation"
    if move.before is None:
        return "new partition"
    if move.distance > 0:
        return f"{move.distance:,} skipped"
    return f"{-move.distance:,} come again"


def _shown(scope: "RunContext", planned: "PlannedReset", *, as_json: bool) -> "RemovalCounts":
    """Show a reset; how many rows and dead letters it takes out."""
    from frazil.run.repair.reset_batch import count_removed

    removed = count_removed(scope, planned)
    if not as_json:
        _show(planned, removed)
    return removed


def _show(planned: "PlannedReset", removed: "RemovalCounts") -> None:
    for line in planned.remarks:
        console.say(line)
    if planned.is_idle:
        return
    if planned.moves:
        _show_moves(planned)
    else:
        console.say("the position stays where it is")
    if planned.removed or removed.rows:
        rows = sum(removed.rows.values())
        console.say(f"taken out, to be landed again: {rows:,} rows and {removed.dead_letters:,} dead letters")
    if len(removed.rows) > 1 or (removed.rows and not planned.removed):
        console.say(f"rows of {', '.join(f'{table}: {count:,}' for table, count in sorted(removed.rows.items()))}")
    if planned.order.allow_duplicates and not removed.rows and any(move.distance < 0 for move in planned.moves):
        console.say("nothing is taken out: records that come again will stand beside their old rows and dead letters")


def _show_moves(planned: "PlannedReset") -> None:
    table = console.new_table("topic", numbers=("partition", "from", "to", "offsets"))
    for move in planned.moves:
        before = "" if move.before is None else f"{move.before:,}"
        table.add_row(move.topic, str(move.partition), before, f"{move.after:,}", what_happens(move))
    console.show_table(table)


def _show_position(scope: "RunContext", position: "Position") -> None:
    pipeline = scope.pipeline
    console.say(f"{pipeline.name}: batch {position.n} begins epoch {position.epoch}; the next run goes on at")
    for name, topic in sorted(position.topics.items()):
        console.say(f"  {name}: {', '.join(f'{offset:,}' for offset in topic.next)}")
    if pipeline.consumer_group is not None:
        console.say(f"consumer group {pipeline.consumer_group} was moved there, too")


def _report(
    pipeline: str, planned: "PlannedReset", removed: "RemovalCounts", position: "Position | None"
) -> dict[str, object]:
    after = position or planned.after
    return {
        "pipeline": pipeline,
        "done": position is not None,
        "first": planned.remarks,
        "n": after.n,
        "epoch": after.epoch,
        "position": {name: topic.next for name, topic in after.topics.items()},
        "moves": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "from": move.before,
                "to": move.after,
                "recreated": move.recreated,
            }
            for move in planned.moves
        ],
        "removed": {"rows": sum(removed.rows.values()), "dead_letters": removed.dead_letters},
        "removed_rows": removed.rows,
    }
