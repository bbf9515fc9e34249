"""The figures of a ledger's batches as columns: what charts are made of, for any number of batches in bounded memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import ages_from, seconds

COLUMNS: Final = (
    "pipeline",
    "n",
    "batch",
    "kind",
    "table",
    "planned_at",
    "decided_at",
    "records_read",
    "records_written",
    "records_dead",
    "records_filtered",
    "dead_codes",
    "record_ages",
    "schema_changes",
)
"""What is read of a ledger."""

_STEP: Final = 1.02
"""Waits are counted in classes that grow by so much: 1 % more to the 5 % of `frazil.batch.facts`."""

_LEAST: Final = 0.05
COUNTED: Final = ("records_read", "records_written", "records_dead", "records_filtered")

_WAITS: Final = pa.schema([("decided", pa.uint32()), ("wait", pa.uint16()), ("records", pa.uint32())])


@dataclass(frozen=True)
class Figures:
    """Batches with records, one row each.

    Attributes:
        batches: `n`, `decided` (seconds since 1970), `records_*`, `dead_codes` (JSON).
        waits: `decided`, `wait` (a class, see `waited`) and `records` that waited so long from their timestamp to the commit.
        changes: `n`, `decided`, `table` and `schema_changes` (JSON) of batches that changed a table.
    """

    batches: pa.Table
    waits: pa.Table
    changes: pa.Table

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return int(self.batches.nbytes + self.waits.nbytes + self.changes.nbytes)

    @classmethod
    def joined(cls, parts: Sequence[Figures]) -> Figures:
        """All parts together."""
        tables = ([of.batches for of in parts], [of.waits for of in parts], [of.changes for of in parts])
        return cls(*(pa.concat_tables(of) for of in tables))

    def packed(self) -> Figures:
        """The same in one piece."""
        return Figures(*(of.combine_chunks() for of in (self.batches, self.waits, self.changes)))


def figures(rows: pa.Table) -> Figures:
    """Figures of rows of the ledger, one row per batch and table, in `COLUMNS`; older ledgers lack some."""
    decided = pc.cast(pc.divide(rows["decided_at"].cast(pa.int64()), 1_000_000), pa.int64())
    rows = _complete(rows).append_column("decided", decided)
    changes = rows.filter(pc.is_valid(rows["schema_changes"])).select(["n", "decided", "table", "schema_changes"])
    landed = rows.filter(pc.and_(pc.equal(rows["kind"], "ingest"), pc.greater(rows["records_read"], 0)))
    order = pa.chunked_array([pa.array(range(len(landed)), pa.int64())])
    firsts = landed.append_column("row", order).group_by(["n", "batch"], use_threads=False).aggregate([("row", "min")])
    batches = landed.take(firsts["row_min"])
    kept = batches.select(["n", "decided", *COUNTED, "dead_codes"])
    return Figures(kept, _waits(batches), changes)


def waited(wait: int) -> float:
    """The seconds that stand for a class of waits."""
    return _LEAST * _STEP**wait


def _complete(rows: pa.Table) -> pa.Table:
    for name in ("record_ages", "schema_changes"):
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(len(rows), pa.string()))
    return rows


def _waits(batches: pa.Table) -> pa.Table:
    whens, classes, counts = array("L"), array("H"), array("L")  # lists of numbers would take ten times the memory
    columns = (batches[name].to_pylist() for name in ("decided", "decided_at", "planned_at", "record_ages"))
    for decided, decided_at, planned_at, text in zip(*columns, strict=True):
        ages = ages_from(text)
        later = (decided_at - planned_at).total_seconds()
        whens.extend([decided] * len(ages))
        classes.extend(_class(later + seconds(age)) for age in ages)
        counts.extend(ages.values())
    columns_of = zip((whens, classes, counts), _WAITS, strict=True)
    return pa.table([pa.array(memoryview(of)).cast(field.type) for of, field in columns_of], _WAITS)


def _class(wait: float) -> int:
    return max(0, round(math.log(max(wait, _LEAST) / _LEAST, _STEP)))


def quantiles(counts: Mapping[int, int], wanted: tuple[float, ...]) -> list[float] | None:
    """Quantiles of waits, in seconds; None without any.

    Args:
        counts: Class -> records.
        wanted: In growing order.
    """
    total = sum(counts.values())
    if not total:
        return None
    found: list[float] = []
    reached = 0
    for wait, count in sorted(counts.items()):
        reached += count
        while len(found) < len(wanted) and reached >= wanted[len(found)] * total:
            found.append(waited(wait))
    return found


def summed(table: pa.Table, keys: list[str], values: tuple[str, ...]) -> list[dict[str, Any]]:
    """Sums of columns per key, with the number of rows as `count`."""
    wanted: list[Any] = [(value, "sum") for value in values]
    grouped = table.group_by(keys, use_threads=False).aggregate([*wanted, ([], "count_all")])
    renamed = {f"{value}_sum": value for value in values} | {"count_all": "count"}
    return [{renamed.get(name, name): of for name, of in row.items()} for row in grouped.to_pylist()]
