"""What became of the records that were meant for one of several destinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.batch.unknown import UnknownFields


@dataclass(frozen=True, slots=True)
class TableCounts:
    """What became of the records that were meant for one of several destinations: routed = written + dead.

    Attributes:
        routed: Records that were meant for it.
        written: Those that have rows in it.
        dead: Those that are dead letters of it alone.
        rows: Rows, more than one of a list that was exploded.
        unknown: Fields of the written ones that no column of it takes.
    """

    routed: int = 0
    written: int = 0
    dead: int = 0
    rows: int = 0
    unknown: UnknownFields = field(default_factory=UnknownFields)

    def __add__(self, other: TableCounts) -> TableCounts:
        return TableCounts(
            self.routed + other.routed,
            self.written + other.written,
            self.dead + other.dead,
            self.rows + other.rows,
            self.unknown + other.unknown,
        )

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> TableCounts:
        """Read the form that `dataclasses.asdict` gives; an older Frazil did not count unknown fields."""
        return cls(**{**body, "unknown": UnknownFields(**body.get("unknown", {}))})
