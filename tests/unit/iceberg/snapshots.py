"""What others do to a table's snapshots and properties: expiry, rollback, edits."""

from __future__ import annotations

from uuid import uuid4

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import metadata_path, write_text
from tests.unit.iceberg.orders import TABLE


def expire(lake: Lake, *snapshots: int) -> None:
    """Expire as Iceberg's own library does: children keep the ids of parents that are gone."""
    table = lake.load_table(TABLE)
    kept_snapshots = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in snapshots]
    log = [entry for entry in table.metadata.snapshot_log if entry.snapshot_id not in snapshots]
    metadata = table.metadata.model_copy(update={"snapshots": kept_snapshots, "snapshot_log": log})
    path = metadata_path(table, f"99999-{uuid4()}.metadata.json")
    write_text(table, path, metadata.model_dump_json())
    lake._catalog.drop_table(TABLE)
    lake._catalog.register_table(TABLE, path)


def roll_back(lake: Lake, snapshot: int) -> None:
    """Move main back to one of its ancestors."""
    lake.load_table(TABLE).manage_snapshots().rollback_to_snapshot(snapshot).commit()


def set_property(lake: Lake, key: str, value: str | None) -> None:
    """Edit a table property, or remove it."""
    with lake.load_table(TABLE).transaction() as transaction:
        if value is None:
            transaction.remove_properties(key)
        else:
            transaction.set_properties({key: value})


def snapshots(lake: Lake) -> list[int]:
    """Ids of all snapshots, oldest first."""
    return [snapshot.snapshot_id for snapshot in lake.load_table(TABLE).metadata.snapshots]
