"""Positions, marks and manifests of any content, for Hypothesis."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from frazil.batch.changes import Coordinates, Merge, Removal, RemovedRange
from frazil.batch.facts import UNKNOWN_EPOCH, Counts, Range, StagedFile, UnknownFields, known_epochs
from frazil.batch.manifest import Fit, Manifest, Operation, TablePart
from frazil.batch.position import BatchMark, LostTail, Position, TopicPosition

numbers = st.integers(0, 2**63 - 1)
texts = st.text(max_size=12)
lost_tails = st.lists(st.builds(LostTail, numbers, numbers, numbers), max_size=2).map(tuple)


@st.composite
def topic_positions(draw: st.DrawFn) -> TopicPosition:
    """At the end of a run, or in the middle of one; of the first incarnation, or a later one."""
    pairs = draw(st.lists(st.tuples(numbers, numbers), max_size=5))
    start, following = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    end = tuple(at + draw(st.integers(0, 3)) for at in following)
    epochs = known_epochs(draw(st.tuples(*[st.integers(UNKNOWN_EPOCH, 3)] * len(pairs))))
    topic_position = TopicPosition(
        draw(st.none() | texts), start, following, draw(st.integers(0, 3)), end, epochs, draw(lost_tails)
    )
    return topic_position if topic_position.unread else replace(topic_position, end=())


positions = st.builds(Position, numbers, numbers, texts, st.dictionaries(texts, topic_positions(), max_size=3))
marks = st.builds(BatchMark, numbers, texts, numbers)

files = st.builds(StagedFile, texts, numbers, numbers, texts, st.dictionaries(texts, numbers, max_size=2))
fits = st.builds(Fit, texts, numbers, st.dictionaries(numbers, texts, max_size=3))
ranges = st.lists(st.builds(Range, texts, numbers, numbers, numbers), max_size=3).map(tuple)
removed = st.builds(RemovedRange, texts, st.none() | numbers, numbers, st.none() | numbers, numbers)
removals = st.builds(
    Removal, st.builds(Coordinates, texts, texts, texts, texts), st.lists(removed, max_size=3).map(tuple)
)
merges = st.builds(
    Merge,
    st.lists(texts, max_size=2).map(tuple),
    st.builds(Coordinates, texts, texts, texts, texts),
    texts,
    st.none() | texts,
    st.none() | texts,
    st.dictionaries(texts, numbers, max_size=2),
    st.dictionaries(texts, lost_tails, max_size=2),
)
columns = st.lists(texts, max_size=2).map(tuple)
operations = st.builds(Operation, st.just("insert"), columns) | st.builds(Operation, st.just("merge"), columns, merges)
parts = st.builds(
    TablePart,
    texts,
    st.sampled_from(["destination", "dead_letters"]),
    fits,
    st.none() | marks,
    st.lists(files, max_size=3).map(tuple),
    st.none() | removals,
    st.none() | operations,
    st.none() | texts,
    st.none() | texts,
)
manifests = st.builds(
    Manifest,
    pipeline=texts,
    kind=st.sampled_from(["start", "ingest", "replay", "reset", "rewind", "repair", "settle"]),
    batch=texts,
    run=texts,
    position=positions,
    closing=parts,
    followers=st.lists(parts, max_size=2).map(tuple),
    ledger=texts,
    ledger_after=st.none() | marks,
    counts=st.builds(Counts, numbers, numbers, numbers, numbers),
    dead_codes=st.dictionaries(texts, numbers, max_size=2),
    planned_at=texts,
    started_at=texts,
    written_at=texts,
    phases=st.dictionaries(texts, st.floats(allow_nan=False), max_size=2),
    version=texts,
    config=texts,
    complete_through=st.none() | texts,
    ranges=ranges,
    skipped=ranges,
    bytes_read=numbers,
    started_by=texts,
    reason=st.none() | texts,
    record_ages=st.dictionaries(st.integers(0, 255), numbers, max_size=2),
    letter_topic=st.none() | texts,
    unknown_fields=st.builds(UnknownFields, numbers, st.dictionaries(texts, numbers, max_size=2)),
)
