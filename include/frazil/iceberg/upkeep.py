"""Maintenance without an engine, for tables that Spark can't load: it has no type for one of their columns."""

from __future__ import annotations

from collections.abc import Collection

from frazil.iceberg.catalog import Lake
from frazil.iceberg.faults import translated


def expire_snapshots(lake: Lake, table: str, ids: Collection[int]) -> int:
    """Let snapshots go from the metadata. Their files stay until orphans are looked for, when no snapshot names them.

    Heads of branches and tags stay, whatever is asked.

    Returns:
        How many went.

    Raises:
        Retryable: The catalog or the storage is not available now, or others changed the table every time.
    """
    with translated(f"expiring snapshots of table {table}"):
        found = lake.catalog_of(table).load_table(table)
        heads = {ref.snapshot_id for ref in found.metadata.refs.values()}
        there = [
            of.snapshot_id for of in found.metadata.snapshots if of.snapshot_id in ids and of.snapshot_id not in heads
        ]
        if there:
            found.maintenance.expire_snapshots().by_ids(there).commit()
        return len(there)


def set_property(lake: Lake, table: str, key: str, value: str) -> None:
    """Set a property of a table.

    Raises:
        Retryable: The catalog or the storage is not available now, or others changed the table every time.
    """
    with (
        translated(f"setting {key} of table {table}"),
        lake.catalog_of(table).load_table(table).transaction() as change,
    ):
        change.set_properties({key: value})
