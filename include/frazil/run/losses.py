"""What a replay would lose: rows and dead letters whose records Kafka does not hold any more.

A range that gave a record for every offset lost none. One with gaps may: a transaction marker or an aborted record never
had an outcome, a record that compaction or a deletion within the log removed has one, and it could not come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import Counts, Range, Staged
from frazil.batch.removal import Removal, RemovedRange
from frazil.errors import Terminal
from frazil.iceberg.landed import count_rows, offsets_held
from frazil.iceberg.table import Table
from frazil.kafka.read import read_range
from frazil.run.manifests import LETTER_COLUMNS, row_removal
from frazil.run.scope import Scope
from frazil.run.tables import Tables, open_tables

_SHOWN: Final = 5
"""Lost offsets that a message names per partition."""

_Held = tuple[Table, str, Removal]


def refuse_losses(scope: Scope, ranges: Sequence[Range], removed: Sequence[RemovedRange], staged: Staged) -> None:
    """Refuse a staged replay that would take out what it can't bring again.

    Rows are counted only where a range has gaps; where they outnumber what was staged (they were lost, are filtered by
    now, or lie there twice), Kafka is asked for each of their offsets.

    Args:
        scope: The pipeline and its doors.
        ranges: What is read again, at most one range per partition.
        removed: What goes, one entry for each range.
        staged: What reading brought.

    Raises:
        Terminal: Rows or dead letters would be lost; says how many and where.
        Retryable: Kafka or the storage is not available now.
    """
    said = []
    tables: Tables | None = None
    for r, gone in zip(ranges, removed, strict=True):
        counts = staged.counts.get((r.topic, r.partition), Counts())
        if counts.read == r.span:
            continue
        # As they are now: what was loaded before staging may be expired by this time.
        tables = tables or open_tables(scope.lake, scope.pipeline)
        held = _held(scope, tables, gone)
        there = [count_rows(*of) for of in held]
        outcomes = sum(there)
        # Of several tables a plus in one must not hide a minus in another one: Kafka is asked wherever there is a gap.
        may_lose = outcomes > counts.written + counts.dead if not staged.tables else outcomes > 0
        lost = _lost(scope, r, held) if may_lose else []
        if lost:
            said.append(_described(r, outcomes, counts.read, lost))
    if said:
        raise Terminal(
            f"pipeline {scope.pipeline.name}: the replay would take out rows whose records are gone from Kafka, by"
            " compaction or deletion, and could not come again; nothing was changed\n" + "\n".join(said),
            next_step="replay a range without these offsets; to read what Kafka still holds of it again, land it into a"
            " new table with a pipeline of its own",
        )


def _held(scope: Scope, tables: Tables, gone: RemovedRange) -> tuple[_Held, ...]:
    pipeline = scope.pipeline
    letters = (tables.dead_letters, pipeline.dead_letters_table, Removal(LETTER_COLUMNS, (gone,)))
    removals = ((name, table, row_removal(pipeline, name, (gone,))) for name, table in tables.destinations.items())
    return (*((table, name, rows) for name, table, rows in removals if rows is not None), letters)


def _lost(scope: Scope, r: Range, held: Sequence[_Held]) -> list[int]:
    """Offsets with a row or a dead letter and without a record, ascending."""
    offsets = pc.unique(pa.chunked_array([offsets_held(*of) for of in held]))
    first, last = pc.min_max(offsets).values()
    records = read_range(scope.cluster, r.topic, r.partition, first.as_py(), last.as_py() + 1)
    readable = pa.chunked_array([of.column("offset") for of in records], pa.int64())
    lost: list[int] = sorted(offsets.filter(pc.invert(pc.is_in(offsets, readable))).to_pylist())
    return lost


def _described(r: Range, outcomes: int, read: int, lost: list[int]) -> str:
    shown = ", ".join(map(str, lost[:_SHOWN])) + (", …" if len(lost) > _SHOWN else "")
    return (
        f"  topic {r.topic}, partition {r.partition}, offsets {r.start} to {r.end - 1}: {outcomes:,} rows and dead letters"
        f" are there, {read:,} records were read; {len(lost):,} are gone: {shown}"
    )
