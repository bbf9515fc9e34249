"""Sums of batches step by step of time: the points of a chart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.monitor.condition import Freshness
from frazil.monitor.figures import COUNTED, quantiles, summed

_QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class Point:
    """What batches decided within one step of time amount to.

    Attributes:
        begin: Begin of the step, UTC.
        batches: Batches with records.
        read, rows, dead, filtered: Records by outcome.
        dead_codes: Dead letters by code.
        freshness: Of the records.
    """

    begin: datetime
    batches: int = 0
    read: int = 0
    rows: int = 0
    dead: int = 0
    filtered: int = 0
    dead_codes: Mapping[str, int] = field(default_factory=dict)
    freshness: Freshness = field(default_factory=Freshness)


def within(table: pa.Table, since: datetime, until: datetime) -> pa.Table:
    """Rows of `frazil.monitor.figures` decided from `since` to `until`."""
    decided = table["decided"]
    return table.filter(
        pc.and_(pc.greater_equal(decided, int(since.timestamp())), pc.less(decided, int(until.timestamp())))
    )


def stepped(table: pa.Table, since: datetime, until: datetime, size: int) -> pa.Table:
    """The same, with the number of each row's step of `size` seconds since 1970 as `step`."""
    rows = within(table, since, until)
    return rows.append_column("step", pc.divide(rows["decided"].cast(pa.int64()), size))


def points_of(batches: pa.Table, waits: pa.Table, size: int) -> Iterator[Point]:
    """Sums per step of rows of `Figures.batches` and `Figures.waits` that have one."""
    fresh, codes = _fresh(waits), _codes(batches)
    for of in summed(batches, ["step"], COUNTED):
        step = of["step"]
        yield Point(
            datetime.fromtimestamp(step * size, UTC),
            of["count"],
            of["records_read"],
            of["records_written"],
            of["records_dead"],
            of["records_filtered"],
            codes.get(step, {}),
            fresh.get(step, Freshness()),
        )


def _fresh(waits: pa.Table) -> dict[int, Freshness]:
    counted: dict[int, Counter[int]] = {}
    for row in summed(waits, ["step", "wait"], ("records",)):
        counted.setdefault(row["step"], Counter())[row["wait"]] = row["records"]
    found = {step: quantiles(of, _QUANTILES) for step, of in counted.items()}
    return {step: Freshness(*of) for step, of in found.items() if of is not None}


def _codes(batches: pa.Table) -> dict[int, dict[str, int]]:
    found: dict[int, Counter[str]] = {}
    dying = batches.filter(pc.greater(batches["records_dead"], 0)).select(["step", "dead_codes"])
    for row in dying.to_pylist():
        found.setdefault(row["step"], Counter()).update(json.loads(row["dead_codes"]))
    return {step: dict(of.most_common()) for step, of in found.items()}
