"""PyIceberg's catalogs that name a table's metadata file: they read each version of the metadata once.

Rests on private names of PyIceberg 0.12; a contract test pins them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any, Final

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from frazil.iceberg.catalog.table_properties import for_storage, without_code
from frazil.iceberg.patches.clocks import refuse_skew, with_ascending_times
from frazil.iceberg.patches.history_cache import MOST_SNAPSHOTS, with_shared_history, without_snapshots


class CachingCatalog(MetastoreCatalog):
    """A catalog that caches table metadata by location, up to a bound: a metadata file never changes.

    A batch loads each of its tables five times and more, and each load would parse all of its snapshots.

    Attributes:
        table_properties: Properties of tables that have a say in how files are read and written.
    """

    table_properties: frozenset[str] = frozenset()

    def __init__(self, name: str, **properties: str) -> None:
        self._cached: Final[dict[str, TableMetadata]] = {}
        self._lock: Final = Lock()
        super().__init__(name, **properties)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return super()._load_file_io(for_storage(properties, self.table_properties), location)

    def _cached_table(self, identifier: Identifier, location: str, read: Callable[[], Table]) -> Table:
        """The table with the metadata of this file, which `read` reads if it is not cached."""
        metadata = self._cached_metadata(location)
        if metadata is None:
            table = read()
            table.metadata = self._cache(table.metadata_location, table.metadata)
            return table
        return Table(identifier, metadata, location, self._load_file_io(metadata.properties, location), self)

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        """Commit changes of a table."""
        done: CommitTableResponse = super().commit_table(table, requirements, updates)  # type: ignore[safe-super]
        self._cache(done.metadata_location, done.metadata)
        return done

    def _update_and_stage_table(
        self, current_table: Table | None, name: Identifier, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> StagedTable:
        if current_table is None:
            return super()._update_and_stage_table(current_table, name, requirements, updates)
        refuse_skew(current_table)
        expired = [update for update in updates if isinstance(update, RemoveSnapshotsUpdate)]
        other_updates = tuple(update for update in updates if not isinstance(update, RemoveSnapshotsUpdate))
        staged = super()._update_and_stage_table(current_table, name, requirements, other_updates)
        _refuse_named(staged.metadata, expired)
        staged.metadata = without_snapshots(with_ascending_times(staged.metadata, current_table.metadata), expired)
        return staged

    def _cached_metadata(self, location: str) -> TableMetadata | None:
        with self._lock:
            metadata = self._cached.pop(location, None)
            if metadata is not None:
                self._cached[location] = metadata  # moved to the end: the dict is in the order of use
        return metadata

    def _cache(self, location: str, metadata: TableMetadata) -> TableMetadata:
        shared = with_shared_history(without_code(metadata, self.table_properties))
        with self._lock:
            self._cached[location] = shared
            superseded = {entry.metadata_file for entry in shared.metadata_log}
            for old_location in superseded & self._cached.keys():
                del self._cached[old_location]
            for old_location in _evictable(list(self._cached.items())):
                del self._cached[old_location]
        return shared


def _refuse_named(metadata: TableMetadata, expired: Iterable[RemoveSnapshotsUpdate]) -> None:
    """Refuse to expire a snapshot that a branch or tag has come to name meanwhile: the name would go, too."""
    expired_ids = {number for update in expired for number in update.snapshot_ids}
    named = [name for name, ref in metadata.refs.items() if ref.snapshot_id in expired_ids]
    if named:
        raise CommitFailedException(f"snapshots that were to go are {', '.join(named)} by now")


def _evictable(cached: Sequence[tuple[str, TableMetadata]]) -> list[str]:
    """Locations of the least recently used metadata, beyond the bound of the cache. The last one used always stays."""
    room = MOST_SNAPSHOTS - len(cached[-1][1].snapshots)
    evicted = []
    for location, metadata in reversed(cached[:-1]):
        room -= len(metadata.snapshots) + 1
        if room < 0:
            evicted.append(location)
    return evicted
