"""Manifests of batches: what each table gets, written beside the closing table's metadata."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from frazil import __version__
from frazil.batch.changes import Coordinates, Merge, Removal, RemovedRange, at_or_beyond, farthest
from frazil.batch.facts import Range, Staged
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
from frazil.run.state.context import RunContext
from frazil.run.state.evolution import reported_changes
from frazil.run.state.merge_key import key_of
from frazil.run.state.pipeline_state import PipelineState
from frazil.run.state.tables import Tables

_log = logging.getLogger(__name__)

LETTER_COLUMNS = Coordinates("topic", "partition", "offset", "_frazil_batch")
"""Columns of the dead-letter table that say where a record came from."""


@dataclass(frozen=True)
class Batch:
    """A batch before its manifest is written. Fields with the same name mean the same in both.

    Attributes:
        removed_letters: Rows that go from the dead letters.
        removed_from: Rows that go from one destination only.
        started_at: When staging began; the time of the manifest if nothing was staged.
        complete_through: See `Manifest.complete_through`.
        marks: Followers that get the batch's mark although they get nothing else.
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
    """Make the manifest of a batch and write it.

    Raises:
        Terminal: Rows must go from a table that does not say where they came from.
    """
    manifest = _build_manifest(context, tables, state, batch)
    _check_removals(context, manifest)
    _keep_rules(context, tables, manifest.config)
    path = manifest_path(tables.closing, context.pipeline.name, manifest.mark)
    write_text(tables.closing, path, manifest.to_json())
    hit(Failpoint.MANIFEST_WRITTEN)
    return manifest, path


def _keep_rules(context: RunContext, tables: Tables, fingerprint: str) -> None:
    """Write the outcome rules of the pipeline file into the ledger's metadata folder, once per hash.

    `frazil verify` checks each batch by the file it ran under. It reports batches whose rules are missing, so a failed write
    does not fail the batch.
    """
    path = metadata_path(tables.ledger, rules_file(context.pipeline.name, fingerprint))
    try:
        if missing_files(tables.ledger, [path]):
            write_text(tables.ledger, path, rules_text(context.pipeline))
    except (Retryable, Terminal, TypeError, ValueError) as error:
        _log.warning("%s is not kept, and frazil verify judges its batches less strictly: %s", path, error)


def refuse_foreign_parts(context: RunContext, state: PipelineState, *manifests: Manifest) -> None:
    """Refuse manifests that give parts to tables which are none of the pipeline's.

    Everyone who may commit to the closing table can name any manifest there. A table is the pipeline's if the ledger says that it
    was given a batch before, and it is still that one, or if the pipeline file has it, in that catalog.

    Raises:
        Terminal: A part is of another table.
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
    """Whether a table is the pipeline's; one that has its part already gets nothing more."""
    ledger_mark = state.ledger_marks.get(part.table)
    if ledger_mark is not None and ledger_mark.uuid == part.fit.uuid:
        return True
    if part.table in named and part.catalog in (None, context.lake.catalog_of(part.table).name):
        return True
    table = context.lake.decided({part.table: (part.catalog, part.branch)}).find_table(part.table)
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
        # Batch 0 is followed by batch 1, and before both the newest one is 0: what is noted is batch 1's.
        schema_changes={}
        if batch.kind == "start"
        else reported_changes(pipeline, tables, state.newest_batch, batch.schema_changes),
        created=pipeline.auto_created,
        record_ages=batch.staged.ages,
    )


def _closing_part(context: RunContext, tables: Tables, state: PipelineState, batch: Batch) -> TablePart:
    """The closing table's part; a ledger that closes gets no rows with the deciding commit."""
    name, fit = tables.closing_name, fit_of(tables.closing.metadata)
    if name not in tables.destinations:
        return TablePart(name, "ledger", fit, state.mark, ())
    return _row_part(context, name, fit, state.mark, batch)


def _follower_parts(context: RunContext, tables: Tables, state: PipelineState, batch: Batch) -> Iterator[TablePart]:
    """Parts of destinations with new data or not yet in the ledger; then the dead letters, if there are any.

    None in a batch that changes tables: its changes come first, and a part fits a table as it was.
    """
    if batch.kind == "apply":
        return
    for name, table in tables.followers.items():
        readded_removals = removed_on_return(context.pipeline, state, name, batch)
        part = _row_part(context, name, fit_of(table.metadata), state.followers.get(name), batch, readded_removals)
        # Where an engine must do it, a mark alone is not worth one: the first rows bring it.
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
    """Rows that must go from a destination when the pipeline file names it again after it was dropped from the file.

    Resets between did not take rows out of it, and those records came, or come, again. An epoch in its mark that is not the
    present one shows that there was a reset. The reset that brings it back removes its own rows, by its own order.
    """
    after = state.followers.get(name)  # the closing table is never dropped from the file
    if name in state.ledger_marks or after is None:
        return ()
    if batch.kind != "reset":
        starts = {
            topic: replace(topic_position, next=topic_position.start)
            for topic, topic_position in batch.position.topics.items()
        }
        is_passed_by = after.epoch != batch.position.epoch
        return at_or_beyond(replace(batch.position, topics=starts)) if is_passed_by else ()
    if state.position is None or after.epoch == state.position.epoch:
        return ()
    if name in batch.removed_from:
        return at_or_beyond(batch.position)
    if coordinate_columns(pipeline.destination(name)) is None:
        return ()  # only a reset that allows duplicates goes on from there
    return at_or_beyond(farthest(state.position, batch.position))


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
    """What an engine does with staged rows of a destination; None if PyIceberg commits their files."""
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
    """Check removals before the decision, as a decided batch must be possible: staging may outlast the expiry of snapshots."""
    for part in manifest.parts:
        if part.removal is not None:
            check_removable(context.lake.load_table(part.table), part.table, part.removal.columns)


def row_removal(pipeline: Pipeline, table: str, removed: tuple[RemovedRange, ...]) -> Removal | None:
    """Rows that go from a destination; None if there are none to go.

    Of a merged one none do: its rows are what their last changes made of them, and changes that come again find them.

    Raises:
        Terminal: It does not say where its rows came from.
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
