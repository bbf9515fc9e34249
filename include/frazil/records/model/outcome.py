"""Outcomes of a batch of records: each record is exactly one of written, dead or filtered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import TableCounts, UnknownFields
from frazil.batch.schema_change import Demands, UntypedPaths
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

    @property
    def is_complete(self) -> bool:
        """Whether every record read has exactly one outcome."""
        return self.read == self.written + sum(self.dead.values()) + sum(self.filtered.values())


Counts = Mapping[TopicPartition, PartitionCounts]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of one Arrow batch of records.

    Attributes:
        rows: Table -> rows, in the order of the records.
        dead: Of `DEAD_SCHEMA`, in the order of the records.
        counts: Per topic partition, one outcome per record: dead with any letter, written with rows and no letter.
        tables: Counts per table of the records that were routed to it; empty if the pipeline has one table and no route.
        whole_dead: Dead letters of records as a whole, if `tables` is there.
        unknown_fields: Fields of the written records that are in no row, or, of several tables, not in the rows of each.
        demands: Table -> the schema changes that its records need. If there is any, all else is void.
        new_tables: Names of missing tables that records need. If there is any, all else is void.
        untyped_paths: Table -> paths without a column whose values have no type.
    """

    rows: Mapping[str, pa.RecordBatch]
    dead: pa.RecordBatch
    counts: Counts
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    whole_dead: int = 0
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    demands: Demands = field(default_factory=dict)
    new_tables: tuple[str, ...] = ()
    untyped_paths: UntypedPaths = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether records need schema changes or new tables first."""
        return bool(self.demands or self.new_tables)


def count_outcomes(
    read: pa.RecordBatch, written: pa.RecordBatch, dead: pa.RecordBatch, filtered: Mapping[FilterReason, pa.RecordBatch]
) -> dict[TopicPartition, PartitionCounts]:
    """Count per partition the records that were read, and independently those of each outcome.

    Nothing is taken as the rest of something else, so that a record without an outcome shows in the
    sum.

    Args:
        read: The topic and partition of each record that came in; so of all others.
        written: The records that have a row.
        dead: The dead records, with the `code` of each.
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
        pa.field("destination", pa.string()),
    ]
)
"""One row per dead letter: the reason, the record as it came, bytes untouched, and the table that it does not fit; null for a
record as a whole. The writer adds the batch number."""


def dead_letters(records: pa.RecordBatch, reasons: list[Reason], tables: list[str | None]) -> pa.RecordBatch:
    """Return rows of `DEAD_SCHEMA` for `records` (of `KAFKA_SCHEMA`), their reasons and tables."""
    reason_columns = {
        "destination": tables,
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
