"""PyIceberg's table, for signatures in rooms that don't import PyIceberg: files beside its metadata, tables as tasks write them, a
table on one of its branches, and what a table's properties may do in this process.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.utils.concurrent import ExecutorFactory

from frazil.error_codes import TABLE_LOST
from frazil.iceberg.errors import translated
from frazil.iceberg.files.data_files import StagingTable
from frazil.iceberg.patches.files import credentials_expire_ms
from frazil.iceberg.patches.metadata import FORMAT_VERSION, metadata_text
from frazil.pipeline.settings.catalogs import SUFFIX

__all__ = ["Table", "TableMetadata"]

_NO_HISTORY: Mapping[str, object] = {
    "current_snapshot_id": None,
    "snapshots": [],
    "snapshot_log": [],
    "metadata_log": [],
    "refs": {},
    "statistics": [],
    "partition_statistics": [],
}
"""Fields of metadata that grow with a table's age, so that tasks don't get them."""

_CATALOG_ONLY = (
    "uri",
    "credential",
    "token",
    "auth",
    "header.",
    "rest.auth.",
    "oauth2-",
    "scope",
    "audience",
    "resource",
    "glue.",
    "hive.",
    "rest.",
)
"""Prefixes of properties that open the catalog. Tasks don't get them: they write files and never commit."""

_MARGIN_SECONDS: Final = 60


def staging_table(name: str, table: Table, *, by_engine: bool = False) -> StagingTable:
    """The table as a task needs it to write files: schema, partitioning and storage, without history.

    `io` holds storage credentials: never log it. `by_engine` says whether an engine writes the rows to the table; by default the
    format version decides it.
    """
    shape = table.metadata.model_copy(update=_NO_HISTORY)
    io = {key: value for key, value in table.io.properties.items() if not key.startswith(_CATALOG_ONLY)}
    is_parquet = table.properties.get("write.format.default", "parquet").lower() == "parquet"
    by_engine = by_engine or table.format_version >= FORMAT_VERSION or not is_parquet
    return StagingTable(name, metadata_text(shape), io, by_engine=by_engine)


def metadata_path(table: Table, file_name: str) -> str:
    """Path of a file in the table's metadata folder."""
    return table.location_provider().new_metadata_location(file_name + table.catalog.properties.get(SUFFIX, ""))


def write_text(table: Table, path: str, text: str) -> None:
    """Write a small file through the table's storage."""
    with translated(f"writing {path}"), _io(table).new_output(path).create(overwrite=True) as stream:
        stream.write(text.encode())


def read_text(table: Table, path: str) -> str:
    """Read a small file through the table's storage."""
    with translated(f"reading {path}"), _io(table).new_input(path).open() as stream:
        return stream.read().decode()


def delete_files(table: Table, paths: list[str]) -> None:
    """Delete files that were never part of a commit request."""
    for path in paths:
        with translated(f"deleting {path}"):
            _io(table).delete(path)


def missing_files(table: Table, paths: list[str]) -> list[str]:
    """Which of these files do not exist."""
    with translated("looking for staged files"):
        io = _io(table)
        is_there = ExecutorFactory.get_or_create().map(lambda path: io.new_input(path).exists(), paths)
        return [path for path, exists in zip(paths, is_there, strict=True) if not exists]


def _io(table: Table) -> FileIO:
    """The table's file-io. Credentials that the catalog vended and that are about to expire are renewed: staging may take hours."""
    end = credentials_expire_ms(table.io.properties)
    if end is not None and end < (time.time() + _MARGIN_SECONDS) * 1000:
        table.io = table.catalog.load_table(table.name()).io
    return table.io


def absent_table(name: str) -> Table:
    """An empty table in memory, like one just created: no columns, no snapshots, its own UUID."""
    metadata = new_table_metadata(
        Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location="", properties={}
    )
    return Table(tuple(name.split(".")), metadata, "", load_file_io(), NoopCatalog("absent"))


# What table properties may do. PyIceberg runs a class that a table's properties name (`write.py-location-provider.impl`,
# `py-io-impl`), and takes options of its file-io from them: with an `s3.endpoint` or `s3.proxy-uri` of its own, a table would have the
# store's credentials sent elsewhere. Whoever may alter a table is not whoever runs Frazil. Rests on private names of PyIceberg 0.12;
# the tests pin them.

PYTHON_LOCATIONS: Final = "write.py-location-provider.impl"
"""A class that PyIceberg calls with the table's location, for each file that it writes."""

JAVA_LOCATIONS: Final = "write.location-provider.impl"
"""The same for Iceberg's Java library: the only class that it takes from a table."""

TABLE_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # A catalog that is restored from a backup names an older metadata file, so only orphan removal deletes these, days later.
    "write.metadata.delete-after-commit.enabled": "false",
    "write.metadata.previous-versions-max": "100",
    # A manifest per batch would make every scan slower with the table's age.
    "commit.manifest-merge.enabled": "true",
    # Foreign expiry jobs keep at least these, so that the position stays in the ancestry of main.
    "history.expire.min-snapshots-to-keep": "20",
}
"""Properties of every table Frazil creates: chosen for frequent commits."""


_FIRST_PROPERTIES = TABLE_PROPERTIES | {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}
"""Properties that the first version of Frazil gave its tables."""


def renewed_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """New properties for a table that the first version of Frazil created; none if somebody else created or changed it."""
    first = _FIRST_PROPERTIES.items() - {("format-version", "2")}  # existing tables don't have it as a property
    return dict(TABLE_PROPERTIES.items() - _FIRST_PROPERTIES.items()) if first <= properties.items() else {}


LEDGER_PROPERTIES = {
    # Run ids begin alike for months ("scheduled__2026-"): with truncated bounds, a search for one run would open every file.
    "write.metadata.metrics.column.run": "full",
}
"""Further properties of the ledger."""

PARTITIONED_LAYOUT = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
"""Further properties of partitioned tables: values stay out of paths, so a long text is no problem for file names, and object stores
see no hot prefixes."""


def without_code(metadata: TableMetadata, allowed: Collection[str]) -> TableMetadata:
    """Metadata without the class that PyIceberg would run. A commit in a SQL catalog removes it from the table, too."""
    if PYTHON_LOCATIONS not in metadata.properties or PYTHON_LOCATIONS in allowed:
        return metadata
    rest = {name: value for name, value in metadata.properties.items() if name != PYTHON_LOCATIONS}
    return metadata.model_copy(update={"properties": rest})


def for_storage(properties: Mapping[str, str], allowed: Collection[str]) -> dict[str, str]:
    """The properties of a table that its file-io gets besides the catalog's: those that the settings allow."""
    return {name: value for name, value in properties.items() if name in allowed}


HOURLY_TAG = r"frazil-hourly-\d{4}-\d\d-\d\dT\d\d"
"""Pattern of Frazil's hourly tags: main as it was at the end of an hour, UTC. Snapshots get them when they leave main's history."""

_NAME = re.compile(r"frazil-(?P<pipeline>.+)-(?P<n>\d+)-(?P<made>\d+)-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class BranchName:
    """The parts of a branch's name.

    Attributes:
        made_ms: When the branch was created, milliseconds since 1970.
    """

    pipeline: str
    n: int
    made_ms: int

    @classmethod
    def parse(cls, text: str) -> BranchName | None:
        """Read a name; None if Frazil did not give it."""
        match = _NAME.fullmatch(text)
        return cls(match["pipeline"], int(match["n"]), int(match["made"])) if match else None


def branch_name(pipeline: str, n: int) -> str:
    """A new, unique name for a branch that prepares batch `n`."""
    return f"frazil-{pipeline}-{n}-{time.time_ns() // 1_000_000}-{secrets.token_hex(4)}"


def head_of(metadata: TableMetadata, branch: str = MAIN_BRANCH) -> int | None:
    """Id of a branch's newest snapshot; None if there is no such branch, or main is empty."""
    ref = metadata.refs.get(branch)
    return ref.snapshot_id if ref is not None else None


def set_branch(name: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """The update that makes a branch end in a snapshot."""
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def send(table: Table, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]) -> None:
    """Send one commit request. PyIceberg's transaction can't be used, because it keeps only one requirement of each kind.

    Foreign exceptions pass through; none of them proves that the commit did not land.
    """
    table._do_commit(updates, (AssertTableUUID(uuid=table.metadata.table_uuid), *requirements))


# Branches. Code that reads or moves main, PyIceberg's transactions included, gets a `BranchTable` and so reads and moves the branch.
# No other code has to know of branches.

U = TypeVar("U", TableUpdate, TableRequirement)


class BranchTable(Table):
    """A table that shows one of its branches as main. A branch that does not exist yet looks like main, and can't be moved."""

    def __init__(self, table: Table, name: str, branch: str) -> None:
        super().__init__(
            table.name(), table.metadata, table.metadata_location, table.io, table.catalog, dict(table.config)
        )
        self._table_name = name
        self._branch = branch
        self.is_begun = branch in table.metadata.refs
        self.whole = table.metadata
        self.metadata = on_branch(table.metadata, branch)

    def refresh(self) -> Table:
        """Read the table again.

        Raises:
            Terminal: The branch was dropped meanwhile.
        """
        super().refresh()
        if self.is_begun and self._branch not in self.metadata.refs:
            raise TABLE_LOST.terminal(
                f"table {self._table_name}: branch {self._branch} was dropped while a batch was committed there",
                next_step=f"create it again at its last snapshot: ALTER TABLE {self._table_name} CREATE BRANCH …; then run again",
            )
        self.whole = self.metadata
        self.metadata = on_branch(self.metadata, self._branch)
        return self

    def scan(self, *args: Any, **options: Any) -> DataScan:
        """Scan the branch. A server would plan a scan of main, so the scan has no catalog."""
        scan = super().scan(*args, **options)
        scan.catalog = None
        return scan

    def _do_commit(self, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]) -> None:
        super()._do_commit(tuple(self._of_branch(updates)), tuple(self._of_branch(requirements)))
        self.whole = self.metadata
        self.metadata = on_branch(self.metadata, self._branch)

    def _of_branch(self, parts: Iterable[U]) -> Iterable[U]:
        for part in parts:
            if isinstance(part, SetSnapshotRefUpdate) and part.ref_name == MAIN_BRANCH:
                yield part.model_copy(update={"ref_name": self._branch})
            elif isinstance(part, AssertRefSnapshotId) and part.ref == MAIN_BRANCH:
                yield part.model_copy(update={"ref": self._branch})
            else:
                yield part


def whole_metadata(table: Table) -> TableMetadata:
    """Metadata of a table with all of its branches, where main is the real main."""
    return table.whole if isinstance(table, BranchTable) else table.metadata


def on_branch(metadata: TableMetadata, branch: str) -> TableMetadata:
    """Metadata in which the branch takes the place of main; unchanged if there is no such branch."""
    ref = metadata.refs.get(branch)
    if ref is None:
        return metadata
    other_refs = {
        name: other_ref
        for name, other_ref in metadata.refs.items()
        if name not in (MAIN_BRANCH, branch)
        and re.fullmatch(HOURLY_TAG, name) is None  # hourly tags belong to the real main
    }
    return metadata.model_copy(
        update={"refs": {**other_refs, MAIN_BRANCH: ref}, "current_snapshot_id": ref.snapshot_id}
    )
