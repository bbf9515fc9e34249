"""Compares the ledger with the summaries of snapshots, and finds dead letters whose reason somebody altered. Also says which
dead letters count as outcomes.

The summary of a snapshot repeats the facts that the ledger has about its batch: number, id, kind, hash of the pipeline file,
counts, skipped offsets. A person who edits the ledger does not edit the summaries.
"""

from __future__ import annotations

import json
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    Not,
    NotIn,
    Or,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from frazil.verify.facts.coverage import rolled_back_batches
from frazil.verify.facts.ledger import REPAIR_KINDS, RESTART_KINDS, Batch, Range, Row
from frazil.verify.facts.result import Difference, ledger_difference, shorten

Record = tuple[str, int, int]
"""Topic, partition and offset."""

_MARK_PREFIX = "frazil.batch."
"""Prefix of the key of a batch's mark; the name of the pipeline follows."""

_PIPELINE_KEY = "frazil.pipeline"
"""Key that the summary of every snapshot of a batch has."""

_SUMMARY_KEYS = {
    "batch": "frazil.batch",
    "kind": "frazil.kind",
    "config": "frazil.config",
    "records_read": "frazil.rows.read",
    "records_written": "frazil.rows.written",
    "records_dead": "frazil.rows.dead",
    "records_filtered": "frazil.rows.filtered",
}
"""Column of the ledger -> key in the summary."""

_MAX_NUMBER = 2**63

_REASON = ("code", "stage", "message", "path")


@dataclass(frozen=True)
class SnapshotFacts:
    """The batches that the snapshots of one table name.

    Attributes:
        latest_snapshots: Batch number -> id and summary of its newest snapshot in the current history.
        batch_per_snapshot: Id of each snapshot, rolled-back ones included -> number of the batch that wrote it.
    """

    table: str
    latest_snapshots: Mapping[int, tuple[int, Mapping[str, str]]] = field(default_factory=dict)
    batch_per_snapshot: Mapping[int, int | None] = field(default_factory=dict)

    @classmethod
    def from_metadata(cls, table: str, metadata: TableMetadata, pipeline: str) -> SnapshotFacts:
        """Read the summaries of the current snapshot and its ancestors, the newest first."""
        latest_snapshots: dict[int, tuple[int, Mapping[str, str]]] = {}
        for snapshot in ancestry(metadata):
            if (n := _batch_number(snapshot, pipeline)) is not None:
                latest_snapshots.setdefault(n, (snapshot.snapshot_id, summary_of(snapshot)))
        return cls(
            table,
            latest_snapshots,
            {snapshot.snapshot_id: _batch_number(snapshot, pipeline) for snapshot in metadata.snapshots},
        )

    def manifest_notes(self) -> Iterator[str]:
        """A note that the last batch's position can't be read from a snapshot, because its manifest file is gone.

        A finished batch does not need its manifest: a removal of orphan files may have deleted it.
        """
        n = max(self.latest_snapshots, default=None)
        if n is not None and "frazil.manifest" in self.latest_snapshots[n][1]:
            yield (
                f"batch {n}: its manifest {self.latest_snapshots[n][1]['frazil.manifest']} is gone; the position was compared"
                f" with the property of {self.table} alone"
            )

    def differences(self, rows: Iterable[Row], undone: Collection[int]) -> Iterator[Difference]:
        """Contradictions between ledger rows of this table and its snapshots. Snapshots of batches that a rewind undid may
        exist or not.
        """
        table_rows = [row for row in rows if row["table"] == self.table and row["role"] != "left"]
        # Before a repair the table may have lost batches, and its snapshots may name others.
        repaired = max((row["n"] for row in table_rows if row["kind"] in REPAIR_KINDS), default=0)
        first = max(repaired, min(self.latest_snapshots, default=_MAX_NUMBER))
        numbers, moves = sorted(self.latest_snapshots), {row["n"] for row in table_rows if row["kind"] in RESTART_KINDS}
        for row in table_rows:
            n, snapshot_id = row["n"], row["snapshot_id"]
            if n in undone:
                continue
            if n in self.latest_snapshots:
                yield from self._differences_of_row(row, *self.latest_snapshots[n])
            elif not moves.isdisjoint(numbers[(index := bisect(numbers, n)) : index + 1]):
                continue  # the next batch is a rewind or reset: the rollback before it removed this snapshot
            elif snapshot_id is not None and (self.batch_per_snapshot.get(snapshot_id, n) != n or n > first):
                why = "its history does not have" if self.batch_per_snapshot.get(snapshot_id) == n else "is none"
                yield ledger_difference(
                    n, f"a snapshot of batch {n} in {self.table}", f"snapshot {snapshot_id}, which {why}"
                )

    def _differences_of_row(self, row: Row, snapshot: int, summary: Mapping[str, str]) -> Iterator[Difference]:
        n, where = row["n"], f"as snapshot {snapshot} of {self.table} says"
        if row["snapshot_id"] != snapshot and (row["snapshot_id"] is not None or row["rows"]):
            yield ledger_difference(
                n, f"snapshot {snapshot} of {self.table}, which batch {n} is in", f"{row['snapshot_id']}"
            )
        for column, key in _SUMMARY_KEYS.items():
            if key in summary and str(row[column]) != summary[key]:
                yield ledger_difference(n, f"{column} {summary[key]}, {where}", f"{row[column]}")
        skipped, skipped_in_summary = row.get("skipped") or "[]", summary.get("frazil.skipped", "[]")
        if _PIPELINE_KEY in summary and json.loads(skipped) != json.loads(skipped_in_summary):
            yield ledger_difference(n, f"skipped {skipped_in_summary}, {where}", shorten(skipped))


def with_configs(rows: Iterable[Row], snapshots: SnapshotFacts) -> list[dict[str, Any]]:
    """Ledger rows whose hash of the pipeline file is the one that snapshots name: batches are judged by that file."""
    configs = {
        n: summary["frazil.config"]
        for n, (_, summary) in snapshots.latest_snapshots.items()
        if "frazil.config" in summary
    }
    return [{**row, "config": configs.get(row["n"], row["config"])} for row in rows]


def restore_roles(rows: Iterable[dict[str, Any]], tables: Mapping[str, Collection[str]]) -> Iterator[Difference]:
    """Report ledger rows with role `left` whose table is still a destination, and set their role to `destination`. `tables` has
    the destinations that a pipeline file names, by its hash.
    """
    for row in rows:
        if row["role"] == "left" and row["table"] in tables.get(row["config"], ()):
            row["role"] = "destination"
            expected = f"rows for destination {row['table']}, which its pipeline file names"
            yield ledger_difference(row["n"], expected, "that it was left out")


def repeated_rows(rows: Iterable[Row]) -> Iterator[Difference]:
    """Batches with several rows of the ledger for one table."""
    row_counts = Counter((row["n"], row["table"], row["role"]) for row in rows)
    for (n, table, _), count in sorted(row_counts.items()):
        if count > 1:
            yield ledger_difference(n, f"one batch of this number, with one row for {table}", f"{count} rows")


def altered_reasons(
    metadata: TableMetadata, read: Callable[[int, Sequence[str]], Iterable[Row]]
) -> Iterator[Difference]:
    """Dead letters whose reason was altered when somebody other than Frazil rewrote the table. `read` reads columns of a
    snapshot by its id.
    """
    columns = ("topic", "partition", "offset", "_frazil_batch", *_REASON)
    for before, after in _foreign_rewrites(metadata):
        former_rows = {_letter_identity(row): row for row in read(before, columns)}
        for row in read(after, columns):
            former = former_rows.get(_letter_identity(row), row)
            for name in _REASON:
                if row[name] != former[name]:
                    expected = f"a letter with {name} {shorten(former[name])}, as its batch wrote it"
                    yield Difference("changed", expected, shorten(row[name]), *_letter_identity(row))


def _letter_identity(row: Row) -> tuple[str, int, int, int]:
    return row["topic"], row["partition"], row["offset"], row["_frazil_batch"]


def _foreign_rewrites(metadata: TableMetadata) -> Iterator[tuple[int, int]]:
    """Ids of the snapshots before and after each rewrite by another program, which may make several snapshots of it."""
    newest: Snapshot | None = None  # the newest of consecutive snapshots by another program
    is_rewrite = False
    for snapshot in ancestry(metadata):
        summary = summary_of(snapshot)
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if _PIPELINE_KEY in summary or any(key.startswith(_MARK_PREFIX) for key in summary):
            if newest is not None and is_rewrite:
                yield snapshot.snapshot_id, newest.snapshot_id
            newest, is_rewrite = None, False
        elif operation is not Operation.REPLACE:
            newest = newest or snapshot
            is_rewrite = is_rewrite or operation is not Operation.APPEND


def ancestry(metadata: TableMetadata) -> Iterator[Snapshot]:
    """The current snapshot and those before it, the newest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = None if snapshot.parent_snapshot_id is None else by_id.get(snapshot.parent_snapshot_id)


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """The summary of a snapshot."""
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _batch_number(snapshot: Snapshot, pipeline: str) -> int | None:
    """Number of the batch that wrote a snapshot; None if another pipeline, or another program, wrote it."""
    mark = summary_of(snapshot).get(_MARK_PREFIX + pipeline)
    return None if mark is None else int(json.loads(mark)["n"])


def code_differences(
    batches: Iterable[Batch], letters: Iterable[tuple[int | None, Record, str, int | None]], differing: Collection[int]
) -> Iterator[Difference]:
    """Batches whose dead letters per code contradict the ledger's counts.

    For a record with letters of several tables the ledger counts one of their codes, so each count only has bounds.

    Args:
        batches: Batches whose letters are all still in the table.
        letters: Batch number, record, code and attempts of each letter.
        differing: Numbers of batches with other differences, which are skipped.
    """
    ledger_codes = {
        batch.n: batch.dead_codes for batch in batches if batch.n not in differing and batch.dead_codes is not None
    }
    letter_codes: dict[int, dict[Record, set[str]]] = {n: {} for n in ledger_codes}
    for n, record, code, attempts in letters:
        if n in letter_codes and (attempts or 1) > 1:
            del letter_codes[n]  # it was retried, and may have failed again with another code
        elif n in letter_codes:
            letter_codes[n].setdefault(record, set()).add(code)
    for n, codes_per_record in letter_codes.items():
        fewest = Counter(next(iter(codes)) for codes in codes_per_record.values() if len(codes) == 1)
        most = Counter(code for codes in codes_per_record.values() for code in codes)
        counted = ledger_codes[n] or {}
        for code in sorted(most.keys() | counted.keys()):
            if not fewest[code] <= counted.get(code, 0) <= most[code]:
                expected = f"{counted.get(code, 0)} dead letters {code} of batch {n}, as many as the ledger counts"
                yield ledger_difference(n, expected, f"{most[code]}")


_LANDED = "landed_batch"
"""Column of the dead letters: number of the batch that landed the record in a later attempt."""


def unlanded_filter(columns: Schema, batches: Sequence[Batch]) -> BooleanExpression:
    """Filter for dead letters whose record has no row: it never landed, or the batch that landed it was rolled back.

    A letter names only the batch that landed its record last. If that batch was rolled back, the row of an earlier landing may
    still exist: only the ledger tells.
    """
    if all(column.name != _LANDED for column in columns.fields):
        return AlwaysTrue()
    never_landed: BooleanExpression = IsNull(_LANDED)  # type: ignore[call-arg, arg-type]
    undone = rolled_back_batches(batches)
    if not undone:
        return never_landed
    landed_by_undone = In(_LANDED, undone)  # type: ignore[call-arg, arg-type]
    landed_before = (_letters_before_batch(r, n) for r, n in _standing_landings(batches, undone))
    return Or(never_landed, And(landed_by_undone, Not(Or(AlwaysFalse(), AlwaysFalse(), *landed_before))))


def _standing_landings(batches: Sequence[Batch], undone: frozenset[int]) -> Iterator[tuple[Range, int]]:
    """Ranges of dead letters that both a valid and a rolled-back batch landed, each with the number of the valid one."""
    landings = [batch for batch in batches if batch.kind == "dead_letters"]
    undone_ranges = [r for batch in landings if batch.n in undone for r in batch.ranges]
    for batch in landings:
        for r in batch.ranges if batch.n not in undone else ():
            same_partition = (u for u in undone_ranges if (u.topic, u.partition) == (r.topic, r.partition))
            if any(r.start < u.end and u.start < r.end for u in same_partition):
                yield r, batch.n


def _letters_before_batch(r: Range, n: int) -> BooleanExpression:
    """Filter for letters of a range that were written before batch `n`."""
    in_partition = And(EqualTo("topic", r.topic), EqualTo("partition", r.partition))  # type: ignore[call-arg, arg-type]
    in_range = And(GreaterThanOrEqual("offset", r.start), LessThan("offset", r.end))  # type: ignore[call-arg, arg-type]
    return And(in_partition, in_range, LessThan("_frazil_batch", n))  # type: ignore[call-arg, arg-type]


_DESTINATION = "destination"
"""Column of the dead letters: the table that the record does not fit; null if the record is a dead letter for all tables."""

_BATCH = "_frazil_batch"


def letters_filter(
    letters: Table, name: str, unlanded: BooleanExpression, absent: Collection[int]
) -> BooleanExpression:
    """Filter for letters that are outcomes of a destination: those that name it or no table, unless they became rows. Letters of
    batches for which the table was no destination (`absent`) do not count.
    """
    column_names = {column.name for column in letters.schema().fields}
    parts: list[BooleanExpression] = []
    # Below, mypy sees the fields of PyIceberg's models and not their __init__.
    if _DESTINATION in column_names:
        parts.append(Or(IsNull(_DESTINATION), EqualTo(_DESTINATION, name)))  # type: ignore[call-arg, arg-type]
    if absent:
        parts.append(NotIn(_BATCH, absent))  # type: ignore[call-arg, arg-type]
    return reduce(And, parts, unlanded)
