"""Finds dead letters that are new since the last report, by batch numbers.

Not by clocks: a batch that was decided before a look may bring its letters after it, and Kafka's timestamps are the
producers'. The ledger has a row of a batch only when its letters are in, batches end in the order of their numbers, and a
letter keeps the number of the batch that left it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_codes import TABLE_LOST
from frazil.iceberg.ledger.dead_letter_scan import LetterQuestion, count_letters, letter_files
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.report.dead_letters import LISTED
from frazil.report.dead_letters_summary import SAMPLES, BatchPeriod, InPeriod, LetterReport, Tally
from frazil.report.letter_reports import KeptReport, keep_report, list_reports
from frazil.run.repair.open_dead_letters import letter_history
from frazil.run.state.pipeline_state import repair_command

EARLIER = 11
"""Reports before this one whose numbers are shown beside it: a dozen bars are read at a glance."""

Row = Mapping[str, Any]
"""One row of the ledger."""


def report_new_letters(project: Project, pipeline: Pipeline, run: str, now: datetime) -> KeptReport | None:
    """Sum up the dead letters of batches that finished since the last report, and keep it.

    Returns:
        The report; None if there is nothing new, and then nothing is written.

    Raises:
        Terminal: The dead-letter table is gone although batches left letters in it.
        Retryable: The catalog or the storage can't be read now.
    """
    reports = list_reports(project, pipeline)
    report = new_letters(project, pipeline, reports, now)
    return None if report is None or not report.count else keep_report(project, pipeline, report, run)


def new_letters(
    project: Project, pipeline: Pipeline, reports: Sequence[KeptReport], now: datetime
) -> LetterReport | None:
    """The dead letters of batches that finished since the last report; None if no batch did. Reports before come the newest
    first.

    Raises:
        Terminal, Retryable: As `report_new_letters`.
    """
    lake = project.lake_of(pipeline)
    rows = read_ledger(lake, pipeline.ledger_table, pipeline.name)  # before the letters: theirs are in by then
    last = _if_still_valid(reports[0], rows) if reports else None
    after = 0 if last is None else last.through
    if not rows or rows[-1]["n"] <= after:
        return None
    since = rows[0]["decided_at"] if last is None else last.until
    period = _period(rows, after, reports if last is not None else ())
    report = LetterReport(pipeline.name, pipeline.owner, pipeline.dead_letters_table, since, now, batches=period)
    return _counted_report(project, pipeline, report, rows)


def _if_still_valid(last: KeptReport, rows: Sequence[Row]) -> KeptReport | None:
    """The last report, unless the pipeline was recreated since: then its batch numbers belong to other batches."""
    if not rows or rows[-1]["n"] < last.through:
        return None
    return None if any(row["n"] == last.through and row["batch"] != last.batch for row in rows) else last


def _period(rows: Sequence[Row], after: int, reports: Sequence[KeptReport]) -> BatchPeriod:
    new = [row for row in rows if row["n"] > after]
    home = {row["n"]: row["records_written"] for row in new if row["kind"] == "dead_letters"}
    return BatchPeriod(
        after=after,
        through=rows[-1]["n"],
        batch=rows[-1]["batch"],
        came_home=sum(home.values()),
        earlier=tuple((report.until, report.count) for report in reversed(reports[:EARLIER])),
    )


def _counted_report(
    project: Project, pipeline: Pipeline, report: LetterReport, rows: Sequence[Row]
) -> LetterReport | None:
    period, name = report.batches, pipeline.dead_letters_table
    if period is None:
        return None
    table = project.lake_of(pipeline).find_table(name)
    if table is None:
        _refuse_lost(pipeline, period, rows)
        return None
    before, reporting = _batch_before(report, rows), pipeline.dead_letters.report
    undone = letter_history(rows).taken_back
    question = LetterQuestion(undone=undone, batches=(before, period.through))
    samples = SAMPLES if reporting is False else reporting.samples
    tally = Tally(_after_batch(period.after), undone, pipeline.dead_letters.payload, samples)
    for file in letter_files(table, name, question, LISTED):
        for batch in file.batches:
            tally.add(batch)
    return replace(report, groups=tuple(tally.groups()), table_total=count_letters(table, name))


def _batch_before(report: LetterReport, rows: Sequence[Row]) -> int:
    """Number of the last batch that was decided before a period of the same length began."""
    begin = report.since - (report.until - report.since)
    after = 0 if report.batches is None else report.batches.after
    return max((row["n"] for row in rows if row["n"] <= after and row["decided_at"] <= begin), default=0)


def _after_batch(after: int) -> InPeriod:
    return lambda letters: pc.greater(letters.column("_frazil_batch"), pa.scalar(after, pa.int64()))


def _refuse_lost(pipeline: Pipeline, period: BatchPeriod, rows: Sequence[Row]) -> None:
    new = (row for row in rows if row["n"] > period.after and row["role"] == "dead_letters")
    lost = sum(row["rows"] for row in new)
    if lost:
        raise TABLE_LOST.terminal(
            f"pipeline {pipeline.name}: batches {period.after + 1} to {period.through} left {lost:,} dead letters, and table"
            f" {pipeline.dead_letters_table} is gone",
            next_step=repair_command(pipeline.name, pipeline.dead_letters_table),
        )
