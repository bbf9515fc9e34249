"""What a changed pipeline file would do: to the DAGs, to the tables, to the position. Nothing is changed, nothing is read from Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from frazil.errors import Retryable, Terminal
from frazil.iceberg.evolution import declared_changes
from frazil.iceberg.schema import check_destination
from frazil.iceberg.table import Table
from frazil.pipeline.difference import PipelineChange
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.run.identifier import refuse_no_key, refuse_other_key
from frazil.run.scope import Scope
from frazil.run.standing import standing
from frazil.run.tables import Tables, closing_of_new, find_tables, refuse_same_topics, refuse_shared

Weight = Literal["info", "warning", "refused"]


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that a change does.

    Attributes:
        weight: `info`; `warning`: a person may not have meant it; `refused`: the next run would refuse it.
        text: What happens, in words.
    """

    weight: Weight
    text: str


def effects(change: PipelineChange, project: Project, *, offline: bool = False) -> tuple[Effect, ...]:
    """Tell what a change does.

    Args:
        change: What differs.
        project: Settings and doors of the new version.
        offline: Whether the catalog is left alone; then only what the files alone tell is told.
    """
    found = [*_on_dags(change)]
    if change.after is None:
        return (*found, *(_of_removal(change.before) if change.before is not None else ()))
    if offline:
        return (*found, *_by_files(change), Effect("info", "offline: the tables were not looked at"))
    try:
        found += _on_tables(Scope.of(project, change.after), change)
    except Retryable as error:
        unreached = Effect("warning", f"offline, the catalog can't be reached: {error.message}")
        return (*found, *_by_files(change), unreached)
    except Terminal as error:
        found.append(_refused(error))
    return tuple(found)


def _refused(error: Terminal) -> Effect:
    return Effect("refused", error.message + (f"; next: {error.next_step}" if error.next_step else ""))


def _on_dags(change: PipelineChange) -> Iterator[Effect]:
    before, after = (_schedules(of) for of in (change.before, change.after))
    for dag in sorted(before.keys() | after.keys()):
        old, new = before.get(dag), after.get(dag)
        if old is None:
            yield Effect("info", f"new DAG {dag}, every {new}; it waits until it is unpaused")
        elif new is None:
            yield Effect("info", f"DAG {dag} goes; its runs stay in Airflow")
        elif old != new:
            yield Effect("info", f"DAG {dag} runs every {new} instead of {old}")
    if change.touches("engine", "maintenance.engine"):
        yield Effect("info", "another engine: its Airflow connection and pools must be there")
    if rest := [
        str(key) for key in change.keys if not key.path.startswith(("interval", "session_for", "maintenance.schedule"))
    ]:
        yield Effect("info", "changed keys: " + "; ".join(rest))


def _schedules(pipeline: Pipeline | None) -> dict[str, str]:
    if pipeline is None:
        return {}
    schedules = {
        f"ingest__{pipeline.name}": pipeline.session_for or pipeline.interval,
        f"maintain__{pipeline.name}": pipeline.maintenance.schedule,
    }
    return {dag: of for dag, of in schedules.items() if of}


def _of_removal(before: Pipeline) -> Iterator[Effect]:
    tables = ", ".join([*before.tables, before.dead_letters_table, before.ledger_table])
    yield Effect(
        "warning",
        f"nothing lands any more; the tables stay as they are, the position with them: {tables}. A file of the same name goes on"
        " where it ended, as far as Kafka still holds what came since",
    )


def _by_files(change: PipelineChange) -> Iterator[Effect]:
    """What is refused once the pipeline ran, by the files alone: whether it ran, only its tables tell."""
    before, after = change.before, change.after
    if before is None or after is None:
        return
    if change.kind == "renamed":
        yield Effect(
            "warning", f"renamed from {before.name}: refused if that ever ran, since the position belongs to the name"
        )
        return
    closing = closing_of_new(before)
    if closing in before.tables and closing not in after.tables:
        yield Effect("warning", f"table {closing} holds the position: refused if the pipeline ever ran")
    for table in sorted(set(before.tables) & set(after.tables)):
        old, new = before.destination(table), after.destination(table)
        if (old.is_merged, old.identifier) != (new.is_merged, new.identifier):
            yield Effect("warning", f"table {table}: another write or identifier is refused if the table has rows")
    if before.dead_letters_table != after.dead_letters_table:
        yield Effect("warning", "another table of dead letters is refused if the pipeline ever ran")
    yield from _on_topics(change, None)


def _on_topics(change: PipelineChange, known: Mapping[str, object] | None) -> Iterator[Effect]:
    """What becomes of topics, by the position if it is known, else by the file before."""
    before, after = change.before, change.after
    if after is None or (known is None and before is None):
        return
    was = set(known) if known is not None else set(before.source.topics if before else ())
    for topic in sorted(of for of in was if not after.source.reads(of)):
        yield Effect("warning", f"topic {topic} is not read any more; its place in the position stays")
    for topic in sorted(set(after.source.topics) - was):
        yield Effect("info", f"topic {topic} is read from its beginning")
    if change.touches("start"):
        ignored = (
            "start is ignored: the pipeline has a position"
            if known is not None
            else "start counts for the first run only"
        )
        yield Effect("warning", f"{ignored}; frazil reset {after.name} --to … moves it")
    if change.touches("source.cluster"):
        yield Effect(
            "warning",
            f"another cluster: its next run refuses, unless it is the same one by id; else: frazil reset {after.name} --to …",
        )


def _on_tables(scope: Scope, change: PipelineChange) -> Iterator[Effect]:
    pipeline = scope.pipeline
    tables = find_tables(scope.lake, pipeline)
    for name in pipeline.tables:
        table = scope.lake.find_table(name) if tables is None else tables.destinations.get(name)
        yield from _checked(partial(_on_table, scope, name, table, is_new=tables is None))
    if tables is None:
        yield Effect("info", f"first run begins at {pipeline.start}")
        return
    yield from _checked(partial(_on_position, scope, tables, change))


def _checked(look: Callable[[], Iterator[Effect]]) -> Iterator[Effect]:
    """What a look tells; a refusal ends it, and is told, too."""
    try:
        yield from look()
    except Terminal as error:
        yield _refused(error)


def _on_table(scope: Scope, name: str, table: Table | None, *, is_new: bool) -> Iterator[Effect]:
    pipeline, destination, fold = scope.pipeline, scope.pipeline.destination(name), scope.pipeline.value.folds_names
    refuse_no_key(pipeline, name, table)
    if table is None:
        yield Effect("info", f"new table {name}: {', '.join(destination.columns) or 'columns as records bring them'}")
        return
    if is_new:
        refuse_same_topics(pipeline, name, table.metadata)
        yield Effect("info", f"table {name} is there already, and takes its rows")
    check_destination(table, destination, fold=fold)
    refuse_other_key(pipeline, name, table.metadata)
    for schema_change in declared_changes(table.schema(), destination, fold=fold):
        yield Effect("info", f"table {name}: {schema_change}")


def _on_position(scope: Scope, tables: Tables, change: PipelineChange) -> Iterator[Effect]:
    pipeline = scope.pipeline
    refuse_shared(pipeline, tables)
    now = standing(pipeline, tables)
    if now.loss is not None:
        raise now.loss
    yield from _on_topics(change, now.position.topics if now.position else {})
    if now.unfinished and now.mark is not None:
        yield Effect(
            "info", f"batch {now.mark.n} is decided and not finished: the next run finishes it first, as it was decided"
        )
