"""What a batch of records became: each record is written, dead or filtered, and never two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import UnknownFields
from frazil.batch.schema_change import SchemaChange
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.kafka_schema import KAFKA_SCHEMA


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


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of one Arrow batch of records.

    Attributes:
        rows: `RecordSpec.row_schema`, in the order of the records.
        dead: `DEAD_SCHEMA`, in the order of the records.
        counts: Per topic partition.
        unknown: Fields of the records that have rows which are in none of these.
        demands: What records need that the table does not have, in order; then all else has no meaning.
        untold: Paths without a column whose values tell no type.
    """

    rows: pa.RecordBatch
    dead: pa.RecordBatch
    counts: Counts
    unknown: UnknownFields = field(default_factory=UnknownFields)
    demands: tuple[SchemaChange, ...] = ()
    untold: frozenset[tuple[str, ...]] = frozenset()


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
    marked = [_all_of(read, _READ), _all_of(written, _WRITTEN)]
    if dead.num_rows:
        marked.append(_marked(dead, pc.index_in(dead["code"], value_set=_NAMES)))
    marked += [_all_of(records, _OUTCOMES.index(reason)) for reason, records in filtered.items()]
    table = pa.Table.from_batches(marked, _MARKED)
    found: dict[TopicPartition, dict[str, int]] = {}
    for each in table.group_by(_MARKED.names, use_threads=False).aggregate([([], "count_all")]).to_pylist():
        key = TopicPartition(each["topic"], each["partition"])
        found.setdefault(key, {})[_OUTCOMES[each["outcome"]]] = each["count_all"]
    return {key: _counts(numbers) for key, numbers in found.items()}


_OUTCOMES: Final = ("", "written", *DeadCode, *FilterReason)
"""What a record can be counted as; first of all it was read."""

_READ, _WRITTEN = 0, 1
_NAMES: Final = pa.array(_OUTCOMES, pa.string())
_MARKED: Final = pa.schema([KAFKA_SCHEMA.field("topic"), KAFKA_SCHEMA.field("partition"), ("outcome", pa.int32())])


def _all_of(records: pa.RecordBatch, outcome: int) -> pa.RecordBatch:
    return _marked(records, pa.repeat(pa.scalar(outcome, pa.int32()), len(records)))


def _marked(records: pa.RecordBatch, outcomes: pa.Int32Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([records["topic"], records["partition"], outcomes], schema=_MARKED)


def _counts(numbers: Mapping[str, int]) -> PartitionCounts:
    return PartitionCounts(
        numbers.get("", 0),
        numbers.get("written", 0),
        {code: numbers[code] for code in DeadCode if code in numbers},
        {reason: numbers[reason] for reason in FilterReason if reason in numbers},
    )
