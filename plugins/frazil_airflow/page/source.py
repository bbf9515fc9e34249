"""Where the page gets what it shows: the project's files, its tables, and conditions that were read beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from frazil.monitor.batches import Series
from frazil.monitor.condition import Condition

if TYPE_CHECKING:
    from frazil.batch.letters import LetterChoice, Place
    from frazil.iceberg.letter_scan import State as LetterState
    from frazil.monitor.batches import BatchPage
    from frazil.pipeline.model import Pipeline
    from frazil.report.dead_letters import LetterMark, Listing, WholeLetter
    from frazil.report.letter_reports import KeptReport
    from frazil.report.table_past import SchemaVersion, Snapshots


class Source(Protocol):
    """What the page asks. Every method may be called by several threads at once.

    Those that read tables may take their time, and raise FrazilError: they are asked before the database of Airflow is, whose
    connections would wait with them.
    """

    def pipelines(self) -> Mapping[str, Pipeline]:
        """Pipelines by name, as their files say now."""

    def broken(self) -> Mapping[str, str]:
        """Files that can't be used, by their names without the ending, and why: their DAGs are not made any more."""

    def condition(self, name: str) -> Condition | None:
        """The condition that was read last, without what Airflow knows; None before the first. Never waits."""

    def promised(self, name: str) -> float | None:
        """How long a record may wait, in seconds."""

    def tables(self, name: str) -> tuple[str, ...]:
        """Its destinations: of its file, and, as read last, those that it made because records name them. Never waits."""

    def series(self, name: str) -> Series:
        """Rows and dead letters over the last day, as read last. Never waits."""

    def batches(self, name: str, start: int, limit: int) -> BatchPage:
        """Finished batches, the newest first, without the first `start`."""

    def letters(
        self, name: str, choice: LetterChoice, state: LetterState, after: LetterMark | None, limit: int
    ) -> Listing | None:
        """Dead letters behind a mark; None if the pipeline has no table for them yet."""

    def letter(self, name: str, place: Place) -> tuple[WholeLetter, ...]:
        """Every letter of one record."""

    def reports(self, name: str, most: int) -> Sequence[KeptReport]:
        """The newest kept reports on its dead letters."""

    def snapshots(self, name: str, table: str, start: int, limit: int) -> Snapshots | None:
        """Snapshots of a table, the newest first; None if the table is not there."""

    def schema_changes(self, name: str, table: str) -> Sequence[SchemaVersion] | None:
        """How the schema of a table changed; None if the table is not there."""
