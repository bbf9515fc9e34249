"""The stage port: what is asked of an engine, and the work every engine does on the records it reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from frazil.batch.facts import Counts, Range, Staged
from frazil.iceberg.data_files import DataFileWriter, StagingTable
from frazil.kafka.cluster import Cluster
from frazil.records.decode import Decoder
from frazil.records.spec import RecordSpec

if TYPE_CHECKING:
    from frazil.records.outcome import Outcomes

DEAD_LETTER_BATCH_COLUMN = "_frazil_batch"


@dataclass(frozen=True)
class StageOrder:
    """What to stage: plain data that travels to executors.

    Attributes:
        pipeline: Name of the pipeline, for names of jobs and consumer groups.
        n: Number of the batch; rows carry it.
        cluster: Where to read.
        ranges: What to read.
        records_per_task: Ranges are split so that no task has more offsets.
        spec: How values become rows.
        destination: Where rows go.
        dead_letters: Where dead letters go.
    """

    pipeline: str
    n: int
    cluster: Cluster
    ranges: tuple[Range, ...]
    records_per_task: int
    spec: RecordSpec
    destination: StagingTable
    dead_letters: StagingTable


class Stage(Protocol):
    """An engine: reads the ranges, decodes, writes data files that nobody can see, and tells what it did."""

    def __call__(self, order: StageOrder) -> Staged:
        """Stage one batch.

        Raises:
            Retryable: Kafka, the storage or the engine is not available now.
            Terminal: Records in the ranges are gone, or access is refused.
        """


def stage_records(order: StageOrder, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Decode records and write their rows and dead letters in one pass, holding a bounded part in memory."""
    decoder = Decoder(order.spec, order.n)
    rows, dead = DataFileWriter(order.destination), DataFileWriter(order.dead_letters)
    whole = Staged()
    for batch in batches:
        outcomes = decoder.decode(batch)
        rows.write(outcomes.rows)
        dead.write(_numbered(outcomes.dead, order.n))
        whole = whole.merge(_counted(outcomes))
    files = {order.destination.name: rows.close(), order.dead_letters.name: dead.close()}
    return whole.merge(Staged(files=files))


def _numbered(dead: pa.RecordBatch, n: int) -> pa.RecordBatch:
    return dead.append_column(DEAD_LETTER_BATCH_COLUMN, pa.array([n] * dead.num_rows, pa.int64()))


def _counted(outcomes: Outcomes) -> Staged:
    counts = {}
    codes: dict[str, int] = {}
    for key, of in outcomes.counts.items():
        counts[key.topic, key.partition] = Counts(of.read, of.written, sum(of.dead.values()), sum(of.filtered.values()))
        for code, count in of.dead.items():
            codes[code.value] = codes.get(code.value, 0) + count
    return Staged(counts, codes)
