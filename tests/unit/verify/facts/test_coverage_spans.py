"""Offsets that several tables need are read once, and each table gets exactly its own."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from frazil.verify.facts.coverage import Segment, Segments, clip, length, union_of_segments, windows

LAST = 60


@st.composite
def segments(draw: st.DrawFn) -> Segments:
    """Ascending segments, with and without gaps between them."""
    at, found = 0, []
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8)), max_size=6)):
        found.append(Segment(at + gap, at + gap + size, (len(found) + 1,)))
        at += gap + size
    return found


def passes(of: Segments) -> dict[int, tuple[int, ...]]:
    return {offset: s.passes for s in of for offset in range(s.start, s.end)}


@example([Segment(0, 2, (1,))], 1, 1)
@given(segments(), st.integers(0, LAST), st.integers(0, LAST))
def test_cut_keeps_every_offset(of: Segments, start: int, end: int) -> None:
    """A clipped list has exactly the offsets between the two bounds, with their passes."""
    cut = clip(of, start, end)

    assert passes(cut) == {offset: n for offset, n in passes(of).items() if start <= offset < end}
    assert all(s.start < s.end for s in cut)


@given(st.lists(segments(), min_size=1, max_size=4), st.integers(1, 20))
def test_windows_read_each_requested_offset_once(several: list[Segments], size: int) -> None:
    """The windows for all tables have each requested offset once, and none exceeds the size."""
    every = union_of_segments(several)
    found = list(windows(every, size))

    wanted = {offset for of in several for offset in passes(of)}
    read = [offset for window in found for offset in range(window.start, window.end)]
    assert wanted <= set(read)
    assert len(read) == len(set(read))
    assert set(passes(every)) == wanted
    assert length(every) == len(wanted)
    assert all(window.end - window.start <= size for window in found)
    for of in several:
        assert passes([s for window in found for s in clip(of, window.start, window.end)]) == passes(of)


@given(segments())
def test_single_table_is_read_by_its_own_segments(of: Segments) -> None:
    """A single table is read by its own segments."""
    assert union_of_segments([of]) == of
