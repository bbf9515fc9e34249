"""What a table holds, so that two tables can be told to hold the same: rows, and a digest of each column in no order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

_PRIME: Final = (1 << 61) - 1


@dataclass(frozen=True)
class Contents:
    """A table, read to its end.

    Attributes:
        rows: How many.
        digests: Per column a number that any change of a value, or of how often it is there, changes.
        files: Data files.
        bytes: Their size.
    """

    rows: int
    digests: dict[str, int]
    files: int
    bytes: int


def rows_of(table: Table) -> int:
    """Rows by the summary of the current snapshot: nothing is read."""
    snapshot = table.refresh().current_snapshot()
    return 0 if snapshot is None or snapshot.summary is None else int(snapshot.summary["total-records"] or 0)


def contents(table: Table, columns: list[str]) -> Contents:
    """Read some columns of a table, all of its rows."""
    rows, digests = 0, dict.fromkeys(columns, 0)
    for batch in table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader():
        rows += batch.num_rows
        for name in columns:
            digests[name] = (digests[name] + _digest(batch.column(name))) % _PRIME
    entries = [task.file for task in table.scan().plan_files()]
    return Contents(rows, digests, len(entries), sum(of.file_size_in_bytes for of in entries))


def _digest(column: pa.Array) -> int:
    """The sum over all values of a hash of each: the same in any order, another one if a value is there twice."""
    counted = pc.value_counts(pc.cast(column, pa.string()) if not pa.types.is_nested(column.type) else _texts(column))
    total = 0
    for of in counted.to_pylist():
        value = repr(of["values"]).encode()
        total += of["counts"] * int.from_bytes(hashlib.blake2b(value, digest_size=7).digest())
    return total % _PRIME


def _texts(column: pa.Array) -> pa.Array:
    return pa.array([repr(value) for value in column.to_pylist()], pa.string())


def stored_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
