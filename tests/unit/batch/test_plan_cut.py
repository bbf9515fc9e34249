"""Cutting a run into batches and a batch into tasks: every offset once, whatever the ranges and the limits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.facts import Range
from frazil.batch.plan import UNMEASURED_RECORD_BYTES, BatchSize, cut, split_into_tasks
from tests.unit.batch.kafka_facts import assert_tiles, disjoint_ranges


@given(disjoint_ranges(), st.integers(1, 2_000_000), st.integers(1, 64))
def test_sharing_out_keeps_every_offset_once(ranges: tuple[Range, ...], records_per_task: int, tasks: int) -> None:
    """The ranges of all tasks tile those of the batch; no task is empty or too long, and they differ by one offset at most."""
    total = sum(r.span for r in ranges)
    longest = max(records_per_task, -(-total // 2000))  # keeps the examples small

    shares = split_into_tasks(ranges, longest, tasks)

    assert_tiles(tuple(r for share in shares for r in share), ranges)
    spans = [sum(r.span for r in share) for share in shares]
    assert max(spans) <= longest
    assert max(spans) - min(spans) <= 1
    assert len(shares) >= min(tasks, total)
    assert all(r.span for share in shares for r in share)


@given(disjoint_ranges(), st.integers(1, 50))
def test_cut_keeps_every_offset_once_within_limits(ranges: tuple[Range, ...], batches: int) -> None:
    """Batches tile the run; none is empty, none holds more than asked, and there are no more than needed."""
    total = sum(r.span for r in ranges)
    max_records = max(1, total // batches)

    cuts = tuple(cut(ranges, max_records))

    assert_tiles(tuple(piece for batch in cuts for piece in batch), ranges)
    assert all(0 < sum(r.span for r in batch) <= max_records for batch in cuts)
    assert len(cuts) == -(-total // max_records)
    assert all(Counter((r.topic, r.partition) for r in batch).most_common(1)[0][1] == 1 for batch in cuts)


def test_more_partitions_than_records_make_no_empty_batch() -> None:
    """Many short ranges under a small limit: an empty first batch would be committed again and again, forever."""
    ranges = tuple(Range("orders", partition, 7, 8) for partition in range(3))

    assert [len(batch) for batch in cut(ranges, 2)] == [2, 1]
    assert tuple(cut((), 5)) == ()


def test_partitions_of_a_backlog_advance_in_proportion() -> None:
    """Partitions of a backlog advance in proportion, so that rows of one moment land in one batch."""
    batches = tuple(cut((Range("orders", 0, 0, 900), Range("orders", 1, 0, 90)), 99))

    assert [[r.span for r in batch] for batch in batches] == [[90, 9]] * 10


@given(st.integers(1, 10**9), st.integers(0, 10**12), st.none() | st.floats(0, 1e15))
def test_huge_records_still_make_batches_of_one_offset(records: int, most_bytes: int, each: float | None) -> None:
    """A batch has at least one offset, or the run would commit nothing forever; and never more than asked."""
    size = BatchSize(records, most_bytes).offsets(each)

    assert 1 <= size <= records
    assert size == 1 or size * (UNMEASURED_RECORD_BYTES if each is None else each) <= most_bytes


@pytest.mark.parametrize(
    ("each", "offsets"),
    [(None, 102), (100, 1000), (2048, 512), (0, 1000), (0.25, 1000), (10**9, 1)],
    ids=["nothing measured", "small", "large", "empty records", "fractions of a byte", "larger than a batch"],
)
def test_measured_record_sizes_bound_a_batch(each: float | None, offsets: int) -> None:
    """Before anything was measured records are taken to be large; afterwards the smaller bound counts."""
    assert BatchSize(1000, 1024 * 1024).offsets(each) == offsets
