"""Shows what a changed pipeline file does to DAGs, tables and position. `frazil apply` makes the tables what the file declares,
in one batch that moves no offset.

That batch is decided before any table is changed. So a batch that another run staged for the old tables is refused, and staged
again. If a process is killed after the decision, the next command makes the rest of the changes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from frazil.batch.position import RunRequest
from frazil.batch.schema_change import Demands, listed
from frazil.error_codes import RUN_OVERTAKEN, TABLE_UNFIT
from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.commit.commit import Refused
from frazil.iceberg.commit.summary_state import BATCH_KEY, read_summary
from frazil.iceberg.schema.column_changes import alter_statements
from frazil.iceberg.schema.comparison import Comparison, compare, refuse_unfit
from frazil.iceberg.schema.evolution import TableChanges, evolve, plan_changes, refuse_unwritable
from frazil.pipeline.files.folder import Impact, PipelineChange
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.commit.audit import publish
from frazil.run.commit.commit_batch import recover
from frazil.run.commit.manifests import Batch
from frazil.run.state.context import RunContext, refuse_no_key, refuse_other_key
from frazil.run.state.pipeline_state import pipeline_state
from frazil.run.state.tables import (
    Tables,
    closing_of_new_pipeline,
    find_tables,
    refuse_properties,
    refuse_same_topics,
    refuse_shared,
)

_ATTEMPTS: Final = 10
"""How often other runs may decide a batch first: each made progress. An attempt takes a second, a batch mostly longer."""


@dataclass(frozen=True, slots=True)
class AppliedFile:
    """What `frazil apply` did.

    Attributes:
        n: Number of the batch that has the changes on record; None before the first run, whose first batch has them.
        changes: Table -> its changes; empty if there was nothing to change.
    """

    n: int | None = None
    changes: Demands = field(default_factory=dict)


def preview_changes(context: RunContext) -> Demands:
    """The changes that `apply_file` would make now, by table. Changes and finishes nothing.

    Raises:
        Terminal: A table can't become what the file declares.
    """
    tables = find_tables(context.lake, context.pipeline)
    if tables is not None:
        return _changes(context, tables.destinations)
    loaded = {name: context.lake.find_table(name) for name in context.pipeline.tables}
    return _changes(context, {name: table for name, table in loaded.items() if table is not None})


def apply_file(context: RunContext, request: RunRequest) -> AppliedFile:
    """Change the tables as the file declares them, all or none of them. A batch that was decided is finished first.

    Raises:
        Terminal: A table can't become what the file declares; nothing was changed.
        Retryable: Other runs were faster every time.
    """
    for _ in range(_ATTEMPTS):
        context, tables, state = recover(context, is_applying=True)
        changes = _changes(context, tables.destinations)
        if not changes:
            return AppliedFile()
        if state.position is None:
            if _change_at_once(context, tables.closing_name, changes):
                return AppliedFile(None, changes)
            context.report("the first run has begun, comparing again")
            continue
        n = state.newest_batch + 1
        batch = Batch(
            kind="apply",
            run=request.run,
            position=state.position.at_rest(n),
            planned_at=context.stamp(),
            started_by=request.started_by,
            reason=request.reason,
            schema_changes=changes,
        )
        try:
            publish(context, tables, state, batch)
        except Refused as refusal:
            context.report(f"another run was faster, comparing again: {refusal.message}")
            continue
        _refuse_missing_changes(context, n)
        return AppliedFile(n, changes)
    raise RUN_OVERTAKEN.retryable(
        f"pipeline {context.pipeline.name}: {_ATTEMPTS} times another run was faster; nothing was changed",
        next_step=f"try again; or pause its runs first: frazil pause {context.pipeline.name}",
    )


def _change_at_once(context: RunContext, closing: str, changes: Demands) -> bool:
    """Make changes before the first run, when no batch is staged for the tables. Returns False if the first run began meanwhile."""
    pipeline, lake = context.pipeline, context.lake

    def has_begun() -> bool:
        return read_summary(lake.load_table(closing).metadata, BATCH_KEY.format(pipeline.name), closing) is not None

    for name, table_changes in changes.items():
        destination, fold = pipeline.destination(name), pipeline.value.folds_names
        evolve(lake, TableChanges(destination, table_changes, pipeline.name, 1, fold=fold), has_begun)
    return not has_begun()


def _refuse_missing_changes(context: RunContext, n: int) -> None:
    """Report changes that a catalog refused only after the decision: the batch was finished without them."""
    missing = preview_changes(context)
    if missing:
        named = "; ".join(f"{table}: {listed(changes)}" for table, changes in missing.items())
        raise TABLE_UNFIT.terminal(
            f"pipeline {context.pipeline.name}: batch {n} records changes that were not made: {named}",
            next_step="the lines above have the reasons; if none does, somebody changed the table back: check it, then apply again",
        )


def _changes(context: RunContext, tables: Mapping[str, Table]) -> Demands:
    """Table -> its changes. All are refused if one of them can't be made."""
    fold = context.pipeline.value.folds_names
    comparisons = {
        name: compare(table, context.pipeline.destination(name), fold=fold) for name, table in tables.items()
    }
    if refusals := [line for name in tables for line in _refusals(context, name, tables[name], comparisons[name])]:
        raise TABLE_UNFIT.terminal(
            f"pipeline {context.pipeline.name}: nothing was changed, because these changes need the table's rows to be"
            " written again:\n" + "\n".join(f"  {line}" for line in refusals),
            next_step="declare what the table has; or use another column, or another table",
        )
    return {name: comparison.changes for name, comparison in comparisons.items() if comparison.changes}


def _refusals(context: RunContext, name: str, table: Table, comparison: Comparison) -> Iterator[str]:
    """Reasons why a table can't be changed: its rows would have to be rewritten, or PyIceberg or the catalog can't do it."""
    yield from (f"table {name}: {line}" for line in comparison.refused)
    if comparison.refused or not comparison.changes:
        return
    destination, fold = context.pipeline.destination(name), context.pipeline.value.folds_names
    if any(change.kind == "property" for change in comparison.changes):
        refuse_properties(context.lake, destination, "changed")
    try:
        plan_changes(table, TableChanges(destination, comparison.changes, fold=fold))
        refuse_unwritable(context.lake, table, name)
    except Terminal as refusal:
        yield f"{refusal.message}; next: {refusal.next_step}"


def change_impact(change: PipelineChange, project: Project, *, offline: bool = False) -> tuple[Impact, ...]:
    """Describe the effects of a change. With `offline`, only the files are compared, and no catalog is asked."""
    impacts = [*_dag_impacts(change)]
    if change.after is None:
        return (*impacts, *(_removal_impacts(change.before) if change.before is not None else ()))
    if offline:
        return (*impacts, *_file_impacts(change), Impact("info", "offline: the tables were not looked at"))
    try:
        impacts += _all_table_impacts(RunContext.open(project, change.after), change)
    except Retryable as error:
        unreached = Impact("warning", f"offline, the catalog can't be reached: {error.message_with_code}")
        return (*impacts, *_file_impacts(change), unreached)
    except Terminal as error:
        impacts.append(_refusal_impact(error))
    return tuple(impacts)


def _refusal_impact(error: Terminal) -> Impact:
    return Impact("refused", error.message_with_code + (f"; next: {error.next_step}" if error.next_step else ""))


def _dag_impacts(change: PipelineChange) -> Iterator[Impact]:
    before, after = (_schedules(pipeline) for pipeline in (change.before, change.after))
    for dag in sorted(before.keys() | after.keys()):
        old, new = before.get(dag), after.get(dag)
        if old is None:
            yield Impact("info", f"new DAG {dag}, every {new}; it waits until it is unpaused")
        elif new is None:
            yield Impact("info", f"DAG {dag} goes; its runs stay in Airflow")
        elif old != new:
            yield Impact("info", f"DAG {dag} runs every {new} instead of {old}")
    if change.touches("engine", "maintenance.engine"):
        yield Impact("info", "another engine: its Airflow connection and pools must be there")
    if rest := [
        str(key) for key in change.keys if not key.path.startswith(("interval", "session_for", "maintenance.schedule"))
    ]:
        yield Impact("info", "changed keys: " + "; ".join(rest))


def _schedules(pipeline: Pipeline | None) -> dict[str, str]:
    if pipeline is None:
        return {}
    schedules = {
        f"ingest__{pipeline.name}": pipeline.session_for or pipeline.interval,
        f"maintain__{pipeline.name}": pipeline.maintenance.schedule,
    }
    return {dag: schedule for dag, schedule in schedules.items() if schedule}


def _removal_impacts(before: Pipeline) -> Iterator[Impact]:
    tables = ", ".join([*before.tables, before.dead_letters_table, before.ledger_table])
    yield Impact(
        "warning",
        f"nothing lands any more; tables and position stay: {tables}. A later file of the same name continues from there, as far as"
        " Kafka still has the records",
    )


def _file_impacts(change: PipelineChange) -> Iterator[Impact]:
    """Warnings of changes that a pipeline refuses once it ran. The files don't show whether it ran."""
    before, after = change.before, change.after
    if before is None or after is None:
        return
    if change.kind == "renamed":
        yield Impact(
            "warning", f"renamed from {before.name}: refused if that ever ran, since the position belongs to the name"
        )
        return
    closing = closing_of_new_pipeline(before)
    if closing in before.tables and closing not in after.tables:
        yield Impact("warning", f"table {closing} holds the position: refused if the pipeline ever ran")
    for table in sorted(set(before.tables) & set(after.tables)):
        old, new = before.destination(table), after.destination(table)
        if (old.is_merged, old.identifier) != (new.is_merged, new.identifier):
            yield Impact("warning", f"table {table}: another write or identifier is refused if the table has rows")
    if before.dead_letters_table != after.dead_letters_table:
        yield Impact("warning", "another table of dead letters is refused if the pipeline ever ran")
    yield from _topic_impacts(change, None)


def _topic_impacts(change: PipelineChange, position_topics: Mapping[str, object] | None) -> Iterator[Impact]:
    """The effects on topics, compared with the topics of the position if they are given, else with the old file."""
    before, after = change.before, change.after
    if after is None or (position_topics is None and before is None):
        return
    former_topics = set(position_topics) if position_topics is not None else set(before.source.topics if before else ())
    for topic in sorted(topic for topic in former_topics if not after.source.reads(topic)):
        yield Impact("warning", f"topic {topic} is not read any more; its place in the position stays")
    for topic in sorted(set(after.source.topics) - former_topics):
        yield Impact("info", f"topic {topic} is read from its beginning")
    if change.touches("start"):
        ignored = (
            "start is ignored: the pipeline has a position"
            if position_topics is not None
            else "start counts for the first run only"
        )
        yield Impact("warning", f"{ignored}; frazil reset {after.name} --to … moves it")
    if change.touches("source.cluster"):
        yield Impact(
            "warning",
            f"another cluster: its next run refuses, unless it is the same one by id; else: frazil reset {after.name} --to …",
        )


def _all_table_impacts(context: RunContext, change: PipelineChange) -> Iterator[Impact]:
    pipeline = context.pipeline
    tables = find_tables(context.lake, pipeline)
    for name in pipeline.tables:
        table = context.lake.find_table(name) if tables is None else tables.destinations.get(name)
        yield from _with_refusal(partial(_table_impacts, context, name, table, is_new=tables is None))
    if tables is None:
        yield Impact("info", f"first run begins at {pipeline.start}")
        return
    yield from _with_refusal(partial(_position_impacts, context, tables, change))


def _with_refusal(find_impacts: Callable[[], Iterator[Impact]]) -> Iterator[Impact]:
    """The impacts, followed by the refusal that ended the search, if there was one."""
    try:
        yield from find_impacts()
    except Terminal as error:
        yield _refusal_impact(error)


def _table_impacts(context: RunContext, name: str, table: Table | None, *, is_new: bool) -> Iterator[Impact]:
    pipeline, destination, fold = (
        context.pipeline,
        context.pipeline.destination(name),
        context.pipeline.value.folds_names,
    )
    refuse_no_key(pipeline, name, table)
    if table is None:
        yield Impact("info", f"new table {name}: {', '.join(destination.columns) or 'columns as records bring them'}")
        return
    if is_new:
        refuse_same_topics(pipeline, name, table.metadata)
        yield Impact("info", f"table {name} exists already, and gets its rows")
    comparison = compare(table, destination, fold=fold)
    statements = alter_statements(destination, comparison.changes, context.project.pipelines.hidden)
    for change, statement in zip(comparison.changes, statements, strict=True):
        maker = "the next run" if change in comparison.by_run else f"frazil apply {pipeline.name}"
        yield Impact("info", f"{statement}: by {maker}")
    for line in comparison.refused:
        if line not in comparison.unfit:
            yield Impact("warning", f"table {name}: {line}: frazil apply {pipeline.name} refuses, runs go on")
    refuse_unfit(comparison, destination, pipeline.name)
    refuse_other_key(pipeline, name, table.metadata)


def _position_impacts(context: RunContext, tables: Tables, change: PipelineChange) -> Iterator[Impact]:
    pipeline = context.pipeline
    refuse_shared(pipeline, tables)
    state = pipeline_state(pipeline, tables)
    if state.loss is not None:
        raise state.loss
    yield from _topic_impacts(change, state.position.topics if state.position else {})
    if state.unfinished and state.mark is not None:
        yield Impact(
            "info",
            f"batch {state.mark.n} is decided and not finished: the next run finishes it first, as it was decided",
        )
