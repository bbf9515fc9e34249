"""Rows whose partition value is one too many for their task: their records become dead letters."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from frazil.records.dead import DeadCode, Reason


class PartitionBound(Protocol):
    """Counts the partition values of one table. Iceberg knows its transforms, this room does not."""

    @property
    def limit(self) -> int:
        """The most values."""

    def beyond(self, rows: pa.RecordBatch) -> pa.Int64Array:
        """Return which rows have a partition value beyond the limit, ascending; values of the others are remembered."""


def refused_by_partition(
    bound: PartitionBound | None, rows: pa.RecordBatch, positions: pa.Int64Array
) -> dict[int, Reason]:
    """Return the records that have a row with a partition value beyond the limit, by position.

    Args:
        bound: The table's; None if it has no partitions.
        rows: Its rows, with the Kafka columns.
        positions: The record of each row.
    """
    if bound is None or not rows.num_rows:
        return {}
    reason = Reason(
        DeadCode.TOO_MANY_PARTITIONS,
        f"expected one of the first {bound.limit:,} partition values of its task (limits.max_partitions), found a further one",
    )
    return dict.fromkeys(positions.take(bound.beyond(rows)).to_pylist(), reason)
