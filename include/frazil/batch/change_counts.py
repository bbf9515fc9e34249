"""How many changes of a batch were staged for a table that rows are merged into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Staged changes by what they do. Of several changes of one key only the last one counts in the table.

    Attributes:
        upserts: Rows as they are.
        deletes: Rows that go, those that an update of a key takes away among them.
        truncates: All rows of a topic that go.
    """

    upserts: int = 0
    deletes: int = 0
    truncates: int = 0

    @classmethod
    def of(cls, ops: Mapping[str, int]) -> Self:
        """Counts by `frazil.batch.changes.Op`."""
        return cls(ops.get(UPSERT, 0), ops.get(DELETE, 0), ops.get(TRUNCATE, 0))

    def __add__(self, other: ChangeCounts) -> ChangeCounts:
        return ChangeCounts(
            self.upserts + other.upserts, self.deletes + other.deletes, self.truncates + other.truncates
        )

    @property
    def said(self) -> str:
        """For people: `12 upserts, 3 deletes`."""
        counts = {"upserts": self.upserts, "deletes": self.deletes, "truncates": self.truncates}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count or name != "truncates")
