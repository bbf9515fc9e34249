"""Where a stopped connector stopped reading, as `start: offsets: …` of a pipeline file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Key = tuple[str, int]
"""Topic and partition number."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What Kafka holds of a partition: from `first` to `end`, the offset of the next record."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Start:
    """Topic -> partition -> first offset to read; what to know about it; why it can't be had."""

    offsets: dict[str, dict[int, int]]
    notes: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


def start_offsets(
    bounds: Mapping[Key, Bounds], groups: Sequence[tuple[str, Mapping[Key, int]]], otherwise: str
) -> Start:
    """The next offset of every partition.

    Args:
        bounds: All partitions of the connector's topics.
        groups: Consumer groups with their committed offsets; where one has none for a partition, the next one counts.
        otherwise: `earliest` or `latest`, where the connector begins with a partition that no group knows.
    """
    offsets: dict[str, dict[int, int]] = {}
    notes, against = [], []
    if not any(key in committed for _, committed in groups for key in bounds):
        names = " and ".join(name for name, _ in groups)
        against.append(
            f"no offsets of these topics in the consumer group {names}: the connector never committed, or Kafka forgot the"
            " group, as it does a week after its last member left"
        )
    for (topic, partition), held in sorted(bounds.items()):
        found = next((committed[topic, partition] for _, committed in groups if (topic, partition) in committed), None)
        where = f"{topic}, partition {partition}"
        if found is None:
            found = held.end if otherwise == "latest" else held.first
            notes.append(f"{where}: the connector has not read it yet; it begins at {found} ({otherwise})")
        elif found > held.end:
            against.append(f"{where}: the group is at {found}, the topic ends at {held.end}: it was made anew")
        elif found < held.first:
            notes.append(f"{where}: Kafka deleted the offsets {found} to {held.first}, which the connector never read")
            found = held.first
        offsets.setdefault(topic, {})[partition] = found
    return Start(offsets, tuple(notes), tuple(against))
