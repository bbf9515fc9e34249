"""Deciding a batch and rolling it forward: one commit decides, the others follow from the manifest.

The next run finishes a batch that a crash interrupted: every step first checks whether it is done already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from frazil.batch.manifest import Manifest
from frazil.batch.position import BatchMark
from frazil.error_codes import RUN_OVERTAKEN
from frazil.iceberg.catalog.table import Table, TableMetadata, staging_table
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
    SummaryValue,
    landed_snapshot,
    mark_of,
    read_summary,
)
from frazil.iceberg.files.data_files import write_rows
from frazil.iceberg.ledger.ledger import ledger_rows
from frazil.run.commit.commit_followers import (
    commit_all_followers,
    land_change,
    last_batch_check,
    snapshot_summary,
)
from frazil.run.commit.dead_letter_topic import send_letters
from frazil.run.commit.ledger_entry import entry_rows, marks_after, marks_json
from frazil.run.commit.manifests import refuse_foreign_parts
from frazil.run.state.context import RunContext
from frazil.run.state.evolution import make_changes
from frazil.run.state.pipeline_state import PipelineState, recovered_manifests
from frazil.run.state.tables import refuse_same_topics

ORPHAN_WINDOW: Final = timedelta(days=3)
"""Age from which an orphan removal may take files that no snapshot names: Iceberg's default for `older_than`."""


def decide(context: RunContext, manifest: Manifest, path: str, state: PipelineState) -> int:
    """The one commit that makes a batch happen: rows and position in the same snapshot.

    `path` is where its manifest lies, already written; `state` is what it was planned on. Returns the snapshot.

    Raises:
        Refused: The position is another one by now, or the table no longer takes the files.
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

    The position moves with its batch, so the id of the last batch stands for it. The check also refuses files that are older
    than half the orphan window: an orphan removal may delete them before the followers get them.
    """
    batch_key, table = BATCH_KEY.format(manifest.pipeline), manifest.closing.table

    def check(metadata: TableMetadata) -> None:
        age = context.clock() - datetime.fromisoformat(manifest.started_at)
        if age > ORPHAN_WINDOW / 2:
            raise Refused(f"batch {manifest.position.n} was staged {age} ago: its files may be taken for orphans")
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
    """The catalogs, with each table of a decided batch in its manifest's catalog and branch, even if the file names others
    now.
    """
    return lake.decided({part.table: (part.catalog, part.branch) for part in manifest.parts})


def roll_forward(context: RunContext, manifest: Manifest, path: str, state: PipelineState) -> None:
    """Commit every follower's part, send the letters to the dead-letter topic, then write the ledger's rows. Safe to repeat
    and to run twice at once; then letters may be in the topic twice.

    `state` is where the pipeline stood before the batch was recorded.

    Raises:
        Terminal: A follower can't take its part: dropped, rolled back, changed; or the topic can't; or the manifest names
            tables of others.
        Retryable: Kafka, the catalog or the storage is not available now; or the closing table holds the batch no more.
    """
    refuse_foreign_parts(context, state, manifest)
    context = replace(context, lake=lake_of_batch(context.lake, manifest))
    table, closing = manifest.closing.table, context.lake.load_table(manifest.closing.table)
    decided = landed_snapshot(closing.metadata, BATCH_KEY.format(manifest.pipeline), manifest.mark, table)
    if decided is None:
        # A process that slept: what it would give the followers belongs to a past that the pipeline no longer has.
        raise RUN_OVERTAKEN.retryable(
            f"pipeline {manifest.pipeline}: table {table} does not hold batch {manifest.position.n} ({manifest.batch}) any more: it"
            " was taken back, or finished and expired meanwhile",
            next_step="run again; it plans from where the pipeline stands now",
        )
    if manifest.kind == "apply":
        _make_changes(context, manifest)
    snapshots: dict[str, int | None] = {table: decided}
    snapshots |= commit_all_followers(context, manifest, path)
    _record_in_ledger(context, manifest, closing, snapshots, path, state)


def _make_changes(context: RunContext, manifest: Manifest) -> None:
    """Make the tables' changes, unless the batch is over: whoever comes late must not undo what later batches changed, nor
    change a table that one of them is decided for.
    """

    def is_over() -> bool:
        closing, ledger = (context.lake.load_table(name).metadata for name in (manifest.closing.table, manifest.ledger))
        batch_key, done_key = BATCH_KEY.format(manifest.pipeline), DONE_KEY.format(manifest.pipeline)
        done = read_summary(ledger, done_key, manifest.ledger)
        recorded = mark_of(done) if isinstance(done, SummaryValue) else None
        is_recorded = recorded is not None and recorded.n >= manifest.position.n
        return is_recorded or landed_snapshot(closing, batch_key, manifest.mark, manifest.closing.table) is None

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

    A finished batch does not send its letters again, so they are sent as late as possible: just before that commit.
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
    """Table -> snapshot of an earlier batch's part; None for a part that was never committed: a repair gives those up."""
    places = {part.table: (part.catalog, part.branch) for part in batch.parts if part.table != repair.repairs}
    key, lake = BATCH_KEY.format(batch.pipeline), lake.decided(places)
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
