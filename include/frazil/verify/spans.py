"""Arithmetic of offsets: which batches read which part of a partition."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

Passes = tuple[int, ...]
"""Numbers of the batches that read an offset and whose outcomes are still there. Usually one; a backward reset that
allowed duplicates adds another.
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """Offsets `start` <= o < `end` that the same batches read."""

    start: int
    end: int
    passes: Passes


Segments = list[Segment]
"""Ascending, none empty, none overlapping."""


def with_pass(segments: Segments, start: int, end: int, n: int) -> Segments:
    """The segments after batch `n` read `start` <= o < `end`. The given list may be changed, and must not be used again."""
    if start >= end:
        return segments
    if not segments or segments[-1].end <= start:  # the usual case, and cheap: a batch carries on where another ended
        segments.append(Segment(start, end, (n,)))
        return segments
    return _changed(segments, start, end, lambda passes: (*passes, n))


def without(segments: Segments, start: int, end: int, is_gone: Callable[[int], bool]) -> Segments:
    """The segments after the outcomes of some batches were taken out of `start` <= o < `end`; the list is changed."""
    return _changed(segments, start, end, lambda passes: tuple(n for n in passes if not is_gone(n)))


def _changed(segments: Segments, start: int, end: int, change: Callable[[Passes], Passes]) -> Segments:
    # Only what is met is made anew: a batch that brought letters home changes thousands of single offsets.
    low = bisect_right(segments, start, key=lambda s: s.end)
    high = bisect_left(segments, end, key=lambda s: s.start)
    met = segments[low:high]
    inside = (replace(s, passes=change(s.passes)) for s in _filled(clip(met, start, end), start, end))
    before = clip(met, met[0].start, start) if met else []
    after = clip(met, end, met[-1].end) if met else []
    segments[low:high] = [*before, *(s for s in inside if s.passes), *after]
    return segments


def _filled(segments: Segments, start: int, end: int) -> Iterator[Segment]:
    """The segments, and the gaps between them as segments that nobody read."""
    at = start
    for segment in segments:
        if at < segment.start:
            yield Segment(at, segment.start, ())
        yield segment
        at = segment.end
    if at < end:
        yield Segment(at, end, ())


def clip(segments: Segments, start: int, end: int) -> Segments:
    """What lies in `start` <= o < `end`."""
    if start >= end:
        return []
    low = bisect_right(segments, start, key=lambda s: s.end)
    high = bisect_left(segments, end, key=lambda s: s.start)
    return [replace(s, start=max(s.start, start), end=min(s.end, end)) for s in segments[low:high]]


def together(several: Sequence[Segments]) -> Segments:
    """What any of several tables wants to be read, whichever batches did."""
    if len(several) == 1:
        return several[0]
    found: Segments = []
    for s in sorted((s for segments in several for s in segments), key=lambda s: s.start):
        if found and s.start <= found[-1].end:
            found[-1] = Segment(found[-1].start, max(found[-1].end, s.end), ())
        else:
            found.append(Segment(s.start, s.end, ()))
    return found


def length(segments: Segments) -> int:
    """How many offsets the segments hold."""
    return sum(s.end - s.start for s in segments)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of offsets that is compared at once: bounds the memory."""

    start: int
    end: int
    segments: tuple[Segment, ...]


def windows(segments: Segments, size: int) -> Iterator[Window]:
    """Cut segments into windows of at most `size` offsets; neighbours share one, with the small gaps between them."""
    taken: list[Segment] = []
    for piece in _pieces(segments, size):
        if taken and piece.end - taken[0].start > size:
            yield _window(taken)
            taken = []
        taken.append(piece)
    if taken:
        yield _window(taken)


def _pieces(segments: Segments, size: int) -> Iterator[Segment]:
    for segment in segments:
        for start in range(segment.start, segment.end, size):
            yield replace(segment, start=start, end=min(segment.end, start + size))


def _window(taken: Sequence[Segment]) -> Window:
    return Window(taken[0].start, taken[-1].end, tuple(taken))


def gaps(spans: Sequence[tuple[int, int]], start: int, end: int | None) -> list[tuple[int, int | None]]:
    """What ascending spans leave of `start` <= o < `end`; no end stands for no bound."""
    found: list[tuple[int, int | None]] = []
    at = start
    for low, high in spans:
        if at < low:
            found.append((at, low))
        at = max(at, high)
    if end is None or at < end:
        found.append((at, end))
    return found
