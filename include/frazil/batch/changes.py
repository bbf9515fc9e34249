"""Changes of a table with one row per key: the columns that mark staged rows, their counts, and how an engine merges them.

Rows are staged as plain Parquet in the order they were read. Of two rows of one key the later one counts: by the column that
`order_by` names (never null in a staged row, but for a truncate), then by Kafka partition and offset, then by `PLACE`. Without
`order_by` Kafka's timestamp comes first between two partitions. Of a deleted row all columns may be null but the key, the one
of `order_by`, and those that tell where it came from; of a truncate the key as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from frazil.batch.position import LostTail
from frazil.batch.removal import Coordinates

OP: Final = "_frazil_op"
"""What happens: text, one of `Op`."""

PLACE: Final = "_frazil_place"
"""int32: place of a row among the rows of its record, from 0."""

Op = Literal["upsert", "delete", "truncate"]
UPSERT: Final = "upsert"
DELETE: Final = "delete"
TRUNCATE: Final = "truncate"


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Counts of staged changes by operation. Of several changes of one key, only the last one takes effect in the table.

    Rows that an update of a key takes away are deletes; a truncate takes all rows of a topic.
    """

    upserts: int = 0
    deletes: int = 0
    truncates: int = 0

    @classmethod
    def from_ops(cls, ops: Mapping[str, int]) -> Self:
        """Counts by `frazil.batch.changes.Op`."""
        return cls(ops.get(UPSERT, 0), ops.get(DELETE, 0), ops.get(TRUNCATE, 0))

    def __add__(self, addend: ChangeCounts) -> ChangeCounts:
        return ChangeCounts(
            self.upserts + addend.upserts, self.deletes + addend.deletes, self.truncates + addend.truncates
        )

    @property
    def summary(self) -> str:
        """For people: `12 upserts, 3 deletes`."""
        counts = {"upserts": self.upserts, "deletes": self.deletes, "truncates": self.truncates}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count or name != "truncates")


@dataclass(frozen=True, slots=True)
class Merge:
    """How to merge changes: the key that identifies a row, and the order of changes of one row.

    Attributes:
        keys: Columns that identify a row.
        columns: Columns that say which record changed a row last, and in which batch.
        timestamp: Column of that record's time.
        order_by: Column whose larger value is the later change. None: the larger offset is, of one partition; of two
            partitions the larger timestamp.
        deleted: Column that says whether a row was deleted. None: deleted rows go.
        since: Topic -> number of the first batch of its present incarnation; an earlier row's offset says nothing.
        lost_tails: Topic -> what its logs lost; the offsets of those rows say nothing either.
    """

    keys: tuple[str, ...]
    columns: Coordinates
    timestamp: str
    order_by: str | None = None
    deleted: str | None = None
    since: Mapping[str, int] = field(default_factory=dict)
    lost_tails: Mapping[str, tuple[LostTail, ...]] = field(default_factory=dict)

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Merge:
        """Read the form that `dataclasses.asdict` gives."""
        return cls(
            tuple(body["keys"]),
            Coordinates(**body["columns"]),
            body["timestamp"],
            body["order_by"],
            body["deleted"],
            dict(body["since"]),
            {topic: tuple(LostTail(*tail) for tail in tails) for topic, tails in body.get("lost_tails", {}).items()},
        )
