"""What a batch of records became: each record is written, dead or filtered, and never two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.unknown import UnknownFields
from frazil.records.dead import DeadCode


class FilterReason(StrEnum):
    """Why a good record has no row, on purpose."""

    TOMBSTONE = "tombstone"
    EMPTY_VALUE = "empty_value"
    TRANSFORM = "transform"
    ROUTE = "route"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """Records of one partition by outcome; `read` is their sum."""

    read: int = 0
    written: int = 0
    dead: Mapping[DeadCode, int] = field(default_factory=dict)
    filtered: Mapping[FilterReason, int] = field(default_factory=dict)

    def __add__(self, other: PartitionCounts) -> PartitionCounts:
        return PartitionCounts(
            self.read + other.read,
            self.written + other.written,
            dict(Counter(self.dead) + Counter(other.dead)),
            dict(Counter(self.filtered) + Counter(other.filtered)),
        )

    @property
    def is_complete(self) -> bool:
        """Whether every record read has exactly one outcome."""
        return self.read == self.written + sum(self.dead.values()) + sum(self.filtered.values())


Counts = Mapping[TopicPartition, PartitionCounts]
Filtered = Mapping[FilterReason, pa.RecordBatch]
K = TypeVar("K", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of one Arrow batch of records.

    Attributes:
        rows: `RecordSpec.row_schema`, in the order of the records.
        dead: `DEAD_SCHEMA`, in the order of the records.
        counts: Per topic partition.
        unknown: Fields of the records that have rows which are in none of these.
    """

    rows: pa.RecordBatch
    dead: pa.RecordBatch
    counts: Counts
    unknown: UnknownFields = field(default_factory=UnknownFields)


def add_counts(left: Counts, right: Counts) -> dict[TopicPartition, PartitionCounts]:
    """Return the counts of two batches together."""
    nothing = PartitionCounts()
    return {key: left.get(key, nothing) + right.get(key, nothing) for key in left | right.keys()}


def count_outcomes(
    read: pa.RecordBatch, written: pa.RecordBatch, dead: pa.RecordBatch, filtered: Filtered
) -> dict[TopicPartition, PartitionCounts]:
    """Count per partition what was read, and apart from it what the outcomes hold.

    Nothing is taken as the rest of something else, so that a record without an outcome shows in the
    sum.

    Args:
        read: The records that came in.
        written: The records that have a row.
        dead: Rows of `DEAD_SCHEMA`.
        filtered: The records left out on purpose, by reason.
    """
    rows = _per_partition(written)
    letters = {code: _per_partition(dead.filter(pc.equal(dead["code"], code))) for code in DeadCode}
    left_out = {reason: _per_partition(records) for reason, records in filtered.items()}
    return {
        key: PartitionCounts(number, rows.get(key, 0), _here(letters, key), _here(left_out, key))
        for key, number in _per_partition(read).items()
    }


def _per_partition(records: pa.RecordBatch) -> dict[TopicPartition, int]:
    if not records.num_rows:
        return {}
    table = pa.Table.from_batches([records.select(["topic", "partition"])])
    counted = table.group_by(table.column_names, use_threads=False).aggregate([([], "count_all")])
    return {TopicPartition(r["topic"], r["partition"]): r["count_all"] for r in counted.to_pylist()}


def _here(counts: Mapping[K, Mapping[TopicPartition, int]], key: TopicPartition) -> dict[K, int]:
    return {reason: found[key] for reason, found in counts.items() if key in found}
