"""Files of a table, and whether it can hold rows of certain keys, by its manifests: no data file is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.expressions.visitors import bind
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry
from pyiceberg.table import ManifestGroupPlanner, Table
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


Ranges = Mapping[str, tuple[str, str]]
"""Column -> the least and the largest value of it, as texts."""


def may_hold(table: Table, name: str, snapshot_id: int | None, ranges: Ranges) -> bool:
    """Whether any data file of a snapshot may have a row within all ranges, by its partition and the bounds of its columns.

    Bounds may be cut (texts to 16 characters): an upper one is then larger than all values, so a file is never left out that
    has such a row; one without bounds counts as having one. So does whatever can't be asked for here.

    Columns of the ranges are of the table's top level; without any, or without a known snapshot, the answer is yes.
    """
    if snapshot_id is None or not ranges:
        return True
    conditions = [_in_range(column, *ends) for column, ends in ranges.items()]
    where = conditions[0] if len(conditions) == 1 else And(*conditions)
    try:
        bind(table.schema(), where, case_sensitive=True)
    except ValueError:  # a date beyond the year 9999, say, which Python does not have
        return True
    with translated(f"looking for files of table {name}"):
        return any(_live_files(table, snapshot_id, where))


def _live_files(table: Table, snapshot_id: int, where: BooleanExpression) -> Iterator[bool]:
    """One by one, so that the first that may contain a row ends the search. Deletes add no rows, whatever kind they are of."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise ValueError(f"no snapshot {snapshot_id}")
    planner = ManifestGroupPlanner(table.metadata, table.io, where)
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            for entries in planner.plan_manifest_entries([manifest]):
                yield from (True for entry in entries if entry.data_file.content == DataFileContent.DATA)


def _in_range(column: str, least: str, most: str) -> BooleanExpression:
    at_least: Any = GreaterThanOrEqual
    at_most: Any = LessThanOrEqual
    return And(at_least(column, least), at_most(column, most))
