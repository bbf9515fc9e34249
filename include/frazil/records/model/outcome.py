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
from frazil.records.model.dead_letter import DeadCode, Reason
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

    def __add__(self, addend: PartitionCounts) -> PartitionCounts:
        return PartitionCounts(
            self.read + addend.read,
            self.written + addend.written,
            dict(Counter(self.dead) + Counter(addend.dead)),
            dict(Counter(self.filtered) + Counter(addend.filtered)),
        )

    @property
    def is_complete(self) -> bool:
        """Whether every record read has exactly one outcome."""
        return self.read == self.written + sum(self.dead.values()) + sum(self.filtered.values())


Counts = Mapping[TopicPartition, PartitionCounts]
Filtered = Mapping[FilterReason, pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of decoding one Arrow batch of records.

    Attributes:
        rows: `RecordSpec.row_schema`, in the order of the records.
        dead: `DEAD_SCHEMA`, in the order of the records.
        counts: Per topic partition.
        unknown_fields: Fields that no column takes, of the records that have rows.
        demands: Schema changes that the records need, in order. If there are any, all other attributes have no meaning.
        untyped_paths: Paths of fields that have no column and whose values (null, empty lists) give no type.
    """

    rows: pa.RecordBatch
    dead: pa.RecordBatch
    counts: Counts
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    demands: tuple[SchemaChange, ...] = ()
    untyped_paths: frozenset[tuple[str, ...]] = frozenset()


def add_counts(first: Counts, second: Counts) -> dict[TopicPartition, PartitionCounts]:
    """Return the counts of two batches together."""
    nothing = PartitionCounts()
    return {key: first.get(key, nothing) + second.get(key, nothing) for key in first | second.keys()}


def count_outcomes(
    read: pa.RecordBatch, written: pa.RecordBatch, dead: pa.RecordBatch, filtered: Filtered
) -> dict[TopicPartition, PartitionCounts]:
    """Count per partition the records that were read, and independently those of each outcome.

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
    counts: dict[TopicPartition, dict[str, int]] = {}
    for group in table.group_by(_MARKED.names, use_threads=False).aggregate([([], "count_all")]).to_pylist():
        key = TopicPartition(group["topic"], group["partition"])
        counts.setdefault(key, {})[_OUTCOMES[group["outcome"]]] = group["count_all"]
    return {key: _counts(numbers) for key, numbers in counts.items()}


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


DEAD_SCHEMA: Final = pa.schema(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        *(KAFKA_SCHEMA.field(name) for name in ("key", "value", "headers", "topic", "partition", "offset")),
        KAFKA_SCHEMA.field("timestamp"),
    ]
)
"""One row per dead letter: the reason, then the record as it came, bytes untouched. The writer adds
the batch number."""


def dead_letters(records: pa.RecordBatch, reasons: list[Reason]) -> pa.RecordBatch:
    """Return rows of `DEAD_SCHEMA` for `records` (of `KAFKA_SCHEMA`) and their reasons."""
    reason_columns = {
        "code": [reason.code.value for reason in reasons],
        "stage": [reason.code.stage.value for reason in reasons],
        "message": [_storable(f"{r.path}: {r.message}" if r.path else r.message) for r in reasons],
        "path": [_storable(reason.path) or None for reason in reasons],
    }
    columns = [
        pa.array(reason_columns[field.name], field.type) if field.name in reason_columns else records.column(field.name)
        for field in DEAD_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_SCHEMA)


def _storable(text: str) -> str:
    # A found text may hold half a surrogate pair; a message about it must still be UTF-8.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
