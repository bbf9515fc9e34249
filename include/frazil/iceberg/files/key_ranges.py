"""Whether a table can hold a row of certain keys: told by its manifests, so that no data file is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.expressions.visitors import bind
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import ManifestGroupPlanner, Table

from frazil.iceberg.errors import translated

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
    """One by one, so that the first that may hold a row ends the search. Deletes add no rows, whatever kind they are of."""
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
