"""What the snapshots of tables say of batches, held against the ledger; and what was altered in dead letters between them.

A snapshot of a batch carries its number and id, its kind, the hash of its pipeline file, its counts and what it skipped. Nobody who
edits the ledger edits those.
"""

from __future__ import annotations

import json
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from frazil.verify.facts.ledger import MENDING, MOVING, Batch
from frazil.verify.facts.result import Difference, cut

Row = Mapping[str, Any]
Place = tuple[str, int, int]

_MARK = "frazil.batch."
"""What the key of a batch's mark begins with; the name of the pipeline follows."""

_OURS = "frazil.pipeline"
"""Key in the summary of every snapshot of a batch."""

_TOLD = {
    "batch": "frazil.batch",
    "kind": "frazil.kind",
    "config": "frazil.config",
    "records_read": "frazil.rows.read",
    "records_written": "frazil.rows.written",
    "records_dead": "frazil.rows.dead",
    "records_filtered": "frazil.rows.filtered",
}
"""Column of the ledger -> key in the summary."""

_LARGEST = 2**63

_REASON = ("code", "stage", "message", "path")


@dataclass(frozen=True)
class SnapshotFacts:
    """What the snapshots of one table say.

    Attributes:
        table: Its name.
        batches: Batch number -> id of its snapshot, and the summary.
        others: Id of each snapshot, also of those that were rolled back -> the batch that it is of.
    """

    table: str
    batches: Mapping[int, tuple[int, Mapping[str, str]]] = field(default_factory=dict)
    others: Mapping[int, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, table: str, metadata: TableMetadata, pipeline: str) -> SnapshotFacts:
        """Read the summaries of all snapshots that led to the present one, the newest first."""
        found: dict[int, tuple[int, Mapping[str, str]]] = {}
        for snapshot in _ancestry(metadata):
            if (n := _number(snapshot, pipeline)) is not None:
                found.setdefault(n, (snapshot.snapshot_id, _summary(snapshot)))
        return cls(table, found, {of.snapshot_id: _number(of, pipeline) for of in metadata.snapshots})

    def without_manifest(self) -> Iterator[str]:
        """Of a closing table whose last batch has no position in a snapshot: that the manifest, which has it, is gone.

        The batch is finished, and needs it no more: an orphan removal may have taken it.
        """
        n = max(self.batches, default=None)
        if n is not None and "frazil.manifest" in self.batches[n][1]:
            yield (
                f"batch {n}: its manifest {self.batches[n][1]['frazil.manifest']} is gone; the position was compared"
                f" with the property of {self.table} alone"
            )

    def differences(self, rows: Iterable[Row], undone: Collection[int]) -> Iterator[Difference]:
        """What rows of the ledger say of this table and its snapshots deny.

        Args:
            rows: Of the pipeline.
            undone: Numbers of batches that a rewind took back: their snapshots may be there or not.
        """
        mine = [row for row in rows if row["table"] == self.table and row["role"] != "left"]
        # Before a repair the table may have lost batches, and got a new past.
        repaired = max((row["n"] for row in mine if row["kind"] in MENDING), default=0)
        first = max(repaired, min(self.batches, default=_LARGEST))
        numbers, moves = sorted(self.batches), {row["n"] for row in mine if row["kind"] in MOVING}
        for row in mine:
            n, said = row["n"], row["snapshot_id"]
            if n in undone:
                continue
            if n in self.batches:
                yield from self._against(row, *self.batches[n])
            elif not moves.isdisjoint(numbers[(at := bisect(numbers, n)) : at + 1]):
                continue  # the rollback that a rewind or reset followed took the snapshot, whatever that took out itself
            elif said is not None and (self.others.get(said, n) != n or n > first):
                why = "its history does not have" if self.others.get(said) == n else "is none"
                yield self._wrong(n, f"a snapshot of batch {n} in {self.table}", f"snapshot {said}, which {why}")

    def _against(self, row: Row, snapshot: int, summary: Mapping[str, str]) -> Iterator[Difference]:
        n, where = row["n"], f"as snapshot {snapshot} of {self.table} says"
        if row["snapshot_id"] != snapshot and (row["snapshot_id"] is not None or row["rows"]):
            yield self._wrong(n, f"snapshot {snapshot} of {self.table}, which batch {n} is in", f"{row['snapshot_id']}")
        for column, key in _TOLD.items():
            if key in summary and str(row[column]) != summary[key]:
                yield self._wrong(n, f"{column} {summary[key]}, {where}", f"{row[column]}")
        skipped, told = row.get("skipped") or "[]", summary.get("frazil.skipped", "[]")
        if _OURS in summary and json.loads(skipped) != json.loads(told):
            yield self._wrong(n, f"skipped {told}, {where}", cut(skipped))

    @staticmethod
    def _wrong(n: int, expected: str, found: str) -> Difference:
        return Difference("ledger", expected, found, batch=n)


def with_configs(rows: Iterable[Row], decided: SnapshotFacts) -> list[dict[str, Any]]:
    """Rows of the ledger with the hash of the pipeline file that snapshots name: batches are judged by that one."""
    configs = {n: of["frazil.config"] for n, (_, of) in decided.batches.items() if "frazil.config" in of}
    return [{**row, "config": configs.get(row["n"], row["config"])} for row in rows]


def take_back(rows: Iterable[dict[str, Any]], tables: Mapping[str, Collection[str]]) -> Iterator[Difference]:
    """Rows of the ledger that say of a destination that the pipeline file names it no more, though it does: they get their role back.

    Args:
        rows: Of the pipeline; they are changed.
        tables: Hash of a pipeline file -> the destinations that it names.
    """
    for row in rows:
        if row["role"] == "left" and row["table"] in tables.get(row["config"], ()):
            row["role"] = "destination"
            expected = f"rows for destination {row['table']}, which its pipeline file names"
            yield Difference("ledger", expected, "that it was left out", batch=row["n"])


def repeated_rows(rows: Iterable[Row]) -> Iterator[Difference]:
    """Batches with several rows of the ledger for one table."""
    counted = Counter((row["n"], row["table"], row["role"]) for row in rows)
    for (n, table, _), count in sorted(counted.items()):
        if count > 1:
            yield Difference("ledger", f"one batch of this number, with one row for {table}", f"{count} rows", batch=n)


def altered_reasons(
    metadata: TableMetadata, read: Callable[[int, Sequence[str]], Iterable[Row]]
) -> Iterator[Difference]:
    """Dead letters whose reason is not what it was before somebody who is not Frazil rewrote them.

    Args:
        metadata: Of the dead letters.
        read: Rows of a snapshot.
    """
    columns = ("topic", "partition", "offset", "_frazil_batch", *_REASON)
    for before, after in _rewritten(metadata):
        had = {_letter(row): row for row in read(before, columns)}
        for row in read(after, columns):
            was = had.get(_letter(row), row)
            for name in _REASON:
                if row[name] != was[name]:
                    place = row["topic"], row["partition"], row["offset"], row["_frazil_batch"]
                    yield Difference(
                        "changed", f"a letter with {name} {cut(was[name])}, as batch wrote it", cut(row[name]), *place
                    )


def _letter(row: Row) -> tuple[Any, ...]:
    return row["topic"], row["partition"], row["offset"], row["_frazil_batch"]


def _rewritten(metadata: TableMetadata) -> Iterator[tuple[int, int]]:
    """Snapshots before and after others rewrote rows. A rewrite may be several snapshots: one deletes, one appends."""
    last: Snapshot | None = None  # the newest of a row of snapshots by others
    is_rewrite = False
    for snapshot in _ancestry(metadata):
        summary = _summary(snapshot)
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if _OURS in summary or any(key.startswith(_MARK) for key in summary):
            if last is not None and is_rewrite:
                yield snapshot.snapshot_id, last.snapshot_id
            last, is_rewrite = None, False
        elif operation is not Operation.REPLACE:
            last = last or snapshot
            is_rewrite = is_rewrite or operation is not Operation.APPEND


def _ancestry(metadata: TableMetadata) -> Iterator[Snapshot]:
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    at = metadata.current_snapshot()
    while at is not None:
        yield at
        at = None if at.parent_snapshot_id is None else by_id.get(at.parent_snapshot_id)


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _number(snapshot: Snapshot, pipeline: str) -> int | None:
    """Number of the batch that a snapshot is of."""
    mark = _summary(snapshot).get(_MARK + pipeline)
    return None if mark is None else int(json.loads(mark)["n"])


def code_differences(
    batches: Iterable[Batch], letters: Iterable[tuple[int | None, Place, str, int | None]], known: Collection[int]
) -> Iterator[Difference]:
    """Batches whose dead letters have other codes than the ledger counts.

    Of a record with letters of several tables the ledger counts one code.

    Args:
        batches: Those of which nothing was taken out.
        letters: Batch number, record, code and attempts of each dead letter.
        known: Numbers of batches with differences.
    """
    wanted = {batch.n: batch.dead_codes for batch in batches if batch.n not in known and batch.dead_codes is not None}
    codes: dict[int, dict[Place, set[str]]] = {n: {} for n in wanted}
    for n, place, code, attempts in letters:
        if n in codes and (attempts or 1) > 1:
            del codes[n]  # tried again, and dead for another reason perhaps
        elif n in codes:
            codes[n].setdefault(place, set()).add(code)
    for n, of in codes.items():
        alone = Counter(next(iter(several)) for several in of.values() if len(several) == 1)
        any_of = Counter(code for several in of.values() for code in several)
        said = wanted[n] or {}
        for code in sorted(any_of.keys() | said.keys()):
            if not alone[code] <= said.get(code, 0) <= any_of[code]:
                expected = f"{said.get(code, 0)} dead letters {code} of batch {n}, as many as the ledger counts"
                yield Difference("ledger", expected, f"{any_of[code]}", batch=n)
