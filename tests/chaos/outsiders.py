"""What others do to a lab's catalog and files behind the pipeline's back: backups that are put back, orphan removals."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pyiceberg.table import StaticTable, Table

from tests.chaos.lab import Lab


@dataclass
class CatalogFile:
    """The database of a SQLite catalog, as somebody with a backup treats it."""

    path: Path
    copy: bytes | None = None

    def back_up(self) -> None:
        """Copy the database."""
        with closing(sqlite3.connect(self.path)) as database:
            self.copy = database.serialize()

    def forget(self) -> None:
        """Drop the copy: files that it names are gone."""
        self.copy = None

    def restore_all(self) -> bool:
        """Put the copy back, if there is one."""
        if self.copy is None:
            return False
        with closing(sqlite3.connect(":memory:")) as source, closing(sqlite3.connect(self.path)) as database:
            source.deserialize(self.copy)
            source.backup(database)
        return True

    def restore(self, name: str, table: Table) -> bool:
        """Point to the metadata before the last commit, if all of its snapshots are still there."""
        log = table.metadata.metadata_log
        if not log or not _path(log[-1].metadata_file).exists():
            return False
        earlier = StaticTable.from_metadata(log[-1].metadata_file).metadata
        if not {snapshot.snapshot_id for snapshot in earlier.snapshots} <= {
            snapshot.snapshot_id for snapshot in table.metadata.snapshots
        }:
            return False
        namespace, _, own = name.rpartition(".")
        with closing(sqlite3.connect(self.path)) as database:
            database.execute(
                "UPDATE iceberg_tables SET metadata_location = ? WHERE table_namespace = ? AND table_name = ?",
                (log[-1].metadata_file, namespace, own),
            )
            database.commit()
        return True


def catalog_file(orders: Lab) -> CatalogFile | None:
    """The file of the embedded catalog; None if a server keeps it."""
    uri = orders.project.settings.catalogs["lake"].uri
    if uri is None or not uri.startswith("sqlite:///"):
        return None
    return CatalogFile(Path(uri.removeprefix("sqlite:///")))


def remove_orphans(orders: Lab, before: float = float("inf")) -> int:
    """Delete the files that no snapshot names, as any engine's tool does, and return how many.

    It knows nothing of manifests of batches, and nothing of runs under way.

    Args:
        orders: Whose tables.
        before: Files that were changed since are spared, seconds since 1970.
    """
    lake = orders.project.lake("lake")
    named = {_path(path) for name in lake.tables() for path in _named(lake.load_table(name))}
    files = (file for file in orders.project.home.warehouse.rglob("*") if file.is_file() and file not in named)
    orphans = [file for file in files if file.stat().st_mtime < before]
    for file in orphans:
        file.unlink()
    return len(orphans)


def _named(table: Table) -> Iterator[str]:
    """The files that a table's metadata lead to."""
    yield table.metadata_location
    yield from (entry.metadata_file for entry in table.metadata.metadata_log)
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))


def _path(location: str) -> Path:
    return Path(urlsplit(location).path)
