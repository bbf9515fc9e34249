"""Reports on dead letters that are new since the last report: makes, stores, lists and opens them, and writes their notices.

The newest report has the number of the last batch that was reported. So it is never removed, and the next report begins after it. A
report exists once its facts file does, which is written last: after a run that was killed before, the next run reports the same
dead letters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, TypeAdapter

from frazil.error_codes import BAD_FILE, NAME_UNKNOWN, TABLE_LOST
from frazil.iceberg.catalog.catalog import Folder
from frazil.iceberg.ledger.dead_letters import LetterQuestion, count_letters, letter_files
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.pipeline.channels import Notice
from frazil.pipeline.models.maintenance import parse_age
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.syntax.strict import read_json
from frazil.project import Project
from frazil.report.dead_letters import LISTED
from frazil.report.dead_letters_summary import (
    SAMPLES,
    BatchPeriod,
    InPeriod,
    LetterGroup,
    LetterReport,
    Tally,
    batch_range,
    counted,
    html,
    markdown,
)
from frazil.run.repair.dead_letter_decode import letter_history
from frazil.run.state.pipeline_state import repair_command

Form = Literal["html", "markdown"]

_SUFFIX: Mapping[Form, str] = {"html": ".html", "markdown": ".md"}
_FACTS = ".json"
_NAME = re.compile(r"\d{8}T\d{9}Z")
_SECRET = ("uri", "credential", "token", "auth", "header.", "rest.auth.", "oauth2-")
"""Prefixes of properties that are for access to the catalog itself: reading files needs none of them."""


@dataclass(frozen=True, slots=True)
class KeptReport:
    """A stored report without its samples.

    Attributes:
        name: Name of its files, without their endings: the end of its period, so that names sort by time.
        run: Id of the run that made the report.
        since, until: Period of the report, UTC.
        after, through, batch: Batches of the report, as in `BatchPeriod`.
        count, open, before, came_home: Numbers of dead letters, as in `LetterReport` and `BatchPeriod`.
        groups: The dead letters by code, topic and table, without samples.
        is_due: Whether the count reached the threshold of the pipeline file, so that the report is to be sent.
        told_channels: Channels that received the report.
        sent_at: When the last of the channels received it; None until then.
    """

    pipeline: str
    name: str
    run: str
    since: datetime
    until: datetime
    after: int
    through: int
    batch: str
    count: int
    open: int
    before: int
    came_home: int
    groups: tuple[LetterGroup, ...] = ()
    is_due: bool = False
    told_channels: Annotated[tuple[str, ...], Field(alias="told")] = ()
    sent_at: datetime | None = None

    def to_body(self) -> dict[str, Any]:
        """The values under the keys of the stored files. Times are datetimes."""
        return dict(_KEPT.dump_python(self, by_alias=True, exclude={"groups": {"__all__": {"samples"}}}))

    @property
    def is_unsent(self) -> bool:
        """Whether the report is still to be sent to some channel."""
        return self.is_due and self.sent_at is None


_KEPT = TypeAdapter(KeptReport)


def reports_folder(project: Project, pipeline: Pipeline) -> Folder:
    """The folder of a pipeline's reports."""
    root = project.settings.reports.folder or str(project.home.root / "reports")
    catalog = project.settings.catalogs.get(pipeline.home_catalog)
    catalog_properties = {} if catalog is None else catalog.properties
    properties = {name: setting for name, setting in catalog_properties.items() if not name.startswith(_SECRET)}
    return Folder(f"{root.rstrip('/')}/{pipeline.name}", properties)


def list_reports(project: Project, pipeline: Pipeline, most: int | None = None) -> list[KeptReport]:
    """The stored reports of a pipeline, newest first, limited to a number if one is given.

    Raises:
        Retryable: The storage can't be read now.
        Terminal: One of the files is no report.
    """
    folder = reports_folder(project, pipeline)
    return [_read(folder, name) for name in _names(folder)[:most]]


def open_report(project: Project, pipeline: Pipeline, name: str, form: Form = "html") -> str:
    """The text of a stored report.

    Raises:
        Terminal: No report has this name.
        Retryable: The storage can't be read now.
    """
    folder = reports_folder(project, pipeline)
    if name not in _names(folder):
        raise NAME_UNKNOWN.terminal(
            f"pipeline {pipeline.name} has no report {name!r} in {folder.location}",
            next_step="older ones are removed: reports.keep and reports.older_than in the settings file",
        )
    return folder.read(f"{name}{_SUFFIX[form]}")


def store_report(project: Project, pipeline: Pipeline, report: LetterReport, run: str) -> KeptReport:
    """Write a report's files, and remove old reports.

    Raises:
        Retryable: The storage can't be written now.
    """
    folder, facts = reports_folder(project, pipeline), _kept_report(pipeline, report, run)
    folder.write(f"{facts.name}{_SUFFIX['html']}", html(report))
    folder.write(f"{facts.name}{_SUFFIX['markdown']}", markdown(report))
    _write(folder, facts)
    _remove_old(project, folder, report.until)
    return facts


def note_told(
    project: Project, pipeline: Pipeline, report: KeptReport, channels: Iterable[str], sent_at: datetime | None
) -> KeptReport:
    """Store that further channels received a report. `sent_at`: the time, if these were the last ones.

    Raises:
        Retryable: The storage can't be written now. Then the channels receive it again.
    """
    noted = replace(report, told_channels=(*report.told_channels, *channels), sent_at=sent_at)
    _write(reports_folder(project, pipeline), noted)
    return noted


def _kept_report(pipeline: Pipeline, report: LetterReport, run: str) -> KeptReport:
    period, reporting = report.batches, pipeline.dead_letters.report
    if period is None:
        raise ValueError("a stored report must name its batches")
    return KeptReport(
        pipeline=pipeline.name,
        name=_name_of(report.until),
        run=run,
        since=report.since,
        until=report.until,
        after=period.after,
        through=period.through,
        batch=period.batch,
        count=report.count,
        open=report.open,
        before=report.before,
        came_home=period.came_home,
        groups=tuple(replace(group, samples=()) for group in report.groups if group.count),
        is_due=reporting is not False and report.count >= reporting.threshold,
    )


def _name_of(instant: datetime) -> str:
    instant = instant.astimezone(UTC)
    return f"{instant:%Y%m%dT%H%M%S}{instant.microsecond // 1000:03}Z"


def _names(folder: Folder) -> list[str]:
    """Names of the reports, the newest first."""
    stems = (name.removesuffix(_FACTS) for name in folder.names() if name.endswith(_FACTS))
    return sorted((name for name in stems if _NAME.fullmatch(name)), reverse=True)


def _remove_old(project: Project, folder: Folder, instant: datetime) -> None:
    settings = project.settings.reports
    oldest = _name_of(instant - parse_age(settings.older_than))
    expired = {name for name in _names(folder)[settings.keep :] if name < oldest}
    for name in sorted(expired):
        for suffix in (*_SUFFIX.values(), _FACTS):
            folder.delete(f"{name}{suffix}")


def _write(folder: Folder, facts: KeptReport) -> None:
    folder.write(f"{facts.name}{_FACTS}", json.dumps(facts.to_body(), default=datetime.isoformat, indent=2) + "\n")


def _read(folder: Folder, name: str) -> KeptReport:
    try:
        return read_json(_KEPT, folder.read(f"{name}{_FACTS}"))
    except ValueError as error:
        raise BAD_FILE.terminal(
            f"{folder.location}/{name}{_FACTS} holds no report: {error}",
            next_step="remove the file: the next report begins where the one before it ended",
        ) from error


# What is new is decided by batch numbers, not by clocks: a batch that was decided before a report may bring its dead letters
# after it, and Kafka's timestamps come from producers. The ledger gets a batch's row only after its dead letters landed,
# batches finish in the order of their numbers, and a dead letter keeps the number of its batch.

EARLIER = 11
"""Earlier reports whose numbers a report shows: a dozen bars are easy to read."""

Row = Mapping[str, Any]
"""One row of the ledger."""


def report_new_letters(project: Project, pipeline: Pipeline, run: str, now: datetime) -> KeptReport | None:
    """Report the dead letters of batches that finished since the last report, and store the report.

    Returns:
        The report; None without new dead letters: then nothing is written.

    Raises:
        Terminal: The dead-letter table is gone, but batches landed dead letters in it.
        Retryable: The catalog or the storage can't be read now.
    """
    reports = list_reports(project, pipeline)
    report = new_letters(project, pipeline, reports, now)
    return None if report is None or not report.count else store_report(project, pipeline, report, run)


def new_letters(
    project: Project, pipeline: Pipeline, reports: Sequence[KeptReport], now: datetime
) -> LetterReport | None:
    """A report on the dead letters of batches that finished since the last report; None if no batch did. `reports`: the
    stored ones, the newest first.

    Raises:
        Terminal, Retryable: As `report_new_letters`.
    """
    lake = project.lake_of(pipeline)
    # Before the table, which then has the dead letters of all these batches.
    rows = read_ledger(lake, pipeline.ledger_table, pipeline.name)
    last = reports[0] if reports and _is_of_pipeline(reports[0], rows) else None
    after = 0 if last is None else last.through
    if not rows or rows[-1]["n"] <= after:
        return None
    since = rows[0]["decided_at"] if last is None else last.until
    period, name = _period(rows, after, reports if last is not None else ()), pipeline.dead_letters_table
    table = lake.find_table(name)
    if table is None:
        _refuse_lost(pipeline, period, rows)
        return None
    before, reporting = _batch_before(after, since - (now - since), rows), pipeline.dead_letters.report
    taken_back = letter_history(rows).taken_back
    question = LetterQuestion(undone=taken_back, batches=(before, period.through))
    samples = SAMPLES if reporting is False else reporting.samples
    tally = Tally(_after_batch(after), taken_back, pipeline.dead_letters.payload, samples)
    for file in letter_files(table, name, question, LISTED):
        for batch in file.batches:
            tally.add(batch)
    groups, total = tuple(tally.groups()), count_letters(table, name)
    return LetterReport(pipeline.name, pipeline.owner, name, since, now, groups, total, period)


def _is_of_pipeline(last: KeptReport, rows: Sequence[Row]) -> bool:
    """Whether the last report's batches are in the ledger. Not if the pipeline was recreated since: its numbers begin again."""
    if not rows or rows[-1]["n"] < last.through:
        return False
    return not any(row["n"] == last.through and row["batch"] != last.batch for row in rows)


def _period(rows: Sequence[Row], after: int, reports: Sequence[KeptReport]) -> BatchPeriod:
    new = [row for row in rows if row["n"] > after]
    # The ledger has several rows per batch, each with the numbers of the whole batch.
    replayed = {row["n"]: row["records_written"] for row in new if row["kind"] == "dead_letters"}
    return BatchPeriod(
        after=after,
        through=rows[-1]["n"],
        batch=rows[-1]["batch"],
        came_home=sum(replayed.values()),
        earlier=tuple((report.until, report.count) for report in reversed(reports[:EARLIER])),
    )


def _batch_before(after: int, begin: datetime, rows: Sequence[Row]) -> int:
    """Number of the last batch, up to `after`, that was decided before the begin of the previous period."""
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


_NOTICE_LINES = 10
"""Groups that a notice names; the report has all."""


def letters_notice(pipeline: Pipeline, report: KeptReport, page: str, link: str | None) -> Notice:
    """The notice of a report. `page`: the report as HTML."""
    return Notice(
        pipeline=pipeline.name,
        owner=pipeline.owner,
        kind="dead_letters",
        severity="warning",
        title=f"{pipeline.name}: {counted(report.count)} new in {batch_range(report.after, report.through)}",
        cause="\n".join(_cause_lines(report)),
        next_step=f"frazil dead-letters list {pipeline.name}",
        link=link,
        html=page,
        report=report.name,
    )


def _cause_lines(report: KeptReport) -> Iterator[str]:
    yield f"{report.open:,} of {report.count:,} are open; {report.before:,} in the period before"
    for group in report.groups[:_NOTICE_LINES]:
        table = f" of table {group.destination}" if group.destination else ""
        yield f"{group.count:,} {group.code} in {group.topic}{table} ({group.before:,} before)"
    if more := report.groups[_NOTICE_LINES:]:
        yield f"and {sum(group.count for group in more):,} of {len(more)} other kinds"
