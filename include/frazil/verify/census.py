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
        foreign: Rows without any Kafka column: not ours.
        nowhere: Table -> outcomes with some of these columns, but not topic, partition and offset.
    """

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    older_incarnation: int = 0
    foreign: int = 0
    nowhere: Counter[str] = field(default_factory=Counter)

    def differences(self) -> Iterator[Difference]:
        """Outcomes that name no record."""
        for table, count in sorted(self.nowhere.items()):
            yield Difference("unexpected", f"topic, partition and offset in every row of {table}", f"{count} without")


def count(census: Census, held: Held, live: Mapping[str, int]) -> None:
    """Add a table to a census.

    Args:
        census: Takes the counts.
        held: The table.
        live: Topics that are still what the position knows -> first batch number of their present incarnation.
    """
    names = held.columns
    columns = [names.topic, names.partition, names.offset, names.batch]
    for batch in scan(held, None, columns):
        # Counting non-null offsets apart from rows finds those that name a partition and no offset.
        table = pa.Table.from_batches([batch]).select(columns).rename_columns(["topic", "partition", "offset", "batch"])
        counted = table.group_by(["topic", "partition", "batch"]).aggregate([([], "count_all"), ("offset", "count")])
        for group in counted.to_pylist():
            _add(census, held.name, live, group)


def _add(census: Census, table: str, live: Mapping[str, int], group: Mapping[str, int | str | None]) -> None:
    topic, partition, n = group["topic"], group["partition"], group["batch"]
    rows, placed = int(group["count_all"] or 0), int(group["offset_count"] or 0)
    if topic is None and partition is None and n is None and not placed:
        census.foreign += rows
    elif topic is None or partition is None:
        census.nowhere[table] += rows
    elif topic not in live or (n is not None and int(n) < live[str(topic)]):
        census.older_incarnation += rows
    else:
        census.counts[str(topic), int(partition)] += placed
        if rows > placed:
            census.nowhere[table] += rows - placed
