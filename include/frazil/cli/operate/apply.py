"""`frazil apply`: tables become what the pipeline file declares."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.operate.run import by_hand, new_run_id
from frazil.cli.output import console
from frazil.cli.output.console import Json, PipelineName, Progress

if TYPE_CHECKING:
    from frazil.run.batches.apply import AppliedFile
    from frazil.run.state.context import RunContext


def apply(
    pipeline: PipelineName,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes. Make none.")] = False,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="The reason, stored in the ledger.", show_default=False),
    ] = None,
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
            applied = applying.apply_file(context, replace(by_hand(new_run_id()), reason=reason))
    if as_json:
        console.print_json(_report(context, applied, dry_run=dry_run))
        return
    for statement in _statements(context, applied):
        console.say(statement)
    if not applied.changes:
        console.say(f"{pipeline}: the tables fit the file; nothing to change")
    elif not dry_run and applied.n is not None:
        console.say(f"{pipeline}: changed; batch {applied.n} in the ledger has the changes: frazil history {pipeline}")
    elif not dry_run:
        console.say(f"{pipeline}: changed; the first batch will record the changes")


def _statements(context: "RunContext", applied: "AppliedFile") -> list[str]:
    from frazil.iceberg.schema.statements import alter_statements

    hidden = context.project.pipelines.hidden
    return [
        hidden(statement)
        for table, changes in applied.changes.items()
        for statement in alter_statements(context.pipeline.destination(table), changes, hidden)
    ]


def _report(context: "RunContext", applied: "AppliedFile", *, dry_run: bool) -> dict[str, object]:
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
