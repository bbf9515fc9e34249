"""Do topic and tables agree: every record of the topic is a row, a dead letter or a counted filter."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from frazil.batch.facts import Range
from frazil.batch.position import Position
from frazil.batch.removal import at_or_beyond
from frazil.batch.repair import Row, read_ranges, subtract, union
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.kafka.admin.observe import observe
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.report.history import BatchHistory, history, still_open

_READING = ("ingest", "replay")
_TAKING_BACK = ("reset", "rewind")
_NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Landing:
    """How far a pipeline is.

    Attributes:
        produced: Records in the topics, from the pipeline's start position to the high watermarks.
        landed: Of these, what the position has passed.
    """

    produced: int
    landed: int

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to read."""
        return self.landed >= self.produced


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What was produced, and what became of it in one destination, counted in the tables themselves.

    Attributes:
        produced: Records of the topics.
        rows: Rows of the destination.
        dead: Dead letters of it, and of records as a whole, that are open.
        filtered: Records left out on purpose, by the ledger.
        elsewhere: Of several destinations, records that were left out of this one: on purpose, or meant for others.
        table: Of several destinations, which one.
        unsure: Records, at most, that were left out by batches whose ranges were read again in part, which nobody tells apart.
    """

    produced: int
    rows: int
    dead: int
    filtered: int
    elsewhere: int = 0
    table: str | None = None
    unsure: int = 0

    @property
    def difference(self) -> int:
        """Records that are missing, at least; below zero, records that are there too often."""
        missing = self.produced - self.rows - self.dead - self.filtered - self.elsewhere
        return missing - min(max(0, missing), self.unsure)

    def __str__(self) -> str:
        sign = "=" if self.difference == 0 else "!="
        table = f"{self.table}: " if self.table else ""
        other_counts = (("filtered", self.filtered), ("elsewhere", self.elsewhere))
        addends = "".join(f" + {name} {count}" for name, count in other_counts if count)
        addends += f" + left out {self.unsure} at most" if self.unsure else ""
        return f"{table}produced {self.produced} {sign} rows {self.rows} + dead letters {self.dead}{addends}"


def landing(project: Project, pipeline: Pipeline) -> Landing:
    """How much of the topics a pipeline has passed.

    Offsets are counted, so topics with transactions or compaction, whose offsets have gaps, count for more than their
    records.

    Raises:
        Retryable: Kafka or the catalog is not available now.
        Terminal: A topic is missing.
    """
    batches = history(project, pipeline)
    produced = landed = 0
    for topic, facts in observe(project.cluster(pipeline.source.cluster), pipeline.source.topics).topics.items():
        for number, partition in enumerate(facts.partitions):
            begin = _start(batches, topic, number, partition.log_start)
            produced += partition.high_watermark - begin
            landed += _passed(batches, topic, number, begin) - begin
    return Landing(produced, landed)


def reconcile(project: Project, pipeline: Pipeline) -> tuple[Reconciliation, ...]:
    """Count the rows of every destination and its dead letters, and compare with the topics.

    What a replay, a reset or a rewind took back counts no more; of a batch that was read again in part the ledger does not say
    which of its records were left out. `frazil.verify` follows those, record by record.

    Raises:
        Retryable: Kafka or the catalog is not available now.
        Terminal: A topic or a table is missing.
    """
    pipeline = project.with_auto_created(pipeline)
    lake, produced = project.lake_of(pipeline), landing(project, pipeline).produced
    letters = Counter(letter.destination for letter in still_open(project, pipeline))
    counted = {table: lake.load_table(table).scan().count() for table in pipeline.tables}
    ledger = read_ledger(lake, pipeline.ledger_table, pipeline.name)
    batches = {n: list(rows) for n, rows in groupby(ledger, key=lambda row: row["n"])}
    if not pipeline.tables[1:] and pipeline.create is None:
        (rows,) = counted.values()
        filtered, unsure = standing_counts(
            {n: batch_rows[0]["records_filtered"] for n, batch_rows in batches.items()}, batches
        )
        return (Reconciliation(produced, rows, letters.total(), filtered, unsure=unsure),)
    sums = []
    for table, rows in counted.items():
        elsewhere, unsure = standing_counts(
            {n: left_out(batch_rows, table) for n, batch_rows in batches.items()}, batches
        )
        sums.append(Reconciliation(produced, rows, letters[None] + letters[table], 0, elsewhere, table, unsure))
    return tuple(sums)


def standing_counts(counts: Mapping[int, int], batches: Mapping[int, Sequence[Row]]) -> tuple[int, int]:
    """Counts of records that still stand once later batches read again, or took back, what earlier ones had read.

    Args:
        counts: Batch -> how many of the records it read.
        batches: Batch -> its rows of the ledger.

    Returns:
        Those that surely stand, and those of batches that stand in part, at most.
    """
    sure = unsure = 0
    void: list[Range] = []
    for n in sorted(batches, reverse=True):
        first = batches[n][0]
        ranges = union(read_ranges(first))
        still_valid = subtract(ranges, void)
        if still_valid == ranges:
            sure += counts[n]
        else:
            unsure += min(counts[n], sum(offset_range.span for offset_range in still_valid))
        void += _superseded(first, ranges)
    return sure, unsure


def _superseded(first: Row, ranges: Sequence[Range]) -> Iterable[Range]:
    """What of earlier batches is void by a later one: the same records, or those that will come again."""
    if first["kind"] in _READING:
        return ranges
    beyond = at_or_beyond(Position.from_json(first["position"])) if first["kind"] in _TAKING_BACK else ()
    return (
        Range(offset_range.topic, offset_range.partition, offset_range.start, _NO_END)
        for offset_range in beyond
        if offset_range.partition is not None
    )


def left_out(batch: Sequence[Mapping[str, Any]], table: str) -> int:
    """Records of a batch that are neither a row nor a dead letter of one of several destinations.

    Args:
        batch: Its rows of the ledger.
        table: The destination.
    """
    destination_row = next((row for row in batch if (row["table"], row["role"]) == (table, "destination")), None)
    first = batch[0]
    if first["kind"] == "dead_letters":
        ranges = json.loads((destination_row and destination_row.get("table_ranges")) or first["ranges"])
        return int(
            sum(end - start for _, _, start, end in ranges) - (destination_row["rows"] if destination_row else 0)
        )
    if destination_row is not None and destination_row.get("table_written") is None:  # the only destination then
        return int(first["records_filtered"])
    dead_of_tables = sum(row.get("table_dead") or 0 for row in batch)
    whole = sum(row["rows"] for row in batch if row["role"] == "dead_letters") - dead_of_tables
    records_of_table = destination_row["table_written"] + destination_row["table_dead"] if destination_row else 0
    return int(first["records_read"] - records_of_table - max(0, whole))


def _start(batches: list[BatchHistory], topic: str, partition: int, log_start: int) -> int:
    """Where the pipeline began to read a partition; its log start if it has not yet."""
    for batch in batches:
        begins = batch.position.get(topic, {}).get("from", [])
        if partition < len(begins):
            return begins[partition]
    return log_start


def _passed(batches: list[BatchHistory], topic: str, partition: int, begin: int) -> int:
    for batch in reversed(batches):
        ends = batch.position.get(topic, {}).get("next", [])
        if partition < len(ends):
            return ends[partition]
    return begin
