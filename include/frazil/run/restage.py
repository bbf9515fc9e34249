"""Staging lost dead letters again: records of a batch's ranges that have no row become letters, with its number.

Few records have no row, so only the gaps between rows are read, by this process; no engine is started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import Range, StagedFile, TopicPartition
from frazil.batch.settle import Owed, verdict
from frazil.errors import Retryable, Terminal
from frazil.iceberg.data_files import DataFileWriter
from frazil.iceberg.landed import offsets_of_batch
from frazil.iceberg.ledger import read_ledger
from frazil.iceberg.table import staging_table
from frazil.kafka.read import read_range
from frazil.records.cells import in_steps
from frazil.records.dead import DeadCode, Reason, dead_letters
from frazil.records.declared_names import DeclaredNames
from frazil.records.decode import Decoder
from frazil.records.redaction import Payload, redacted
from frazil.run.evolution import columns_of
from frazil.run.manifests import row_columns
from frazil.run.record_evolution import without_new_columns
from frazil.run.record_spec import record_specs
from frazil.run.scope import Scope
from frazil.run.source import read_limits
from frazil.run.stage import numbered
from frazil.run.standing import standing
from frazil.run.tables import Tables
from frazil.run.unfinished import unfinished

READ_ACROSS = 1_000
"""Offsets with rows that are read along rather than beginning to read anew behind them."""

Landed = dict[TopicPartition, pa.Array]

_Split = tuple[pa.RecordBatch, pa.RecordBatch]
"""Dead letters, and the records beside them that are good."""


@dataclass(frozen=True, slots=True)
class Restaged:
    """What was staged again: files, letters and missing ones by batch number, and what does not add up."""

    files: tuple[StagedFile, ...] = ()
    letters: Mapping[int, int] = field(default_factory=dict)
    missing: Mapping[int, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def restage(scope: Scope, tables: Tables, batches: tuple[Owed, ...]) -> Restaged:
    """Stage the letters of batches again. Nobody can see the files.

    Args:
        scope: The pipeline and its doors.
        tables: Its tables.
        batches: What is owed, as far as Kafka holds it.

    Raises:
        Retryable: Kafka or the storage is not available now.
        Terminal: Records in the ranges are gone, or it can't be told which destination a letter was of.
    """
    _refuse_several(scope, tables, batches)
    writer = DataFileWriter(staging_table(scope.pipeline.dead_letters_table, tables.dead_letters))
    payload = scope.pipeline.dead_letters.payload
    letters, missing = {}, {}
    problems = []
    for of in batches:
        dead_count, good_count = _write_dead(_without_rows(scope, tables, of), writer, of.n)
        decided = verdict(of, dead_count, good_count)
        if decided.with_good and good_count:
            # Read again rather than kept from the first time: they may be as large as a batch.
            found = _write_good(_without_rows(scope, tables, of), writer, of.n, payload)
            _require_same(scope, of, good_count, found)
        letters[of.n] = dead_count + (good_count if decided.with_good else 0)
        missing[of.n] = decided.missing
        problems += [decided.problem] if decided.problem else []
        scope.report(f"batch {of.n}: {letters[of.n]:,} of {of.dead:,} dead letters staged again")
    return Restaged(writer.close(), letters, missing, tuple(problems))


def _refuse_several(scope: Scope, tables: Tables, batches: tuple[Owed, ...]) -> None:
    """With several destinations a record may be a letter for one and a row of another; its rows don't tell which.

    How many there were when the letters were left counts, whatever the file names by now.
    """
    pipeline, letters = scope.pipeline, sum(of.dead for of in batches)
    several = _destinations(scope, tables, {of.n for of in batches if of.dead}) if letters else 0
    if several > 1:
        raise Terminal(
            f"pipeline {pipeline.name}: {letters:,} dead letters are lost, and with {several}"
            " destinations they can't be staged again: which record was one, and for which table, isn't known",
            next_step=f"restore {pipeline.dead_letters_table}, or give them up: frazil settle {pipeline.name} --table"
            f" {pipeline.dead_letters_table} --abandon --reason …",
        )


def _destinations(scope: Scope, tables: Tables, numbers: set[int]) -> int:
    """How many destinations there are, or one of these batches had, whichever is more."""
    pipeline, found = scope.pipeline, dict[int, set[str]]()
    for row in read_ledger(scope.lake, pipeline.ledger_table, pipeline.name):
        if row["role"] == "destination" and row["n"] in numbers:
            found.setdefault(row["n"], set()).add(row["table"])
    last = unfinished(scope, tables, standing(pipeline, tables))
    for _, manifest in last.all if last is not None else ():
        if manifest.position.n in numbers:
            found.setdefault(manifest.position.n, set()).update(manifest.tables)
    several = 2 if pipeline.create is not None else len(pipeline.destinations)  # any letter may be of a further table
    return max(several, *(len(of) for of in found.values()), 0)


def _write_dead(found: Iterator[_Split], writer: DataFileWriter, n: int) -> tuple[int, int]:
    """Write the bad ones as letters, and count bad and good ones."""
    dead_count = good_count = 0
    for dead, good in found:
        writer.write(numbered(dead, n))
        dead_count += dead.num_rows
        good_count += good.num_rows
    return dead_count, good_count


def _write_good(found: Iterator[_Split], writer: DataFileWriter, n: int, payload: Payload) -> int:
    """Write the good ones as letters, and count them."""
    count = 0
    for _, good in found:
        writer.write(numbered(redacted(_once_bad(good, n), payload), n))
        count += good.num_rows
    return count


def _require_same(scope: Scope, of: Owed, counted: int, written: int) -> None:
    if counted != written:
        raise Retryable(
            f"pipeline {scope.pipeline.name}, batch {of.n}: {counted:,} good records without a row were counted, then"
            f" {written:,} were found: records went from Kafka meanwhile",
            next_step="settle again; it counts anew",
        )


def _without_rows(scope: Scope, tables: Tables, of: Owed) -> Iterator[_Split]:
    """The batch's records without a row, a part at a time: bad ones as letters that tell what they may, and the good ones."""
    destination = scope.pipeline.destinations[0]
    # Rows of a merged table don't tell which records had one: theirs are of the last change.
    columns = None if destination.is_merged else row_columns(destination)
    landed = (
        offsets_of_batch(tables.destinations[destination.table], destination.table, columns, of.n) if columns else {}
    )
    # What the batch did with records without a value is told by its counts, not by the present pipeline file.
    wanted = record_specs(scope.pipeline, columns_of(scope.pipeline, tables), scope.schemas)[destination.table]
    spec = replace(
        wanted,
        tombstone="delete" if wanted.tombstone == "delete" else "filter" if of.filtered else "dead_letter",
        kafka_columns=None,
    )
    # Which records are bad is all that is asked: fields that have no column are in nobody's way.
    spec = without_new_columns({destination.table: spec})[destination.table]
    decoder, declared = Decoder(spec, of.n), DeclaredNames.of([spec])
    for records, outcomes in in_steps(decoder.decode, _records(scope, of, landed)):
        dead = outcomes.dead
        # Then every good record has its row, somewhere.
        letters = redacted(dead, scope.pipeline.dead_letters.payload, declared)
        yield letters, records.slice(0, 0) if columns is None else _good(records, dead)


def _records(scope: Scope, of: Owed, landed: Landed) -> Iterator[pa.RecordBatch]:
    for r in of.ranges:
        rows = landed.get((r.topic, r.partition), pa.array([], pa.int64()))
        for gap in gaps(r, rows):
            for records in read_range(
                scope.cluster, r.topic, r.partition, gap.start, gap.end, limits=read_limits(scope.pipeline)
            ):
                yield records.filter(pc.invert(pc.is_in(records.column("offset"), rows)))


def gaps(r: Range, rows: pa.Array) -> Iterator[Range]:
    """The parts of a range that must be read to see every offset without a row; close ones are read as one.

    Args:
        r: The range.
        rows: Offsets that have a row, ascending.
    """
    inside = rows.filter(pc.and_(pc.greater_equal(rows, r.start), pc.less(rows, r.end)))
    before = pa.concat_arrays([pa.array([r.start - 1], pa.int64()), inside])
    after = pa.concat_arrays([inside, pa.array([r.end], pa.int64())])
    has_gap = pc.greater(pc.subtract(after, before), 1)
    starts, ends = pc.add(before.filter(has_gap), 1).to_pylist(), after.filter(has_gap).to_pylist()
    open_gap: Range | None = None
    for start, end in zip(starts, ends, strict=True):
        if open_gap is not None and start - open_gap.end > READ_ACROSS:
            yield open_gap
            open_gap = None
        open_gap = replace(r, start=start if open_gap is None else open_gap.start, end=end)
    if open_gap is not None:
        yield open_gap


def _good(records: pa.RecordBatch, dead: pa.RecordBatch) -> pa.RecordBatch:
    others = records.filter(pc.invert(pc.is_in(records.column("offset"), dead.column("offset"))))
    return others.filter(others.column("value").is_valid())  # one without a value is dead, or filtered


def _once_bad(records: pa.RecordBatch, n: int) -> pa.RecordBatch:
    said = f"it became a dead letter in batch {n}; under the present pipeline file it is good"
    reason = Reason(DeadCode.DEAD_BEFORE, said)
    return dead_letters(records, [reason] * records.num_rows)
