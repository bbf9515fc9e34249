"""The interface of staging engines, the work that every engine does on the records it reads, and the engine `inline`,
which reads in this process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frazil import shutdown
from frazil.batch.audit import Tolerance
from frazil.batch.facts import LETTERS_NAMED, Counts, DeadSample, NamedLetter, Range, Staged, StagedFile
from frazil.failpoints import Failpoint, hit
from frazil.gc_tuning import collecting_rarely
from frazil.iceberg.files.data_files import StagingTable, TableWriters
from frazil.iceberg.files.partition_limit import PartitionLimit
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.read.read import ReadLimits, read_ranges
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.redaction import Payload, redacted
from frazil.records.decoder.route import Route
from frazil.records.model.cells import in_steps
from frazil.records.model.outcome import Outcomes
from frazil.records.model.rows import record_ages
from frazil.records.model.spec import RecordSpec

DEAD_LETTER_BATCH_COLUMN = "_frazil_batch"


@dataclass(frozen=True)
class StageOrder:
    """What to stage: plain data that travels to executors.

    Attributes:
        pipeline: Name of the pipeline, for names of jobs and consumer groups.
        n: Number of the batch; rows carry it.
        cluster: Where to read.
        ranges: What to read.
        records_per_task: Ranges are shared out so that no task has more offsets.
        specs: Table -> how values become rows of it.
        destinations: Where rows go, by the names of `specs`; empty to count only.
        dead_letters: Where dead letters go; None to count only.
        payload: What a dead letter keeps of its record.
        names_letters: Whether dead letters are to be named one by one, the first of them.
        route: How records find their tables; None: each goes to all.
        tolerance: How many dead letters the batch may have: a task that has more by itself stops reading. None to read
            everything.
        fixed_at: When the ends of the run were fixed, ISO 8601: records are counted by their age then. None: not counted.
        limits: Limits on what readers keep of records.
        partitions: How many partition values a task may give each table.
    """

    pipeline: str
    n: int
    cluster: Cluster
    ranges: tuple[Range, ...]
    records_per_task: int
    specs: Mapping[str, RecordSpec]
    destinations: Mapping[str, StagingTable]
    dead_letters: StagingTable | None
    payload: Payload = "full"
    names_letters: bool = False
    route: Route | None = None
    tolerance: Tolerance | None = None
    fixed_at: str | None = None
    limits: ReadLimits = field(default_factory=ReadLimits)
    partitions: PartitionLimit = field(default_factory=PartitionLimit)


class Stage(Protocol):
    """An engine: reads the ranges, decodes them, writes data files that no snapshot names yet, and reports the outcome."""

    def __call__(self, order: StageOrder) -> Staged:
        """Stage one batch.

        Raises:
            Retryable: Kafka, the storage or the engine is not available now.
            Terminal: Records in the ranges are gone, or access is refused.
        """


@collecting_rarely()
def stage_records(order: StageOrder, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Decode records and write their rows and dead letters in one pass, holding a bounded part in memory.

    Reading stops early if the batch can no longer be published: this process is asked to stop, or there are more dead letters
    than the order tolerates. If records need columns or tables that don't exist, nothing is written: the outcome has the needs
    of all records, and all ranges of the order, which are to be staged again. Ranges of other tasks are not.
    """
    decoder = Decoder(order.specs, order.route, order.n, partitions=order.partitions.counters())
    letters_table = order.dead_letters
    writers = TableWriters(
        order.destinations if letters_table is None else {**order.destinations, letters_table.name: letters_table}
    )
    all_staged, needed = Staged(), Staged()
    for batch, outcomes in in_steps(decoder.decode, batches):
        if shutdown.requester():
            return all_staged.merge(needed).merge(Staged(files=writers.abandon(), stopped=True))
        if outcomes.asks or needed.asks:
            needs = Staged(demands=outcomes.demands, new_tables=outcomes.new_tables)
            needed = needed.merge(needs).merge(Staged(void=_paths(writers.abandon())))
            hit(Failpoint.STAGING)
            continue
        for table in order.destinations:
            writers.write(table, outcomes.rows[table])
        letters = redacted(outcomes.dead, order.payload, decoder.declared)
        if letters_table is not None:
            writers.write(letters_table.name, with_batch_columns(letters, order.n))
        shown = Staged(
            samples=_samples(letters, all_staged.samples), named=_named_letters(order, letters, len(all_staged.named))
        )
        read = Staged(bytes=_bytes(batch), untyped=outcomes.untyped_paths, ages=_ages(batch, order.fixed_at))
        all_staged = all_staged.merge(_staged_counts(order, outcomes)).merge(read).merge(shown)
        hit(Failpoint.STAGING)
        if order.tolerance is not None and order.tolerance.is_lost(all_staged.total.dead):
            return all_staged.merge(Staged(files=writers.abandon(), stopped=True))
    if needed.asks:
        return replace(needed, again=order.ranges, void=tuple(dict.fromkeys(needed.void)))
    return all_staged.merge(Staged(files=writers.close()))


def _paths(files: Mapping[str, tuple[StagedFile, ...]]) -> tuple[str, ...]:
    return tuple(file.path for table_files in files.values() for file in table_files)


def _bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the keys and values."""
    lengths = (pc.sum(pc.binary_length(batch.column(name))).as_py() or 0 for name in ("key", "value"))
    return sum(lengths)


def _ages(batch: pa.RecordBatch, fixed_at: str | None) -> dict[int, int]:
    return {} if fixed_at is None else record_ages(batch.column("timestamp"), datetime.fromisoformat(fixed_at))


def with_batch_columns(dead: pa.RecordBatch, n: int) -> pa.RecordBatch:
    """Dead letters with the number of the batch that keeps them, decoded once and not landed."""
    size = dead.num_rows
    added = {
        DEAD_LETTER_BATCH_COLUMN: pa.repeat(pa.scalar(n, pa.int64()), size),
        "attempts": pa.repeat(pa.scalar(1, pa.int32()), size),
        "landed_batch": pa.nulls(size, pa.int64()),
    }
    columns = [*dead.columns, *added.values()]
    return pa.RecordBatch.from_arrays(columns, [*dead.schema.names, *added])


def _samples(dead: pa.RecordBatch, known_codes: Collection[str]) -> dict[str, DeadSample]:
    """The first dead letter of every code that is not known yet."""
    codes = dead.column("code")
    first = {code: pc.index(codes, code).as_py() for code in pc.unique(codes).to_pylist() if code not in known_codes}
    sample_columns = dead.select(["topic", "partition", "offset", "message"])
    return {
        code: DeadSample(*(column[index].as_py() for column in sample_columns.columns)) for code, index in first.items()
    }


def _named_letters(order: StageOrder, dead: pa.RecordBatch, named_count: int) -> tuple[NamedLetter, ...]:
    """The next letters to list by name, up to the limit."""
    if not order.names_letters or not dead.num_rows or named_count >= LETTERS_NAMED:
        return ()
    few = dead.slice(0, LETTERS_NAMED - named_count)
    columns = (few.column(name).to_pylist() for name in NamedLetter._fields if name in few.schema.names)
    return tuple(NamedLetter(*letter_fields) for letter_fields in zip(*columns, strict=True))


def _staged_counts(order: StageOrder, outcomes: Outcomes) -> Staged:
    counts = {}
    codes: dict[str, int] = {}
    for key, outcome in outcomes.counts.items():
        counts[key.topic, key.partition] = Counts(
            outcome.read, outcome.written, sum(outcome.dead.values()), sum(outcome.filtered.values())
        )
        for code, count in outcome.dead.items():
            codes[code.value] = codes.get(code.value, 0) + count
    written = sum(partition_counts.written for partition_counts in counts.values())
    extra = sum(rows.num_rows for rows in outcomes.rows.values()) - written
    # A name may be as secret as a value: of a map that is written as an object it is one.
    unknown_fields, tables = outcomes.unknown_fields, outcomes.tables
    if order.payload != "full":
        unknown_fields = unknown_fields.without_names()
        tables = {
            table: replace(table_counts, unknown_fields=table_counts.unknown_fields.without_names())
            for table, table_counts in tables.items()
        }
    if tables:
        return Staged(counts, codes, tables=tables, whole_dead=outcomes.whole_dead, unknown_fields=unknown_fields)
    return Staged(counts, codes, extra_rows=extra, unknown_fields=unknown_fields)


def stage_inline(order: StageOrder) -> Staged:
    """Stage one batch in this process. A `frazil.run.staging.stage.Stage`."""
    return stage_records(order, read_ranges(order.cluster, order.ranges, limits=order.limits))
