"""Commands that change tables or position, each by one batch in the ledger: `frazil replay` and `frazil repair` read ranges
again, `frazil reset` moves the position, `frazil apply` fits the tables to the pipeline file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.operate.run import (
    carry_out,
    empty_result,
    manual_request,
    print_result,
    show_plan,
    show_result,
    with_engine,
)
from frazil.cli.output import console
from frazil.cli.output.console import (
    TARGET_FORMS,
    Engine,
    Json,
    OptionalReason,
    PipelineName,
    Progress,
    Reason,
    Yes,
    confirm,
    read_target,
)
from frazil.error_codes import BAD_ARGUMENT, RUN_OVERTAKEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from frazil.batch.facts import Range
    from frazil.batch.position import Position, RunRequest
    from frazil.batch.reset import Move
    from frazil.pipeline.models.pipeline_file import Pipeline
    from frazil.project import Project
    from frazil.run.batches.apply import AppliedFile
    from frazil.run.batches.plan import RunResult
    from frazil.run.repair.repair import PlannedRepair
    from frazil.run.repair.reset_batch import PlannedReset, RemovalCounts
    from frazil.run.state.context import RunContext


def replay(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    *,
    from_: Annotated[
        str, typer.Option("--from", metavar=TARGET_FORMS, help="Where the range begins.", show_default=False)
    ],
    end: Annotated[
        str | None,
        typer.Option("--to", metavar=TARGET_FORMS, help="Where the range ends.", show_default="the position"),
    ] = None,
    reason: OptionalReason = None,
    engine: Engine = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Read a range of the topics again with the present pipeline file, and replace its rows and dead letters in one commit.

    Readers see the old rows until that commit. The position does not move, and records after it are left to the next run.
    """
    from frazil.project import Project
    from frazil.run.batches.plan import plan_run

    project = Project.load()
    chosen = with_engine(project.pipeline(pipeline), engine)
    start, end_target = read_target(from_), read_target(end)
    request = replace(manual_request(), mode="replay", start=start, end=end_target, reason=reason)
    progress = Progress()
    with progress:
        planned = plan_run(project, chosen, request, progress.done)
    if planned.plan is None:
        progress.done(f"{pipeline}: nothing to read again: the range is empty, or after the position")
        result = empty_result(pipeline, request.run, planned)
    else:
        if not as_json:
            show_plan(planned.plan)
        confirm(yes=yes)
        with progress:
            result = carry_out(project, chosen, planned.plan, progress)
    print_result(result, as_json=as_json)
    if not as_json:
        console.say(f"{pipeline}: the position stays; frazil history {pipeline} shows what was replaced")


def repair(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table that the error names.", show_default=False)],
    *,
    reason: Reason,
    no_replay: Annotated[
        bool, typer.Option("--no-replay", help="Continue without the lost rows. A later repair lands them again.")
    ] = False,
    engine: Engine = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Repair a table that was dropped, rolled back or changed, so that its pipeline can continue.

    TABLE is a destination, the dead-letter table or the ledger, but not the table that has the position (see frazil reset).
    The command records in the ledger which offsets the table may have lost. Then a replay reads these offsets again from Kafka,
    for all tables of the pipeline. A ledger is filled again from the batches' manifest files.
    """
    from frazil.project import Project
    from frazil.run.repair import repair as repairs
    from frazil.run.state.context import RunContext

    project = Project.load()
    chosen = with_engine(project.pipeline(pipeline), engine)
    progress = Progress()
    context = RunContext.open(project, chosen, progress.done)
    planned = repairs.plan_repair(context, table)
    if not as_json:
        for line in _repair_lines(planned, pipeline, is_replayed=not no_replay):
            console.say(line)
    n, replayed = None, None
    if planned.loss is not None or (planned.is_needed and not no_replay):
        confirm(yes=yes)
        request = replace(manual_request(), reason=reason)
        with progress:
            n = repairs.repair(context, planned, request)
            replayed = None if no_replay else _replay(project, chosen, planned.replay_request(request), progress)
    if as_json:
        console.print_json(_repair_report(planned, pipeline, n, replayed))
        return
    if n is not None:
        console.say(
            f"{pipeline}: repaired in batch {n}: table {table} continues; frazil history {pipeline} shows what it lost"
        )
    if replayed is not None:
        show_result(replayed)


def settle(_context: typer.Context) -> None:
    """Name the command that replaced this one."""
    raise BAD_ARGUMENT.terminal(
        "frazil settle was replaced by frazil repair", next_step="frazil repair PIPELINE TABLE --reason …"
    )


def _replay(project: Project, pipeline: Pipeline, request: RunRequest | None, progress: Progress) -> RunResult | None:
    from frazil.run.batches.plan import plan_run

    planned = plan_run(project, pipeline, request, progress.done) if request is not None else None
    return carry_out(project, pipeline, planned.plan, progress) if planned is not None and planned.plan else None


def _repair_lines(planned: PlannedRepair, pipeline: str, *, is_replayed: bool) -> Iterator[str]:
    table, loss = planned.table, planned.loss
    if loss is None and not planned.fill and not planned.unrecoverable:
        yield f"{pipeline}: table {table} holds what it should; nothing to repair"
        return
    if loss is not None and loss.batches:
        yield f"the rows of {len(loss.batches)} batches, {loss.batches[0]} to {loss.batches[-1]}, are lost: no manifest is left"
    if loss is not None and loss.recovers:
        yield f"{len(loss.recovers)} batches get their rows in the ledger"
    yield from (f"lost: {line}" for line in _range_lines(loss.ranges if loss is not None else ()))
    yield from (f"gone from Kafka, given up: {line}" for line in _range_lines(planned.unrecoverable))
    if planned.refusal is not None:
        yield f"given up, for it can't be replayed: {planned.refusal}"
    elif planned.fill and is_replayed:
        yield from (f"replayed: {line}" for line in _range_lines(planned.fill))
    elif planned.fill:
        yield "not replayed now: repair again without --no-replay to fill the table"


def _range_lines(ranges: Iterable[Range]) -> Iterator[str]:
    return (
        f"topic {part.topic}, partition {part.partition}, offsets {part.start:,} to {part.end - 1:,}" for part in ranges
    )


def _repair_report(
    planned: PlannedRepair, pipeline: str, n: int | None, replayed: RunResult | None
) -> dict[str, object]:
    import json

    def listed(ranges: Iterable[Range]) -> list[tuple[str, int, int, int]]:
        return [(part.topic, part.partition, part.start, part.end) for part in ranges]

    return {
        "pipeline": pipeline,
        "table": planned.table,
        "n": n,
        "lost": listed(planned.loss.ranges if planned.loss else ()),
        "lost_batches": list(planned.loss.batches if planned.loss else ()),
        "gone": listed(planned.unrecoverable),
        "not_replayed": str(planned.refusal) if planned.refusal else None,
        "replay": json.loads(replayed.to_json()) if replayed else None,
    }


def reset(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    *,
    reason: Reason,
    goal: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar=TARGET_FORMS,
            help="Where the next run continues. A file has offsets by topic and partition; partitions that it omits stay.",
            show_default=False,
        ),
    ] = None,
    to_table: Annotated[
        bool,
        typer.Option(
            "--to-table",
            help="After a rollback or restore of the table that has the position: continue from the batches that it has. Rows of"
            " later batches are removed from the other tables, and the next run lands them again.",
        ),
    ] = False,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Move only this topic. May be repeated.", show_default="all"),
    ] = None,
    allow_duplicates: Annotated[
        bool,
        typer.Option(
            "--allow-duplicates",
            help="When moving back: keep rows and dead letters, so that records land a second time.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the move. Change nothing.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Move the position of a pipeline. The ledger records the move and its reason.

    Moving forward skips records. Moving back removes the rows and dead letters of the range, and the next run lands them
    again. If a topic was recreated, the rows of the old topic stay. A batch that was decided is finished first.
    The consumer group moves too.
    """
    from frazil.project import Project
    from frazil.run.repair import reset as resets
    from frazil.run.repair.reset_batch import ResetOrder
    from frazil.run.state.context import RunContext

    if (goal is None) != to_table:
        raise typer.BadParameter("give either --to or --to-table")
    project = Project.load()
    target = read_target(goal)
    progress = Progress()
    context = RunContext.open(project, project.pipeline(pipeline), progress.done)
    planned = resets.preview_reset(context, ResetOrder(target, tuple(topics or ()), allow_duplicates))
    removed = _preview_reset(context, planned, as_json=as_json)
    position = None
    if not dry_run and not planned.is_idle:
        confirm(yes=yes)
        previewed, planned = planned, resets.plan_reset(context, planned.with_fixed_offsets)
        if not planned.has_same_effect(previewed):
            if not yes:  # the user confirmed another reset than this one
                raise RUN_OVERTAKEN.retryable(
                    f"pipeline {pipeline}: the position moved after this reset was shown, because a run landed a batch or an unfinished"
                    " one was finished; nothing was reset",
                    next_step="run the reset again; it shows the present position",
                )
            removed = _preview_reset(context, planned, as_json=as_json)
        position = resets.reset(context, planned, replace(manual_request(), reason=reason))
    if as_json:
        console.print_json(_reset_report(pipeline, planned, removed, position))
    elif position is not None:
        _show_position(context, position)


def _effect(move: Move) -> str:
    """What a move means for the records of its partition."""
    if move.recreated:
        return "recreated topic"
    if move.before is None:
        return "new partition"
    if move.distance > 0:
        return f"{move.distance:,} skipped"
    return f"{-move.distance:,} to read again"


def _preview_reset(context: RunContext, planned: PlannedReset, *, as_json: bool) -> RemovalCounts:
    """Show a reset, unless as JSON. Returns how many rows and dead letters it removes."""
    from frazil.run.repair.reset_batch import count_removed

    removed = count_removed(context, planned)
    if not as_json:
        _show_reset(planned, removed)
    return removed


def _show_reset(planned: PlannedReset, removed: RemovalCounts) -> None:
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
        console.say(f"removed, to land again: {rows:,} rows and {removed.dead_letters:,} dead letters")
    if len(removed.rows) > 1 or (removed.rows and not planned.removed):
        console.say(f"rows of {', '.join(f'{table}: {count:,}' for table, count in sorted(removed.rows.items()))}")
    if planned.order.allow_duplicates and not removed.rows and any(move.distance < 0 for move in planned.moves):
        console.say("nothing is removed: records land a second time, next to their old rows and dead letters")


def _show_moves(planned: PlannedReset) -> None:
    table = console.new_table("topic", numbers=("partition", "from", "to", "offsets"))
    for move in planned.moves:
        before = "" if move.before is None else f"{move.before:,}"
        table.add_row(move.topic, str(move.partition), before, f"{move.after:,}", _effect(move))
    console.show_table(table)


def _show_position(context: RunContext, position: Position) -> None:
    pipeline = context.pipeline
    console.say(f"{pipeline.name}: batch {position.n} begins epoch {position.epoch}; the next run continues at")
    for name, topic in sorted(position.topics.items()):
        console.say(f"  {name}: {', '.join(f'{offset:,}' for offset in topic.next)}")
    if pipeline.consumer_group is not None:
        console.say(f"consumer group {pipeline.consumer_group} was moved too")


def _reset_report(
    pipeline: str, planned: PlannedReset, removed: RemovalCounts, position: Position | None
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


def apply(
    pipeline: PipelineName,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes. Make none.")] = False,
    reason: OptionalReason = None,
    as_json: Json = False,
) -> None:
    """Change the tables to fit the pipeline file: columns, docs, types, partitions, sort order, key and properties.

    The ledger records all changes as one batch. No row is rewritten and no column is dropped: a change that would need this is
    refused before anything is changed. Applying the same file again changes nothing.
    """
    from frazil.project import Project
    from frazil.run.batches import apply as applying
    from frazil.run.state.context import RunContext

    project = Project.load()
    progress = Progress()
    context = RunContext.open(project, project.pipeline(pipeline), progress.done)
    if dry_run:
        applied = applying.AppliedFile(None, applying.preview_changes(context))
    else:
        with progress:
            applied = applying.apply_file(context, replace(manual_request(), reason=reason))
    if as_json:
        console.print_json(_apply_report(context, applied, dry_run=dry_run))
        return
    for statement in _statements(context, applied):
        console.say(statement)
    if not applied.changes:
        console.say(f"{pipeline}: the tables fit the file; nothing to change")
    elif not dry_run and applied.n is not None:
        console.say(f"{pipeline}: changed; batch {applied.n} in the ledger has the changes: frazil history {pipeline}")
    elif not dry_run:
        console.say(f"{pipeline}: changed; the first batch will record the changes")


def _statements(context: RunContext, applied: AppliedFile) -> list[str]:
    from frazil.iceberg.schema.column_changes import alter_statements

    hidden = context.project.pipelines.hidden
    return [
        hidden(statement)
        for table, changes in applied.changes.items()
        for statement in alter_statements(context.pipeline.destination(table), changes, hidden)
    ]


def _apply_report(context: RunContext, applied: AppliedFile, *, dry_run: bool) -> dict[str, object]:
    hidden = context.project.pipelines.hidden
    return {
        "pipeline": context.pipeline.name,
        "done": bool(applied.changes) and not dry_run,
        "n": applied.n,
        "changes": {
            table: [{"path": change.path, "kind": change.kind, "type": hidden(change.type)} for change in changes]
            for table, changes in applied.changes.items()
        },
        "statements": _statements(context, applied),
    }
