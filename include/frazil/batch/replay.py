"""The plan of a replay: which offsets are read again."""

from __future__ import annotations

from collections.abc import Mapping

from frazil.batch.facts import ClusterFacts, TopicPartition
from frazil.batch.plan import PlannedTopic
from frazil.batch.position import Position
from frazil.errors import Terminal


def replay_topics(
    position: Position,
    facts: ClusterFacts,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    pipeline: str,
) -> dict[str, PlannedTopic]:
    """What a replay reads: from `starts` to `ends`, never beyond the position. Partitions that neither names rest.

    Raises:
        Terminal: A range begins where Kafka holds nothing any more: its rows would go and could not be landed again.
    """
    planned = {}
    gone = []
    for name, topic in facts.topics.items():
        if name not in position.topics:
            continue
        begin, end = [], []
        for number, partition in enumerate(topic.partitions):
            key = name, number
            until = min(ends.get(key, 0), position.next_offset(*key) or 0)
            at = min(starts.get(key, until), until)
            if at < until and at < partition.log_start:
                gone.append(f"topic {name}, partition {number}: {at} to {min(until, partition.log_start) - 1}")
            begin.append(at)
            end.append(until)
        planned[name] = PlannedTopic(topic.id, tuple(begin), tuple(end))
    if gone:
        raise Terminal(
            "a replay can't begin before Kafka's log: these offsets are gone\n" + "\n".join(f"  {g}" for g in gone),
            next_step=f"begin where the log begins: frazil replay {pipeline} --from earliest …",
        )
    return planned
