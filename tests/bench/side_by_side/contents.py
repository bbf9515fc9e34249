"""What a table holds, so that two tables can be told to hold the same, and when it became visible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

ROW: Final = "all columns together"
"""Name of the digest of whole rows: of two columns that changed places in some rows each holds the same as before."""


@dataclass(frozen=True)
class Contents:
    """A table, read to its end.

    Attributes:
        rows: How many.
        digests: Per column, and of whole rows, the sum of the hashes of all values: the same in any order, another one if a
            value is another one, or is there once more.
        files: Data files.
        bytes: Their size.
    """

    rows: int
    digests: dict[str, str]
    files: int
    bytes: int


@dataclass(frozen=True)
class VisibleRows:
    """How many rows a reader saw from an instant on.

    Attributes:
        at: Unix time of the commit.
        rows: All rows of the table.
    """

    at: float
    rows: int


def rows_of(table: Table) -> int:
    """Rows by the summary of the current snapshot: nothing is read."""
    snapshot = table.refresh().current_snapshot()
    return 0 if snapshot is None else _rows(snapshot)


def visible_rows(table: Table) -> list[VisibleRows]:
    """What was visible, commit after commit."""
    return [VisibleRows(snapshot.timestamp_ms / 1000, _rows(snapshot)) for snapshot in _past(table)]


def visible_at(past: list[VisibleRows], rows: float) -> float:
    """Unix time of the commit from which on so many rows were visible."""
    return next(commit.at for commit in past if commit.rows >= rows)


def contents(table: Table, columns: list[str]) -> Contents:
    """Read some columns of a table, all of its rows, by another reader than the writers' own."""
    import duckdb

    tasks = list(table.refresh().scan().plan_files())
    assert not any(task.delete_files for task in tasks), f"{table.name()} has deletes: its files are not its rows"
    quoted = [f'"{name}"' for name in columns]
    sums = [f"sum(hash({column})::HUGEINT)" for column in (*quoted, ", ".join(quoted))]
    files = [_path(task.file.file_path) for task in tasks]
    query = f"SELECT count(*), {', '.join(sums)} FROM read_parquet(?)"  # noqa: S608 - names of our own
    with duckdb.connect() as connection:
        row = connection.execute(query, [files]).fetchone()
    assert row is not None
    digests = {name: str(value) for name, value in zip([*columns, ROW], row[1:], strict=True)}
    return Contents(row[0], digests, len(files), sum(task.file.file_size_in_bytes for task in tasks))


def unequal(contents_by_side: dict[str, Contents], count: int) -> list[str]:
    """In what tables differ from the first one, or from the number of records; a line each, with both sides.

    Args:
        contents_by_side: Who -> what its table holds.
        count: Records that were sent.
    """
    problems = [
        f"{who}: {contents.rows:,} rows of {count:,} records"
        for who, contents in contents_by_side.items()
        if contents.rows != count
    ]
    (first, expected), *rest = contents_by_side.items()
    for who, contents in rest:
        unequal_columns = [name for name, digest in contents.digests.items() if digest != expected.digests[name]]
        problems += [
            f"{who}: {name}: {contents.digests[name]}, of {first}: {expected.digests[name]}" for name in unequal_columns
        ]
    return problems


def landed(table: Table, column: str) -> Iterator[tuple[float, list[float]]]:
    """Per commit its Unix time, and the instants that its rows have in a column, as Unix times."""
    for snapshot in _past(table.refresh()):
        instants: list[float] = []
        for path in _added(table, snapshot):
            instants += (instant.timestamp() for instant in pq.read_table(path, columns=[column])[column].to_pylist())
        yield snapshot.timestamp_ms / 1000, instants


def _past(table: Table) -> list[Snapshot]:
    return sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)


def _rows(snapshot: Snapshot) -> int:
    return 0 if snapshot.summary is None else int(snapshot.summary["total-records"] or 0)


def _added(table: Table, snapshot: Snapshot) -> Iterator[str]:
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            is_new = entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
            if is_new and entry.data_file.content == DataFileContent.DATA:
                yield _path(entry.data_file.file_path)


def _path(location: str) -> str:
    return str(Path(urlparse(location).path))
