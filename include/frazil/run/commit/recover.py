"""Recovers a pipeline, so that no batch is unfinished. Every command begins here."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from frazil.batch.manifest import Manifest
from frazil.batch.schema_change import SchemaChange
from frazil.error_codes import FILES_OUTDATED
from frazil.errors import Terminal
from frazil.iceberg.catalog.table import read_text
from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog
from frazil.iceberg.commit.summary_state import (
    CLOSING_KEY,
    DONE_KEY,
    mark_of,
    read_summary,
)
from frazil.iceberg.patches.clocks import refuse_skew
from frazil.iceberg.schema.comparison import check_destination
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.commit_batch import lake_of_batch, roll_forward
from frazil.run.state.context import EngineNeeded, RunContext
from frazil.run.state.evolution import with_declared_changes
from frazil.run.state.merge_key import refuse_no_key, refuse_other_key
from frazil.run.state.pipeline_state import STATE_READS, PipelineState, read_manifest, read_state, state_kept_moving
from frazil.run.state.source import mirror_to_consumer_group
from frazil.run.state.tables import Tables, last_manifest, open_tables, refuse_shared

FILES_ARRIVE: Final = timedelta(minutes=15)
"""How long a changed pipeline file may take to reach every host: git-sync and Airflow's bundles look every five minutes at most,
and images are rolled out in about ten."""


def recover(
    context: RunContext,
    mended_tables: Collection[str] = (),
    *,
    leave_waiting: bool = False,
    is_applying: bool = False,
) -> tuple[RunContext, Tables, PipelineState]:
    """Roll the last decided batch forward to its end, and return the tables and the pipeline's state.

    The context comes along, since a decided batch may have made tables: they are the pipeline's from then on.

    A loss of `mended_tables` is not refused: the caller is about to repair them. With `leave_waiting` a batch that only
    waits for an engine is left unfinished, for the ingest step. With `is_applying` the tables may differ from the file: the caller
    is about to change them.

    Raises:
        Terminal: A table can't take its part of a decided batch, or a table is not the one that was written, or was rolled
            back.
        EngineNeeded: A decided batch waits for an engine, and is not to be left.
    """
    waits = False
    has_worked = False
    for _ in range(STATE_READS):
        tables, state = _read(context, mended_tables)
        # Another run may have created tables since the pipeline was opened: this ledger lists them, so read with them.
        current_context = context.with_ledger_tables(tables.ledger)
        if current_context is not context:
            context = current_context
            continue
        if state.rolled_back is not None:  # the caller is about to mend it
            return context, tables, state
        if not state.unfinished:
            tables = _check_tables(context, tables, state, is_applying=is_applying)
            if has_worked:
                mirror_to_consumer_group(context, state.position)
        if waits or not state.unfinished:
            return context, tables, state
        waits = _finish_last_batch(context, tables, state, leave_waiting=leave_waiting)
        has_worked = True
    raise state_kept_moving(context.pipeline)


def _read(context: RunContext, mended_tables: Collection[str]) -> tuple[Tables, PipelineState]:
    """Read the tables and the pipeline's state, from the catalogs and branches of the pipeline file.

    If these are refused, the ones of the last decided batch are used: a batch is finished by its manifest, whatever the file
    says by now, and the file is refused after that.
    """
    try:
        return _read_in(context.lake, context, mended_tables)
    except Terminal as refusal:
        decided = _lake_of_last_batch(context.lake, context.pipeline)
        if decided is None:
            raise
        context.report(f"the last batch is finished where it was decided to; then: {refusal.message}")
        return _read_in(decided, context, mended_tables)


def _read_in(
    lake: PipelineCatalog, context: RunContext, mended_tables: Collection[str]
) -> tuple[Tables, PipelineState]:
    def load() -> Tables:
        tables = open_tables(lake, context.pipeline, recreate=mended_tables)
        refuse_shared(context.pipeline, tables)
        return tables

    tables, state = read_state(context.pipeline, load)
    lost = _unmended_loss(state, tables.closing_name, mended_tables)
    if lost is not None:
        raise lost
    return tables, state


def _lake_of_last_batch(lake: PipelineCatalog, pipeline: Pipeline) -> PipelineCatalog | None:
    """The catalogs as the last decided batch has its tables in them.

    None if that batch is finished, or can't be read, or if the pipeline file has its tables where they were.
    """
    try:
        manifest = _unfinished_manifest(lake, pipeline)
    except Terminal:  # its manifest, or its branch, is gone: who needs it says so
        return None
    if manifest is None:
        return None
    moved = any(
        (part.catalog, part.branch) != (lake.catalog_of(part.table).name, lake.branch_of(part.table))
        for part in manifest.parts
        if part.catalog is not None and part.table in pipeline.tables
    )
    return lake_of_batch(lake, manifest) if moved else None


def _unfinished_manifest(lake: PipelineCatalog, pipeline: Pipeline) -> Manifest | None:
    """The manifest of the last decided batch, if the ledger does not know it."""
    ledger = lake.find_table(pipeline.ledger_table)
    closing = None if ledger is None else ledger.metadata.properties.get(CLOSING_KEY.format(pipeline.name))
    if ledger is None or closing is None:
        return None
    table = lake.as_landed(closing)
    last, path = (None, None) if table is None else last_manifest(pipeline, closing, table)
    done = read_summary(ledger.metadata, DONE_KEY.format(pipeline.name), pipeline.ledger_table)
    if table is None or path is None or mark_of(last) == mark_of(done):
        return None
    return Manifest.from_json(read_text(table, path))


def _unmended_loss(state: PipelineState, closing: str, mended_tables: Collection[str]) -> Terminal | None:
    """Why a table lost something, unless the caller is about to repair it; the closing table's loss comes first."""
    lost = state.closing_lost or state.rollback
    if lost is not None and closing not in mended_tables:
        return lost
    return next((lost for table, lost in state.followers_lost.items() if table not in mended_tables), None)


def _finish_last_batch(context: RunContext, tables: Tables, state: PipelineState, *, leave_waiting: bool) -> bool:
    """Finish the last batch. Returns whether it waits for an engine."""
    try:
        if state.mark is not None:
            roll_forward(context, *read_manifest(tables, context.pipeline, state.mark, state.manifest), state)
    except EngineNeeded as need:
        if not leave_waiting:
            raise
        context.report(need.message)
        return True
    return False


def _check_tables(context: RunContext, tables: Tables, state: PipelineState, *, is_applying: bool) -> Tables:
    """Check the tables against the pipeline file. Only at rest: an edited file must not block a decided batch."""
    for loaded in (*tables.destinations.values(), tables.dead_letters, tables.ledger):
        refuse_skew(loaded)
    _refuse_older_file(context, state)
    pipeline, fold = context.pipeline, context.pipeline.value.folds_names
    for table in pipeline.tables:
        refuse_no_key(pipeline, table, tables.destinations.get(table))
    changes: dict[str, tuple[SchemaChange, ...]] = {}
    for table in pipeline.tables:
        if not is_applying:
            destination = pipeline.destination(table)
            changes[table] = check_destination(tables.destinations[table], destination, pipeline.name, fold=fold)
        refuse_other_key(pipeline, table, tables.destinations[table].metadata)
    return with_declared_changes(context, tables, changes, state.newest_batch + 1)


def _refuse_older_file(context: RunContext, state: PipelineState) -> None:
    """Refuse a file that names other destinations than the batches have, unless it is the one on this host, and not late.

    A run may have read its file before a deploy, and a host may still have the old file. A destination that the batches have and
    the file does not name was either dropped from the file, or the file here is older. Its age in the ledger decides: a
    destination that was added less than `FILES_ARRIVE` ago counts as the second.
    """
    name, clock = context.pipeline.name, context.clock()
    added_at_by_table = {table: mark.since for table, mark in state.ledger_marks.items() if mark.role == "destination"}
    if not added_at_by_table or added_at_by_table.keys() == set(context.pipeline.tables):
        return
    read, on_disk = set(context.pipeline.file.tables), set(context.project.pipeline_on_disk(name).tables)
    if read != on_disk:
        raise FILES_OUTDATED.retryable(
            f"pipeline {name}: the file that this run read names the destinations {_comma_separated(read)}, the file names"
            f" {_comma_separated(on_disk)} by now; batch {state.newest_batch + 1} is not landed by the older one",
            next_step="run again: it reads the file as it is now",
        )
    added_later = {
        table: datetime.fromisoformat(since) for table, since in added_at_by_table.items() if since is not None
    }
    for table in sorted(added_later.keys() - set(context.pipeline.tables)):
        since = added_later[table]
        if abs(clock - since) < FILES_ARRIVE:
            raise FILES_OUTDATED.retryable(
                f"pipeline {name}: an edit of its file brought table {table} at {since.isoformat()}, and the file on this host"
                " does not name it: the edit may not have arrived here",
                next_step=f"bring the newest file to this host. If {table} was taken out again on purpose, runs go on without it"
                f" from {(since + FILES_ARRIVE).isoformat()}",
            )


def _comma_separated(tables: Collection[str]) -> str:
    return ", ".join(sorted(tables))
