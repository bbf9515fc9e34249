"""PyIceberg's SQL catalog: many processes may open it at once, a lost database is not created anew over existing tables, and each
version of a table's metadata is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import quote

from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import false, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, IntegrityError

from frazil.error_codes import TABLE_MISSING
from frazil.iceberg.catalog.table import for_storage, without_code
from frazil.iceberg.patches.files import StorageFileIO
from frazil.iceberg.patches.metadata import (
    MOST_SNAPSHOTS,
    refuse_skew,
    with_ascending_times,
    with_shared_history,
    without_snapshots,
)

# Rests on private names of PyIceberg 0.12; a contract test pins them.


class CachingCatalog(MetastoreCatalog):
    """A catalog that caches table metadata by location, up to a bound: a metadata file never changes.

    A batch loads each of its tables five times and more, and each load would parse all of its snapshots.

    Attributes:
        table_properties: Table properties that the settings let change how files are read and written.
    """

    table_properties: frozenset[str] = frozenset()

    def __init__(self, name: str, **properties: str) -> None:
        self._cached: Final[dict[str, TableMetadata]] = {}
        self._lock: Final = Lock()
        super().__init__(name, **properties)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return super()._load_file_io(for_storage(properties, self.table_properties), location)

    def _cached_table(self, identifier: Identifier, location: str, read: Callable[[], Table]) -> Table:
        """The table with the metadata file at `location`; `read` is called if it is not cached."""
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
    """Refuse to expire a snapshot that got a branch or tag meanwhile: the branch or tag would go, too."""
    expired_ids = {number for update in expired for number in update.snapshot_ids}
    named = [name for name, ref in metadata.refs.items() if ref.snapshot_id in expired_ids]
    if named:
        raise CommitFailedException(f"snapshots to expire got the names {', '.join(named)} meanwhile")


def _evictable(cached: Sequence[tuple[str, TableMetadata]]) -> list[str]:
    """Locations of the least recently used metadata beyond the bound of the cache. The most recent one always stays."""
    room = MOST_SNAPSHOTS - len(cached[-1][1].snapshots)
    evicted = []
    for location, metadata in reversed(cached[:-1]):
        room -= len(metadata.snapshots) + 1
        if room < 0:
            evicted.append(location)
    return evicted


_METADATA: Final = "metadata"
_METADATA_FILE: Final = ".metadata.json"

_LEVELS: Final = 5
"""Levels of folders that are searched for tables: nested namespaces are rare, and a warehouse may be a folder with much else."""


class SharedSqlCatalog(CachingCatalog, SqlCatalog):
    """A SQL catalog whose tables and namespaces several processes may create at the same moment."""

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        name = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        convert = super()._convert_orm_to_iceberg
        return self._cached_table(name, orm_table.metadata_location or "", lambda: convert(orm_table))

    def create_tables(self) -> None:
        """Create the missing tables. Each table that another process creates at the same time fails one attempt, so there is
        one attempt more than tables.
        """
        for _ in SqlCatalogBaseTable.metadata.tables:
            try:
                return super().create_tables()
            except DBAPIError as error:
                if "already exists" not in str(error.orig):
                    raise
        return super().create_tables()

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Create a namespace."""
        try:
            super().create_namespace(namespace, properties)
        except IntegrityError as error:  # another process created it after PyIceberg looked
            raise NamespaceAlreadyExistsError(f"Namespace {namespace} already exists") from error


def open_sql(name: str, properties: Mapping[str, str]) -> SharedSqlCatalog:
    """Open a catalog; create a missing SQLite file, and a missing local folder of the warehouse.

    Raises:
        Terminal: The SQLite file is missing, and the warehouse contains tables. With a new, empty file the pipelines that wrote them
            would begin again.
    """
    # Connections are kept for weeks: one that the server closed is opened anew.
    catalog_properties = {"pool_pre_ping": "true", **properties}
    file = _sqlite_file(properties["uri"])
    if file is not None:
        _refuse_lost(name, file, properties)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.touch()
        catalog_properties["uri"] = _uri_of_existing_file(properties["uri"], file)
    warehouse = properties.get("warehouse", "")
    if warehouse.startswith("file:"):
        Path(StorageFileIO.parse_location(warehouse)[2]).mkdir(parents=True, exist_ok=True)
    return SharedSqlCatalog(name, **catalog_properties)


def check_writable(catalog: Catalog) -> None:
    """Update no row of a SQL catalog: the database checks permissions all the same.

    Raises:
        DBAPIError: The database refuses.
        TypeError: The catalog is none of `open_sql`.
    """
    if not isinstance(catalog, SqlCatalog):
        raise TypeError(f"expected a SQL catalog, found {type(catalog).__name__}")
    with catalog.engine.begin() as connection:
        connection.execute(update(IcebergTables).where(false()).values(metadata_location=None))


def _sqlite_file(uri: str) -> Path | None:
    url = make_url(uri)
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return Path(str(url.database)) if is_file and not str(url.database).startswith("file:") else None


def _uri_of_existing_file(uri: str, file: Path) -> str:
    """A URI that never creates the SQLite file: connections open at any time, and the file may be lost meanwhile."""
    opened = make_url(uri).set(database=f"file:{quote(str(file.absolute()))}")
    return opened.update_query_dict({"mode": "rw", "uri": "true"}).render_as_string(hide_password=False)


def _refuse_lost(name: str, file: Path, properties: Mapping[str, str]) -> None:
    warehouse = properties.get("warehouse")
    if file.exists() or not warehouse:
        return
    scheme, netloc, path = StorageFileIO.parse_location(warehouse)
    table = _any_table(StorageFileIO(dict(properties)).fs_by_scheme(scheme, netloc), path)
    if table is None or file.exists():  # another process has created both meanwhile
        return
    raise TABLE_MISSING.terminal(
        f"opening catalog {name}: its database {file} is missing, but warehouse {warehouse} holds tables, such as {table}",
        next_step=f"restore {file} from a backup: a new one would have no tables and no position. To start over on purpose,"
        f" move the warehouse away. Without a backup: create an empty database (mkdir -p {file.parent} && touch {file}) and register"
        " each table's newest metadata file before anything runs",
    )


def _any_table(files: FileSystem, folder: str, levels: int = _LEVELS) -> str | None:
    """Path of the first table found below a folder. Does not search a table's own folders, nor unreadable ones."""
    if levels == 0:
        return None
    inside = files.get_file_info(FileSelector(folder, allow_not_found=True))
    folders = {entry.base_name: entry.path for entry in inside if entry.type == FileType.Directory}
    if _METADATA in folders:
        metadata_files = files.get_file_info(FileSelector(folders[_METADATA]))
        if any(file.base_name.endswith(_METADATA_FILE) for file in metadata_files):
            return folder
    for subfolder in sorted(folders.values()):
        with suppress(PermissionError):  # such as lost+found, where the warehouse is a disk
            if (table := _any_table(files, subfolder, levels - 1)) is not None:
                return table
    return None
