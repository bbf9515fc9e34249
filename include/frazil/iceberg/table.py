"""PyIceberg's table, for signatures in rooms that don't import PyIceberg; and files beside a table's metadata."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from frazil.iceberg.data_files import StagingTable
from frazil.iceberg.faults import translated

__all__ = ["Table", "TableMetadata", "delete_files", "metadata_path", "read_text", "staging_table", "write_text"]


def staging_table(name: str, table: Table) -> StagingTable:
    """What a task needs to write files of a table. Its `io` holds storage credentials: never log it."""
    return StagingTable(name, table.metadata.model_dump_json(), dict(table.io.properties))


def metadata_path(table: Table, file_name: str) -> str:
    """Path of a file in the table's metadata folder."""
    return table.location_provider().new_metadata_location(file_name)


def write_text(table: Table, path: str, text: str) -> None:
    """Write a small file through the table's storage.

    Raises:
        Retryable: The storage can't be written now.
    """
    with translated(f"writing {path}"), table.io.new_output(path).create(overwrite=True) as stream:
        stream.write(text.encode())


def read_text(table: Table, path: str) -> str:
    """Read a small file through the table's storage.

    Raises:
        Retryable: The storage can't be read now.
    """
    with translated(f"reading {path}"), table.io.new_input(path).open() as stream:
        return stream.read().decode()


def delete_files(table: Table, paths: list[str]) -> None:
    """Delete files that were never part of a commit request.

    Raises:
        Retryable: The storage can't be written now.
    """
    for path in paths:
        with translated(f"deleting {path}"):
            table.io.delete(path)
