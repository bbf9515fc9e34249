"""Decides a batch and rolls it forward: one commit decides, the others follow from the manifest. `recover`, with which each
command begins, rolls a batch forward that a crash interrupted.

Every step first checks whether it is done already, so it is safe to repeat.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from frazil.batch.manifest import Manifest
from frazil.batch.position import BatchMark
from frazil.batch.schema_change import SchemaChange
from frazil.error_codes import FILES_OUTDATED, RUN_OVERTAKEN
from frazil.errors import Terminal
from frazil.iceberg.catalog.table import Table, TableMetadata, read_text, staging_table
from frazil.iceberg.commit.commit import Change, Refused, commit, fit_of, snapshot_time
from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog, branch_note
from frazil.iceberg.commit.summary_state import (
    BATCH_KEY,
    CLOSING_KEY,
    DONE_KEY,
    MADE_KEY,
    POSITION_KEY,
    TABLES_KEY,
    RolledBack,
    landed_snapshot,
    mark_of,
    read_summary,
)
from frazil.iceberg.files.data_files import write_rows
from frazil.iceberg.ledger.ledger import ledger_rows
from frazil.iceberg.patches.metadata import refuse_skew
from frazil.iceberg.schema.comparison import check_destination
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.commit_followers import (
    commit_all_followers,
    is_recorded,
    land_change,
    last_batch_check,
    send_letters,
    snapshot_summary,
)
from frazil.run.commit.manifests import entry_rows, marks_after, marks_json, refuse_foreign_parts
from frazil.run.state.context import EngineNeeded, RunContext, mirror_to_consumer_group, refuse_no_key, refuse_other_key
from frazil.run.state.evolution import make_changes, with_declared_changes
from frazil.run.state.pipeline_state import (
    STATE_READS,
    PipelineState,
    read_manifest,
    read_state,
    recovered_manifests,
    state_kept_moving,
)
from frazil.run.state.tables import Tables, last_manifest, open_tables, refuse_same_topics, refuse_shared

ORPHAN_WINDOW: Final = timedelta(days=3)
"""Age from which an orphan removal may take files that no snapshot names: Iceberg's default for `older_than`."""


def decide(context: RunContext, manifest: Manifest, path: str, state: PipelineState) -> int:
    """Make the one commit that decides a batch: rows and position in the same snapshot. Returns the snapshot.

    `path` is that of the written manifest; `state` is the one that the batch was planned on.

    Raises:
        Refused: The position has moved, or the table no longer takes the files.
        OutcomeUnknown: The catalog can't be read to find out whether the commit landed.
    """
    position_key, batch_key = POSITION_KEY.format(manifest.pipeline), BATCH_KEY.format(manifest.pipeline)
    table = manifest.closing.table
    created_tables = {MADE_KEY.format(manifest.pipeline): json.dumps(manifest.created)} if manifest.created else {}
    change = Change(
        step="decide",
        table=table,
        files=manifest.closing.files,
        removal=manifest.closing.removal,
        summary=snapshot_summary(manifest, path)
        | {position_key: manifest.position.moves_json(), batch_key: manifest.mark.to_json()},
        mirrored=(batch_key,),
        attached={position_key: manifest.position.to_json()} | created_tables,
        properties={CLOSING_KEY.format(manifest.pipeline): table}
        if table == manifest.ledger
        else branch_note(context.lake, manifest.pipeline, table),
        fit=manifest.closing.fit,
        landed=lambda metadata: landed_snapshot(metadata, batch_key, manifest.mark, table),
        check=_position_check(context, manifest, state),
        retention=context.retention(table),
    )
    return commit(context.lake, change)


def _position_check(context: RunContext, manifest: Manifest, state: PipelineState) -> Callable[[TableMetadata], None]:
    """A check, for the deciding commit, that the closing table still holds the last batch that this one was planned on.

    The position moves with its batch, so the mark of the last batch stands for it. The check also refuses files that are older
    than half the orphan window: an orphan removal may delete them before the followers get them.
    """
    batch_key, table = BATCH_KEY.format(manifest.pipeline), manifest.closing.table

    def check(metadata: TableMetadata) -> None:
        age = context.clock() - datetime.fromisoformat(manifest.started_at)
        if age > ORPHAN_WINDOW / 2:
            raise Refused(f"batch {manifest.position.n} was staged {age} ago: an orphan removal may delete its files")
        _refuse_shared_now(context, manifest, metadata)
        last = read_summary(metadata, batch_key, table)
        mark, is_rolled_back = mark_of(last), isinstance(last, RolledBack)
        if mark != manifest.closing.after or (is_rolled_back and state.rolled_back is None):
            raise Refused(
                f"table {table}: batch {manifest.position.n} was planned on"
                f" {_mark_description(manifest.closing.after)}, found"
                f" {_mark_description(mark)}{', rolled back' if is_rolled_back else ''}"
            )

    return check


def _refuse_shared_now(context: RunContext, manifest: Manifest, metadata: TableMetadata) -> None:
    """Refuse a table in which another pipeline has begun to land one of these topics since the batch was planned."""
    for name in context.pipeline.tables:
        if name == manifest.closing.table:
            refuse_same_topics(context.pipeline, name, metadata)
        elif manifest.kind == "start":
            refuse_same_topics(context.pipeline, name, context.lake.load_table(name).metadata)


def _mark_description(mark: BatchMark | None) -> str:
    return "no position" if mark is None else f"position n={mark.n}, epoch={mark.epoch}, batch {mark.batch}"


def lake_of_batch(lake: PipelineCatalog, manifest: Manifest) -> PipelineCatalog:
    """The catalogs, with the tables of a decided batch in the catalogs and branches of its manifest, whatever the file names now."""
    return lake.with_places({part.table: (part.catalog, part.branch) for part in manifest.parts})


def roll_forward(context: RunContext, manifest: Manifest, path: str, state: PipelineState) -> None:
    """Commit every follower's part, send the letters to the dead-letter topic, then write the ledger's rows. Safe to repeat
    and to run twice at once; then letters may be in the topic twice.

    `state` is the pipeline's state before the ledger recorded the batch.

    Raises:
        Terminal: A follower can't take its part, as it was dropped, rolled back or changed; or the topic can't take the letters;
            or the manifest names tables that are not the pipeline's.
        Retryable: Kafka, the catalog or the storage is not available now; or the closing table no longer contains the batch.
    """
    refuse_foreign_parts(context, state, manifest)
    context = replace(context, lake=lake_of_batch(context.lake, manifest))
    table, closing = manifest.closing.table, context.lake.load_table(manifest.closing.table)
    decided = landed_snapshot(closing.metadata, BATCH_KEY.format(manifest.pipeline), manifest.mark, table)
    if decided is None:
        # This process slept while the batch was undone: the followers must not get its parts any more.
        raise RUN_OVERTAKEN.retryable(
            f"pipeline {manifest.pipeline}: table {table} no longer has batch {manifest.position.n} ({manifest.batch}): it"
            " was undone, or finished and expired meanwhile",
            next_step="run again; it plans from where the pipeline stands now",
        )
    if manifest.kind == "apply":
        _change_tables(context, manifest)
    snapshots: dict[str, int | None] = {table: decided}
    snapshots |= commit_all_followers(context, manifest, path)
    _record_in_ledger(context, manifest, closing, snapshots, path, state)


def _change_tables(context: RunContext, manifest: Manifest) -> None:
    """Make the schema changes of a batch, unless a later batch is decided: a late run must not undo changes of later batches, nor
    change a table under their staged files.
    """

    def is_over() -> bool:
        closing, ledger = (context.lake.load_table(name).metadata for name in (manifest.closing.table, manifest.ledger))
        batch_key, table = BATCH_KEY.format(manifest.pipeline), manifest.closing.table
        return is_recorded(ledger, manifest) or landed_snapshot(closing, batch_key, manifest.mark, table) is None

    make_changes(context, manifest.schema_changes, datetime.fromisoformat(manifest.written_at), is_over)


def _record_in_ledger(
    context: RunContext,
    manifest: Manifest,
    closing: Table,
    snapshots: Mapping[str, int | None],
    path: str,
    state: PipelineState,
) -> None:
    """Send the dead letters to their topic, then commit the ledger's rows and marks, which finishes the batch.

    A finished batch does not send its letters again, so they are sent as late as possible: just before this commit.
    """
    key, tables_key = DONE_KEY.format(manifest.pipeline), TABLES_KEY.format(manifest.pipeline)
    is_closing, lake = manifest.ledger == manifest.closing.table, context.lake
    ledger = closing if is_closing else lake.load_table(manifest.ledger)
    if landed_snapshot(ledger.metadata, key, manifest.mark, manifest.ledger) is not None:
        return
    send_letters(context, manifest)
    earlier = recovered_manifests(closing, manifest)
    refuse_foreign_parts(context, state, *earlier)
    rows = [
        row for batch in earlier for row in _entry(context, batch, closing, _recovered_snapshots(lake, batch, manifest))
    ]
    rows += _entry(context, manifest, closing, snapshots)
    encoded_marks = marks_json(marks_after(state.ledger_marks, *earlier, manifest))
    change = Change(
        step="record",
        table=manifest.ledger,
        files=write_rows(staging_table(manifest.ledger, ledger), ledger_rows(rows)),
        summary=snapshot_summary(manifest, path) | {key: manifest.mark.to_json()},
        mirrored=(key,),
        attached={tables_key: encoded_marks},
        fit=fit_of(ledger.metadata),
        landed=lambda metadata: landed_snapshot(metadata, key, manifest.mark, manifest.ledger),
        check=last_batch_check(key, manifest.ledger, manifest),
        properties={CLOSING_KEY.format(manifest.pipeline): manifest.closing.table},
        retention=context.retention(manifest.ledger),
    )
    land_change(lake, change, manifest)


def _recovered_snapshots(lake: PipelineCatalog, batch: Manifest, repair: Manifest) -> dict[str, int | None]:
    """Table -> snapshot of its part in an earlier batch; None if it never got the part, which the repair gives up."""
    places = {part.table: (part.catalog, part.branch) for part in batch.parts if part.table != repair.repairs}
    key, lake = BATCH_KEY.format(batch.pipeline), lake.with_places(places)
    tables = {part.table: lake.find_table(part.table) for part in batch.parts}
    return {
        name: None if table is None else landed_snapshot(table.metadata, key, batch.mark, name)
        for name, table in tables.items()
    }


def _entry(
    context: RunContext, manifest: Manifest, closing: Table, snapshots: Mapping[str, int | None]
) -> list[dict[str, Any]]:
    decided_at = snapshot_time(closing, snapshots[manifest.closing.table])
    return entry_rows(manifest, snapshots, decided_at, context.clock())


FILES_ARRIVE: Final = timedelta(minutes=15)
"""How long a changed pipeline file may take to reach every host: git-sync and Airflow's bundles refresh every five minutes or
oftener, and new images are rolled out in about ten."""


def recover(
    context: RunContext,
    mended_tables: Collection[str] = (),
    *,
    leave_waiting: bool = False,
    is_applying: bool = False,
) -> tuple[RunContext, Tables, PipelineState]:
    """Roll the last decided batch forward to its end, and return the tables and the pipeline's state.

    The returned context has the tables that a decided batch created.

    A loss of `mended_tables` is not refused: the caller is about to repair them. With `leave_waiting` a batch that only
    waits for an engine is left unfinished, for the ingest step. With `is_applying` the tables may differ from the file: the caller
    is about to change them.

    Raises:
        Terminal: A table can't take its part of a decided batch, or it was replaced or rolled back.
        EngineNeeded: A decided batch waits for an engine, and `leave_waiting` is not set.
    """
    waits = False
    has_worked = False
    for _ in range(STATE_READS):
        tables, state = _read(context, mended_tables)
        # This ledger may list tables that another run has created since the pipeline was opened: read again with them.
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

    If these are refused, those of the last decided batch are used: that batch is finished by its manifest, whatever the file
    says now. The file is refused after that.
    """
    try:
        return _read_in(context.lake, context, mended_tables)
    except Terminal as refusal:
        decided = _lake_of_last_batch(context.lake, context.pipeline)
        if decided is None:
            raise
        context.report(
            f"the last batch is finished in the catalogs and tables of its manifest; then: {refusal.message}"
        )
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
    """The catalogs, with the tables at the places of the last decided batch.

    None if that batch is finished, or can't be read, or if the pipeline file names the same places.
    """
    try:
        manifest = _unfinished_manifest(lake, pipeline)
    except Terminal:  # its manifest or its branch is gone: finishing the batch reports that
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
    """The error for a table that lost data, unless the caller is about to repair it; the closing table comes first."""
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
    """Check the tables against the pipeline file. Call this only between batches: an edited file must not block a decided batch."""
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
    """Refuse a pipeline file that is older than the one that the last batches ran under.

    A run may have read its file before a deploy, and a host may still have the old file. If the ledger lists a destination that
    the file does not name, an edit dropped it, or the file here is older. It counts as older if that destination was added less
    than `FILES_ARRIVE` ago.
    """
    name, clock = context.pipeline.name, context.clock()
    added_at_by_table = {table: mark.since for table, mark in state.ledger_marks.items() if mark.role == "destination"}
    if not added_at_by_table or added_at_by_table.keys() == set(context.pipeline.tables):
        return
    read_tables, file_tables = set(context.pipeline.file.tables), set(context.project.pipeline_on_disk(name).tables)
    if read_tables != file_tables:
        raise FILES_OUTDATED.retryable(
            f"pipeline {name}: this run read a pipeline file with the destinations {', '.join(sorted(read_tables))}; the file was edited and"
            f" has {', '.join(sorted(file_tables))} now, so batch {state.newest_batch + 1} was not landed",
            next_step="run again: it reads the present file",
        )
    added_later = {
        table: datetime.fromisoformat(since) for table, since in added_at_by_table.items() if since is not None
    }
    for table in sorted(added_later.keys() - set(context.pipeline.tables)):
        since = added_later[table]
        if abs(clock - since) < FILES_ARRIVE:
            raise FILES_OUTDATED.retryable(
                f"pipeline {name}: an edit of its file added table {table} at {since.isoformat()}, but the file on this host"
                " does not name it: the edit may not have arrived here",
                next_step=f"copy the newest file to this host. If {table} was removed again on purpose, runs go on without it"
                f" from {(since + FILES_ARRIVE).isoformat()}",
            )
