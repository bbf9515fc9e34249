"""Deciding a batch and rolling it forward: one commit decides, the others follow from the manifest.

Whoever comes next finishes what a crash left: every step asks first whether it is done already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from frazil.batch.manifest import Manifest
from frazil.batch.position import BatchMark
from frazil.errors import Retryable
from frazil.iceberg.branch import branch_name, decide_on_branch, replacing
from frazil.iceberg.commit import Change, Refused, commit, fit_of, snapshot_time
from frazil.iceberg.data_files import write_rows
from frazil.iceberg.holdings import (
    BATCH_KEY,
    CLOSING_KEY,
    DONE_KEY,
    MADE_KEY,
    POSITION_KEY,
    TABLES_KEY,
    RolledBack,
    landed,
    lookup,
    mark_of,
)
from frazil.iceberg.ledger import ledger_rows
from frazil.iceberg.pipeline_lake import PipelineLake, branch_note
from frazil.iceberg.table import Table, TableMetadata, staging_table
from frazil.run.follow import committed, follow_all, holds_last, summary_of
from frazil.run.ledger_entry import entry_rows, told_after, told_json
from frazil.run.letter_topic import send_letters
from frazil.run.manifests import recovered, refuse_foreign_parts
from frazil.run.scope import Scope
from frazil.run.standing import Standing
from frazil.run.tables import refuse_same_topics

ORPHAN_WINDOW: Final = timedelta(days=3)
"""Age from which an orphan removal may take files that no snapshot names: Iceberg's default for `older_than`."""

_ON_BRANCH: Final = ("replay",)
"""Kinds of batches whose rows are prepared on a branch, so that readers see the old ones until the new ones are there."""


def decide(scope: Scope, manifest: Manifest, path: str, now: Standing) -> int:
    """The one commit that makes a batch happen: rows and position in the same snapshot.

    Args:
        scope: The pipeline and its doors.
        manifest: The batch, already written to `path`.
        path: Where its manifest lies.
        now: What it was planned on.

    Returns:
        Id of the snapshot.

    Raises:
        Refused: The position is another one by now, or the table no longer takes the files.
        OutcomeUnknown: The catalog can't be read to find out whether the commit landed.
    """
    position_key, batch_key = POSITION_KEY.format(manifest.pipeline), BATCH_KEY.format(manifest.pipeline)
    table = manifest.closing.table
    made = {MADE_KEY.format(manifest.pipeline): json.dumps(manifest.made)} if manifest.made else {}
    change = Change(
        step="decide",
        table=table,
        files=manifest.closing.files,
        removal=manifest.closing.removal,
        summary=summary_of(manifest, path)
        | {position_key: manifest.position.moves_json(), batch_key: manifest.mark.to_json()},
        mirrored=(batch_key,),
        attached={position_key: manifest.position.to_json()} | made,
        properties={CLOSING_KEY.format(manifest.pipeline): table}
        if table == manifest.ledger
        else branch_note(scope.lake, manifest.pipeline, table),
        fit=manifest.closing.fit,
        landed=lambda metadata: landed(metadata, batch_key, manifest.mark, table),
        check=_stands(scope, manifest, now),
        retention=scope.retention(table),
    )
    if manifest.kind not in _ON_BRANCH or table == manifest.ledger:
        return commit(scope.lake, change)
    name = branch_name(manifest.pipeline, manifest.position.n)
    return decide_on_branch(scope.lake, change, name, replacing())


def _stands(scope: Scope, manifest: Manifest, now: Standing) -> Callable[[TableMetadata], None]:
    """Whether the closing table still holds what the batch was planned on: the last batch, rolled back or not.

    The position moves with its batch, whose id is its own.

    And whether its files will be there when the followers get them: those that lie longer than half the orphan window may go at
    any moment.
    """
    batch_key, table = BATCH_KEY.format(manifest.pipeline), manifest.closing.table

    def check(metadata: TableMetadata) -> None:
        age = scope.clock() - datetime.fromisoformat(manifest.started_at)
        if age > ORPHAN_WINDOW / 2:
            raise Refused(f"batch {manifest.position.n} was staged {age} ago: its files may be taken for orphans")
        _refuse_shared_now(scope, manifest, metadata)
        last = lookup(metadata, batch_key, table)
        mark, is_rolled_back = mark_of(last), isinstance(last, RolledBack)
        if mark != manifest.closing.after or (is_rolled_back and now.rolled_back is None):
            raise Refused(
                f"table {table}: batch {manifest.position.n} was planned on {_described(manifest.closing.after)}, found"
                f" {_described(mark)}{', rolled back' if is_rolled_back else ''}"
            )

    return check


def _refuse_shared_now(scope: Scope, manifest: Manifest, metadata: TableMetadata) -> None:
    """Another pipeline may begin, or begin to read a topic, at this very moment."""
    for name in scope.pipeline.tables:
        if name == manifest.closing.table:
            refuse_same_topics(scope.pipeline, name, metadata)
        elif manifest.kind == "start":
            refuse_same_topics(scope.pipeline, name, scope.lake.load_table(name).metadata)


def _described(mark: BatchMark | None) -> str:
    return "no position" if mark is None else f"position n={mark.n}, epoch={mark.epoch}, batch {mark.batch}"


def lake_of_batch(lake: PipelineLake, manifest: Manifest) -> PipelineLake:
    """The lake, with the tables of a decided batch where it was decided that they are, whatever the file names by now."""
    return lake.decided({part.table: (part.catalog, part.branch) for part in manifest.parts})


def roll_forward(scope: Scope, manifest: Manifest, path: str, now: Standing) -> None:
    """Give every follower its part, the dead-letter topic its letters, then the ledger its rows. Safe to repeat, and when two
    do it at once: then letters may be in the topic twice.

    Args:
        scope: The pipeline and its doors.
        manifest: A decided batch.
        path: Where its manifest lies.
        now: The standing before the batch was recorded.

    Raises:
        Terminal: A follower can't take its part: dropped, rolled back, changed; or the topic can't; or the manifest names
            tables of others.
        Retryable: Kafka, the catalog or the storage is not available now; or the closing table holds the batch no more.
    """
    refuse_foreign_parts(scope, now, manifest)
    scope = replace(scope, lake=lake_of_batch(scope.lake, manifest))
    table, closing = manifest.closing.table, scope.lake.load_table(manifest.closing.table)
    decided = landed(closing.metadata, BATCH_KEY.format(manifest.pipeline), manifest.mark, table)
    if decided is None:
        # A process that slept: what it would give the followers belongs to a past that the pipeline no longer has.
        raise Retryable(
            f"pipeline {manifest.pipeline}: table {table} does not hold batch {manifest.position.n} ({manifest.batch}) any more: it"
            " was taken back, or finished and expired meanwhile",
            next_step="run again; it plans from where the pipeline stands now",
        )
    snapshots: dict[str, int | None] = {table: decided}
    snapshots |= follow_all(scope, manifest, path)
    _record(scope, manifest, closing, snapshots, path, now)


def _record(
    scope: Scope, manifest: Manifest, closing: Table, snapshots: Mapping[str, int | None], path: str, now: Standing
) -> None:
    """Letters to the topic, then the ledger's rows and its marks, in one commit, which looks at the ledger anew. From then on the
    batch is finished, and its letters are not sent again; so they are sent as late as can be.
    """
    key, tables_key = DONE_KEY.format(manifest.pipeline), TABLES_KEY.format(manifest.pipeline)
    is_closing, lake = manifest.ledger == manifest.closing.table, scope.lake
    ledger = closing if is_closing else lake.load_table(manifest.ledger)
    if landed(ledger.metadata, key, manifest.mark, manifest.ledger) is not None:
        return
    send_letters(scope, manifest)
    earlier = recovered(closing, manifest)
    refuse_foreign_parts(scope, now, *earlier)
    rows = [row for batch in earlier for row in _entry(scope, batch, closing, _recovered_in(lake, batch, manifest))]
    rows += _entry(scope, manifest, closing, snapshots)
    told = told_json(told_after(now.told, *earlier, manifest))
    change = Change(
        step="record",
        table=manifest.ledger,
        files=write_rows(staging_table(manifest.ledger, ledger), ledger_rows(rows)),
        summary=summary_of(manifest, path) | {key: manifest.mark.to_json()},
        mirrored=(key,),
        attached={tables_key: told},
        fit=fit_of(ledger.metadata),
        landed=lambda metadata: landed(metadata, key, manifest.mark, manifest.ledger),
        check=holds_last(key, manifest.ledger, manifest),
        properties={CLOSING_KEY.format(manifest.pipeline): manifest.closing.table},
        retention=scope.retention(manifest.ledger),
    )
    committed(lake, change, manifest)


def _recovered_in(lake: PipelineLake, batch: Manifest, by: Manifest) -> dict[str, int | None]:
    """The snapshots of an earlier batch's parts. Some may never be there any more: then a repair gave them up, or will."""
    places = {of.table: (of.catalog, of.branch) for of in batch.parts if of.table != by.repairs}
    key, lake = BATCH_KEY.format(batch.pipeline), lake.decided(places)
    found = {part.table: lake.find_table(part.table) for part in batch.parts}
    return {table: None if of is None else landed(of.metadata, key, batch.mark, table) for table, of in found.items()}


def _entry(
    scope: Scope, manifest: Manifest, closing: Table, snapshots: Mapping[str, int | None]
) -> list[dict[str, Any]]:
    decided_at = snapshot_time(closing, snapshots[manifest.closing.table])
    return entry_rows(manifest, snapshots, decided_at, scope.clock())
