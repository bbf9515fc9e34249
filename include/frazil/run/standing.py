"""Where a pipeline stands, from what its tables hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from frazil.batch.cut import BatchSize
from frazil.batch.position import BatchMark, Position
from frazil.errors import Terminal
from frazil.iceberg.holdings import (
    BATCH_KEY,
    CLOSING_KEY,
    DONE_KEY,
    POSITION_KEY,
    TABLES_KEY,
    Held,
    RolledBack,
    lookup,
    mark_of,
    still_held,
)
from frazil.pipeline.model import Pipeline
from frazil.run.tables import Tables

MANIFEST_KEY = "frazil.manifest"
"""Summary key: path of the batch's manifest."""

BYTES_KEY = "frazil.bytes.read"
"""Summary key: bytes of the keys and values that the batch read."""

SETTLES_KEY = "frazil.settles"
"""Summary key of a settling batch: the table that gets its part in another way."""

READ_KEY = "frazil.rows.read"
"""Summary key: records that the batch read."""


@dataclass(frozen=True, slots=True)
class TableMark:
    """What the ledger says of a table: its UUID, and the batch it was given last."""

    uuid: str
    mark: BatchMark


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
        told: What the ledger says of each table; empty before the first batch.
        record_bytes: Bytes of a record as the last batch measured them; None if nothing was measured.
        rolled_back: The newest mark before the closing table was rolled back; None if it was not.
        closing_lost: Why the closing table can't be the one that the pipeline wrote.
        followers_lost: Follower -> why it does not hold what it was given.
    """

    position: Position | None
    mark: BatchMark | None
    manifest: str | None
    done: BatchMark | None
    dead_letters: BatchMark | None
    told: Mapping[str, TableMark] = field(default_factory=dict)
    record_bytes: float | None = None
    rolled_back: BatchMark | None = None
    closing_lost: Terminal | None = None
    followers_lost: Mapping[str, Terminal] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        """Whether the last decided batch still has to be rolled forward."""
        return self.mark is not None and self.mark != self.done

    @property
    def newest(self) -> int:
        """The largest batch number that any table knows."""
        marks = (self.mark, self.done, self.dead_letters, self.rolled_back)
        return max((mark.n for mark in marks if mark is not None), default=0)

    @property
    def newest_epoch(self) -> int:
        """The largest epoch that any table knows."""
        marks = (self.mark, self.done, self.dead_letters, self.rolled_back)
        return max((mark.epoch for mark in marks if mark is not None), default=0)


def standing(pipeline: Pipeline, tables: Tables) -> Standing:
    """Where the pipeline stands. What is wrong is told, not raised, but for what no command can mend.

    Raises:
        Terminal: The position is kept in another table than the pipeline file names.
    """
    name, closing = pipeline.name, pipeline.destinations[0].table
    _refuse_other_closing(pipeline, tables)
    position = lookup(tables.destination.metadata, POSITION_KEY.format(name), closing)
    last = lookup(tables.destination.metadata, BATCH_KEY.format(name), closing)
    followers = {
        pipeline.ledger_table: lookup(tables.ledger.metadata, DONE_KEY.format(name), pipeline.ledger_table),
        pipeline.dead_letters_table: lookup(
            tables.dead_letters.metadata, BATCH_KEY.format(name), pipeline.dead_letters_table
        ),
    }
    done, dead = (mark_of(found) for found in followers.values())
    told = _told(pipeline, tables)
    _refuse_other_letters(pipeline, told)
    holds, mark = still_held(position), mark_of(last)
    now = Standing(
        position=Position.from_json(holds.value) if holds else None,
        mark=mark,
        manifest=_summary(last).get(MANIFEST_KEY),
        done=done,
        dead_letters=dead,
        told=told,
        record_bytes=_record_bytes(_summary(last)),
        rolled_back=_rolled_back(last, mark, done),
        closing_lost=_closing_lost(pipeline, tables, mark, done or dead, told) or _untold(pipeline, last),
    )
    lost = _followers_lost(pipeline, tables, now, followers)
    if now.unfinished:
        # A decided settle mends it as soon as it is rolled forward.
        lost.pop(_summary(last).get(SETTLES_KEY, ""), None)
    return replace(now, followers_lost=lost)


def batch_offsets(pipeline: Pipeline, now: Standing | None) -> int:
    """How many offsets the next batch may have: bounded by records, and by bytes as the last batch measured them."""
    size = BatchSize(pipeline.limits.max_records, pipeline.limits.max_bytes)
    return size.offsets(now.record_bytes if now else None)


def _refuse_other_closing(pipeline: Pipeline, tables: Tables) -> None:
    closing = tables.ledger.metadata.properties.get(CLOSING_KEY.format(pipeline.name))
    table = pipeline.destinations[0].table
    if closing not in (None, table):
        raise Terminal(
            f"pipeline {pipeline.name}: its position is kept in table {closing}, the pipeline file now names {table}",
            next_step=f"name {closing} again; a renamed table needs a new pipeline, for its rows would begin anew",
        )


def _refuse_other_letters(pipeline: Pipeline, told: Mapping[str, TableMark]) -> None:
    """Letters of a pipeline stay in one table: replays and resets would not find those in another one."""
    known = {pipeline.destinations[0].table, pipeline.dead_letters_table}
    for table in sorted(told.keys() - known):
        raise Terminal(
            f"pipeline {pipeline.name}: its dead letters are kept in table {table}, the pipeline file now names"
            f" {pipeline.dead_letters_table}",
            next_step=f"set dead_letters.table to {table} again",
        )


def _told(pipeline: Pipeline, tables: Tables) -> dict[str, TableMark]:
    found = still_held(lookup(tables.ledger.metadata, TABLES_KEY.format(pipeline.name), pipeline.ledger_table))
    body = json.loads(found.value) if found else {}
    return {table: TableMark(of["uuid"], BatchMark(of["n"], of["batch"], of["epoch"])) for table, of in body.items()}


def _rolled_back(last: Held | RolledBack | None, mark: BatchMark | None, done: BatchMark | None) -> BatchMark | None:
    """The newest batch that a rollback took back, or None. A restored older metadata file counts as one, too."""
    if isinstance(last, RolledBack):
        return BatchMark.from_json(last.newest)
    if mark is not None and done is not None and done.n > mark.n:
        return done
    return None


def _closing_lost(
    pipeline: Pipeline,
    tables: Tables,
    mark: BatchMark | None,
    known: BatchMark | None,
    told: Mapping[str, TableMark],
) -> Terminal | None:
    table = pipeline.destinations[0].table
    expected, found = told.get(table), str(tables.destination.metadata.table_uuid)
    # A decided batch that the ledger does not know yet may be the reset that took the new table up.
    taken_up = mark is not None and mark != known
    replaced = expected is not None and expected.uuid != found and not taken_up
    properties = tables.destination.metadata.properties
    blank = mark is None and known is not None and POSITION_KEY.format(pipeline.name) not in properties
    if not replaced and not blank:
        return None
    return Terminal(
        f"pipeline {pipeline.name}: table {table} holds no position of it, but the ledger or the dead letters were written"
        " by this pipeline: the table was dropped and made anew",
        next_step=f"restore the table, or land everything that Kafka still holds into the new one:"
        f' frazil reset {pipeline.name} --to earliest --reason "table was made anew"',
    )


def _untold(pipeline: Pipeline, last: Held | RolledBack | None) -> Terminal | None:
    """Main may have rows of batches, and what is left of its past does not say of which."""
    if not isinstance(last, RolledBack) or last.is_past_told:
        return None
    table, n = pipeline.destinations[0].table, BatchMark.from_json(last.newest).n
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
    lost = {table: "was rolled back" for table, of in found.items() if isinstance(of, RolledBack)}
    letters = pipeline.dead_letters_table
    told = now.told.get(letters)
    if told is not None:
        allowed = {told.mark} | ({now.mark, now.rolled_back} if now.unfinished or now.rolled_back else set())
        if told.uuid != str(tables.dead_letters.metadata.table_uuid):
            lost[letters] = "was dropped and made anew"
        elif now.dead_letters not in allowed:
            lost.setdefault(letters, f"holds {_of(now.dead_letters)} last, the ledger says {_of(told.mark)}")
    if now.done is None and now.mark is not None and now.mark.n > 0 and not now.rolled_back:
        lost.setdefault(pipeline.ledger_table, "knows no batch of the pipeline: it was dropped and made anew")
    return {table: _lost(pipeline, table, why) for table, why in lost.items()}


def _lost(pipeline: Pipeline, table: str, why: str) -> Terminal:
    return Terminal(
        f"pipeline {pipeline.name}: table {table} {why}",
        next_step=f"restore it, or: {settle_commands(pipeline.name, table)}",
    )


def settle_commands(pipeline: str, table: str) -> str:
    """The commands that end the wait for a follower."""
    return (
        f"frazil settle {pipeline} --table {table} --restage --reason … (lands its part again), or --abandon (goes on"
        " without it)"
    )


def _of(mark: BatchMark | None) -> str:
    return "no batch" if mark is None else f"batch {mark.n} ({mark.batch})"


def _summary(found: Held | RolledBack | None) -> Mapping[str, str]:
    holds = still_held(found)
    return holds.summary if holds else {}


def _record_bytes(summary: Mapping[str, str]) -> float | None:
    read, size = (int(summary.get(key, 0)) for key in (READ_KEY, BYTES_KEY))
    return size / read if read and size else None
