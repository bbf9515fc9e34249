"""Effects of a changed pipeline file on DAGs, tables and position. Changes nothing, and reads nothing from Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.table import Table
from frazil.iceberg.schema.comparison import compare, refuse_unfit
from frazil.iceberg.schema.statements import alter_statements
from frazil.pipeline.files.folder import Impact, PipelineChange
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.state.context import RunContext
from frazil.run.state.merge_key import refuse_no_key, refuse_other_key
from frazil.run.state.pipeline_state import pipeline_state
from frazil.run.state.tables import Tables, closing_of_new_pipeline, find_tables, refuse_same_topics, refuse_shared


def change_impact(change: PipelineChange, project: Project, *, offline: bool = False) -> tuple[Impact, ...]:
    """Describe the effects of a change.

    Offline the catalog is not asked: only what follows from the files is reported.
    """
    impacts = [*_on_dags(change)]
    if change.after is None:
        return (*impacts, *(_on_removal(change.before) if change.before is not None else ()))
    if offline:
        return (*impacts, *_by_files(change), Impact("info", "offline: the tables were not looked at"))
    try:
        impacts += _on_tables(RunContext.open(project, change.after), change)
    except Retryable as error:
        unreached = Impact("warning", f"offline, the catalog can't be reached: {error.message_with_code}")
        return (*impacts, *_by_files(change), unreached)
    except Terminal as error:
        impacts.append(_refusal_impact(error))
    return tuple(impacts)


def _refusal_impact(error: Terminal) -> Impact:
    return Impact("refused", error.message_with_code + (f"; next: {error.next_step}" if error.next_step else ""))


def _on_dags(change: PipelineChange) -> Iterator[Impact]:
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


def _on_removal(before: Pipeline) -> Iterator[Impact]:
    tables = ", ".join([*before.tables, before.dead_letters_table, before.ledger_table])
    yield Impact(
        "warning",
        f"nothing lands any more; the tables stay as they are, the position with them: {tables}. A file of the same name goes on"
        " where it ended, as far as Kafka still holds what came since",
    )


def _by_files(change: PipelineChange) -> Iterator[Impact]:
    """Changes that a pipeline which has run refuses. The files don't show whether it has run, so they are warnings."""
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
    yield from _on_topics(change, None)


def _on_topics(change: PipelineChange, position_topics: Mapping[str, object] | None) -> Iterator[Impact]:
    """The effects on topics, compared with the position if it is known, else with the old file."""
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


def _on_tables(context: RunContext, change: PipelineChange) -> Iterator[Impact]:
    pipeline = context.pipeline
    tables = find_tables(context.lake, pipeline)
    for name in pipeline.tables:
        table = context.lake.find_table(name) if tables is None else tables.destinations.get(name)
        yield from _with_refusal(partial(_on_table, context, name, table, is_new=tables is None))
    if tables is None:
        yield Impact("info", f"first run begins at {pipeline.start}")
        return
    yield from _with_refusal(partial(_on_position, context, tables, change))


def _with_refusal(find_impacts: Callable[[], Iterator[Impact]]) -> Iterator[Impact]:
    """The impacts, followed by the refusal that ended the search, if there was one."""
    try:
        yield from find_impacts()
    except Terminal as error:
        yield _refusal_impact(error)


def _on_table(context: RunContext, name: str, table: Table | None, *, is_new: bool) -> Iterator[Impact]:
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


def _on_position(context: RunContext, tables: Tables, change: PipelineChange) -> Iterator[Impact]:
    pipeline = context.pipeline
    refuse_shared(pipeline, tables)
    state = pipeline_state(pipeline, tables)
    if state.loss is not None:
        raise state.loss
    yield from _on_topics(change, state.position.topics if state.position else {})
    if state.unfinished and state.mark is not None:
        yield Impact(
            "info",
            f"batch {state.mark.n} is decided and not finished: the next run finishes it first, as it was decided",
        )
