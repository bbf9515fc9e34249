"""Builds and writes the manifest of a batch, beside the closing table's metadata, and builds its rows for the ledger, one per
table.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from frazil import __version__
from frazil.batch.changes import Coordinates, Merge, Removal, RemovedRange, farthest_position, ranges_from
from frazil.batch.facts import Range, Staged, TableCounts, ages_json
from frazil.batch.manifest import Fit, Kind, Manifest, Operation, TablePart
from frazil.batch.position import BatchMark, Position
from frazil.batch.schema_change import Demands
from frazil.error_codes import MANIFEST_FOREIGN, REPLAY_REFUSED
from frazil.errors import Retryable, Terminal
from frazil.failpoints import Failpoint, hit
from frazil.iceberg.catalog.table import metadata_path, missing_files, write_text
from frazil.iceberg.commit.commit import fit_of
from frazil.iceberg.commit.removal import check_removable
from frazil.iceberg.commit.summary_state import BATCH_KEY, landed_snapshot, manifest_path
from frazil.pipeline.files.folder import rules_file, rules_text
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.run.state.context import RunContext, key_of
from frazil.run.state.evolution import reported_changes
from frazil.run.state.pipeline_state import PipelineState, TableMark
from frazil.run.state.tables import Tables

_log = logging.getLogger(__name__)

LETTER_COLUMNS = Coordinates("topic", "partition", "offset", "_frazil_batch")
"""Columns of the dead-letter table with a record's Kafka coordinates and the batch number."""


@dataclass(frozen=True)
class Batch:
    """A batch before its manifest is written. Fields with the same name mean the same in both.

    Attributes:
        removed_letters: Ranges whose dead letters are removed.
        removed_from: Destination -> ranges whose rows are removed from it alone.
        started_at: When staging began; None if nothing was staged.
        complete_through: See `Manifest.complete_through`.
        marks: Followers that get the batch's mark although they get no rows.
    """

    kind: Kind
    run: str
    position: Position
    planned_at: str
    staged: Staged = field(default_factory=Staged)
    ranges: tuple[Range, ...] = ()
    skipped: tuple[Range, ...] = ()
    removed: tuple[RemovedRange, ...] = ()
    removed_letters: tuple[RemovedRange, ...] = ()
    removed_from: Mapping[str, tuple[RemovedRange, ...]] = field(default_factory=dict)
    started_at: str | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    started_by: str = ""
    reason: str | None = None
    complete_through: str | None = None
    repairs: str | None = None
    recovers: tuple[str, ...] = ()
    abandoned: int = 0
    marks: frozenset[str] = frozenset()
    table_ranges: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    letter_topic: str | None = None
    schema_changes: Demands = field(default_factory=dict)


def write_manifest(context: RunContext, tables: Tables, state: PipelineState, batch: Batch) -> tuple[Manifest, str]:
    """Build the manifest of a batch and write it.

    Raises:
        Terminal: Rows must be removed from a table without Kafka coordinates.
    """
    manifest = _build_manifest(context, tables, state, batch)
    _check_removals(context, manifest)
    _keep_rules(context, tables, manifest.config)
    path = manifest_path(tables.closing, context.pipeline.name, manifest.mark)
    write_text(tables.closing, path, manifest.to_json())
    hit(Failpoint.MANIFEST_WRITTEN)
    return manifest, path


def _keep_rules(context: RunContext, tables: Tables, fingerprint: str) -> None:
    """Write the rules of the pipeline file that decide outcomes into the ledger's metadata folder, once per hash.

    `frazil verify` checks each batch by the rules it ran under. It reports batches whose rules are missing, so a failed write
    does not fail the batch.
    """
    path = metadata_path(tables.ledger, rules_file(context.pipeline.name, fingerprint))
    try:
        if missing_files(tables.ledger, [path]):
            write_text(tables.ledger, path, rules_text(context.pipeline))
    except (Retryable, Terminal, TypeError, ValueError) as error:
        _log.warning("%s is not kept, and frazil verify judges its batches less strictly: %s", path, error)


def refuse_foreign_parts(context: RunContext, state: PipelineState, *manifests: Manifest) -> None:
    """Refuse manifests with parts for tables that are not the pipeline's.

    Everyone who may commit to the closing table can name any manifest there. A table is the pipeline's if the ledger lists it
    with this UUID, or if the pipeline file names it, in that catalog.

    Raises:
        Terminal: A part is for another table.
    """
    pipeline = context.pipeline
    named = {*pipeline.tables, *pipeline.auto_created, pipeline.ledger_table, pipeline.dead_letters_table}
    for manifest in manifests:
        foreign = {part.table for part in manifest.parts if not _is_own(context, state, named, manifest, part)}
        if manifest.ledger != pipeline.ledger_table:
            foreign.add(manifest.ledger)
        if foreign:
            raise MANIFEST_FOREIGN.terminal(
                f"pipeline {pipeline.name}: the manifest of batch {manifest.position.n} gives parts to"
                f" {', '.join(sorted(foreign))}: neither the pipeline file nor the ledger {pipeline.ledger_table} knows them as"
                " tables of this pipeline, in these catalogs",
                next_step="if one of them was a destination when the batch was decided, add it to the file again; otherwise"
                f" somebody else committed to {manifest.closing.table}: roll that commit back, and check who may write there",
            )


def _is_own(
    context: RunContext, state: PipelineState, named: Collection[str], manifest: Manifest, part: TablePart
) -> bool:
    """Whether a part's table is the pipeline's. A table that has its part already counts, too: it gets nothing more."""
    ledger_mark = state.ledger_marks.get(part.table)
    if ledger_mark is not None and ledger_mark.uuid == part.fit.uuid:
        return True
    if part.table in named and part.catalog in (None, context.lake.catalog_of(part.table).name):
        return True
    table = context.lake.with_places({part.table: (part.catalog, part.branch)}).find_table(part.table)
    key = BATCH_KEY.format(manifest.pipeline)
    return table is not None and landed_snapshot(table.metadata, key, manifest.mark, part.table) is not None


def coordinate_columns(destination: Destination) -> Coordinates | None:
    """Columns of a destination with the topic, partition, offset and batch of a row; None if it has no such columns."""
    names = destination.kafka_columns
    return Coordinates(names.topic, names.partition, names.offset, names.batch) if names else None


def _build_manifest(context: RunContext, tables: Tables, state: PipelineState, batch: Batch) -> Manifest:
    pipeline = context.pipeline
    stamp = context.stamp()
    followers = tuple(_follower_parts(context, tables, state, batch))
    return Manifest(
        pipeline=pipeline.name,
        kind=batch.kind,
        batch=str(uuid.uuid4()),
        run=batch.run,
        position=batch.position,
        closing=_closing_part(context, tables, state, batch),
        followers=followers,
        ledger=pipeline.ledger_table,
        ledger_after=state.last_finished,
        counts=batch.staged.total,
        dead_codes=batch.staged.dead_codes,
        planned_at=batch.planned_at,
        started_at=batch.started_at or stamp,
        written_at=stamp,
        phases=batch.phases,
        version=__version__,
        config=pipeline.outcome_fingerprint,
        complete_through=batch.complete_through,
        ranges=batch.ranges,
        skipped=batch.skipped,
        bytes_read=batch.staged.bytes,
        started_by=batch.started_by,
        reason=batch.reason,
        repairs=batch.repairs,
        recovers=batch.recovers,
        abandoned=batch.abandoned,
        letter_topic=batch.letter_topic,
        tables={
            table: replace(counts, unknown_fields=counts.unknown_fields.shown)
            for table, counts in batch.staged.tables.items()
        },
        table_ranges=batch.table_ranges,
        dropped=_dropped_destinations(context, state),
        unmarked=tuple(
            sorted(tables.followers.keys() - state.ledger_marks.keys() - {part.table for part in followers})
        ),
        unknown_fields=batch.staged.unknown_fields.shown,
        # Batch 1 records the changes noted before it, not batch 0: for both, the newest decided batch counts as 0.
        schema_changes={}
        if batch.kind == "start"
        else reported_changes(pipeline, tables, state.newest_batch, batch.schema_changes),
        created=pipeline.auto_created,
        record_ages=batch.staged.ages,
    )


def _closing_part(context: RunContext, tables: Tables, state: PipelineState, batch: Batch) -> TablePart:
    """The closing table's part. A ledger that closes gets no rows with the deciding commit."""
    name, fit = tables.closing_name, fit_of(tables.closing.metadata)
    if name not in tables.destinations:
        return TablePart(name, "ledger", fit, state.mark, ())
    return _row_part(context, name, fit, state.mark, batch)


def _follower_parts(context: RunContext, tables: Tables, state: PipelineState, batch: Batch) -> Iterator[TablePart]:
    """Parts of destinations with new data or not yet in the ledger; then the dead letters, if there are any.

    A batch of kind `apply` has no parts: its schema changes come first, and a part fits the table before them.
    """
    if batch.kind == "apply":
        return
    for name, table in tables.followers.items():
        readded_removals = removed_on_return(context.pipeline, state, name, batch)
        part = _row_part(context, name, fit_of(table.metadata), state.followers.get(name), batch, readded_removals)
        # A mark alone is not worth an engine: a new table that needs one gets its mark with the first rows.
        is_new = name not in state.ledger_marks and part.operation is None
        if part.files or part.removal or name in batch.marks or is_new:
            yield part
    letters = context.pipeline.dead_letters_table
    removal = Removal(LETTER_COLUMNS, batch.removed_letters) if batch.removed_letters else None
    files = batch.staged.files.get(letters, ())
    if files or removal or letters in batch.marks:
        fit = fit_of(tables.dead_letters.metadata)
        yield TablePart(letters, "dead_letters", fit, state.dead_letters, files, removal)


def removed_on_return(pipeline: Pipeline, state: PipelineState, name: str, batch: Batch) -> tuple[RemovedRange, ...]:
    """Rows to remove from a destination that the pipeline file names again, after an edit had dropped it.

    A reset in between took no rows out of it, although their records land again. The mark's epoch shows such a reset: it is not
    the present one. If the batch itself is a reset, it removes its own rows besides.
    """
    after = state.followers.get(name)  # the closing table is never dropped from the file
    if name in state.ledger_marks or after is None:
        return ()
    if batch.kind != "reset":
        starts = {
            topic: replace(topic_position, next=topic_position.start)
            for topic, topic_position in batch.position.topics.items()
        }
        missed_reset = after.epoch != batch.position.epoch
        return ranges_from(replace(batch.position, topics=starts)) if missed_reset else ()
    if state.position is None or after.epoch == state.position.epoch:
        return ()
    if name in batch.removed_from:
        return ranges_from(batch.position)
    if coordinate_columns(pipeline.destination(name)) is None:
        return ()  # only a reset that allows duplicates is possible here
    return ranges_from(farthest_position(state.position, batch.position))


def _row_part(
    context: RunContext,
    name: str,
    fit: Fit,
    after: BatchMark | None,
    batch: Batch,
    readded_removals: tuple[RemovedRange, ...] = (),
) -> TablePart:
    files = batch.staged.files.get(name, ())
    removed = row_removal(
        context.pipeline, name, (*batch.removed, *batch.removed_from.get(name, ()), *readded_removals)
    )
    operation, lake = operation_of(context.pipeline.destination(name), batch.position), context.lake
    place = lake.catalog_of(name).name, lake.branch_of(name)
    return TablePart(name, "destination", fit, after, files, removed, operation, *place)


def operation_of(destination: Destination, position: Position) -> Operation | None:
    """What an engine does with the staged rows of a destination; None if PyIceberg commits their files."""
    if not destination.by_engine:
        return None
    columns, names = coordinate_columns(destination), destination.kafka_columns
    if not destination.is_merged or columns is None or not names:
        return Operation(variants=destination.variants)
    merge = Merge(
        key_of(destination),
        columns,
        names.timestamp,
        destination.order_by,
        destination.deleted_column,
        since={name: topic.since for name, topic in position.topics.items() if topic.since},
        lost_tails={name: topic.lost_tails for name, topic in position.topics.items() if topic.lost_tails},
    )
    return Operation("merge", destination.variants, merge)


def _dropped_destinations(context: RunContext, state: PipelineState) -> tuple[str, ...]:
    """Destinations of earlier batches that the pipeline file no longer names."""
    dropped = {table for table, mark in state.ledger_marks.items() if mark.role == "destination"} - set(
        context.pipeline.tables
    )
    for table in sorted(dropped):
        context.report(f"table {table} is no longer a destination: it keeps its rows and gets no more")
    return tuple(sorted(dropped))


def _check_removals(context: RunContext, manifest: Manifest) -> None:
    """Refuse, before the decision, removals that can't be carried out: a decided batch must be possible to finish."""
    for part in manifest.parts:
        if part.removal is not None:
            check_removable(context.lake.load_table(part.table), part.table, part.removal.columns)


def row_removal(pipeline: Pipeline, table: str, removed: tuple[RemovedRange, ...]) -> Removal | None:
    """The rows to remove from a destination; None if none.

    A merged destination keeps its rows: changes that land again are merged into them.

    Raises:
        Terminal: The destination has no Kafka columns.
    """
    if not removed or pipeline.destination(table).is_merged:
        return None
    columns = coordinate_columns(pipeline.destination(table))
    if columns is None:
        raise REPLAY_REFUSED.terminal(
            f"pipeline {pipeline.name} keeps no Kafka columns in {table} (kafka_columns: false):"
            " its rows have no Kafka coordinates, so they can't be found and removed",
            next_step="only a table with Kafka columns can be replayed or reset backward. To land records twice:"
            f" frazil reset {pipeline.name} --to … --allow-duplicates --reason …",
        )
    return Removal(columns, removed)


REPAIR_KINDS = ("repair", "settle")
"""Kinds of batches that repair a follower; older versions of Frazil wrote `settle`."""


def entry_rows(
    manifest: Manifest, snapshots: Mapping[str, int | None], decided_at: datetime | None, recorded_at: datetime
) -> list[dict[str, Any]]:
    """The ledger's rows of a batch, in the columns of `frazil.iceberg.ledger.ledger.LEDGER_SCHEMA`.

    `snapshots`: table -> the snapshot of its part. `decided_at` is None if the deciding snapshot is expired.
    """
    written_at = datetime.fromisoformat(manifest.written_at)
    decided = decided_at or written_at
    phases = dict(manifest.phases) | {
        "decide": round(max(0.0, (decided - written_at).total_seconds()), 3),
        "forward": round(max(0.0, (recorded_at - decided).total_seconds()), 3),
    }
    batch = {
        "pipeline": manifest.pipeline,
        "n": manifest.position.n,
        "epoch": manifest.position.epoch,
        "batch": manifest.batch,
        "run": manifest.run,
        "kind": manifest.kind,
        "records_read": manifest.counts.read,
        "records_written": manifest.counts.written,
        "records_dead": manifest.counts.dead,
        "records_filtered": manifest.counts.filtered,
        "records_unknown": manifest.unknown_fields.records,
        "unknown_fields": json.dumps(dict(manifest.unknown_fields.names)),
        "dead_codes": json.dumps(dict(manifest.dead_codes), sort_keys=True),
        "position": manifest.position.to_json(),
        "planned_at": datetime.fromisoformat(manifest.planned_at),
        "started_at": datetime.fromisoformat(manifest.started_at),
        "decided_at": decided,
        "recorded_at": recorded_at,
        "phases": json.dumps(phases),
        "version": manifest.version,
        "config": manifest.config,
        "ranges": ranges_json(manifest.ranges),
        "skipped": ranges_json(manifest.skipped),
        "bytes_read": manifest.bytes_read,
        "record_ages": ages_json(manifest.record_ages),
        "started_by": manifest.started_by,
        "reason": manifest.reason,
        "abandoned": manifest.abandoned if manifest.kind in REPAIR_KINDS else None,
    }
    rows = [batch | _part_row(manifest, part, snapshots[part.table]) for part in manifest.parts]
    part_tables = {part.table for part in manifest.parts}
    routed_tables = {table for table, counts in manifest.tables.items() if counts.routed}
    tables_without_part = sorted(
        {*routed_tables, *manifest.table_ranges, *manifest.unmarked, *manifest.schema_changes} - part_tables
    )
    nothing = TableCounts() if manifest.tables else None  # None would mean that the table is the only destination
    rows += [
        batch | _empty_row(table, "destination") | _table_counts(manifest, table, manifest.tables.get(table, nothing))
        for table in tables_without_part
    ]
    rows += [batch | _empty_row(table, "left") for table in manifest.dropped]
    return [row | {"schema_changes": _changes_json(manifest, str(row["table"]))} for row in rows]


def _part_row(manifest: Manifest, part: TablePart, snapshot_id: int | None) -> dict[str, Any]:
    return {
        "table": part.table,
        "role": part.role,
        "snapshot_id": snapshot_id,
        "rows": manifest.rows_added(part),
        "files": len(part.files),
        "bytes": part.size,
        "table_uuid": part.fit.uuid,
        "removed": _removed_json(manifest, part),
        "table_upserts": None if part.changes is None else part.changes.upserts,
        "table_deletes": None if part.changes is None else part.changes.deletes,
        "lost_from": _lost_from(manifest, part),
    } | _table_counts(manifest, part.table, manifest.tables.get(part.table))


def _lost_from(manifest: Manifest, part: TablePart) -> int | None:
    """Number of the first batch whose part a repaired table may have lost; None for tables that are not repaired."""
    if manifest.kind != "repair" or part.table != manifest.repairs:
        return None
    return 0 if part.after is None else part.after.n + 1


_COUNT_COLUMNS = ("table_written", "table_dead", "table_unknown", "table_unknown_fields", "table_ranges")


def _table_counts(manifest: Manifest, table: str, counts: TableCounts | None) -> dict[str, Any]:
    """Counts of a batch's records in one of several destinations."""
    ranges = manifest.table_ranges.get(table)
    repaired = {part.table for part in manifest.parts if part.role == "destination"} & {manifest.repairs}
    if repaired and table not in repaired:
        ranges = ()  # a repair gives up ranges of one destination only
    return {
        "table_written": None if counts is None else counts.written,
        "table_dead": None if counts is None else counts.dead,
        "table_unknown": None if counts is None else counts.unknown_fields.records,
        "table_unknown_fields": None if counts is None else json.dumps(dict(counts.unknown_fields.names)),
        "table_ranges": None if ranges is None else ranges_json(ranges),
    }


def _empty_row(table: str, role: str) -> dict[str, Any]:
    """The row of a destination that got nothing. Role `left` records that the pipeline file no longer names the table."""
    nothing = dict.fromkeys(
        ("snapshot_id", "table_uuid", "removed", "table_upserts", "table_deletes", "lost_from", *_COUNT_COLUMNS)
    )
    return nothing | {"table": table, "role": role, "rows": 0, "files": 0, "bytes": 0}


def _changes_json(manifest: Manifest, table: str) -> str | None:
    changes = manifest.schema_changes.get(table, ())
    body = [{"path": change.path, "kind": change.kind, "type": change.type} for change in changes]
    return json.dumps(body) if body else None


def _removed_json(manifest: Manifest, part: TablePart) -> str | None:
    removed = manifest.removed_for_good(part)
    return json.dumps([dataclasses.astuple(r) for r in removed]) if removed else None


def ranges_json(ranges: tuple[Range, ...]) -> str:
    """Ranges as the ledger and summaries show them: [[topic, partition, start, end], ...]."""
    return json.dumps([dataclasses.astuple(r) for r in ranges], separators=(",", ":"))


def marks_after(marks: Mapping[str, TableMark], *manifests: Manifest) -> dict[str, TableMark]:
    """Table -> its mark after further batches, given in their order."""
    after = dict(marks)
    for manifest in manifests:
        table_parts = (part for part in manifest.parts if part.role != "ledger")
        after |= {
            part.table: TableMark(part.fit.uuid, manifest.mark, part.role, _added_at(after, manifest, part))
            for part in table_parts
        }
        after = {table: mark for table, mark in after.items() if table not in manifest.dropped}
    return after


def _added_at(marks: Mapping[str, TableMark], manifest: Manifest, part: TablePart) -> str | None:
    if part.table in marks:
        return marks[part.table].since
    is_added = bool(marks) and part.role == "destination" and part.table not in manifest.created
    return manifest.written_at if is_added else None


def marks_json(marks: Mapping[str, TableMark]) -> str:
    """The marks of all tables as JSON, for a property of the ledger."""
    body = {table: _mark_fields(mark) for table, mark in sorted(marks.items())}
    return json.dumps(body, separators=(",", ":"))


def _mark_fields(mark: TableMark) -> dict[str, Any]:
    since = {} if mark.since is None else {"since": mark.since}
    return {"uuid": mark.uuid} | dataclasses.asdict(mark.mark) | {"role": mark.role} | since
