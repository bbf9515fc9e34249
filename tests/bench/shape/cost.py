"""What work costs as one thing grows: figures, the line through them, and how far they are from it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

STRAIGHT: Final = 0.25
"""Of a figure: so far from the line it may be. The machine's mood moves CPU time by a tenth or two."""


@dataclass
class Cost:
    """One measurement; complete when the block of `costing` has ended.

    Attributes:
        size: Of what grows.
        records: That were landed.
        seconds: Wall-clock time.
        cpu_seconds: CPU time of this process.
    """

    size: int
    records: int
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@contextmanager
def costing(size: int, records: int) -> Iterator[Cost]:
    """Measure a block."""
    cost = Cost(size, records)
    cpu, began = time.process_time(), time.perf_counter()
    yield cost
    cost.seconds, cost.cpu_seconds = time.perf_counter() - began, time.process_time() - cpu


@dataclass(frozen=True)
class Line:
    """Cost = `fixed` + `each` * size, as near to all figures as it can be, and the exponent of cost over size.

    Attributes:
        fixed: CPU seconds of no size at all.
        each: CPU seconds of one more.
        furthest: The largest distance of a figure from the line, as a part of the figure.
        exponent: Slope of the logarithms, over the larger half of the sizes: 1 is proportional, 0 does not grow.
    """

    fixed: float
    each: float
    furthest: float
    exponent: float

    @classmethod
    def through(cls, costs: Sequence[Cost]) -> Line:
        """Return the line; each figure counts alike, whatever its size."""
        sizes = np.array([cost.size for cost in costs], float)
        took = np.array([max(cost.cpu_seconds, 0.001) for cost in costs])
        rows = np.stack([np.ones(len(costs)), sizes], axis=1) / took[:, None]
        (fixed, each), *_ = np.linalg.lstsq(rows, np.ones(len(costs)), rcond=None)
        if fixed < 0:
            fixed, each = 0.0, float((sizes / took).sum() / ((sizes / took) ** 2).sum())
        half = len(costs) // 2 if len(costs) > 3 else 0
        grown = sizes[half:] > 0
        logs = np.log(sizes[half:][grown]), np.log(took[half:][grown])
        exponent = float(np.polyfit(*logs, 1)[0]) if grown.sum() > 1 else 0.0
        return cls(float(fixed), float(each), float(np.abs((fixed + each * sizes) / took - 1).max()), exponent)

    def __str__(self) -> str:
        shape = "a straight line" if self.furthest <= STRAIGHT else "no straight line"
        return (
            f"{shape}: {self.fixed:.3f} CPU s + {self.each * 1e6:,.2f} per million; the furthest figure is"
            f" {self.furthest:.0%} off; exponent {self.exponent:.2f}"
        )


def report(what: str, costs: Sequence[Cost]) -> list[str]:
    """A table of the figures, and the line."""
    lines = [f"| {what} | seconds | CPU s | records/s | CPU s per million records |", "|---|---|---|---|---|"]
    for cost in costs:
        rate, cpu = cost.records / cost.seconds, cost.cpu_seconds * 1e6 / cost.records
        lines.append(f"| {cost.size:,} | {cost.seconds:.2f} | {cost.cpu_seconds:.2f} | {rate:,.0f} | {cpu:,.1f} |")
    return [*lines, "", str(Line.through(costs))]
