"""Builds report DAGs: each stores a report on new dead letters, and sends it."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator, Context

from frazil.error_codes import NOTICE_UNDELIVERED
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.syntax.interval import parse_interval
from frazil.project import Project
from frazil_airflow.compat import AirflowSkipException, conf
from frazil_airflow.dags.dag_defaults import dag_arguments, timetable
from frazil_airflow.outputs.links import ReportLink, report_address
from frazil_airflow.project.pipelines import REPLAY, REPORT
from frazil_airflow.project.secrets import load_project, terminal_is_final

if TYPE_CHECKING:
    from frazil.report.letter_reports import KeptReport


_log = logging.getLogger(__name__)


class LetterReportOperator(BaseOperator):
    """Sum up the dead letters since the last report, store the report, and send it if it is due.

    A report that was stored but not sent, because a run ended in between, is sent by the next attempt or run.
    """

    operator_extra_links = (ReportLink(),)

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.report_name: str | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Report.

        Returns:
            What the report says, without samples.

        Raises:
            AirflowSkipException: Nothing is new.
            AirflowFailException: A person must act; the message says what to do.
            Retryable: The catalog or the storage is not available now, or a channel took no message.
        """
        from frazil.report.letter_reports import list_reports, report_new_letters

        run = context["dag_run"]
        with terminal_is_final():
            project = load_project()
            pipeline = project.pipeline(self.pipeline)
            new_report = report_new_letters(project, pipeline, run.run_id, datetime.now(UTC))
            reports = list_reports(project, pipeline)
            unsent = [report for report in reversed(reports) if report.is_unsent]
            if new_report is None and not unsent:
                _say(run, _nothing_new(reports))
                raise AirflowSkipException(_nothing_new(reports))
            shown = new_report or unsent[-1]
            self.report_name, summary = shown.name, _sentence(shown)
            _say(run, summary)
            answers = [
                _send_report(project, pipeline, report) for report in unsent
            ]  # all: one channel that is away keeps back none
        if failed := [why for _, whys in answers for why in whys]:
            raise NOTICE_UNDELIVERED.retryable(
                f"pipeline {self.pipeline}: the report of new dead letters is kept, but did not reach all channels: "
                + "; ".join(failed)
            )
        return _facts(next((report for report, _ in answers if report.name == shown.name), shown))


def _say(run: Any, summary: str) -> None:
    """Write a line to the log and the run's note, since Airflow does not show why a task was skipped."""
    from frazil_airflow.outputs.run_summary import write_note

    _log.info("%s", summary)
    write_note(run, summary)


def _send_report(project: Project, pipeline: Pipeline, report: KeptReport) -> tuple[KeptReport, list[str]]:
    """Send the report to channels that have not received it. Returns the report with the channels noted, and a line per
    failed channel.
    """
    from frazil.alerts.notice import letters_notice
    from frazil.report.letter_reports import note_told, open_report
    from frazil_airflow.alerts.channels import send, told_channels

    link = f"{conf.get('api', 'base_url', fallback='').rstrip('/')}{report_address(pipeline.name, report.name)}"
    notice = letters_notice(pipeline, report, open_report(project, pipeline, report.name), link)
    answers = send(
        project, notice, [channel for channel in told_channels(project, notice) if channel not in report.told_channels]
    )
    failed = {channel: why for channel, why in answers.items() if why is not None}
    done = [channel for channel in answers if channel not in failed]
    updated_report = note_told(project, pipeline, report, done, None if failed else datetime.now(UTC))
    if not failed:
        _log.info(
            "report %s: notified %s",
            report.name,
            ", ".join(updated_report.told_channels) or "nobody, no channel is to be",
        )
    return updated_report, [f"report {report.name}, {channel}: {why}" for channel, why in sorted(failed.items())]


def _sentence(report: KeptReport) -> str:
    from frazil.report.dead_letters_page import counted

    codes: dict[str, int] = {}
    for group in report.groups:
        codes[group.code] = codes.get(group.code, 0) + group.count
    by_code = ", ".join(f"{code} {count:,}" for code, count in codes.items())
    home = f", {report.came_home:,} came home meanwhile" if report.came_home else ""
    due = "" if report.is_due else "; below the threshold, nobody is told"
    return (
        f"{counted(report.count)} new ({by_code or 'none'}), {report.open:,} open, {report.before:,} in the period before{home};"
        f" batches {report.after + 1} to {report.through}, report {report.name}{due}"
    )


def _nothing_new(reports: list[KeptReport]) -> str:
    last = (
        f"the last report, {reports[0].name}, told those up to batch {reports[0].through}"
        if reports
        else "there never were any"
    )
    return f"no new dead letters: {last}"


def _facts(report: KeptReport) -> dict[str, Any]:
    body = report.to_body()
    return {name: field.isoformat() if isinstance(field, datetime) else field for name, field in body.items()}


REPORT_TIMEOUT = timedelta(minutes=30)
"""Bounds reading codes and places of the new letters and of those before: a second or two, of millions a minute."""

RUN_TIMEOUT = timedelta(hours=2)
"""Bounds a whole run with all tries."""


def letter_dag(project: Project, pipeline: Pipeline) -> DAG | None:
    """Make the report DAG of a pipeline, if its file wants one."""
    reporting = pipeline.dead_letters.report
    if reporting is False:
        return None
    schedule = reporting.schedule
    with DAG(
        f"{REPORT}{pipeline.name}",
        description=f"Reports new dead letters of {pipeline.name}",
        doc_md=_doc(pipeline, schedule),
        schedule=timetable(parse_interval(schedule)),
        dagrun_timeout=RUN_TIMEOUT,
        **dag_arguments("dead_letters", pipeline, project=project, forgets=True),
    ) as dag:
        LetterReportOperator(
            task_id="report",
            pipeline=pipeline.name,
            doc_md="Sums up what is new since the last report, keeps it, tells people. Nothing new: it is skipped.",
            max_active_tis_per_dag=1,
            execution_timeout=REPORT_TIMEOUT,
        )
    return dag


def _doc(pipeline: Pipeline, schedule: str) -> str:
    return f"""### Dead letters of {pipeline.name}

Looks every `{schedule}` (UTC) for dead letters of batches that finished since the last report: how many by code and topic,
against the period before, with samples. Nothing new: no report. Cleared, or started twice, it tells no letter again.

```
frazil dead-letters list {pipeline.name}
frazil dead-letters report {pipeline.name} --since 7d
```

`{pipeline.dead_letters_table}` holds the letters; DAG `{REPLAY}{pipeline.name}` lands those that are good now.
"""
