"""Offsets that several tables need are read once, and each table gets exactly its own."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from frazil.verify.facts.coverage import Segment, Segments, clip, length, union_of_segments, windows

LAST = 60


@st.composite
def segments(draw: st.DrawFn) -> Segments:
    """Ascending segments, with and without gaps between them."""
    start, segments = 0, []
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8)), max_size=6)):
        segments.append(Segment(start + gap, start + gap + size, (len(segments) + 1,)))
        start += gap + size
    return segments


def passes(segments: Segments) -> dict[int, tuple[int, ...]]:
    return {offset: s.passes for s in segments for offset in range(s.start, s.end)}


@example([Segment(0, 2, (1,))], 1, 1)
@given(segments(), st.integers(0, LAST), st.integers(0, LAST))
def test_cut_keeps_every_offset(segments: Segments, start: int, end: int) -> None:
    """A clipped list has exactly the offsets between the two bounds, with their passes."""
    cut = clip(segments, start, end)

    assert passes(cut) == {offset: n for offset, n in passes(segments).items() if start <= offset < end}
    assert all(s.start < s.end for s in cut)


@given(st.lists(segments(), min_size=1, max_size=4), st.integers(1, 20))
def test_windows_read_each_requested_offset_once(several: list[Segments], size: int) -> None:
    """The windows for all tables have each requested offset once, and none exceeds the size."""
    every = union_of_segments(several)
    windows_read = list(windows(every, size))

    offsets = {offset for segments in several for offset in passes(segments)}
    read = [offset for window in windows_read for offset in range(window.start, window.end)]
    assert offsets <= set(read)
    assert len(read) == len(set(read))
    assert set(passes(every)) == offsets
    assert length(every) == len(offsets)
    assert all(window.end - window.start <= size for window in windows_read)
    for segments in several:
        assert passes([s for window in windows_read for s in clip(segments, window.start, window.end)]) == passes(
            segments
        )


@given(segments())
def test_single_table_is_read_by_its_own_segments(segments: Segments) -> None:
    """A single table is read by its own segments."""
    assert union_of_segments([segments]) == segments
