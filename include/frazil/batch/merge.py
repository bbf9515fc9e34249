"""How changes become part of a table that has one row per key: plain data between the file that says so and the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.batch.removal import Coordinates


@dataclass(frozen=True, slots=True)
class Merge:
    """Which rows are one, and which change of a row is the later one.

    Attributes:
        keys: Columns that identify a row.
        columns: Columns that say which record changed a row last, and in which batch.
        timestamp: Column of that record's time.
        order_by: Column whose larger value is the later change. None: the larger offset is, of one partition; of two
            partitions the larger timestamp.
        deleted: Column that says whether a row was deleted. None: deleted rows go.
        since: Topic -> number of the first batch of its present incarnation; an earlier row's offset says nothing.
    """

    keys: tuple[str, ...]
    columns: Coordinates
    timestamp: str
    order_by: str | None = None
    deleted: str | None = None
    since: Mapping[str, int] = field(default_factory=dict)

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
        )
