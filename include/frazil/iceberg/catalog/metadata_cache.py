"""PyIceberg's SQL catalog, which reads the metadata of a table once per version of it.

Rests on a private name of PyIceberg 0.12; a contract test pins it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from frazil.iceberg.catalog.table_properties import for_storage, without_code
from frazil.iceberg.patches.clocks import ordered, refuse_skew
from frazil.iceberg.patches.history_cache import MOST_SNAPSHOTS, with_past, without_snapshots


class KeepingSqlCatalog(SqlCatalog):
    """A SQL catalog that keeps metadata by their location, as long as there is room: a file of metadata never changes.

    A batch looks at each of its tables five times and more, and each look would parse all of its snapshots.

    Attributes:
        table_properties: Properties of tables that have a say in how files are read and written.
    """

    table_properties: frozenset[str] = frozenset()

    def __init__(self, name: str, **properties: str) -> None:
        self._kept: Final[dict[str, TableMetadata]] = {}
        self._keeping: Final = Lock()
        super().__init__(name, **properties)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return super()._load_file_io(for_storage(properties, self.table_properties), location)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location or ""
        metadata = self._taken(location)
        if metadata is None:
            read = super()._convert_orm_to_iceberg(orm_table)
            read.metadata = self._keep(read.metadata_location, read.metadata)
            return read
        return Table(
            identifier=(*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name),
            metadata=metadata,
            metadata_location=location,
            io=self._load_file_io(metadata.properties, location),
            catalog=self,
        )

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        """Commit changes of a table."""
        done = super().commit_table(table, requirements, updates)
        self._keep(done.metadata_location, done.metadata)
        return done

    def _update_and_stage_table(
        self, current_table: Table | None, name: Identifier, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> StagedTable:
        if current_table is None:
            return super()._update_and_stage_table(current_table, name, requirements, updates)
        refuse_skew(current_table)
        expired = [update for update in updates if isinstance(update, RemoveSnapshotsUpdate)]
        others = tuple(update for update in updates if not isinstance(update, RemoveSnapshotsUpdate))
        staged = super()._update_and_stage_table(current_table, name, requirements, others)
        _refuse_named(staged.metadata, expired)
        staged.metadata = without_snapshots(ordered(staged.metadata, current_table.metadata), expired)
        return staged

    def _taken(self, location: str) -> TableMetadata | None:
        with self._keeping:
            metadata = self._kept.pop(location, None)
            if metadata is not None:
                self._kept[location] = metadata  # the last one that is asked for goes last
        return metadata

    def _keep(self, location: str, metadata: TableMetadata) -> TableMetadata:
        shared = with_past(without_code(metadata, self.table_properties))
        with self._keeping:
            self._kept[location] = shared
            superseded = {of.metadata_file for of in shared.metadata_log}
            for of in superseded & self._kept.keys():
                del self._kept[of]
            for of in _beyond(list(self._kept.items())):
                del self._kept[of]
        return shared


def _refuse_named(metadata: TableMetadata, expired: Iterable[RemoveSnapshotsUpdate]) -> None:
    """Refuse to take out a snapshot that somebody gave a name meanwhile: the name would go with it."""
    gone = {number for update in expired for number in update.snapshot_ids}
    named = [name for name, ref in metadata.refs.items() if ref.snapshot_id in gone]
    if named:
        raise CommitFailedException(f"snapshots that were to go are {', '.join(named)} by now")


def _beyond(kept: Sequence[tuple[str, TableMetadata]]) -> list[str]:
    """Locations of those that there is no room for, the one that was asked for longest ago first; never the last one."""
    room = MOST_SNAPSHOTS - len(kept[-1][1].snapshots)
    found = []
    for location, metadata in reversed(kept[:-1]):
        room -= len(metadata.snapshots) + 1
        if room < 0:
            found.append(location)
    return found
