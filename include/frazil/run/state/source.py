"""Broker facts about a pipeline's topics, the offsets that a target means in them, and the pipeline's consumer group."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from frazil.batch.audit import Tolerance, beyond_logs, changed_leaders
from frazil.batch.facts import ClusterFacts, TopicPartition
from frazil.batch.position import Position
from frazil.batch.target import EARLIEST, LATEST, Target, resolve
from frazil.error_codes import REPLAY_REFUSED
from frazil.errors import FrazilError
from frazil.kafka.admin.consumer_group import mirror_offsets
from frazil.kafka.admin.observe import matching_topics, observe, offsets_at, truncations
from frazil.kafka.admin.topics import compacted
from frazil.kafka.read.read import ReadLimits
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.route import StartAt
from frazil.run.state.context import RunContext


def observe_source(context: RunContext) -> ClusterFacts:
    """Facts of the topics that the pipeline reads now. With a pattern, topics may come and go.

    Raises:
        Terminal: A topic named in the file is missing, or access is refused.
    """
    source = context.pipeline.source
    if source.topics_pattern is None:
        return observe(context.cluster, source.topics)
    return observe(context.cluster, matching_topics(context.cluster, source.topics_pattern), absent_ok=True)


def vanished_topics(pipeline: Pipeline, position: Position, facts: ClusterFacts) -> tuple[str, ...]:
    """Topics that the pipeline has read and still names, but that the broker no longer has."""
    return tuple(name for name in sorted(position.topics) if name not in facts.topics and pipeline.source.reads(name))


def observe_hidden_topics(context: RunContext, position: Position, facts: ClusterFacts) -> ClusterFacts:
    """The facts, with unread topics that the broker's topic list leaves out although they exist.

    The list shows only topics that the client may describe. Asked by name, the broker tells a deleted topic from a hidden one.

    Raises:
        Terminal: Access to one of them is refused.
    """
    missing = [name for name in vanished_topics(context.pipeline, position, facts) if position.topics[name].unread]
    if not missing:
        return facts
    observed = observe(context.cluster, missing, absent_ok=True)
    return replace(facts, topics={**facts.topics, **observed.topics})


def lost_ends(context: RunContext, position: Position, facts: ClusterFacts) -> dict[TopicPartition, int | None]:
    """Partitions whose logs lost records at the end that were read already -> where the log was cut; None if not known.

    Raises:
        Terminal: Access is refused.
    """
    truncated_ends = truncations(context.cluster, changed_leaders(position, facts, with_idle=True))
    return dict.fromkeys(beyond_logs(position, facts)) | truncated_ends


def offsets_of(context: RunContext, target: Target, facts: ClusterFacts) -> dict[TopicPartition, int]:
    """The offsets that a target means in the topics of `facts`.

    Raises:
        Terminal: A file of offsets does not fit the topics.
    """
    at_ms = target.at_ms
    offsets_by_time = {} if at_ms is None else offsets_at(context.cluster, list(_partitions(facts)), at_ms)
    return resolve(target, facts, offsets_by_time)


def _partitions(facts: ClusterFacts) -> Iterator[TopicPartition]:
    for name, topic in facts.topics.items():
        for number in range(len(topic.partitions)):
            yield name, number


def refuse_compacted(context: RunContext, topics: Collection[str], way_on: str = "") -> None:
    """Refuse to remove rows whose records compaction may have deleted: they could not be read again.

    `way_on` is what the reader can do instead; it goes before what always works.

    Raises:
        Terminal: One of the topics is compacted, or its configuration must not be seen.
    """
    compacted_topics = sorted(compacted(context.cluster, topics))
    if compacted_topics:
        subject = (
            f"topic {compacted_topics[0]} is"
            if len(compacted_topics) == 1
            else f"topics {', '.join(compacted_topics)} are"
        )
        raise REPLAY_REFUSED.terminal(
            f"pipeline {context.pipeline.name}: {subject} compacted: rows whose records compaction removed would be deleted and"
            " could not land again; nothing was changed",
            next_step=f"{way_on}to read what Kafka still has again, land it into a new table with a pipeline of its own",
        )


def read_limits(pipeline: Pipeline) -> ReadLimits:
    """How large a record may be, and what readers do with unreadable ones."""
    return ReadLimits(record_bytes=pipeline.limits.max_record_bytes, unreadable=pipeline.source.on_unreadable)


def tolerance_of(pipeline: Pipeline) -> Tolerance:
    """How many dead letters a batch may have, and whether one with more is refused."""
    limits, on_exceed = pipeline.dead_letters.limits, pipeline.dead_letters.on_exceed
    return Tolerance(limits.max_rate, limits.min_records, limits.max_count, fails=on_exceed == "fail")


def start_target(pipeline: Pipeline) -> Target:
    """The start of a pipeline's very first run."""
    start = pipeline.start
    if not isinstance(start, StartAt):
        return EARLIEST if start == "earliest" else LATEST
    if start.offsets is not None:
        return Target("offsets", offsets=start.offsets)
    return Target("timestamp", instant=start.timestamp)


def mirror_to_consumer_group(context: RunContext, position: Position | None) -> None:
    """Write the position into the pipeline's consumer group. It is never read back.

    Best effort: the batches have landed, so a group with active consumers or without write permission must not fail the run.
    It is only reported.
    """
    group = context.pipeline.consumer_group
    if group is None:
        return
    try:
        topics = position.topics if position is not None else {}
        offsets = {(name, number): offset for name, topic in topics.items() for number, offset in enumerate(topic.next)}
        mirror_offsets(context.cluster, group, offsets)
    except FrazilError as error:
        context.report(f"consumer group {group} could not be moved to the position: {error.message}")
