"""Where a pipeline stands, from what its tables hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from frazil.batch.cut import BatchSize
from frazil.batch.manifest import Manifest
from frazil.batch.position import BatchMark, Position
from frazil.errors import Retryable, Terminal
from frazil.iceberg.holdings import (
    BATCH_KEY,
    DONE_KEY,
    MANIFEST_KEY,
    POSITION_KEY,
    Held,
    RolledBack,
    ledger_tables,
    lookup,
    lookup_position,
    manifest_path,
    mark_of,
    still_held,
)
from frazil.iceberg.table import Table, read_text
from frazil.pipeline.model import Pipeline
from frazil.run.tables import Tables

BYTES_KEY = "frazil.bytes.read"
"""Summary key: bytes of the keys and values that the batch read."""

REPAIRS_KEY = "frazil.repairs"
"""Summary key of a repair: the table that lost something."""

READ_KEY = "frazil.rows.read"
"""Summary key: records that the batch read."""


@dataclass(frozen=True, slots=True)
class TableMark:
    """What the ledger says of a table.

    Attributes:
        uuid: Its UUID.
        mark: The batch that it was given last.
        role: Its role.
        since: When an edited pipeline file brought it, ISO 8601 UTC; None if the pipeline began with it, or records name it.
    """

    uuid: str
    mark: BatchMark
    role: str
    since: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a pipeline stands.

    Attributes:
        position: The position, or None before the first run. After a rollback of the closing table: what its ancestry
            still says, None if it says nothing.
        mark: The batch that the closing table holds last.
        manifest: Path of that batch's manifest, as far as its snapshot is still there.
        done: The last finished batch, from the ledger.
        dead_letters: The batch that the dead-letter table holds last.
        followers: The batch that each destination holds last that is not the closing table.
        told: What the ledger says of each table; empty before the first batch.
        record_bytes: Bytes of a record as the last batch measured them; None if nothing was measured.
        rolled_back: The newest mark before the closing table was rolled back, or that another table has in place of its
            own; None if the closing table is the farthest.
        rollback: The refusal that a rolled-back closing table is.
        closing_lost: Why the closing table can't be the one that the pipeline wrote.
        followers_lost: Follower -> why it does not hold what it was given.
    """

    position: Position | None
    mark: BatchMark | None
    manifest: str | None
    done: BatchMark | None
    dead_letters: BatchMark | None
    followers: Mapping[str, BatchMark | None] = field(default_factory=dict)
    told: Mapping[str, TableMark] = field(default_factory=dict)
    record_bytes: float | None = None
    rolled_back: BatchMark | None = None
    rollback: Terminal | None = None
    closing_lost: Terminal | None = None
    followers_lost: Mapping[str, Terminal] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        """Whether the last decided batch still has to be rolled forward."""
        return self.mark is not None and self.mark != self.done

    @property
    def newest(self) -> int:
        """The largest batch number that any table knows."""
        return max((mark.n for mark in self._marks), default=0)

    @property
    def newest_epoch(self) -> int:
        """The largest epoch that any table knows."""
        return max((mark.epoch for mark in self._marks), default=0)

    @property
    def _marks(self) -> tuple[BatchMark, ...]:
        marks = (self.mark, self.done, self.dead_letters, self.rolled_back, *self.followers.values())
        return tuple(mark for mark in marks if mark is not None)

    @property
    def loss(self) -> Terminal | None:
        """Why a table does not hold what it was given, the closing one first; None if all do."""
        return self.closing_lost or self.rollback or next(iter(self.followers_lost.values()), None)

    @property
    def seen(self) -> tuple[object, ...]:
        """What two looks have in common if nobody worked in between."""
        return self.mark, self.done, self.dead_letters, tuple(self.followers.items())

    def holds(self, table: str) -> BatchMark | None:
        """The batch that a follower among the destinations holds last."""
        return self.followers.get(table)


def standing(pipeline: Pipeline, tables: Tables) -> Standing:
    """Where the pipeline stands. What is wrong is told, not raised, but for what no command can mend.

    Raises:
        Terminal: The position is kept in another table than the pipeline file names.
    """
    name, closing, metadata = pipeline.name, tables.closing_name, tables.closing.metadata
    position, unreadable = _position(pipeline, tables)
    last = lookup(metadata, BATCH_KEY.format(name), closing)
    ledger = lookup(tables.ledger.metadata, DONE_KEY.format(name), pipeline.ledger_table)
    letters, *found = (
        lookup(table.metadata, BATCH_KEY.format(name), of) for of, table in _followers(pipeline, tables).items()
    )
    followers = dict(zip(tables.followers, found, strict=True))
    told = _told(pipeline, tables)
    _refuse_other_letters(pipeline, told)
    mark, done, dead = mark_of(last), mark_of(ledger), mark_of(letters)
    marks = {table: mark_of(of) for table, of in followers.items()}
    known = next(filter(None, (done, dead, *marks.values())), None)
    newest = _rolled_back(last, mark, (done, dead, *marks.values()))
    now = Standing(
        position=position,
        mark=mark,
        manifest=_summary(last).get(MANIFEST_KEY),
        done=done,
        dead_letters=dead,
        followers=marks,
        told=told,
        record_bytes=bytes_per_record(_summary(last)),
        rolled_back=newest,
        rollback=None
        if newest is None
        else _rollback(pipeline, closing, last, mark, newest, is_told=position is not None or done is not None),
        closing_lost=_closing_lost(pipeline, tables, mark, known, told)
        or _untold(pipeline, tables, last)
        # a rewind takes the position from the ledger
        or (unreadable or _positionless(pipeline, closing, mark, position) if newest is None else None),
    )
    by_name = {pipeline.ledger_table: ledger, pipeline.dead_letters_table: letters, **followers}
    return replace(now, followers_lost=_followers_lost(pipeline, tables, now, by_name))


def _position(pipeline: Pipeline, tables: Tables) -> tuple[Position | None, Terminal | None]:
    """The position of the closing table, as far as it says one; or why it can't be told."""
    try:
        found = still_held(lookup_position(tables.closing, pipeline.name, tables.closing_name))
    except Terminal as unreadable:
        return None, unreadable
    return Position.from_json(found.value) if found else None, None


def _positionless(pipeline: Pipeline, table: str, mark: BatchMark | None, position: Position | None) -> Terminal | None:
    """A pipeline that has batches never begins anew at `start`."""
    if mark is None or position is not None:
        return None
    return Terminal(
        f"pipeline {pipeline.name}: closing table {table} holds {_of(mark)} last, and no position: its property"
        f" {POSITION_KEY.format(pipeline.name)} is gone, and the snapshot of that batch expired",
        next_step="set the property as the table's last metadata file that has it says; or take all rows of the pipeline out and"
        f' land what Kafka still holds: frazil reset {pipeline.name} --to earliest --reason "position was removed"',
    )


def _followers(pipeline: Pipeline, tables: Tables) -> dict[str, Table]:
    """The dead letters, then the destinations that follow."""
    return {pipeline.dead_letters_table: tables.dead_letters, **tables.followers}


LOOKS: Final = 5
"""How often tables are read again while rivals keep finishing batches in between. Each look ends another's work."""


def read_state(pipeline: Pipeline, load: Callable[[], Tables]) -> tuple[Tables, Standing]:
    """Read the tables and where the pipeline stands; a table that lost something only if two looks agree on it.

    Tables are read one after another: a rival between them looks like a loss, but not twice alike.

    Raises:
        Retryable: No two looks agree.
    """
    seen: tuple[object, ...] | None = None
    for _ in range(LOOKS):
        tables = load()
        now = standing(pipeline, tables)
        if now.loss is None or now.seen == seen:
            return tables, now
        seen = now.seen
    raise kept_moving(pipeline)


def kept_moving(pipeline: Pipeline) -> Retryable:
    """The error where no two looks agree."""
    return Retryable(f"pipeline {pipeline.name}: other runs kept moving it over {LOOKS} looks")


def batch_offsets(pipeline: Pipeline, now: Standing | None) -> int:
    """How many offsets the next batch may have: bounded by records, and by bytes as the last batch measured them."""
    size = BatchSize(pipeline.limits.max_records, pipeline.limits.max_bytes)
    return size.offsets(now.record_bytes if now else None)


def _refuse_other_letters(pipeline: Pipeline, told: Mapping[str, TableMark]) -> None:
    """Letters of a pipeline stay in one table: replays and resets would not find those in another one."""
    kept_in = {table for table, of in told.items() if of.role == "dead_letters"}
    for table in sorted(kept_in - {pipeline.dead_letters_table}):
        raise Terminal(
            f"pipeline {pipeline.name}: its dead letters are kept in table {table}, the pipeline file now names"
            f" {pipeline.dead_letters_table}",
            next_step=f"set dead_letters.table to {table} again",
        )


def _told(pipeline: Pipeline, tables: Tables) -> dict[str, TableMark]:
    body = ledger_tables(tables.ledger.metadata, pipeline.name, pipeline.ledger_table)
    return {table: _table_mark(of) for table, of in body.items()}


def _table_mark(body: Mapping[str, Any]) -> TableMark:
    return TableMark(body["uuid"], BatchMark(body["n"], body["batch"], body["epoch"]), body["role"], body.get("since"))


def _rolled_back(
    last: Held | RolledBack | None, mark: BatchMark | None, others: Iterable[BatchMark | None]
) -> BatchMark | None:
    """The newest batch that the closing table lacks, or None.

    Followers get their parts behind it, so none is ever ahead. One that is tells of a table that was restored from an
    older metadata file; one that has another batch of the same number, of a run that went on after that.
    """
    if isinstance(last, RolledBack):
        return BatchMark.from_json(last.newest)
    ahead = [of for of in others if mark is not None and of is not None and of.n >= mark.n and of != mark]
    return max(ahead, key=lambda of: of.n, default=None)


def _rollback(
    pipeline: Pipeline,
    table: str,
    last: Held | RolledBack | None,
    mark: BatchMark | None,
    newest: BatchMark,
    *,
    is_told: bool,
) -> Terminal:
    """Two ways on: the snapshot that the table was rolled back from, or what is left of it."""
    command = to_table_command(pipeline.name)
    if not is_told:  # nobody knows where the pipeline began
        command = f'frazil reset {pipeline.name} --to earliest --reason "table was rolled back"'
    restore = f"restore the table as it was with batch {newest.n}"
    branch = pipeline.destination(table).branch if table in pipeline.tables else None
    if isinstance(last, RolledBack) and last.listed and branch is None:
        restore += f" (Spark: CALL system.set_current_snapshot('{table}', {last.snapshot_id}))"
    elif isinstance(last, RolledBack) and last.listed:
        restore += f" (Spark: ALTER TABLE {table} CREATE OR REPLACE BRANCH {branch} AS OF VERSION {last.snapshot_id})"
    return Terminal(
        f"pipeline {pipeline.name}: closing table {table} holds {_of(mark)} last, and the pipeline was at {_of(newest)}:"
        " the table was rolled back, or restored from an older metadata file",
        next_step=f"{restore}, then run again; or go on from what it holds: {command}",
    )


def to_table_command(pipeline: str) -> str:
    """The command that takes the position back to what the closing table holds."""
    return f'frazil reset {pipeline} --to-table --reason "table was rolled back"'


def _closing_lost(
    pipeline: Pipeline,
    tables: Tables,
    mark: BatchMark | None,
    known: BatchMark | None,
    told: Mapping[str, TableMark],
) -> Terminal | None:
    table = tables.closing_name
    expected, found = told.get(table), str(tables.closing.metadata.table_uuid)
    # A decided batch that the ledger does not know yet may be the reset that took the new table up.
    taken_up = mark is not None and mark != known
    replaced = expected is not None and expected.uuid != found and not taken_up
    properties = tables.closing.metadata.properties
    blank = mark is None and known is not None and POSITION_KEY.format(pipeline.name) not in properties
    if not replaced and not blank:
        return None
    others = "the ledger or the dead letters" if table != pipeline.ledger_table else "other tables"
    return Terminal(
        f"pipeline {pipeline.name}: table {table} holds no position of it, but {others} were written"
        " by this pipeline: the table was dropped and made anew",
        next_step=f"restore the table, or land everything that Kafka still holds into the new one:"
        f' frazil reset {pipeline.name} --to earliest --reason "table was made anew"',
    )


def _untold(pipeline: Pipeline, tables: Tables, last: Held | RolledBack | None) -> Terminal | None:
    """Main may have rows of batches, and what is left of its past does not say of which.

    A ledger without its last rows does not say what became of the records, and nobody rolls it back to have them again.
    """
    table = tables.closing_name
    if not isinstance(last, RolledBack) or (last.is_past_told and table in tables.destinations):
        return None
    n = BatchMark.from_json(last.newest).n
    again = f"make snapshot {last.snapshot_id} the head of main again, or " if last.listed else ""
    return Terminal(
        f"pipeline {pipeline.name}: table {table} held batch {n} last, in snapshot {last.snapshot_id}; main does not"
        " descend from it, and does not say which batches' rows it holds: it was replaced, or rolled back and expired",
        next_step=f"{again}take all rows of the pipeline out and land what Kafka still holds:"
        f' frazil reset {pipeline.name} --to earliest --reason "table was rolled back"',
    )


def _followers_lost(
    pipeline: Pipeline, tables: Tables, now: Standing, found: Mapping[str, Held | RolledBack | None]
) -> dict[str, Terminal]:
    """The ledger comes first: what the others lost is known from it."""
    try:
        unfinished = _unfinished(pipeline, tables, now)
    except Terminal:
        return {}  # a manifest is gone: that refusal comes first, from who finishes the batch
    last, lost = unfinished[-1] if unfinished else None, {}
    if tables.closing_name != pipeline.ledger_table:
        lost[pipeline.ledger_table] = _ledger_lost(now, last, pipeline.ledger_table, found[pipeline.ledger_table])
    # A batch that others recover is behind all followers but those that they mend.
    earlier = ((part, of.mark) for of in unfinished[:-1] for part in of.followers)
    given = {**now.told, **{part.table: TableMark(part.fit.uuid, mark, part.role) for part, mark in earlier}}
    for table, loaded in _followers(pipeline, tables).items():
        uuid = str(loaded.metadata.table_uuid)
        lost[table] = _follower_lost(now, last, given.get(table), table, found[table], uuid)
    return {table: _lost(pipeline, table, why) for table, why in lost.items() if why is not None}


def _unfinished(pipeline: Pipeline, tables: Tables, now: Standing) -> tuple[Manifest, ...]:
    """The batch that is not finished, behind those that it recovers; empty if all are, or the closing table was rolled back.

    Raises:
        Terminal: A manifest is gone, or belongs to another batch.
    """
    if now.mark is None or not now.unfinished or now.rolled_back is not None:
        return ()
    path = now.manifest or manifest_path(tables.closing, pipeline.name, now.mark)
    last = Manifest.from_json(read_text(tables.closing, path))
    if last.mark != now.mark:
        raise Terminal(f"pipeline {pipeline.name}: manifest {path} is of {last.mark}, the table holds {now.mark}")
    return (*(Manifest.from_json(read_text(tables.closing, of)) for of in last.recovers), last)


def _is_ready(last: Manifest, table: str, found: Held | RolledBack | None) -> bool:
    """Whether a follower, or the ledger, can take its part of the unfinished batch, or has it."""
    if isinstance(found, RolledBack) and not last.accepts_rollback(table):
        return False
    mark = mark_of(found)
    return mark == last.mark or last.follows(table, mark)


def _ledger_lost(now: Standing, last: Manifest | None, table: str, found: Held | RolledBack | None) -> str | None:
    """Why the ledger does not hold what it was given; None if it does."""
    if last is not None and _is_ready(last, table, found):
        return None
    if isinstance(found, RolledBack):
        return "was rolled back"
    if now.done is None and now.mark is not None and now.mark.n > 0 and not now.rolled_back:
        return "knows no batch of the pipeline: it was dropped and made anew"
    return None if last is None else f"holds {_of(now.done)} last, expected {_of(last.ledger_after)}"


def _follower_lost(
    now: Standing,
    last: Manifest | None,
    given: TableMark | None,
    table: str,
    found: Held | RolledBack | None,
    uuid: str,
) -> str | None:
    """Why a follower does not hold what it was given; None if it does."""
    part = last.follower(table) if last is not None else None
    if last is not None and part is not None and part.fit.uuid == uuid and _is_ready(last, table, found):
        return None
    if given is not None and uuid != (given.uuid if part is None else part.fit.uuid):
        return "was dropped and made anew"
    if isinstance(found, RolledBack):
        return "was rolled back"
    if given is None:
        return None
    mark = mark_of(found)
    if part is not None:
        return f"holds {_of(mark)} last, expected {_of(part.after)}"
    allowed = {given.mark} | ({now.mark, now.rolled_back} if now.rolled_back else set())
    return None if mark in allowed else f"holds {_of(mark)} last, the ledger says {_of(given.mark)}"


def _lost(pipeline: Pipeline, table: str, why: str) -> Terminal:
    return Terminal(
        f"pipeline {pipeline.name}: table {table} {why}",
        next_step=f"restore it, or: {repair_command(pipeline.name, table)}",
    )


def repair_command(pipeline: str, table: str) -> str:
    """The command that ends the wait for a follower."""
    return f"frazil repair {pipeline} {table} --reason …"


def _of(mark: BatchMark | None) -> str:
    return "no batch" if mark is None else f"batch {mark.n} ({mark.batch})"


def _summary(found: Held | RolledBack | None) -> Mapping[str, str]:
    holds = still_held(found)
    return holds.summary if holds else {}


def bytes_per_record(summary: Mapping[str, str]) -> float | None:
    """Bytes of keys and values of a record, as the batch of a snapshot measured them; None if nothing was measured."""
    read, size = (int(summary.get(key, 0)) for key in (READ_KEY, BYTES_KEY))
    return size / read if read and size else None
