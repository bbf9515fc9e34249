"""Deciding a batch and rolling it forward: one commit decides, the others follow from the manifest.

Whoever comes next finishes what a crash left: every step asks first whether it is done already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from frazil.batch.manifest import Manifest, TablePart
from frazil.batch.position import BatchMark, Position
from frazil.errors import Retryable, Terminal
from frazil.iceberg.branch import branch_name, decide_on_branch, replacing
from frazil.iceberg.catalog import Lake
from frazil.iceberg.commit import Change, Refused, commit, fit_of, snapshot_time
from frazil.iceberg.data_files import write_rows
from frazil.iceberg.holdings import (
    BATCH_KEY,
    CLOSING_KEY,
    DONE_KEY,
    POSITION_KEY,
    TABLES_KEY,
    Held,
    RolledBack,
    held,
    landed,
    lookup,
    mark_of,
    still_held,
)
from frazil.iceberg.ledger import ledger_rows
from frazil.iceberg.table import Table, TableMetadata, missing_files, staging_table
from frazil.run.ledger_entry import entry_rows, ranges_json, told_after, told_json
from frazil.run.letter_topic import send_letters
from frazil.run.manifests import recovered
from frazil.run.scope import Scope, utc_now
from frazil.run.shared import refuse_same_topics
from frazil.run.standing import BYTES_KEY, MANIFEST_KEY, READ_KEY, SETTLES_KEY, Standing, settle_commands

ORPHAN_WINDOW: Final = timedelta(days=3)
"""Age from which an orphan removal may take files that no snapshot names: Iceberg's default for `older_than`."""

_FILES_ARE_SAFE: Final = timedelta(hours=1)
"""Age up to which no orphan removal takes a file: Iceberg's own refuses less than a day."""

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
    change = Change(
        step="decide",
        table=table,
        files=manifest.closing.files,
        removal=manifest.closing.removal,
        summary=_summary(manifest, path)
        | {position_key: manifest.position.to_json(), batch_key: manifest.mark.to_json()},
        mirrored=(position_key, batch_key),
        fit=manifest.closing.fit,
        landed=lambda metadata: landed(metadata, batch_key, manifest.mark, table),
        check=_stands(scope, manifest, now),
    )
    if manifest.kind not in _ON_BRANCH:
        return commit(scope.lake, change)
    name = branch_name(manifest.pipeline, manifest.position.n)
    return decide_on_branch(scope.lake, change, name, replacing())


def _stands(scope: Scope, manifest: Manifest, now: Standing) -> Callable[[TableMetadata], None]:
    """Whether the closing table still holds what the batch was planned on: rolled back or not, position, last batch.

    And whether the batch is young enough: files that lie longer than half the orphan window may be gone.
    """
    position_key, batch_key = POSITION_KEY.format(manifest.pipeline), BATCH_KEY.format(manifest.pipeline)
    table = manifest.closing.table

    def check(metadata: TableMetadata) -> None:
        age = scope.clock() - datetime.fromisoformat(manifest.started_at)
        if age > ORPHAN_WINDOW / 2:
            raise Refused(f"batch {manifest.position.n} was staged {age} ago: its files may be taken for orphans")
        if manifest.kind == "start":
            refuse_same_topics(scope.pipeline, metadata)  # another pipeline may begin at this very moment
        found, last = lookup(metadata, position_key, table), lookup(metadata, batch_key, table)
        is_rolled_back, holds = isinstance(found, RolledBack), still_held(found)
        position = Position.from_json(holds.value) if holds else None
        expected = now.position, manifest.closing.after
        if (position, mark_of(last)) != expected or (is_rolled_back and now.rolled_back is None):
            raise Refused(
                f"table {table}: batch {manifest.position.n} was planned on {_described(now.position)}, found"
                f" {_described(position)}{', rolled back' if is_rolled_back else ''}"
            )

    return check


def _described(position: Position | None) -> str:
    return "no position" if position is None else f"position n={position.n}, epoch={position.epoch}"


def roll_forward(scope: Scope, manifest: Manifest, path: str, now: Standing) -> None:
    """Give the dead-letter topic and every follower their parts, then the ledger its rows. Safe to repeat, and when two do
    it at once.

    Args:
        scope: The pipeline and its doors.
        manifest: A decided batch.
        path: Where its manifest lies.
        now: The standing before the batch was recorded.

    Raises:
        Terminal: A follower can't take its part: dropped, rolled back, changed; or the topic can't.
        Retryable: Kafka, the catalog or the storage is not available now.
    """
    # First, so that a table which can't take its part, and is settled, has no part in what becomes of the topic.
    send_letters(scope, manifest)
    key = BATCH_KEY.format(manifest.pipeline)
    snapshots = {manifest.closing.table: _landed_in(scope.lake, manifest, manifest.closing, key)}
    for part in manifest.followers:
        snapshots[part.table] = follow(scope.lake, manifest, part, path)
    _record(scope, manifest, snapshots, path, now)


def _landed_in(lake: Lake, manifest: Manifest, part: TablePart, key: str) -> int | None:
    return landed(lake.load_table(part.table).metadata, key, manifest.mark, part.table)


def follow(lake: Lake, manifest: Manifest, part: TablePart, path: str) -> int:
    """Give one follower its part of a decided batch, and return the snapshot in which it became visible.

    Raises:
        Terminal: It can't take it: dropped, rolled back, changed.
    """
    key = BATCH_KEY.format(manifest.pipeline)
    _refuse_missing_files(lake, manifest, part, key)
    change = Change(
        step="follow",
        table=part.table,
        files=part.files,
        removal=part.removal,
        summary=_summary(manifest, path) | {key: manifest.mark.to_json()},
        mirrored=(key,),
        fit=part.fit,
        landed=lambda metadata: landed(metadata, key, manifest.mark, part.table),
        check=_holds(key, part.after, part.table, manifest),
    )
    return _committed(lake, change, manifest)


def _refuse_missing_files(lake: Lake, manifest: Manifest, part: TablePart, key: str) -> None:
    """A batch that waited long may have lost staged files to somebody's orphan removal; a table must not name them."""
    if utc_now() - datetime.fromisoformat(manifest.started_at) < _FILES_ARE_SAFE:
        return
    table = lake.load_table(part.table)
    if landed(table.metadata, key, manifest.mark, part.table) is not None:
        return
    missing = missing_files(table, [file.path for file in part.files])
    if missing:
        raise Terminal(
            f"batch {manifest.position.n} of pipeline {manifest.pipeline} is decided, but {len(missing)} of its files for"
            f" table {part.table} are gone, for example {missing[0]}: an orphan removal took them while the batch waited",
            next_step=settle_commands(manifest.pipeline, part.table),
        )


def _holds(key: str, after: BatchMark | None, table: str, manifest: Manifest) -> Callable[[TableMetadata], None]:
    def check(metadata: TableMetadata) -> None:
        # Whatever happened to a table that is settled, the settling batch was made for what is left of it.
        last = mark_of(lookup(metadata, key, table) if manifest.settles == table else held(metadata, key, table))
        # A rewind takes out whatever batches after the rollback landed, so a late one of them is in nobody's way.
        is_abandoned = manifest.kind == "rewind" and last is not None and last.n < manifest.position.n
        if last != after and not is_abandoned:
            raise Refused(f"table {table} holds {last} last, expected {after}")

    return check


def _committed(lake: Lake, change: Change, manifest: Manifest) -> int:
    try:
        return commit(lake, change)
    except Refused as refusal:
        _refuse_overtaken(lake, manifest, refusal)
        raise Terminal(
            f"batch {manifest.position.n} of pipeline {manifest.pipeline} is decided, but {refusal.message};"
            " the pipeline waits",
            next_step=f"undo the change of {change.table} and run again, or: "
            + settle_commands(manifest.pipeline, change.table),
        ) from refusal


def _refuse_overtaken(lake: Lake, manifest: Manifest, refusal: Refused) -> None:
    """A run that slept may find its batch finished, and expired from where it looks. Nobody has to act then."""
    found = lookup(lake.load_table(manifest.ledger).metadata, DONE_KEY.format(manifest.pipeline), manifest.ledger)
    done = mark_of(found) if isinstance(found, Held) else None
    if done is not None and done.n >= manifest.position.n:
        raise Retryable(
            f"batch {manifest.position.n} of pipeline {manifest.pipeline} was finished by another run meanwhile, or taken back",
            next_step="run again; it plans from where the pipeline stands now",
        ) from refusal


def _record(scope: Scope, manifest: Manifest, snapshots: Mapping[str, int | None], path: str, now: Standing) -> None:
    """The ledger's rows and its marks, in one commit. From then on the batch is finished."""
    key, tables_key = DONE_KEY.format(manifest.pipeline), TABLES_KEY.format(manifest.pipeline)
    lake, ledger = scope.lake, scope.lake.load_table(manifest.ledger)
    if landed(ledger.metadata, key, manifest.mark, manifest.ledger) is not None:
        return
    closing = lake.load_table(manifest.closing.table)
    earlier = recovered(closing, manifest)
    rows = [row for batch in earlier for row in _entry(scope, batch, closing, _snapshots(lake, batch))]
    rows += _entry(scope, manifest, closing, snapshots)
    told = told_json(told_after(now.told, *earlier, manifest))
    change = Change(
        step="record",
        table=manifest.ledger,
        files=write_rows(staging_table(manifest.ledger, ledger), ledger_rows(rows)),
        summary=_summary(manifest, path) | {key: manifest.mark.to_json(), tables_key: told},
        mirrored=(key, tables_key),
        fit=fit_of(ledger.metadata),
        landed=lambda metadata: landed(metadata, key, manifest.mark, manifest.ledger),
        check=_holds(key, manifest.ledger_after, manifest.ledger, manifest),
        properties={CLOSING_KEY.format(manifest.pipeline): manifest.closing.table},
    )
    _committed(lake, change, manifest)


def _snapshots(lake: Lake, manifest: Manifest) -> dict[str, int | None]:
    key = BATCH_KEY.format(manifest.pipeline)
    return {part.table: _landed_in(lake, manifest, part, key) for part in manifest.parts}


def _entry(
    scope: Scope, manifest: Manifest, closing: Table, snapshots: Mapping[str, int | None]
) -> list[dict[str, Any]]:
    decided_at = snapshot_time(closing, snapshots[manifest.closing.table])
    return entry_rows(manifest, snapshots, decided_at, scope.clock())


def _summary(manifest: Manifest, path: str) -> dict[str, str]:
    counts = manifest.counts
    summary = {
        "frazil.pipeline": manifest.pipeline,
        "frazil.batch": manifest.batch,
        "frazil.run": manifest.run,
        "frazil.kind": manifest.kind,
        "frazil.version": manifest.version,
        "frazil.config": manifest.config,
        READ_KEY: str(counts.read),
        "frazil.rows.written": str(counts.written),
        "frazil.rows.dead": str(counts.dead),
        "frazil.rows.filtered": str(counts.filtered),
        BYTES_KEY: str(manifest.bytes_read),
        MANIFEST_KEY: path,
    }
    optional = {
        "frazil.complete-through": manifest.complete_through,
        "frazil.started-by": manifest.started_by or None,
        "frazil.reason": manifest.reason,
        SETTLES_KEY: manifest.settles,
        "frazil.skipped": ranges_json(manifest.skipped) if manifest.skipped else None,
    }
    return summary | {key: value for key, value in optional.items() if value is not None}
