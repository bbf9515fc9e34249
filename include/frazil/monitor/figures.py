"""Figures of a ledger's batches as compact columns, and their sums over steps of time, for charts."""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import age_seconds, ages_from
from frazil.monitor.condition import Freshness

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
)
"""Columns of the ledger that are read."""

_STEP: Final = 1.02
"""Factor between the waiting times of two neighbouring classes. It adds an error of 1 % to the 5 % of `frazil.batch.facts`."""

_LEAST: Final = 0.05
"""Waiting time of the first class, in seconds."""

COUNTED: Final = ("records_read", "records_written", "records_dead", "records_filtered")

_WAITS: Final = pa.schema([("decided", pa.uint32()), ("wait", pa.uint16()), ("records", pa.uint32())])


@dataclass(frozen=True)
class Figures:
    """Figures of batches with records.

    Attributes:
        batches: A row per batch: `n`, `decided` (seconds since 1970), `records_*`, `dead_codes` (JSON).
        waits: A row per batch and class of waiting times: `decided`, `wait` (the class, see `wait_seconds`), and `records`,
            the number that waited so long from their timestamp to the commit.
    """

    batches: pa.Table
    waits: pa.Table

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they take."""
        return int(self.batches.nbytes + self.waits.nbytes)

    @classmethod
    def joined(cls, parts: Sequence[Figures]) -> Figures:
        """Concatenate several figures."""
        return cls(*(pa.concat_tables([getattr(part, name) for part in parts]) for name in ("batches", "waits")))

    def packed(self) -> Figures:
        """The same figures with the chunks of their columns combined."""
        return Figures(self.batches.combine_chunks(), self.waits.combine_chunks())


def figures(rows: pa.Table) -> Figures:
    """Figures from rows of the ledger, which has a row per batch and table, with `COLUMNS`; older ledgers lack `record_ages`."""
    decided = pc.cast(pc.divide(rows["decided_at"].cast(pa.int64()), 1_000_000), pa.int64())
    rows = rows.append_column("decided", decided)
    if "record_ages" not in rows.column_names:
        rows = rows.append_column("record_ages", pa.nulls(len(rows), pa.string()))
    landed = rows.filter(pc.and_(pc.equal(rows["kind"], "ingest"), pc.greater(rows["records_read"], 0)))
    order = pa.chunked_array([pa.array(range(len(landed)), pa.int64())])
    firsts = landed.append_column("row", order).group_by(["n", "batch"], use_threads=False).aggregate([("row", "min")])
    batches = landed.take(firsts["row_min"])
    sums = batches.select(["n", "decided", *COUNTED, "dead_codes"])
    return Figures(sums, _waits(batches))


def wait_seconds(wait: int) -> float:
    """Waiting time in seconds that a class stands for."""
    return _LEAST * _STEP**wait


def _waits(batches: pa.Table) -> pa.Table:
    instants, classes, counts = array("L"), array("H"), array("L")  # lists would take ten times the memory
    columns = (batches[name].to_pylist() for name in ("decided", "decided_at", "planned_at", "record_ages"))
    for decided, decided_at, planned_at, text in zip(*columns, strict=True):
        ages = ages_from(text)
        later = (decided_at - planned_at).total_seconds()
        instants.extend([decided] * len(ages))
        classes.extend(_class(later + age_seconds(age)) for age in ages)
        counts.extend(ages.values())
    columns_of = zip((instants, classes, counts), _WAITS, strict=True)
    return pa.table([pa.array(memoryview(numbers)).cast(field.type) for numbers, field in columns_of], _WAITS)


def _class(wait: float) -> int:
    return max(0, round(math.log(max(wait, _LEAST) / _LEAST, _STEP)))


def quantiles(counts: Mapping[int, int], shares: tuple[float, ...]) -> list[float] | None:
    """Quantiles of waiting times in seconds; None without records. `counts`: class of waiting time -> records; `shares` ascend."""
    total = sum(counts.values())
    if not total:
        return None
    waits: list[float] = []
    reached = 0
    for wait, count in sorted(counts.items()):
        reached += count
        while len(waits) < len(shares) and reached >= shares[len(waits)] * total:
            waits.append(wait_seconds(wait))
    return waits


def sum_by_key(table: pa.Table, keys: list[str], values: tuple[str, ...]) -> list[dict[str, Any]]:
    """A row per key with the sums of columns, and the number of rows as `count`."""
    aggregations: list[Any] = [(value, "sum") for value in values]
    grouped = table.group_by(keys, use_threads=False).aggregate([*aggregations, ([], "count_all")])
    renamed = {f"{value}_sum": value for value in values} | {"count_all": "count"}
    return [{renamed.get(name, name): total for name, total in row.items()} for row in grouped.to_pylist()]


_QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class Point:
    """Sums over the batches that were decided within one step of time.

    Attributes:
        begin: Begin of the step, UTC.
        batches: Number of batches with records.
        read, rows, dead, filtered: Records by outcome.
        dead_codes: Dead letters by code.
    """

    begin: datetime
    batches: int = 0
    read: int = 0
    rows: int = 0
    dead: int = 0
    filtered: int = 0
    dead_codes: Mapping[str, int] = field(default_factory=dict)
    freshness: Freshness = field(default_factory=Freshness)


def with_steps(table: pa.Table, since: datetime, until: datetime, size: int) -> pa.Table:
    """Rows decided from `since` to `until`, with a column `step`: their time since 1970 in steps of `size` seconds."""
    decided = table["decided"]
    is_within = pc.and_(pc.greater_equal(decided, int(since.timestamp())), pc.less(decided, int(until.timestamp())))
    rows = table.filter(is_within)
    return rows.append_column("step", pc.divide(rows["decided"].cast(pa.int64()), size))


def points_of(batches: pa.Table, waits: pa.Table, size: int) -> Iterator[Point]:
    """A point per step, from `Figures.batches` and `Figures.waits` with a column `step`."""
    fresh, codes = _freshness_by_step(waits), _codes_by_step(batches)
    for row in sum_by_key(batches, ["step"], COUNTED):
        step = row["step"]
        yield Point(
            datetime.fromtimestamp(step * size, UTC),
            row["count"],
            row["records_read"],
            row["records_written"],
            row["records_dead"],
            row["records_filtered"],
            codes.get(step, {}),
            fresh.get(step, Freshness()),
        )


def _freshness_by_step(waits: pa.Table) -> dict[int, Freshness]:
    counted: dict[int, Counter[int]] = {}
    for row in sum_by_key(waits, ["step", "wait"], ("records",)):
        counted.setdefault(row["step"], Counter())[row["wait"]] = row["records"]
    waits_by_step = {step: quantiles(counts, _QUANTILES) for step, counts in counted.items()}
    return {step: Freshness(*waits) for step, waits in waits_by_step.items() if waits is not None}


def _codes_by_step(batches: pa.Table) -> dict[int, dict[str, int]]:
    counts: dict[int, Counter[str]] = {}
    dying = batches.filter(pc.greater(batches["records_dead"], 0)).select(["step", "dead_codes"])
    for row in dying.to_pylist():
        counts.setdefault(row["step"], Counter()).update(json.loads(row["dead_codes"]))
    return {step: dict(counter.most_common()) for step, counter in counts.items()}
