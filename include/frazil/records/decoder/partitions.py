"""Finds rows with too many partition values for one task, or with a value too long for a folder's name: they become dead
letters.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.model.dead_letter import DeadCode, Reason

_TOO_LONG = Reason(
    DeadCode.PARTITION_TOO_LONG,
    "expected a partition value that a folder of 255 bytes can be named by, found a longer one:"
    " set write.object-storage.enabled=true and write.object-storage.partitioned-paths=false on the table,"
    " or partition by truncate(N, column)",
)


class PartitionBound(Protocol):
    """Counts the partition values of one table. `frazil.iceberg` implements it, since partition transforms are Iceberg's."""

    @property
    def limit(self) -> int:
        """The most values."""

    def too_long(self, rows: pa.RecordBatch) -> pa.Int64Array:
        """Return which rows have a partition value that is too long for a folder's name, ascending."""

    def beyond(self, rows: pa.RecordBatch) -> pa.Int64Array:
        """Return which rows have a partition value beyond the limit, ascending; values of the others are remembered."""


def refused_by_partition(
    bound: PartitionBound | None, rows: pa.RecordBatch, positions: pa.Int64Array
) -> dict[int, Reason]:
    """Return the records that have a row with a partition value beyond the limit, or too long for a folder, by position."""
    if bound is None or not rows.num_rows:
        return {}
    long = positions.take(bound.too_long(rows))
    refused = dict.fromkeys(long.to_pylist(), _TOO_LONG)
    if refused:  # such values take no room from others
        takes = pc.invert(pc.is_in(positions, value_set=long))
        rows, positions = rows.filter(takes), positions.filter(takes)
    reason = Reason(
        DeadCode.TOO_MANY_PARTITIONS,
        f"expected one of the first {bound.limit:,} partition values of its task (limits.max_partitions), found a further one",
    )
    return refused | dict.fromkeys(positions.take(bound.beyond(rows)).to_pylist(), reason)
