"""What a table tells of the batches that landed in it: the offsets of their rows, and where their manifests lie."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import In
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from frazil.batch.removal import Coordinates, Removal
from frazil.iceberg.commit.removal import compare, row_filter, scan_rows
from frazil.iceberg.commit.summary_state import ancestry, summary_of
from frazil.iceberg.errors import translated


def count_rows(table: Table, name: str, removal: Removal) -> int:
    """How many rows a removal would take out."""
    if table.current_snapshot() is None:
        return 0
    with translated(f"counting rows of table {name}"):
        return table.scan(row_filter(removal), selected_fields=(removal.columns.offset,)).count()


def offsets_held(table: Table, name: str, removal: Removal) -> pa.Array:
    """Offsets of the rows that a removal would take out, each once, in no order."""
    column = removal.columns.offset
    with translated(f"reading offsets of table {name}"):
        rows = table.scan(row_filter(removal), selected_fields=(column,)).to_arrow()
    return pc.unique(rows.column(column)).cast(pa.int64())


def rows_of_batches(
    table: Table, name: str, columns: Coordinates, numbers: Collection[int]
) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, offset and batch number of the rows that these batches landed, in no order, in one scan."""
    if not numbers:
        return
    names = (columns.topic, columns.partition, columns.offset, columns.batch)
    doing, where = (
        f"reading rows of {len(numbers)} batches in table {name}",
        compare(In, columns.batch, frozenset(numbers)),
    )
    for batch in scan_rows(table, doing, where, names):
        yield from zip(*(batch.column(column).to_pylist() for column in names), strict=True)


def summaries(metadata: TableMetadata) -> Iterator[Mapping[str, str]]:
    """Summaries of the snapshots of main, newest first, as far as they are not expired."""
    return map(summary_of, ancestry(metadata, metadata.current_snapshot_id))
