"""Which topics there are: patterns, topics that come and go, and where a moment is in them."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread
from uuid import uuid4

import pytest

from frazil.batch.facts import PartitionFacts
from frazil.errors import Retryable, Terminal
from frazil.kafka.admin.consumer_group import mirror_offsets
from frazil.kafka.admin.observe import matching_topics, observe, offsets_at
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from tests.produce import produce
from tests.servers import delete_topic

Topic = Callable[..., str]
HOUR_MS = 3_600_000
MORNING_MS = 1_700_000_000_000


def test_pattern_matches_whole_names(cluster: Cluster) -> None:
    """Names match from their first to their last letter, and come sorted."""
    prefix = f"events-{uuid4().hex[:8]}"
    for suffix in (".20240102", ".20240101", ".20240101.old", "-errors"):
        create_topic(cluster, prefix + suffix, 1)

    assert matching_topics(cluster, rf"{prefix}\.\d{{8}}") == (f"{prefix}.20240101", f"{prefix}.20240102")
    assert matching_topics(cluster, prefix) == ()


def test_internal_topics_are_left_out(cluster: Cluster, topic: Topic) -> None:
    """A pattern for everything leaves out what the brokers keep for themselves."""
    name = topic()
    mirror_offsets(cluster, "g", {(name, 0): 0})  # there is an internal topic now

    topics = matching_topics(cluster, ".*")

    assert name in topics
    assert [each for each in topics if each.startswith("__")] == []
    assert observe(cluster, ["__consumer_offsets"]).topics


def test_broken_pattern_is_refused(cluster: Cluster, unreachable: Cluster) -> None:
    """A pattern that is none, and a cluster that is none, are not the same as nothing found."""
    with pytest.raises(Terminal, match=r"'events\('"):
        matching_topics(cluster, "events(")
    with pytest.raises(Retryable, match="answered in time"):
        matching_topics(unreachable, "events")


def test_absent_topics_do_not_stop_others(cluster: Cluster, topic: Topic) -> None:
    """Topics that aren't there are left out where that is allowed, without waiting for them."""
    name = topic()
    vanishing_topic = topic(partitions=20)
    delete_topic(cluster, vanishing_topic)

    began = time.monotonic()
    facts = observe(cluster, [vanishing_topic, name, "never-there"], absent_ok=True)
    none = observe(cluster, ["never-there"], absent_ok=True)

    assert facts.topics.keys() == {name}
    assert facts.topics[name].partitions == (PartitionFacts(0, 0, 0, 0),)
    assert none.topics == {}
    assert none.cluster_id == facts.cluster_id
    assert time.monotonic() - began < 15


def test_topic_under_deletion_does_not_hang_discovery(cluster: Cluster, topic: Topic) -> None:
    """Looks at a topic that vanishes meanwhile answer at once: it is whole, or not there."""
    stays, slowest = topic(), 0.0

    def size(name: str) -> int:
        nonlocal slowest
        began = time.monotonic()
        topics = observe(cluster, [name, stays], absent_ok=True).topics
        slowest = max(slowest, time.monotonic() - began)
        assert stays in topics
        return len(topics[name].partitions) if name in topics else 0

    for _ in range(10):
        vanishing = topic(partitions=20)
        deletion = Thread(target=delete_topic, args=(cluster, vanishing))
        sizes = [size(vanishing)]
        deletion.start()
        while sizes[-1]:
            sizes.append(size(vanishing))
        deletion.join()
        assert set(sizes) == {20, 0}
    assert slowest < 14


def test_timestamp_finds_first_record_at_or_after_it(cluster: Cluster, topic: Topic) -> None:
    """The first record of that time or later, per partition; none where all are earlier."""
    name, empty = topic(partitions=2), topic()
    for hour in range(3):
        produce(cluster, name, [OutgoingRecord(b"k", b"v", (), MORNING_MS + hour * HOUR_MS)])
    facts = observe(cluster, [name]).topics[name].partitions
    used = next(number for number, partition in enumerate(facts) if partition.high_watermark)
    partitions = [(name, used), (name, 1 - used), (empty, 0)]

    def at(moment_ms: int) -> int | None:
        offsets = offsets_at(cluster, partitions, moment_ms)
        assert offsets.keys() == set(partitions)
        assert offsets[name, 1 - used] is offsets[empty, 0] is None
        return offsets[name, used]

    hour = MORNING_MS + HOUR_MS
    assert [at(hour - 1), at(hour), at(hour + 1)] == [1, 1, 2]
    assert at(MORNING_MS + 2 * HOUR_MS + 1) is None
    # Kafka's own numbers for the ends of the log are times before 1970 here.
    assert [at(moment) for moment in (0, -1, -2, -5)] == [0] * 4


def test_timestamp_in_missing_partition_is_refused_at_once(cluster: Cluster, topic: Topic) -> None:
    """What isn't there is named at once."""
    name = topic()

    with pytest.raises(Terminal, match=f"no topic '{name}' with a partition 7"):
        offsets_at(cluster, [(name, 0), (name, 7)], 0)
    with pytest.raises(Terminal, match="no topic 'never-there'"):
        offsets_at(cluster, [("never-there", 0)], 0)
    assert offsets_at(cluster, [], 0) == {}
