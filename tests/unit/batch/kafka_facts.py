"""Brokers and positions that could be, for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from frazil.batch.facts import UNKNOWN_EPOCH, ClusterFacts, PartitionFacts, Range, TopicFacts
from frazil.batch.plan import RunPlan, plan_topics
from frazil.batch.position import Position, TopicPosition

CLUSTER = "cluster-a"
TOPICS = ("orders", "pizzas", "zebras")

offsets = st.integers(0, 60)


@st.composite
def partition_facts(draw: st.DrawFn) -> PartitionFacts:
    """A partition: log start <= stable end <= high watermark."""
    start, stable, high = sorted(draw(st.tuples(offsets, offsets, offsets)))
    return PartitionFacts(start, stable, high, draw(st.integers(UNKNOWN_EPOCH, 2)))


@st.composite
def cluster_facts(draw: st.DrawFn) -> ClusterFacts:
    """A cluster with one to three topics of one to six partitions, many of them empty."""
    names = draw(st.lists(st.sampled_from(TOPICS), min_size=1, unique=True))
    partitions = st.lists(partition_facts(), min_size=1, max_size=6).map(tuple)
    return ClusterFacts(CLUSTER, {name: TopicFacts(f"id-{name}", draw(partitions)) for name in names})


@st.composite
def positions_in(draw: st.DrawFn, facts: ClusterFacts) -> Position:
    """A position that fits: it knows some of the topics, and of each the first partitions."""
    topics = {}
    for name, topic in facts.topics.items():
        count = draw(st.integers(0, len(topic.partitions)))
        offset = tuple(draw(st.integers(p.log_start, p.high_watermark)) for p in topic.partitions[:count])
        if draw(st.booleans()):
            topics[name] = TopicPosition(topic.id, offset, offset)
    if draw(st.booleans()):
        topics["gone"] = TopicPosition("id-gone", (3,), (9,))
    return Position(draw(st.integers(0, 9)), 0, CLUSTER, topics)


@st.composite
def planned(draw: st.DrawFn) -> tuple[ClusterFacts, Position, RunPlan]:
    """A broker, a position in it and the plan made from both."""
    facts = draw(cluster_facts())
    position = draw(positions_in(facts))
    return facts, position, plan_of(position, facts)


def plan_of(position: Position, facts: ClusterFacts) -> RunPlan:
    """The plan of a run at this moment."""
    return RunPlan(
        "p", "run-1", "2026-01-01T00:00:00+00:00", facts.cluster_id, plan_topics(position, facts), complete=True
    )


@st.composite
def disjoint_ranges(draw: st.DrawFn) -> tuple[Range, ...]:
    """Ranges of different partitions; some may be empty."""
    keys = draw(st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 9)), unique=True, max_size=12))
    starts = [draw(st.integers(0, 10**12)) for _ in keys]
    spans = [draw(st.one_of(st.integers(0, 5), st.integers(0, 10**6))) for _ in keys]
    return tuple(
        Range(topic, partition, start, start + span)
        for (topic, partition), start, span in zip(keys, starts, spans, strict=True)
    )


def facts_of(*partitions: tuple[int, ...], topic_id: str | None = "id-1") -> ClusterFacts:
    """A cluster with one topic, `orders`: (log start, stable end, high watermark), perhaps the leader epoch, per partition."""
    return ClusterFacts(CLUSTER, {"orders": TopicFacts(topic_id, tuple(PartitionFacts(*p) for p in partitions))})


def position_at(*following: int, topic_id: str | None = "id-1", cluster: str = CLUSTER, n: int = 4) -> Position:
    """A position in that topic."""
    return Position(n, 0, cluster, {"orders": TopicPosition(topic_id, following, following)})


def follow(pieces: tuple[Range, ...]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Start and end of every piece, by partition, in order."""
    bounds: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for piece in pieces:
        bounds.setdefault((piece.topic, piece.partition), []).append((piece.start, piece.end))
    return bounds


def assert_tiles(pieces: tuple[Range, ...], ranges: tuple[Range, ...]) -> None:
    """The pieces of each range follow each other without gap or overlap, and none is empty."""
    pieces_followed = follow(pieces)
    assert pieces_followed.keys() == {(r.topic, r.partition) for r in ranges if r.span}
    for r in ranges:
        if r.span:
            bounds = pieces_followed[r.topic, r.partition]
            assert [r.start, *(end for _, end in bounds)] == [*(start for start, _ in bounds), r.end]
            assert all(start < end for start, end in bounds)
