"""Which offsets are read to find the records without a row."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.facts import Range
from frazil.run.restage import READ_ACROSS, gaps


@given(st.sets(st.integers(0, 5_000), max_size=60), st.integers(0, 4_000), st.integers(1, 2_000))
def test_an_offset_without_row_is_not_read(rows: set[int], start: int, span: int) -> None:
    """Every offset of the range without a row lies in one gap, and no gap leaves the range."""
    wanted = Range("orders", 0, start, start + span)
    offsets = pa.array(sorted(rows), pa.int64())

    found = list(gaps(wanted, offsets))

    covered = [at for gap in found for at in range(gap.start, gap.end)]
    assert len(covered) == len(set(covered))
    assert set(covered) <= set(range(start, start + span))
    assert set(range(start, start + span)) - rows <= set(covered)


def test_long_stretches_of_rows_are_read_in_vain() -> None:
    """Gaps that lie close are read as one; far ones alone, so a few letters cost no reading of all rows."""
    far = 10 * READ_ACROSS
    rows = pa.array([n for n in range(far) if n not in (5, 7, far - 3)], pa.int64())

    found = list(gaps(Range("orders", 0, 0, far), rows))

    assert [(gap.start, gap.end) for gap in found] == [(5, 8), (far - 3, far - 2)]


def test_a_batch_without_rows_is_one_gap() -> None:
    """Nothing landed: all of it is read."""
    wanted = Range("orders", 0, 3, 9)

    assert list(gaps(wanted, pa.array([], pa.int64()))) == [wanted]
