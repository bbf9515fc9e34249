"""Epoch numbers that come as text, fitted as arrays and one by one."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.records.model.column import ColumnSpec, Reading
from tests.unit.records.casting.fitting import fit_both

SPELLED = st.one_of(
    st.text(max_size=6),
    st.datetimes().map(str),
    st.times().map(str),
    st.dates().map(str),
    st.sampled_from(["1.", "1e400", "1\n", "\u0661", "2024-01-01T00:00Z", "+-1", ""]),
)
COUNTS = st.integers(-(10**12), 10**19).map(str) | st.sampled_from(["1704067200.5", "1e9", "+5", "007", "-0"])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.none() | COUNTS | SPELLED, max_size=5),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.sampled_from([pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.time64("us"), pa.date32()]),
    st.builds(
        Reading,
        unit=st.sampled_from(["s", "ms", "us", "ns"]),
        local_time=st.sampled_from(["keep", "dead_letter"]),
        truncates=st.booleans(),
    ),
)
def test_counts_that_come_as_text_have_the_same_outcome_as_arrays_and_one_by_one(
    texts: list[str | None], source: pa.DataType, target: pa.DataType, reading: Reading
) -> None:
    """Digits are found by another expression as arrays than one by one, and may stand beside spelled times."""
    column = ColumnSpec("c", target, required=False, reading=reading)
    batch = pa.RecordBatch.from_arrays([pa.array(texts, source)], ["c"])

    fit_both((column,), pa.schema([("c", target)]), batch, text_casts=True)
