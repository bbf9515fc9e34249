"""PyIceberg's table, for signatures in rooms that don't import PyIceberg; and files beside a table's metadata."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.utils.concurrent import ExecutorFactory

from frazil.iceberg.errors import translated
from frazil.iceberg.files.data_files import StagingTable
from frazil.iceberg.patches.variant import FORMAT_VERSION, metadata_text

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
    "oauth2-",
    "scope",
    "audience",
    "resource",
    "glue.",
    "hive.",
)
"""Prefixes of properties that open the catalog. Tasks don't get them: they write files and never commit."""


def staging_table(name: str, table: Table, *, by_engine: bool = False) -> StagingTable:
    """The table as a task needs it to write files: schema, partitioning and storage, without history.

    `io` holds storage credentials: never log it. Whether an engine brings their rows in is told by `by_engine`, or by the
    format version.
    """
    shape = table.metadata.model_copy(update=_NO_HISTORY)
    io = {key: value for key, value in table.io.properties.items() if not key.startswith(_CATALOG_ONLY)}
    is_parquet = table.properties.get("write.format.default", "parquet").lower() == "parquet"
    by_engine = by_engine or table.format_version >= FORMAT_VERSION or not is_parquet
    return StagingTable(name, metadata_text(shape), io, by_engine=by_engine)


def metadata_path(table: Table, file_name: str) -> str:
    """Path of a file in the table's metadata folder."""
    return table.location_provider().new_metadata_location(file_name)


def write_text(table: Table, path: str, text: str) -> None:
    """Write a small file through the table's storage."""
    with translated(f"writing {path}"), table.io.new_output(path).create(overwrite=True) as stream:
        stream.write(text.encode())


def read_text(table: Table, path: str) -> str:
    """Read a small file through the table's storage."""
    with translated(f"reading {path}"), table.io.new_input(path).open() as stream:
        return stream.read().decode()


def delete_files(table: Table, paths: list[str]) -> None:
    """Delete files that were never part of a commit request."""
    for path in paths:
        with translated(f"deleting {path}"):
            table.io.delete(path)


def missing_files(table: Table, paths: list[str]) -> list[str]:
    """Which of these files are not there."""
    with translated("looking for staged files"):
        is_there = ExecutorFactory.get_or_create().map(lambda path: table.io.new_input(path).exists(), paths)
        return [path for path, exists in zip(paths, is_there, strict=True) if not exists]


def absent_table(name: str) -> Table:
    """An empty table in memory, like one just created: no columns, no snapshots, its own UUID."""
    metadata = new_table_metadata(
        Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, location="", properties={}
    )
    return Table(tuple(name.split(".")), metadata, "", load_file_io(), NoopCatalog("absent"))
