"""The batches of pipelines, for readers who come often: pages and time series of a ledger of any length, with a cache.

A process has one `Ledgers`, which is thread-safe. Each access asks the catalog for the table and reads only new files. The
cache holds the rest, within one limit of memory for all ledgers. If a compaction, an expiry or a rollback removes a file, its
part of the cache is dropped.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from threading import Lock, RLock
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from frazil.iceberg.catalog.table import Table
from frazil.iceberg.ledger.ledger import (
    OF_LETTERS,
    PLACED,
    LedgerFile,
    files_of_batches,
    in_order,
    ledger_files,
    letter_rows,
    read_ledger_files,
)
from frazil.monitor.figures import COLUMNS, Figures, Point, figures, points_of, with_steps
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.report.history import BatchHistory, batch_of

_PARTS: Final = 16
"""Results of reads that are cached apart. More are combined, since many small results would take more memory than their content."""

T = TypeVar("T", bound=Figures | pa.Table)


class FileReads(Generic[T]):
    """Reads each file of a ledger once and caches the result. Not thread-safe.

    Args:
        read: Reads files.
        join: Combines several results without copying.
        pack: Copies a combined result to contiguous memory.
        most: Bytes of the cache. The oldest results are dropped first; a single larger one is not cached.
    """

    def __init__(
        self,
        read: Callable[[Sequence[LedgerFile]], T],
        join: Callable[[Sequence[T]], T],
        pack: Callable[[T], T],
        most: float = math.inf,
    ) -> None:
        self._read, self._join, self._pack, self._most = read, join, pack, most
        self._parts: list[tuple[frozenset[str], T]] = []

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the cached results take."""
        return sum(part.nbytes for _, part in self._parts)

    def keep(self, files: Sequence[LedgerFile]) -> None:
        """Drop cached results that have other files than these."""
        keys = {file.key for file in files}
        self._parts = [part for part in self._parts if part[0] <= keys]

    def load(self, files: Sequence[LedgerFile]) -> T | None:
        """The result for these files, perhaps with further cached files in it; None without any."""
        missing = [file for file in files if not any(file.key in keys for keys, _ in self._parts)]
        if missing:
            read = self._read(missing)
            if read.nbytes > self._most:
                return self._join([*(part for _, part in self._parts), read])
            self._parts.append((frozenset(file.key for file in missing), read))
        requested_keys = {file.key for file in files}
        while (
            self.nbytes > self._most
            and (old := next((part for part in self._parts if not part[0] & requested_keys), None)) is not None
        ):
            self._parts.remove(old)
        if len(self._parts) > _PARTS:
            keys = frozenset[str]().union(*(keys for keys, _ in self._parts))
            self._parts = [(keys, self._pack(self._join([part for _, part in self._parts])))]
        return self._join([part for _, part in self._parts]) if self._parts else None


MEMORY: Final = 256 * 2**20
"""Bytes that the caches of all ledgers may take, enough for about 400,000 batches. The least recently used ledgers are dropped."""

PAGES_MEMORY: Final = 64 * 2**20
"""Bytes of the cache of one ledger's pages."""

LARGE_FILE: Final = 2 * 2**20
"""Compressed bytes of a file above which a page reads only its own batches from the file and caches nothing: compaction may
write the whole ledger into one file."""

_FEW: Final = 50
"""Files that `last_commit` reads at a time."""

_EVER: Final = 2**33
"""Seconds of one step that contains all instants since 1970."""


@dataclass(frozen=True)
class BatchPage:
    """A page of batches, the newest first.

    Attributes:
        batches: Batches of this page, fewer if the ledger lost some.
        offset: Number of newer batches.
        total: Batch numbers from the oldest batch to the newest.
    """

    batches: tuple[BatchHistory, ...]
    offset: int
    total: int


class Ledger:
    """The ledger of one pipeline, with a cache of its files."""

    def __init__(self, table: str, pipeline: str) -> None:
        self._name, self._pipeline = table, pipeline
        self._lock = RLock()
        self._nbytes = 0
        self._manifests: dict[str, tuple[LedgerFile, ...]] = {}
        self._seen: tuple[str, int | None] | None = None
        self._table: Table | None = None
        self._files: tuple[LedgerFile, ...] = ()
        self._figures = FileReads(lambda files: figures(self._read(files, COLUMNS)), Figures.joined, Figures.packed)
        self._rows = FileReads(
            lambda files: self._read(files, None), pa.concat_tables, pa.Table.combine_chunks, PAGES_MEMORY
        )
        self._letters = FileReads(
            lambda files: self._read(files, OF_LETTERS), pa.concat_tables, pa.Table.combine_chunks
        )

    @property
    def nbytes(self) -> int:
        """Bytes of memory used after the last read. Never waits for a read in progress."""
        return self._nbytes

    def _weigh(self) -> None:
        self._nbytes = self._figures.nbytes + self._rows.nbytes + self._letters.nbytes

    def refresh(self, table: Table) -> None:
        """Take over the ledger's table as it is now, and drop cached results of removed files.

        Raises:
            Retryable: The storage can't be read now.
        """
        with self._lock:
            shape = f"{table.metadata.table_uuid} {table.metadata.current_schema_id}"
            version = shape, table.metadata.current_snapshot_id
            self._table = table
            if self._seen is not None and self._seen[0] != shape:  # a newer Frazil added columns
                for reads in (self._figures, self._rows, self._letters):
                    reads.keep(())
            if version != self._seen:
                self._files = ledger_files(table, self._name, self._manifests)
                for reads in (self._figures, self._rows, self._letters):
                    reads.keep(self._files)
                self._seen = version
            self._weigh()

    def _read(
        self, files: Sequence[LedgerFile], columns: Sequence[str] | None, numbers: Collection[int] | None = None
    ) -> pa.Table:
        if self._table is None:
            raise LookupError("a ledger without a table has no files")
        names = self._table.schema().column_names if columns is None else columns
        return read_ledger_files(self._table, self._name, files, names, self._pipeline, numbers)

    def page(self, offset: int = 0, limit: int = 50) -> BatchPage:
        """A page of batches, the newest first.

        Raises:
            Retryable: The storage can't be read now.
        """
        with self._lock:
            if not self._files:
                return BatchPage((), offset, 0)
            newest, oldest = max(file.n[1] for file in self._files), min(file.n[0] for file in self._files)
            numbers = range(newest - offset - limit + 1, newest - offset + 1)
            rows_read = self._rows_of(numbers)
            self._weigh()
        rows = in_order(rows_read.to_pylist())
        batches = [
            batch_of(list(batch_rows)) for _, batch_rows in groupby(rows, key=lambda row: (row["n"], row["batch"]))
        ]
        return BatchPage(tuple(reversed(batches)), offset, newest - oldest + 1)

    def _rows_of(self, numbers: range) -> pa.Table:
        """Rows of the batches with these numbers, with all columns."""
        files = [file for file in self._files if file.n[0] < numbers.stop and file.n[1] >= numbers.start]
        small, large = (
            [file for file in files if (_size(file) > LARGE_FILE) == is_large] for is_large in (False, True)
        )
        read = self._read(large, None, numbers)
        cached = self._rows.load(small) if small else None
        if cached is None:
            return read
        n = cached["n"]
        fits = cached.filter(pc.and_(pc.greater_equal(n, numbers.start), pc.less(n, numbers.stop)))
        return pa.concat_tables([read, fits])

    def letter_rows(self) -> list[dict[str, Any]]:
        """The rows that matter to dead letters, as `frazil.iceberg.ledger.ledger.read_letter_rows` reads them.

        Raises:
            Retryable: The storage can't be read now.
        """
        with self._lock:
            rows = self._letters.load(self._files)
            self._weigh()
            if rows is None:
                return []
            return letter_rows(
                rows, lambda numbers: self._read(files_of_batches(self._files, numbers), PLACED, numbers)
            )

    def series(self, since: datetime, until: datetime, step: timedelta) -> tuple[Point, ...]:
        """Sums of batches decided from `since` to `until`, a point per step; steps without batches are left out.

        Raises:
            Retryable: The storage can't be read now.
        """
        figures_read = self._between(since, until)
        size = max(1, int(step.total_seconds()))
        batches, waits = (with_steps(part, since, until, size) for part in (figures_read.batches, figures_read.waits))
        return tuple(sorted(points_of(batches, waits, size), key=lambda point: point.begin))

    def total(self, since: datetime, until: datetime) -> Point:
        """The sum of all batches decided from `since` to `until`.

        Raises:
            Retryable: The storage can't be read now.
        """
        figures_read = self._between(since, until)
        batches, waits = (with_steps(part, since, until, _EVER) for part in (figures_read.batches, figures_read.waits))
        return next(iter(points_of(batches, waits, _EVER)), Point(since))

    def last_commit(self) -> datetime | None:
        """When the last batch with records was decided; None without one.

        Raises:
            Retryable: The storage can't be read now.
        """
        with self._lock:
            newest = sorted((file.n[1] for file in self._files), reverse=True)
        for least in newest[_FEW - 1 :: _FEW] + newest[-1:]:
            decided = self._load_figures(partial(_reaches, least)).batches["decided"]
            if len(decided):
                return datetime.fromtimestamp(pc.max(decided).as_py(), UTC)
        return None

    def _between(self, since: datetime, until: datetime) -> Figures:
        first, last = (int(instant.timestamp() * 1_000_000) for instant in (since, until))
        return self._load_figures(lambda file: file.decided_us[1] >= first and file.decided_us[0] <= last)

    def _load_figures(self, is_needed: Callable[[LedgerFile], bool]) -> Figures:
        """Figures of the needed files of the ledger, perhaps with further current files in them."""
        with self._lock:
            figures_read = self._figures.load([file for file in self._files if is_needed(file)]) or _NO_FIGURES
            self._weigh()
            return figures_read


_NO_FIGURES: Final = figures(
    pa.schema(
        [(name, pa.string()) for name in ("pipeline", "batch", "kind", "table", "dead_codes")]
        + [(name, pa.timestamp("us", tz="UTC")) for name in ("planned_at", "decided_at")]
        + [(name, pa.int64()) for name in ("n", "records_read", "records_written", "records_dead", "records_filtered")]
    ).empty_table()
)


class Ledgers:
    """The ledgers that a process reads, with a common limit of memory."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._lock = Lock()
        self._ledgers: OrderedDict[tuple[str, ...], Ledger] = OrderedDict()

    def load(self, project: Project, pipeline: Pipeline) -> Ledger:
        """The ledger of a pipeline, as it is now; empty if the pipeline never ran.

        Raises:
            Retryable: The catalog or the storage can't be read now.
            Terminal: The settings have no such catalog.
        """
        lake, name = project.lake(pipeline.home_catalog), pipeline.ledger_table
        key = (lake.name, lake.uri, str(lake.warehouse), name, pipeline.name)
        table = lake.find_table(name)
        with self._lock:
            ledger = self._ledgers.pop(key, None)
            if ledger is None or table is None:
                ledger = Ledger(name, pipeline.name)
            self._ledgers[key] = ledger
            sizes = {ledger_key: cached.nbytes for ledger_key, cached in self._ledgers.items()}
            for oldest in list(self._ledgers)[:-1]:
                if sum(sizes.values()) > self._memory:
                    del self._ledgers[oldest], sizes[oldest]
        if table is not None:
            ledger.refresh(table)
        return ledger


def _reaches(n: int, file: LedgerFile) -> bool:
    return file.n[1] >= n


def _size(file: LedgerFile) -> int:
    return file.task.file.file_size_in_bytes


SLICE: Final = timedelta(minutes=30)
"""Step of the time series that pages show."""

SLICES: Final = 48
"""Steps of a day."""


@dataclass(frozen=True, slots=True)
class Series:
    """What a pipeline landed over time, in slices of equal length.

    Attributes:
        starts: Begin of each slice, UTC, ascending.
        rows, dead: Records of the batches that were decided in each slice.
    """

    starts: tuple[datetime, ...] = ()
    rows: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()


def last_day(ledger: Ledger, now: datetime) -> Series:
    """Rows and dead letters of the last day, including the current slice.

    Raises:
        Retryable: The storage can't be read now.
    """
    seconds = int(SLICE.total_seconds())
    end = datetime.fromtimestamp((int(now.timestamp()) // seconds + 1) * seconds, UTC)
    starts = tuple(end - number * SLICE for number in range(SLICES, 0, -1))
    points = {point.begin: point for point in ledger.series(starts[0], end, SLICE)}
    rows = tuple(points[start].rows if start in points else 0 for start in starts)
    return Series(starts, rows, tuple(points[start].dead if start in points else 0 for start in starts))
