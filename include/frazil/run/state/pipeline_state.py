"""The state of a pipeline, derived from its tables: position, marks, the unfinished batch, and what tables lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from frazil.batch.manifest import Manifest
from frazil.batch.plan import BatchSize
from frazil.batch.position import BatchMark, Position
from frazil.error_codes import (
    BAD_STATE,
    FILE_CONTRADICTS,
    MANIFEST_FOREIGN,
    POSITION_LOST,
    RUN_OVERTAKEN,
    TABLE_LOST,
    TABLE_ROLLED_BACK,
)
from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.table import Table, read_text
from frazil.iceberg.commit.summary_state import (
    BATCH_KEY,
    DONE_KEY,
    MANIFEST_KEY,
    POSITION_KEY,
    RolledBack,
    SummaryValue,
    ledger_tables,
    lookup_position,
    manifest_path,
    mark_of,
    read_summary,
    remaining_value,
)
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.state.tables import Tables, to_table_command

BYTES_KEY = "frazil.bytes.read"
"""Summary key: bytes of the keys and values that the batch read."""

REPAIRS_KEY = "frazil.repairs"
"""Summary key of a repair: the table that lost something."""

READ_KEY = "frazil.rows.read"
"""Summary key: records that the batch read."""


@dataclass(frozen=True, slots=True)
class TableMark:
    """The ledger's entry for a table.

    Attributes:
        since: When an edit of the pipeline file added the table, ISO 8601 UTC; None if no edit did.
    """

    uuid: str
    mark: BatchMark
    role: str
    since: str | None = None


@dataclass(frozen=True, slots=True)
class PipelineState:
    """The state of a pipeline: its position and marks.

    Attributes:
        position: The position, or None before the first run. After a rollback of the closing table: the position that the
            remaining history shows, or None.
        mark: The last batch of the closing table.
        manifest: Path of that batch's manifest; None if its snapshot is expired.
        last_finished: The last finished batch, from the ledger.
        dead_letters: The last batch of the dead-letter table.
        followers: The last batch of each destination other than the closing table.
        ledger_marks: Table -> its UUID and last batch in the ledger; empty before the first batch.
        record_bytes: Bytes of a record as the last batch measured them; None if nothing was measured.
        rolled_back: The newest batch that the closing table lost in a rollback, as its property or another table shows; None
            if it was not rolled back.
        rollback: The error for a rolled-back closing table.
        closing_lost: Why the closing table can't be the one that the pipeline wrote.
        followers_lost: Follower -> why it lacks rows of its batches.
    """

    position: Position | None
    mark: BatchMark | None
    manifest: str | None
    last_finished: BatchMark | None
    dead_letters: BatchMark | None
    followers: Mapping[str, BatchMark | None] = field(default_factory=dict)
    ledger_marks: Mapping[str, TableMark] = field(default_factory=dict)
    record_bytes: float | None = None
    rolled_back: BatchMark | None = None
    rollback: Terminal | None = None
    closing_lost: Terminal | None = None
    followers_lost: Mapping[str, Terminal] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        """Whether the last decided batch still has to be rolled forward."""
        return self.mark is not None and self.mark != self.last_finished

    @property
    def newest_batch(self) -> int:
        """The largest batch number that any table knows."""
        return max((mark.n for mark in self._marks), default=0)

    @property
    def newest_epoch(self) -> int:
        """The largest epoch that any table knows."""
        return max((mark.epoch for mark in self._marks), default=0)

    @property
    def never_ran(self) -> bool:
        """Whether no table has a batch of the pipeline."""
        return not self._marks

    @property
    def _marks(self) -> tuple[BatchMark, ...]:
        marks = (self.mark, self.last_finished, self.dead_letters, self.rolled_back, *self.followers.values())
        return tuple(mark for mark in marks if mark is not None)

    @property
    def loss(self) -> Terminal | None:
        """Why a table lost data, the closing table first; None if no table did."""
        return self.closing_lost or self.rollback or next(iter(self.followers_lost.values()), None)

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """The marks of all tables: equal in two reads if no run worked between them."""
        return self.mark, self.last_finished, self.dead_letters, tuple(self.followers.items())


def pipeline_state(pipeline: Pipeline, tables: Tables) -> PipelineState:
    """Derive the pipeline's state. A loss becomes a field of the state; only losses that no command repairs are raised.

    Raises:
        Terminal: The position is kept in another table than the pipeline file names.
    """
    name, closing, metadata = pipeline.name, tables.closing_name, tables.closing.metadata
    position, unreadable = _position(pipeline, tables)
    last = read_summary(metadata, BATCH_KEY.format(name), closing)
    ledger = read_summary(tables.ledger.metadata, DONE_KEY.format(name), pipeline.ledger_table)
    letters, *follower_summaries = (
        read_summary(table.metadata, BATCH_KEY.format(name), follower)
        for follower, table in _followers(pipeline, tables).items()
    )
    followers = dict(zip(tables.followers, follower_summaries, strict=True))
    ledger_marks = _ledger_marks(pipeline, tables)
    _refuse_other_letters(pipeline, ledger_marks)
    mark, done, dead = mark_of(last), mark_of(ledger), mark_of(letters)
    marks = {follower: mark_of(summary) for follower, summary in followers.items()}
    # If another table holds a batch, the closing table held one, too. If it has none now, it was dropped and created again.
    mark_elsewhere = next(filter(None, (done, dead, *marks.values())), None)
    newest = _rolled_back(last, mark, (done, dead, *marks.values()))
    state = PipelineState(
        position=position,
        mark=mark,
        manifest=_summary(last).get(MANIFEST_KEY),
        last_finished=done,
        dead_letters=dead,
        followers=marks,
        ledger_marks=ledger_marks,
        record_bytes=bytes_per_record(_summary(last)),
        rolled_back=newest,
        rollback=None
        if newest is None
        else _rollback(pipeline, closing, last, mark, newest, can_rewind=position is not None or done is not None),
        closing_lost=_closing_lost(pipeline, tables, mark, mark_elsewhere, ledger_marks)
        or _history_lost(pipeline, tables, last)  # a rewind takes the position from the ledger
        or (unreadable or _missing_position(pipeline, closing, mark, position) if newest is None else None),
    )
    by_name = {pipeline.ledger_table: ledger, pipeline.dead_letters_table: letters, **followers}
    return replace(state, followers_lost=_followers_lost(pipeline, tables, state, by_name))


def _position(pipeline: Pipeline, tables: Tables) -> tuple[Position | None, Terminal | None]:
    """The position of the closing table, or None; and the error if it can't be read."""
    try:
        position_summary = remaining_value(lookup_position(tables.closing, pipeline.name, tables.closing_name))
    except Terminal as unreadable:
        return None, unreadable
    return Position.from_json(position_summary.value) if position_summary else None, None


def _missing_position(
    pipeline: Pipeline, table: str, mark: BatchMark | None, position: Position | None
) -> Terminal | None:
    """The error if the closing table has batches and no position: such a pipeline must not begin at `start` again."""
    if mark is None or position is not None:
        return None
    return POSITION_LOST.terminal(
        f"pipeline {pipeline.name}: closing table {table} ends at {_batch_name(mark)} and has no position: its"
        f" property {POSITION_KEY.format(pipeline.name)} is gone, and the snapshot of that batch expired",
        next_step="copy the property from the last metadata file of the table that has it; or remove all rows of the pipeline and"
        f' land what Kafka still holds: frazil reset {pipeline.name} --to earliest --reason "position was removed"',
    )


def _followers(pipeline: Pipeline, tables: Tables) -> dict[str, Table]:
    """The dead letters, then the destinations that follow."""
    return {pipeline.dead_letters_table: tables.dead_letters, **tables.followers}


STATE_READS: Final = 5
"""How often the tables are read while other runs keep finishing batches between the reads."""


def read_state(pipeline: Pipeline, load: Callable[[], Tables]) -> tuple[Tables, PipelineState]:
    """Read the tables and the pipeline's state. A loss counts only if two reads in a row show the same marks.

    Tables are read one after another. A commit of another run between these reads looks like a loss once, not twice.

    Raises:
        Retryable: No two reads agree.
    """
    last_fingerprint: tuple[object, ...] | None = None
    for _ in range(STATE_READS):
        tables = load()
        state = pipeline_state(pipeline, tables)
        if state.loss is None or state.fingerprint == last_fingerprint:
            return tables, state
        last_fingerprint = state.fingerprint
    raise state_kept_moving(pipeline)


def state_kept_moving(pipeline: Pipeline) -> Retryable:
    """The error if other runs moved the pipeline between all reads of its tables."""
    return RUN_OVERTAKEN.retryable(
        f"pipeline {pipeline.name}: other runs changed its state between all {STATE_READS} reads"
    )


def batch_offsets(pipeline: Pipeline, state: PipelineState | None) -> int:
    """Most offsets of the next batch, by the limits of records and bytes. The last batch measured the bytes of a record."""
    size = BatchSize(pipeline.limits.max_records, pipeline.limits.max_bytes)
    return size.offsets(state.record_bytes if state else None)


def _refuse_other_letters(pipeline: Pipeline, ledger_marks: Mapping[str, TableMark]) -> None:
    """Refuse another dead-letter table than before: replays and resets would not find the letters in the old one."""
    recorded_tables = {table for table, mark in ledger_marks.items() if mark.role == "dead_letters"}
    for table in sorted(recorded_tables - {pipeline.dead_letters_table}):
        raise FILE_CONTRADICTS.terminal(
            f"pipeline {pipeline.name}: its dead letters are kept in table {table}, the pipeline file"
            f" now names {pipeline.dead_letters_table}",
            next_step=f"set dead_letters.table to {table} again",
        )


def _ledger_marks(pipeline: Pipeline, tables: Tables) -> dict[str, TableMark]:
    body = ledger_tables(tables.ledger.metadata, pipeline.name, pipeline.ledger_table)
    return {
        table: TableMark(
            fields["uuid"],
            BatchMark(fields["n"], fields["batch"], fields["epoch"]),
            fields["role"],
            fields.get("since"),
        )
        for table, fields in body.items()
    }


def _rolled_back(
    last: SummaryValue | RolledBack | None, mark: BatchMark | None, other_marks: Iterable[BatchMark | None]
) -> BatchMark | None:
    """The newest batch that another table has and the closing table lacks; None if there is none.

    Followers get their parts after the closing table. So a follower that is ahead shows that the closing table was restored from
    an older metadata file, and one with another batch of the same number shows that a run continued after that.
    """
    if isinstance(last, RolledBack):
        return BatchMark.from_json(last.newest)
    ahead = [
        other_mark
        for other_mark in other_marks
        if mark is not None and other_mark is not None and other_mark.n >= mark.n and other_mark != mark
    ]
    return max(ahead, key=lambda other_mark: other_mark.n, default=None)


def _rollback(
    pipeline: Pipeline,
    table: str,
    last: SummaryValue | RolledBack | None,
    mark: BatchMark | None,
    newest: BatchMark,
    *,
    can_rewind: bool,
) -> Terminal:
    """The error for a rolled-back closing table, with two next steps: restore the snapshot, or continue from the rolled-back state."""
    command = to_table_command(pipeline.name)
    if not can_rewind:  # no table shows where the pipeline began
        command = f'frazil reset {pipeline.name} --to earliest --reason "table was rolled back"'
    restore = f"restore the table as it was with batch {newest.n}"
    branch = pipeline.destination(table).branch if table in pipeline.tables else None
    if isinstance(last, RolledBack) and last.listed and branch is None:
        restore += f" (Spark: CALL system.set_current_snapshot('{table}', {last.snapshot_id}))"
    elif isinstance(last, RolledBack) and last.listed:
        restore += f" (Spark: ALTER TABLE {table} CREATE OR REPLACE BRANCH {branch} AS OF VERSION {last.snapshot_id})"
    return TABLE_ROLLED_BACK.terminal(
        f"pipeline {pipeline.name}: closing table {table} ends at {_batch_name(mark)}, but the pipeline was at {_batch_name(newest)}:"
        " the table was rolled back, or restored from an older metadata file",
        next_step=f"{restore}, then run again; or continue from what it holds: {command}",
    )


def _closing_lost(
    pipeline: Pipeline,
    tables: Tables,
    mark: BatchMark | None,
    mark_elsewhere: BatchMark | None,
    ledger_marks: Mapping[str, TableMark],
) -> Terminal | None:
    table = tables.closing_name
    expected, uuid = ledger_marks.get(table), str(tables.closing.metadata.table_uuid)
    # A decided batch that the ledger does not know yet may be the reset that began in the new table.
    may_be_reset = mark is not None and mark != mark_elsewhere
    is_replaced = expected is not None and expected.uuid != uuid and not may_be_reset
    properties = tables.closing.metadata.properties
    is_blank = mark is None and mark_elsewhere is not None and POSITION_KEY.format(pipeline.name) not in properties
    if not is_replaced and not is_blank:
        return None
    written_tables = "the ledger or the dead letters" if table != pipeline.ledger_table else "other tables"
    return POSITION_LOST.terminal(
        f"pipeline {pipeline.name}: table {table} holds no position of it, but {written_tables} were written"
        " by this pipeline: the table was dropped and created again",
        next_step=f"restore the table, or land everything that Kafka still holds into the new one:"
        f' frazil reset {pipeline.name} --to earliest --reason "table was made anew"',
    )


def _history_lost(pipeline: Pipeline, tables: Tables, last: SummaryValue | RolledBack | None) -> Terminal | None:
    """The error if a rolled-back closing table does not show which batches it holds; None if it does.

    A rolled-back ledger never does: its lost rows told the outcomes of the records.
    """
    table = tables.closing_name
    if not isinstance(last, RolledBack) or (last.is_past_known and table in tables.destinations):
        return None
    n = BatchMark.from_json(last.newest).n
    again = f"make snapshot {last.snapshot_id} the head of main again, or " if last.listed else ""
    return TABLE_ROLLED_BACK.terminal(
        f"pipeline {pipeline.name}: the last batch of table {table} was {n}, in snapshot {last.snapshot_id}; main does not"
        " descend from it, and does not show which batches it contains: it was replaced, or rolled back and expired",
        next_step=f"{again}remove all rows of the pipeline and land what Kafka still has:"
        f' frazil reset {pipeline.name} --to earliest --reason "table was rolled back"',
    )


def _followers_lost(
    pipeline: Pipeline,
    tables: Tables,
    state: PipelineState,
    table_summaries: Mapping[str, SummaryValue | RolledBack | None],
) -> dict[str, Terminal]:
    """Table -> why it does not hold its last batch. The ledger comes first: it records what the other tables should hold."""
    try:
        unfinished = _unfinished(pipeline, tables, state)
    except Terminal:
        return {}  # a manifest is gone: finishing the batch raises that error, which comes first
    last, lost = unfinished[-1] if unfinished else None, {}
    if tables.closing_name != pipeline.ledger_table:
        lost[pipeline.ledger_table] = _ledger_lost(
            state, last, pipeline.ledger_table, table_summaries[pipeline.ledger_table]
        )
    # All followers have their parts of a recovered batch, but for the table that the repair is about.
    earlier = ((part, manifest.mark) for manifest in unfinished[:-1] for part in manifest.followers)
    expected_marks = {
        **state.ledger_marks,
        **{part.table: TableMark(part.fit.uuid, mark, part.role) for part, mark in earlier},
    }
    for table, loaded in _followers(pipeline, tables).items():
        uuid = str(loaded.metadata.table_uuid)
        lost[table] = _follower_lost(state, last, expected_marks.get(table), table, table_summaries[table], uuid)
    return {
        table: TABLE_LOST.terminal(
            f"pipeline {pipeline.name}: table {table} {why}",
            next_step=f"restore it, or: {repair_command(pipeline.name, table)}",
        )
        for table, why in lost.items()
        if why is not None
    }


def _unfinished(pipeline: Pipeline, tables: Tables, state: PipelineState) -> tuple[Manifest, ...]:
    """The unfinished batch, after those that it recovers; empty if there is none, or if the closing table was rolled back.

    Raises:
        Terminal: A manifest is gone, or belongs to another batch.
    """
    if state.mark is None or not state.unfinished or state.rolled_back is not None:
        return ()
    last, _ = read_manifest(tables, pipeline, state.mark, state.manifest)
    return (*recovered_manifests(tables.closing, last), last)


def read_manifest(tables: Tables, pipeline: Pipeline, mark: BatchMark, path: str | None) -> tuple[Manifest, str]:
    """Read the manifest of a decided batch.

    Raises:
        Terminal: The file is gone, or belongs to another batch.
    """
    path = path or manifest_path(tables.closing, pipeline.name, mark)
    try:
        manifest = Manifest.from_json(read_text(tables.closing, path))
    except Terminal as error:
        raise BAD_STATE.terminal(
            f"pipeline {pipeline.name}: batch {mark.n} is decided and not finished, and its manifest {path} can't be read:"
            f" {error.message}",
            next_step=f"restore the file and run again; or undo the batch: {to_table_command(pipeline.name)}",
        ) from error
    if manifest.mark != mark:
        raise MANIFEST_FOREIGN.terminal(
            f"pipeline {pipeline.name}: manifest {path} belongs to batch {manifest.mark}, the table holds {mark}"
        )
    return manifest, path


def recovered_manifests(table: Table, manifest: Manifest) -> tuple[Manifest, ...]:
    """The manifests, beside the closing table, that a batch names under `recovers`, the oldest first."""
    return tuple(Manifest.from_json(read_text(table, path)) for path in manifest.recovers)


def _can_take_part(last: Manifest, table: str, table_summary: SummaryValue | RolledBack | None) -> bool:
    """Whether a follower, or the ledger, has its part of the unfinished batch or can take it."""
    if isinstance(table_summary, RolledBack) and not last.accepts_rollback(table):
        return False
    mark = mark_of(table_summary)
    return mark == last.mark or last.follows(table, mark)


def _ledger_lost(
    state: PipelineState, last: Manifest | None, table: str, table_summary: SummaryValue | RolledBack | None
) -> str | None:
    """What shows that the ledger lost data; None if it did not."""
    if last is not None and _can_take_part(last, table, table_summary):
        return None
    if isinstance(table_summary, RolledBack):
        return "was rolled back"
    if state.last_finished is None and state.mark is not None and state.mark.n > 0 and not state.rolled_back:
        return "knows no batch of the pipeline: it was dropped and created again"
    return (
        None
        if last is None
        else f"ends at {_batch_name(state.last_finished)}, expected {_batch_name(last.ledger_after)}"
    )


def _follower_lost(
    state: PipelineState,
    last: Manifest | None,
    expected: TableMark | None,
    table: str,
    table_summary: SummaryValue | RolledBack | None,
    uuid: str,
) -> str | None:
    """What shows that a follower lost data; None if it did not."""
    part = last.follower(table) if last is not None else None
    if last is not None and part is not None and part.fit.uuid == uuid and _can_take_part(last, table, table_summary):
        return None
    if expected is not None and uuid != (expected.uuid if part is None else part.fit.uuid):
        return "was dropped and created again"
    if isinstance(table_summary, RolledBack):
        return "was rolled back"
    if expected is None:
        return None
    mark = mark_of(table_summary)
    if part is not None:
        return f"ends at {_batch_name(mark)}, expected {_batch_name(part.after)}"
    allowed = {expected.mark} | ({state.mark, state.rolled_back} if state.rolled_back else set())
    return None if mark in allowed else f"ends at {_batch_name(mark)}, but the ledger has {_batch_name(expected.mark)}"


def repair_command(pipeline: str, table: str) -> str:
    """The command that repairs a lost table."""
    return f"frazil repair {pipeline} {table} --reason …"


def _batch_name(mark: BatchMark | None) -> str:
    return "no batch" if mark is None else f"batch {mark.n} ({mark.batch})"


def _summary(table_summary: SummaryValue | RolledBack | None) -> Mapping[str, str]:
    remaining = remaining_value(table_summary)
    return remaining.summary if remaining else {}


def bytes_per_record(summary: Mapping[str, str]) -> float | None:
    """Bytes of keys and values of a record, as the batch of a snapshot measured them; None if nothing was measured."""
    read, size = (int(summary.get(key, 0)) for key in (READ_KEY, BYTES_KEY))
    return size / read if read and size else None
