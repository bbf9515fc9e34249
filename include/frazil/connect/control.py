"""The sink's control topic: whether its events are committed to the tables, and the offsets at which a connector stopped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

OFFSETS_KEY = "kafka.connect.offsets.{}.{}"
"""Summary key by control topic and group: `{"0": 3}`, control partition -> next control offset."""


@dataclass(frozen=True, slots=True)
class ConnectorProgress:
    """Where a connector stores its progress: control topic, consumer groups, table branches.

    Attributes:
        groups: Consumer groups with offsets of the source topics. For a partition, the first group that has it counts.
        connect_group: The group whose members are the running tasks.
        group: The group that names the offsets in snapshot summaries, and that events of the control topic carry.
        control_topic: The control topic.
        branches: Table -> branch that it is committed to.
    """

    groups: tuple[str, ...]
    connect_group: str
    group: str
    control_topic: str
    branches: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FilesWritten:
    """An event that announces files for a table."""

    partition: int
    offset: int
    group: str
    table: str
    files: int


@dataclass(frozen=True, slots=True)
class ControlFacts:
    """Facts from the control topic and the tables.

    Attributes:
        log: Control partition -> its first offset that Kafka still has, and the one of its next event.
        events: Events that announce files, of any connector.
        recorded: Table -> control partition -> next control offset, from its snapshots. A table that is missing has None.
        handled: Control partition -> next offset of the coordinator, who commits it when all tables have their files.
    """

    log: Mapping[int, tuple[int, int]]
    events: tuple[FilesWritten, ...]
    recorded: Mapping[str, Mapping[int, int] | None]
    handled: Mapping[int, int]


def recorded_offsets(summaries: Iterable[Mapping[str, str]], topic: str, group: str) -> dict[int, int]:
    """Offsets of the control topic that a branch's snapshots name, newest snapshot first.

    For each partition, the newest snapshot that names it counts: sinks before 1.10.1 leave out partitions without events.

    Raises:
        ValueError: A value is not of the sink's form.
    """
    key, offsets = OFFSETS_KEY.format(topic, group), dict[int, int]()
    for summary in summaries:
        for partition, offset in json.loads(summary.get(key, "{}")).items():
            offsets.setdefault(int(partition), int(offset))
    return offsets


def concerned_tables(progress: ConnectorProgress, events: Iterable[FilesWritten]) -> tuple[str, ...]:
    """Destinations, and every other table that the connector announced files for."""
    named = [table for table in progress.branches if table != "*"]
    return tuple(dict.fromkeys([*named, *(event.table for event in events if event.group == progress.group)]))


def takeover_obstacles(progress: ConnectorProgress, facts: ControlFacts) -> list[str]:
    """Reasons not to take over the source offsets; empty if every announced file is in its table."""
    return [*_recreated(progress, facts), *_pending(progress, facts), *_unread(progress, facts)]


def _recreated(progress: ConnectorProgress, facts: ControlFacts) -> Iterator[str]:
    """Partitions of the control topic that end below an offset already read: the topic was recreated, so old offsets mean
    nothing.
    """
    offset_sets = ((f"table {table}", offsets) for table, offsets in facts.recorded.items() if offsets is not None)
    for owner, offsets in (*offset_sets, (f"the coordinator's group {progress.group}-coord", facts.handled)):
        for partition, offset in sorted(offsets.items()):
            _, end = facts.log.get(partition, (0, 0))
            if offset > end:
                yield (
                    f"{progress.control_topic}, partition {partition}: it ends at {end}, but {owner} has read it up to {offset}:"
                    " the topic was created again, so it is unknown which of its events are committed"
                )


def _pending(progress: ConnectorProgress, facts: ControlFacts) -> Iterator[str]:
    """Announced files that no snapshot contains."""
    waiting: dict[str, list[FilesWritten]] = {}
    for event in facts.events:
        recorded = facts.recorded.get(event.table)
        if event.group == progress.group and event.files and event.offset >= (recorded or {}).get(event.partition, 0):
            waiting.setdefault(event.table, []).append(event)
    for table, events in waiting.items():
        first, files = events[0], sum(event.files for event in events)
        where = f"{progress.control_topic}, partition {first.partition}, offset {first.offset}"
        if facts.recorded.get(table) is None:
            yield f"table {table} does not exist, but {files} files were announced for it (from {where} on)"
        else:
            offset = (facts.recorded[table] or {}).get(first.partition)
            extent = "no offset of it is recorded" if offset is None else f"the table has them up to offset {offset}"
            yield f"table {table}: {files} files were announced and never committed (from {where} on; {extent})"


def _unread(progress: ConnectorProgress, facts: ControlFacts) -> Iterator[str]:
    """Offset ranges of the control topic that Kafka deleted before their files were reported as committed."""
    tables = [recorded for recorded in facts.recorded.values() if recorded is not None]
    for partition, (log_start, _) in sorted(facts.log.items()):
        handled = max(
            facts.handled.get(partition, 0), min((offsets.get(partition, 0) for offsets in tables), default=0)
        )
        if handled < log_start:
            yield (
                f"{progress.control_topic}, partition {partition}: Kafka deleted its events {handled} to {log_start}, and neither"
                " the tables nor the coordinator's group record that they were committed"
            )


Key = tuple[str, int]
"""Topic and partition number."""


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """Offsets that Kafka has of a partition: from `first` to `end`, the offset of the next record."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class StartOffsets:
    """Start offsets by topic and partition, remarks about them, and obstacles: reasons why no start can be determined."""

    offsets: dict[str, dict[int, int]]
    notes: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()


def start_offsets(
    bounds: Mapping[Key, OffsetBounds], groups: Sequence[tuple[str, Mapping[Key, int]]], default: str
) -> StartOffsets:
    """The offset of every partition at which the pipeline starts, after what the connector has read.

    Args:
        bounds: All partitions of the connector's topics.
        groups: Consumer groups with their committed offsets. For a partition, the first group that has it counts.
        default: `earliest` or `latest`: the start in a partition that no group has.
    """
    offsets: dict[str, dict[int, int]] = {}
    notes, obstacles = [], []
    if not any(key in committed for _, committed in groups for key in bounds):
        names = " and ".join(name for name, _ in groups)
        obstacles.append(
            f"no offsets of these topics in the consumer group {names}: the connector never committed, or Kafka forgot the"
            " group, as it does a week after its last member left"
        )
    for (topic, partition), bound in sorted(bounds.items()):
        start = next((committed[topic, partition] for _, committed in groups if (topic, partition) in committed), None)
        where = f"{topic}, partition {partition}"
        if start is None:
            start = bound.end if default == "latest" else bound.first
            notes.append(f"{where}: the connector has not read it yet; the pipeline begins at {start} ({default})")
        elif start > bound.end:
            obstacles.append(f"{where}: the group is at {start}, the topic ends at {bound.end}: it was created again")
        elif start < bound.first:
            notes.append(f"{where}: Kafka deleted the offsets {start} to {bound.first}, which the connector never read")
            start = bound.first
        offsets.setdefault(topic, {})[partition] = start
    return StartOffsets(offsets, tuple(notes), tuple(obstacles))
