"""How old the records of a batch are when its ends are fixed: counts by age, small enough for one row of the ledger.

Ages are counted in classes whose bounds grow by a tenth, as in DDSketch (https://www.vldb.org/pvldb/vol12/p2195-masson.pdf):
counts of any parts add up to those of the whole, in whatever order and number the parts come, and every quantile is exact to
5 % of the age, or to 50 ms of ages below 100 ms. All ages up to a century have 256 classes together; those of a batch a few dozen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

FLOOR_SECONDS: Final = 0.1
"""The first class holds all younger records, and those that a producer's clock dates later than now."""

GROWTH: Final = 1.1
LAST: Final = 255

RecordAges = Mapping[int, int]
"""Class -> records. Class 0 ends at `FLOOR_SECONDS`, each further one `GROWTH` times later."""


def added(left: RecordAges, right: RecordAges) -> dict[int, int]:
    """Counts of both together."""
    return {age: left.get(age, 0) + right.get(age, 0) for age in {*left, *right}}


def ages_json(ages: RecordAges) -> str | None:
    """The form of the ledger: [[class, records], ...] by class; None if nothing was counted."""
    return json.dumps(sorted(ages.items()), separators=(",", ":")) if ages else None


def ages_from(text: str | None) -> dict[int, int]:
    """Read the form of the ledger."""
    return dict(json.loads(text)) if text else {}


def seconds(age: int) -> float:
    """The age that stands for a class: no age of it is farther away than 5 %."""
    return FLOOR_SECONDS / 2 if age == 0 else 2 * FLOOR_SECONDS * GROWTH**age / (GROWTH + 1)
