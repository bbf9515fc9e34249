"""PyIceberg's table, for signatures in rooms that don't import PyIceberg; files beside a table's metadata; and what
its properties may do in this process.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.utils.concurrent import ExecutorFactory

from frazil.error_codes import BAD_TABLE_PROPERTY
from frazil.iceberg.errors import translated
from frazil.iceberg.files.data_files import StagingTable
from frazil.iceberg.patches.storage import credentials_expire_ms
from frazil.iceberg.patches.variant import FORMAT_VERSION, metadata_text
from frazil.pipeline.settings.catalogs import SUFFIX

__all__ = [
    "Table",
    "TableMetadata",
    "delete_files",
    "metadata_path",
    "missing_files",
    "read_text",
    "staging_table",
    "write_text",
]


_NO_HISTORY: Mapping[str, object] = {
    "current_snapshot_id": None,
    "snapshots": [],
    "snapshot_log": [],
    "metadata_log": [],
    "refs": {},
    "statistics": [],
    "partition_statistics": [],
}
"""A table's age must not travel to every task."""

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
    """Its file-io, with new keys where those that the catalog lent with the table end: staging may have taken that long."""
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


# PyIceberg takes a class to run from them (`write.py-location-provider.impl`, `py-io-impl`), and whatever else its file-io knows:
# with `s3.endpoint` or `s3.proxy-uri` of its own, a table would have the store's credentials sent elsewhere. Whoever may alter a table
# is not whoever runs Frazil. Rests on private names of PyIceberg 0.12; the tests pin them.

PYTHON_LOCATIONS: Final = "write.py-location-provider.impl"
"""A class that PyIceberg calls with the table's location, for each file that it writes."""

JAVA_LOCATIONS: Final = "write.location-provider.impl"
"""The same of Iceberg's Java side: the only class that it takes from a table. All others it takes from the catalog."""

TABLE_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    # A catalog that is restored from a backup names an older metadata file: orphan removal takes those, days later.
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
"""Those that the first Frazil gave its tables."""


def renewed_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """New properties for a table that the first version of Frazil created; none if somebody else created or changed it."""
    first = _FIRST_PROPERTIES.items() - {("format-version", "2")}  # no property of a table that is there
    return dict(TABLE_PROPERTIES.items() - _FIRST_PROPERTIES.items()) if first <= properties.items() else {}


LEDGER_PROPERTIES = {
    # Run ids begin alike for months ("scheduled__2026-"): cut bounds would open every file for the rows of one run.
    "write.metadata.metrics.column.run": "full",
}
"""Further properties of the ledger."""

PARTITIONED_LAYOUT = {"write.object-storage.enabled": "true", "write.object-storage.partitioned-paths": "false"}
"""Further properties of partitioned tables: values stay out of paths, so a long text is no failed file name, and object
stores see no hot prefixes."""


def without_code(metadata: TableMetadata, allowed: Collection[str]) -> TableMetadata:
    """Metadata without the class that PyIceberg would call. A commit in a SQL catalog leaves it out of the table, too."""
    if PYTHON_LOCATIONS not in metadata.properties or PYTHON_LOCATIONS in allowed:
        return metadata
    rest = {name: value for name, value in metadata.properties.items() if name != PYTHON_LOCATIONS}
    return metadata.model_copy(update={"properties": rest})


def for_storage(properties: Mapping[str, str], allowed: Collection[str]) -> dict[str, str]:
    """Those properties of a table that its file-io may see, beside the catalog's."""
    return {name: value for name, value in properties.items() if name in allowed}


def refuse_code(table: str, metadata: TableMetadata, allowed: Collection[str]) -> None:
    """Refuse a table to an engine, which would run a class that the table names.

    Raises:
        Terminal: It names one that the settings don't allow.
    """
    if JAVA_LOCATIONS in metadata.properties and JAVA_LOCATIONS not in allowed:
        raise BAD_TABLE_PROPERTY.terminal(
            f"table {table} has the property {JAVA_LOCATIONS}: Spark would run the class that it names",
            next_step="find out who set it. Remove it (ALTER TABLE … UNSET TBLPROPERTIES), or allow it: list it in the settings under"
            " table_properties of the catalog",
        )
