"""The files that a table consists of now, from its manifests: no data file is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.types import NestedField, PrimitiveType

from frazil.iceberg.errors import translated

_CONTENT = {
    DataFileContent.DATA: "data",
    DataFileContent.POSITION_DELETES: "position deletes",
    DataFileContent.EQUALITY_DELETES: "equality deletes",
}


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file of a table.

    Attributes:
        content: `data`, `position deletes` or `equality deletes`.
        snapshot_id: Snapshot that added it; it may have expired since.
        bounds: Column -> lowest and highest value, as far as the file has statistics. Long texts are cut: the first
            bound is then a little lower than any value, the second a little higher.
    """

    path: str
    content: str
    snapshot_id: int | None
    rows: int
    bytes: int
    bounds: Mapping[str, tuple[Any, Any]]


def current_files(table: Table, columns: Sequence[str]) -> list[TableFile]:
    """Files of a table's current snapshot, with the bounds of some columns. Empty for a table without a snapshot."""
    table_fields = {field.name: field for field in table.schema().fields}
    fields = [table_fields[name] for name in columns if name in table_fields]
    with translated(f"reading manifests of table {table.name()}"):
        return [_file(entry, fields) for entry in _entries(table)]


def _entries(table: Table) -> Iterator[ManifestEntry]:
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
        yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def _file(entry: ManifestEntry, fields: Sequence[NestedField]) -> TableFile:
    file = entry.data_file
    bounds = {field.name: column_bounds for field in fields if (column_bounds := _bounds(file, field)) is not None}
    content = _CONTENT[file.content]
    return TableFile(file.file_path, content, entry.snapshot_id, file.record_count, file.file_size_in_bytes, bounds)


def _bounds(file: DataFile, field: NestedField) -> tuple[Any, Any] | None:
    lower, upper = ((bounds or {}).get(field.field_id) for bounds in (file.lower_bounds, file.upper_bounds))
    if lower is None or upper is None or not isinstance(field.field_type, PrimitiveType):
        return None
    return from_bytes(field.field_type, lower), from_bytes(field.field_type, upper)
