"""Broken records come in exact numbers."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest

from frazil.generators import breakages


@pytest.mark.parametrize("per_thousand", [0, 1, 3, 1_000])
def test_share_of_broken_records_is_exact(per_thousand: int) -> None:
    """Every full thousand has the asked number, and the kinds take turns."""
    how = list(islice(breakages(Random(1), per_thousand, ("a", "b", "c")), 3_000))

    for block in range(0, 3_000, 1_000):
        assert sum(kind is not None for kind in how[block : block + 1_000]) == per_thousand
    counts = Counter(kind for kind in how if kind is not None)
    assert all(counts[kind] == per_thousand for kind in "abc")


@pytest.mark.parametrize("per_thousand", [-1, 1_001])
def test_impossible_share_is_an_error(per_thousand: int) -> None:
    """More than all, or less than none, is an error."""
    with pytest.raises(ValueError, match=f"found {per_thousand}"):
        next(breakages(Random(1), per_thousand, ("a",)))
