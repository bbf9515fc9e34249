"""What became of one Arrow batch of records that go to several tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from frazil.batch.facts import TableCounts, UnknownFields
from frazil.batch.schema_change import Demands, Untold
from frazil.records.outcome import Counts


@dataclass(frozen=True, slots=True)
class FannedOut:
    """The outcome of one Arrow batch of records.

    Attributes:
        rows: Table -> rows, in the order of the records.
        dead: Of `LETTER_SCHEMA`, in the order of the records.
        counts: Per topic partition, one outcome per record: dead with any letter, written with rows and no letter.
        tables: What became of the records that were meant for each table; empty where only one could be meant.
        whole_dead: Dead letters of records as a whole, if `tables` is there.
        unknown: Fields of the written records that are in no row, or, of several tables, not in the rows of each.
        demands: Table -> what its records need that it does not have. If there is any, all else has no meaning.
        new_tables: Names of tables that records need and that are not there. Likewise.
        untold: Table -> paths without a column whose values tell no type.
    """

    rows: Mapping[str, pa.RecordBatch]
    dead: pa.RecordBatch
    counts: Counts
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    whole_dead: int = 0
    unknown: UnknownFields = field(default_factory=UnknownFields)
    demands: Demands = field(default_factory=dict)
    new_tables: tuple[str, ...] = ()
    untold: Untold = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        """Whether records need what is not there yet."""
        return bool(self.demands or self.new_tables)
