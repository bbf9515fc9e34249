"""How many outcomes a table holds of each partition: what a comparison by offsets must come to see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from frazil.verify.lake import Held, scan
from frazil.verify.result import Difference


@dataclass
class Census:
    """Counts of one table or several.

    Attributes:
        counts: (topic, partition) -> outcomes of the present incarnation.
        older_incarnation: Outcomes of topics that are gone, or were recreated since.
        foreign: Rows without any Kafka column, or of topics of another pipeline: not ours.
        nowhere: Table -> outcomes with some of these columns, but not topic, partition and offset.
        unknown: (table, topic) -> outcomes of a topic that no position ever named.
        by_batch: (table, batch number) -> outcomes of the present incarnation.
    """

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    older_incarnation: int = 0
    foreign: int = 0
    nowhere: Counter[str] = field(default_factory=Counter)
    unknown: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_batch: Counter[tuple[str, int]] = field(default_factory=Counter)

    def differences(self) -> Iterator[Difference]:
        """Outcomes that name no record."""
        for table, count in sorted((+self.nowhere).items()):
            yield Difference("unexpected", f"topic, partition and offset in every row of {table}", f"{count} without")
        for (table, topic), count in sorted(self.unknown.items()):
            yield Difference(
                "unexpected", f"only topics that were read, in {table}", f"{count} of a topic never read", topic
            )


@dataclass(frozen=True, slots=True)
class Topics:
    """What is known of topics.

    Attributes:
        live: Topics that are still what the position knows -> first batch number of their present incarnation.
        read: All that any position of the pipeline names.
        others: Topics of other pipelines that land into the same table.
        unrecorded: Numbers of batches whose ledger rows were given up: they may have read any topic.
    """

    live: Mapping[str, int]
    read: frozenset[str]
    others: frozenset[str] = frozenset()
    unrecorded: frozenset[int] = frozenset()


def count(census: Census, held: Held, topics: Topics) -> None:
    """Add a table to a census."""
    names = held.columns
    columns = [names.topic, names.partition, names.offset, names.batch]
    for batch in scan(held, None, columns):
        # Counting non-null offsets apart from rows finds those that name a partition and no offset.
        table = pa.Table.from_batches([batch]).select(columns).rename_columns(["topic", "partition", "offset", "batch"])
        counted = table.group_by(["topic", "partition", "batch"]).aggregate([([], "count_all"), ("offset", "count")])
        for group in counted.to_pylist():
            _add(census, held.name, topics, group)


def _add(census: Census, table: str, topics: Topics, group: Mapping[str, int | str | None]) -> None:
    topic, partition, n = group["topic"], group["partition"], group["batch"]
    rows, placed = int(group["count_all"] or 0), int(group["offset_count"] or 0)
    if topic is None and partition is None and n is None and not placed:
        census.foreign += rows
    elif topic is None or partition is None:
        census.nowhere[table] += rows
    elif (name := str(topic)) not in topics.read and n not in topics.unrecorded:
        if name in topics.others:
            census.foreign += rows
        else:
            census.unknown[table, name] += rows
    elif name not in topics.live or (n is not None and int(n) < topics.live[name]):
        census.older_incarnation += rows
    else:
        census.counts[name, int(partition)] += placed
        census.nowhere[table] += rows - placed
        if n is not None:
            census.by_batch[table, int(n)] += placed
