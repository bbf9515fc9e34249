"""What a carrier is: see `frazil.records.json.carriers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

Settled = tuple[pa.Array, pa.BooleanArray | None]
"""An array of the column's type, and per row whether the exact decoder must decide (None: no
row)."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """`type` is what pyarrow.json reads; `settle` takes an array of it, of offset 0."""

    type: pa.DataType
    settle: Callable[[pa.Array], Settled]


def any_of(masks: list[pa.BooleanArray | None]) -> pa.BooleanArray | None:
    """Return where any of the masks is true; None stands for one that never is."""
    found = [mask for mask in masks if mask is not None]
    return reduce(pc.or_, found) if found else None


def unless(certain: pa.BooleanArray) -> pa.BooleanArray | None:
    """Return a doubt where a check failed; a null value needs no check."""
    return None if all_of(certain) else pc.fill_null(pc.invert(certain), fill_value=False)


def all_of(mask: pa.BooleanArray) -> bool:
    """Return whether a check failed nowhere."""
    return bool(pc.all(mask).as_py() in {True, None})
