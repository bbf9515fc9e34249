"""Reads the dead-letter table: which letters are open, and whole letters in bounded parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from frazil.batch.dead_letters import Place
from frazil.batch.facts import StagedFile
from frazil.batch.removal import Removal
from frazil.iceberg.commit.removal import matches, row_filter, scan_rows
from frazil.iceberg.errors import translated
from frazil.iceberg.ledger.dead_letter_scan import is_open
from frazil.records.model.kafka_schema import with_python_times

_LETTERS_AT_ONCE = 250
"""Whole letters held in memory."""

_NAMED = ("topic", "partition", "offset", "code", "timestamp", "_frazil_batch", "destination")


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter without its record.

    Attributes:
        timestamp: Kafka timestamp of the record; None also for one beyond year 9999.
        batch: Number of the batch that kept it.
        destination: The table that the record does not fit; None for a record as a whole.
    """

    place: Place
    code: str
    timestamp: datetime | None
    batch: int | None
    destination: str | None = None


def open_letters(table: Table, name: str, undone: Collection[int]) -> Iterator[Letter]:
    """Open letters: those that no batch landed, or only a batch that was rolled back since. Keys and values are not read.

    `undone`: numbers of rolled-back batches.
    """
    for batch in scan_rows(table, f"reading table {name}", is_open(undone), _NAMED):
        for row in with_python_times(batch).to_pylist():
            place = Place(row["topic"], row["partition"], row["offset"])
            yield Letter(place, row["code"], row["timestamp"], row["_frazil_batch"], row["destination"])


def letters_within(table: Table, name: str, removal: Removal) -> Iterator[pa.RecordBatch]:
    """All letters that a removal would delete, in bounded parts."""
    for batch in scan_rows(table, f"reading table {name}", row_filter(removal)):
        yield batch.filter(matches(batch, removal))


def staged_letters(table: Table, name: str, files: Sequence[StagedFile]) -> Iterator[pa.RecordBatch]:
    """All letters of staged files, in bounded parts and a fixed order. The files may be committed already or not.

    Raises:
        Terminal: A file is gone.
    """
    for file in files:
        with translated(f"reading staged letters of table {name}"), table.io.new_input(file.path).open() as stream:
            yield from pq.ParquetFile(stream).iter_batches(_LETTERS_AT_ONCE)
